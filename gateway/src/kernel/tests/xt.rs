//! Rules that go through iptables: read back as asked, every kind of tampering noticed and repaired, nothing of the other
//! kind left behind. What packets meet is tested with the rest of this module, which runs once more on these rules.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netpolicy::ruleset::Queue;
use nix::sched::{CloneFlags, setns};
use rustix::fs::FlockOperation;

use super::lab::{LIMIT, Lab, fresh_ns};
use super::shapes::{Four, Six, segment, send, wire};
use crate::kernel::backend::{Backend, Enforcement, Rules};
use crate::kernel::enforcer::{Config, Enforcer, Posture};
use crate::kernel::error::KernelError;
use crate::kernel::monitor::{Change, Monitor};
use crate::kernel::netns::Ns;
use crate::kernel::sockets::Doors;
use crate::kernel::xt::Xtables;
use crate::kernel::xt::programs::Programs;

/// What all programs of iptables on a machine share.
const LOCK: &str = "/run/xtables.lock";

impl Lab {
    fn iptables(&self, program: &str, words: &str) {
        let mut words: Vec<&str> = words.split(' ').collect();
        if program.ends_with("-legacy") {
            // whoever else holds the lock on this machine lets go of it
            words.push("-w");
        }
        let out = self.exec(program, &words);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {words:?}: {said}");
    }

    fn again(&self, enforcement: Enforcement) -> Enforcer {
        Enforcer::open(Config {
            enforcement,
            ..self.enforcer.config().clone()
        })
        .unwrap()
    }
}

#[test]
fn applied_tables_read_back_as_asked() {
    let lab = Lab::of_iptables();
    let verified = || lab.enforcer.verify().unwrap();
    assert_eq!(lab.enforcer.backend(), Backend::Iptables);
    assert_ne!(lab.enforcer.queue(), Queue::None);
    assert_eq!(verified(), Ok(()));
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandboxes = [lab.sandbox(0), lab.sandbox(1), lab.sandbox(2)];
    assert_eq!(verified(), Ok(()));
    lab.enforcer
        .detach(&"sp1".parse().unwrap())
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(verified(), Ok(()));
    lab.enforcer.apply(Posture::Sealed).unwrap();
    assert_eq!(verified(), Ok(()));
    let text = lab.enforcer.rules_text();
    assert!(
        text.starts_with("# enforcement: iptables\n# IPv6\n"),
        "{text}"
    );
    assert!(
        text.contains("-A source4 -s 198.18.0.2/32 -i sp0 -j RETURN"),
        "{text}"
    );
    assert!(!text.contains("-i sp1 "), "{text}");
}

#[test]
fn tampering_with_tables_is_noticed_and_repaired() {
    let lab = Lab::of_iptables();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandbox = lab.sandbox(0);
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        for tampering in [
            "-t raw -F",
            "-t mangle -F PREROUTING",
            "-t raw -P PREROUTING ACCEPT",
            "-P FORWARD ACCEPT",
            "-P OUTPUT ACCEPT",
            "-I FORWARD -j ACCEPT",
            "-t raw -I PREROUTING -j ACCEPT",
            "-t raw -N extra",
            "-t raw -D PREROUTING 1",
            "-t mangle -R to_door 1 -p tcp -j TPROXY --on-port 9041 --tproxy-mark 1",
            "-t nat -A PREROUTING -j RETURN",
            "-t security -P INPUT DROP",
        ] {
            let what = format!("{program} {tampering}");
            assert_eq!(lab.enforcer.verify().unwrap(), Ok(()), "before {what}");
            lab.iptables(program, tampering);
            assert!(
                lab.enforcer.verify().unwrap().is_err(),
                "{what} went unnoticed"
            );
            match tampering.split(' ').nth(1) {
                Some("nat") => lab.iptables(program, "-t nat -F"),
                Some("security") => lab.iptables(program, "-t security -P INPUT ACCEPT"),
                _ => {}
            }
            lab.enforcer.repair().unwrap();
        }
    }
    lab.iptables("sysctl", "-qw net.ipv4.ipfrag_high_thresh=100000");
    assert!(
        lab.enforcer.verify().unwrap().is_err(),
        "reassembly went unnoticed"
    );
    lab.enforcer.repair().unwrap();
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}

#[test]
fn a_network_is_let_in_and_shut_out_whatever_others_did_to_the_tables() {
    let lab = Lab::of_iptables();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandboxes = [lab.sandbox(0), lab.sandbox(1)];
    lab.iptables("iptables-legacy", "-t raw -F source4");
    let removal = lab.enforcer.detach(&"sp0".parse().unwrap()).unwrap();
    assert_eq!(
        lab.enforcer.verify().unwrap(),
        Ok(()),
        "the rest is as asked"
    );
    removal.finish().unwrap();
    lab.iptables("ip6tables-legacy", "-t raw -F");
    lab.iptables("ip6tables-legacy", "-t raw -X");
    let refused = lab.attach(3, fresh_ns());
    assert!(refused.is_err(), "half of a network is none");
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    let _after = lab.sandbox(4);
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}

#[test]
fn members_of_a_group_are_refused_with_the_reason_and_leave_no_link() {
    let lab = Lab::of_iptables();
    let refused = lab.try_member(0, "web").unwrap_err();
    assert!(matches!(refused, KernelError::NeedsNftables), "{refused}");
    assert!(refused.to_string().contains("needs nf_tables"));
    assert!(lab.enforcer.live_links().unwrap().is_empty());
    let _alone = lab.sandbox(1);
}

#[test]
fn a_gateway_of_the_other_kind_takes_everything_over_and_leaves_nothing() {
    let lab = Lab::of_iptables();
    let _sandbox = lab.sandbox(0);
    let legacy = |program| {
        let out = lab.exec(program, &[]);
        String::from_utf8(out.stdout).unwrap()
    };
    let tables = || String::from_utf8(lab.exec("nft", &["list", "tables"]).stdout).unwrap();
    let other = lab.again(Enforcement::Nftables);
    assert_eq!(other.verify().unwrap().map_err(|m| m.what), Ok(()));
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        let text = legacy(program);
        assert!(!text.contains("-A ") && !text.contains("DROP"), "{text}");
    }
    assert!(tables().contains("table inet sallyport"));
    let back = lab.again(Enforcement::Iptables);
    assert_eq!(back.verify().unwrap().map_err(|m| m.what), Ok(()));
    assert_eq!(tables(), "");
    assert!(legacy("ip6tables-legacy-save").contains(":PREROUTING DROP"));
}

#[test]
fn auto_takes_nf_tables_where_the_kernel_has_it() {
    let lab = Lab::of_iptables();
    assert_eq!(lab.again(Enforcement::Auto).backend(), Backend::Nftables);
}

#[test]
fn rules_of_the_other_kind_are_noticed_whoever_holds_the_rules() {
    let lab = Lab::of_iptables();
    let verified = |enforcer: &Enforcer| enforcer.verify().unwrap().map_err(|m| m.what);
    assert_eq!(verified(&lab.enforcer), Ok(()));
    for foreign in ["add table netdev other", "add table inet sallyport"] {
        lab.nft(foreign);
        assert_eq!(verified(&lab.enforcer), Err("tables of nf_tables".into()));
        lab.nft(&foreign.replace("add", "delete"));
        assert_eq!(verified(&lab.enforcer), Ok(()));
    }
    lab.iptables("iptables-nft", "-A FORWARD -j ACCEPT");
    assert!(verified(&lab.enforcer).is_err());
    lab.nft("flush ruleset");
    let other = lab.again(Enforcement::Nftables);
    assert_eq!(verified(&other), Ok(()));
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        for table in ["raw", "mangle", "filter", "nat"] {
            lab.iptables(program, &format!("-t {table} -A OUTPUT -j ACCEPT"));
            let found = verified(&other).unwrap_err();
            assert!(
                found.starts_with(&format!("table {table} of iptables")),
                "{found}"
            );
            lab.iptables(program, &format!("-t {table} -F"));
            assert_eq!(verified(&other), Ok(()));
        }
    }
}

#[test]
fn a_lock_that_another_program_holds_stops_nothing() {
    let lab = Lab::of_iptables();
    let lock = fs::File::open(LOCK).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandbox = lab.sandbox(0);
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    // the twin: a program that minds it finds it taken
    let refused = lab.exec("iptables-legacy", &["-w", "1", "-t", "raw", "-F"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
}

#[tokio::test]
async fn a_program_that_changes_tables_is_heard_at_once() {
    let lab = Lab::of_iptables();
    let monitor = Monitor::open(&lab.enforcer).unwrap();
    for (program, words, kind) in [
        ("iptables-legacy", "-t raw -F", Change::Programs),
        ("ip6tables-legacy", "-P FORWARD ACCEPT", Change::Programs),
        ("nft", "add table ip other", Change::Rules),
    ] {
        lab.iptables(program, words);
        let heard = async { while !monitor.changed().await.unwrap().contains(&kind) {} };
        let heard = tokio::time::timeout(LIMIT, heard).await;
        assert!(heard.is_ok(), "{program} {words}");
    }
}

/// Programs that work as those of this machine do, but for one.
fn programs(folder: &Path, failing: &str, script: &str) -> Programs {
    for family in ["iptables", "ip6tables"] {
        for act in ["restore", "save"] {
            let name = format!("{family}-legacy-{act}");
            let text = if name == failing {
                script.to_owned()
            } else {
                format!("exec /usr/sbin/{name} \"$@\"")
            };
            let file = folder.join(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    Programs::find_in(&[folder]).unwrap()
}

fn scratch(lab: &Lab) -> PathBuf {
    let folder = std::env::temp_dir().join(lab.name());
    fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn a_restore_that_fails_half_way_opens_nothing_and_is_told() {
    for failing in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        let lab = Lab::of_iptables();
        let folder = scratch(&lab);
        let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
        let sandbox = lab.sandbox(0);
        // everything but the table that holds first packets is of the new posture
        let script = format!(
            "sed '/^\\*raw/,$d' | /usr/sbin/{failing} \"$@\"; echo \"Couldn't load match u32\" >&2; exit 2"
        );
        let broken = Xtables::through(lab.enforcer.ns(), programs(&folder, failing, &script));
        let working = std::mem::replace(
            &mut lab.enforcer.state().firewall,
            Rules::Xt(broken.unwrap()),
        );
        let told = lab.enforcer.apply(Posture::Enforcing).unwrap_err();
        let why = std::error::Error::source(&told).unwrap().to_string();
        assert!(why.contains("load match u32"), "{why}");
        assert_eq!(lab.enforcer.posture(), Posture::Sealed);
        assert!(lab.enforcer.verify().unwrap().is_err());
        let wire = wire(&sandbox);
        let four = Four {
            protocol: 6,
            payload: segment(2),
            ..Four::question()
        };
        let six = Six {
            next: 6,
            payload: segment(2),
            ..Six::question()
        };
        let before = (lab.count("drop_spoofed"), lab.count("drop_other"));
        send(&wire, 0x0800, &four.bytes());
        send(&wire, 0x86dd, &six.bytes());
        for listener in &doors.tcp {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(before, (lab.count("drop_spoofed"), lab.count("drop_other")));
        lab.enforcer.state().firewall = working;
        lab.enforcer.apply(Posture::Sealed).unwrap();
        assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn tables_without_end_are_not_looked_through() {
    let (small, many, long) = (fresh_ns(), fresh_ns(), fresh_ns());
    for (ns, rule, count) in [
        (&small, "-j ACCEPT", 1),
        (&many, "-j ACCEPT", (1 << 18) + 1),
        (&long, "-m u32 --u32 \"0x0=0x0\" -j ACCEPT", 1 << 15),
    ] {
        let text = format!(
            "*filter\n:INPUT ACCEPT [0:0]\n{}COMMIT\n",
            format!("-A INPUT {rule}\n").repeat(count)
        );
        let ns = ns.try_clone().unwrap();
        let filled = std::thread::spawn(move || {
            setns(ns, CloneFlags::CLONE_NEWNET).unwrap();
            let mut child = Command::new("iptables-legacy-restore")
                .arg("-w")
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(text.as_bytes()).unwrap();
            drop(input);
            child.wait().unwrap()
        });
        assert!(filled.join().unwrap().success());
    }
    Ns::from_fd(small).unwrap().refuse_gateways().unwrap();
    for large in [many, long] {
        let refused = Ns::from_fd(large).unwrap().refuse_gateways().unwrap_err();
        assert!(matches!(refused, KernelError::Unusable(_)), "{refused}");
    }
}
