//! Settings of the gateway namespace, written and read back.
//!
//! A new namespace inherits: beside Docker it is born forwarding. So nothing is taken for granted, every value is
//! written for `all`, `default` and each interface, and verification reads every one again.
//! `/proc/sys/net` shows the namespace of the thread that looks; call these inside.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use netlink_packet_route::link::{Inet6DevConf, InetDevConf};

use super::error::{Act, KernelError, Mismatch};

/// Whether a kernel may lack a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Required,
    /// Newer than the oldest kernel supported, or part of a module that may not be loaded.
    IfThere,
}

type Setting = (&'static str, &'static str, Presence);

use Presence::{IfThere, Required};

/// Of the namespace.
const NAMESPACE: &[Setting] = &[
    ("ipv4/ip_forward", "0", Required),
    // Honest answers: with a limit, connects hang until the next SYN.
    ("ipv4/icmp_ratelimit", "0", Required),
    ("ipv6/icmp/ratelimit", "0", Required),
    // One shared bucket would let a scan in one sandbox thin out the answers of all.
    ("ipv4/icmp_msgs_per_sec", "100000", IfThere),
    ("ipv4/icmp_msgs_burst", "10000", IfThere),
    // Echo requests reach the echo door; the kernel would answer them for every address.
    ("ipv4/icmp_echo_ignore_all", "1", Required),
    ("ipv6/icmp/echo_ignore_all", "1", Required),
    // A reset carrying the verdict's mark would match the policy route.
    ("ipv4/fwmark_reflect", "0", Required),
    ("ipv6/fwmark_reflect", "0", Required),
    ("ipv4/tcp_fwmark_accept", "0", IfThere),
    ("ipv4/tcp_syncookies", "1", Required),
    ("core/somaxconn", "65535", Required),
    ("ipv4/tcp_max_syn_backlog", "65536", Required),
    // Fragments: reassembly has no memory, so each is dropped when it comes (the lower bound has to go first). Rules drop
    // them earlier where they can; tables of iptables stand behind it.
    ("ipv4/ipfrag_low_thresh", "0", IfThere),
    ("ipv4/ipfrag_high_thresh", "0", IfThere),
    ("ipv6/ip6frag_low_thresh", "0", IfThere),
    ("ipv6/ip6frag_high_thresh", "0", IfThere),
    ("netfilter/nf_conntrack_frag6_low_thresh", "0", IfThere),
    ("netfilter/nf_conntrack_frag6_high_thresh", "0", IfThere),
    // No frame of a bridged member may be filtered as if it were routed.
    ("bridge/bridge-nf-call-iptables", "0", IfThere),
    ("bridge/bridge-nf-call-ip6tables", "0", IfThere),
    ("bridge/bridge-nf-call-arptables", "0", IfThere),
];

/// Of each IPv4 interface. `rp_filter` is off because the source set does its work, exactly and for both families.
const IPV4: &[Setting] = &[
    ("forwarding", "0", Required),
    ("send_redirects", "0", Required),
    ("accept_redirects", "0", Required),
    ("accept_source_route", "0", Required),
    ("route_localnet", "0", Required),
    ("proxy_arp", "0", Required),
    ("arp_ignore", "1", Required),
    ("rp_filter", "0", Required),
];

/// Of each IPv6 interface.
const IPV6: &[Setting] = &[
    ("forwarding", "0", Required),
    ("accept_redirects", "0", Required),
    ("accept_source_route", "-1", Required),
    ("accept_ra", "0", Required),
    ("proxy_ndp", "0", Required),
    ("disable_ipv6", "0", Required),
];

/// Only for `default`: interfaces made later generate no link-local address and skip duplicate detection.
const IPV6_DEFAULT: &[Setting] = &[
    ("addr_gen_mode", "1", Required),
    ("accept_dad", "0", Required),
];

/// Writes everything, for the interfaces that exist and for those to come. Inside the namespace.
pub fn harden() -> Result<(), KernelError> {
    settings(&interfaces()?)
        .into_iter()
        .try_for_each(|(path, value, presence)| write(&path, value, presence))
}

/// The first setting of one interface that is not as written, as a link dump shows it: reading thousands of files
/// would take longer than everything else.
pub fn judge_link(four: &InetDevConf, six: &Inet6DevConf) -> Option<Mismatch> {
    let found = |name: &str, v4: bool| match (v4, name) {
        (true, "forwarding") => four.forwarding,
        (true, "send_redirects") => four.send_redirects,
        (true, "accept_redirects") => four.accept_redirects,
        (true, "accept_source_route") => four.accept_source_route,
        (true, "route_localnet") => four.route_localnet,
        (true, "proxy_arp") => four.proxy_arp,
        (true, "arp_ignore") => four.arp_ignore,
        (true, "rp_filter") => four.rp_filter,
        (false, "forwarding") => six.forwarding,
        (false, "accept_redirects") => six.accept_redirects,
        (false, "accept_source_route") => six.accept_source_route,
        (false, "accept_ra") => six.accept_ra,
        (false, "proxy_ndp") => six.proxy_ndp,
        (false, "disable_ipv6") => six.disable_ipv6,
        // A setting that is not in the dump differs from everything, so that it cannot be forgotten here.
        _ => i32::MIN,
    };
    let tables = [(IPV4, true), (IPV6, false)];
    tables.into_iter().find_map(|(table, v4)| {
        table.iter().find_map(|(name, value, _)| {
            let there = found(name, v4).to_string();
            (there != *value)
                .then(|| Mismatch::new(format!("setting {name} of a link"), value, there))
        })
    })
}

/// The first setting of the namespace, of `all` and of `default` that is not as written. Inside the namespace.
pub fn verify() -> Result<Option<Mismatch>, KernelError> {
    for (path, value, presence) in settings(&["all".into(), "default".into()]) {
        match fs::read_to_string(&path) {
            Ok(found) if found.trim() == value => {}
            Ok(found) => {
                return Ok(Some(Mismatch::new(
                    path.display().to_string(),
                    value,
                    found.trim(),
                )));
            }
            // An interface that went while we looked, or a setting that this kernel lacks.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let gone = !path.parent().is_some_and(Path::exists);
                if presence == Required && !gone {
                    return Ok(Some(Mismatch::new(
                        path.display().to_string(),
                        value,
                        "nothing",
                    )));
                }
            }
            Err(error) => return Err(error).act(format!("reading {}", path.display())),
        }
    }
    Ok(None)
}

/// What reassembly in front of the tables of iptables may hold.
const REASSEMBLY: [&str; 2] = [
    "ipv4/ipfrag_high_thresh",
    "netfilter/nf_conntrack_frag6_high_thresh",
];

/// Takes reassembly its memory away, as far as its settings are there yet. Inside the namespace.
pub fn keep_no_fragments() -> Result<(), KernelError> {
    NAMESPACE
        .iter()
        .filter(|(name, _, _)| name.contains("frag"))
        .try_for_each(|(name, value, presence)| write(&root(name), value, *presence))
}

/// Reassembly that may hold fragments, or that does not say whether it may: rules that stand behind it rely on it.
/// Inside the namespace.
pub fn keeps_fragments() -> Result<Option<Mismatch>, KernelError> {
    for name in REASSEMBLY {
        let path = root(name);
        let found = match fs::read_to_string(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => "nothing".to_owned(),
            Err(error) => return Err(error).act(format!("reading {}", path.display())),
        };
        if found.trim() != "0" {
            let what = path.display().to_string();
            return Ok(Some(Mismatch::new(what, 0, found.trim())));
        }
    }
    Ok(None)
}

/// Makes a namespace fit for a sandbox: the engine may have switched IPv6 off, for what is there and what comes.
/// Inside the sandbox's namespace, before its link is made.
pub fn open_sandbox() -> Result<(), KernelError> {
    for (path, value) in [
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        ("ipv6/conf/lo/disable_ipv6", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/addr_gen_mode", "1"),
    ] {
        write(&root(path), value, Required)?;
    }
    Ok(())
}

fn root(name: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(name)
}

/// Names under `conf`: `all`, `default` and one for each interface.
fn interfaces() -> Result<Vec<OsString>, KernelError> {
    let directory = root("ipv4/conf");
    let act = || format!("listing {}", directory.display());
    let entries = fs::read_dir(&directory).act(act())?;
    entries
        .map(|entry| Ok(entry.act(act())?.file_name()))
        .collect()
}

fn settings(interfaces: &[OsString]) -> Vec<(PathBuf, &'static str, Presence)> {
    let mut all: Vec<_> = NAMESPACE
        .iter()
        .map(|(name, value, presence)| (root(name), *value, *presence))
        .collect();
    for (family, table) in [("ipv4/conf", IPV4), ("ipv6/conf", IPV6)] {
        for interface in interfaces {
            let path = root(family).join(interface);
            all.extend(
                table
                    .iter()
                    .map(|(name, value, presence)| (path.join(name), *value, *presence)),
            );
        }
    }
    let default = root("ipv6/conf/default");
    all.extend(
        IPV6_DEFAULT
            .iter()
            .map(|(name, value, presence)| (default.join(name), *value, *presence)),
    );
    all
}

fn write(path: &Path, value: &str, presence: Presence) -> Result<(), KernelError> {
    match fs::write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let gone = !path.parent().is_some_and(Path::exists);
            if presence == IfThere || gone {
                Ok(())
            } else {
                Err(error).act(format!("writing {}", path.display()))
            }
        }
        // Some settings belong to the initial namespace on older kernels.
        Err(error) if presence == IfThere && error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(())
        }
        result => result.act(format!("writing {value} to {}", path.display())),
    }
}
