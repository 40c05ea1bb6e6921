//! From the checked tree to values. What does not fit its shape was reported before and is skipped here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netpolicy::addr::{parse_ip, parse_net};
use netpolicy::document::Mistakes;
use netpolicy::document::shape::whole;
use netpolicy::document::tree::{Node, Value};
use netpolicy::document::values::size;
use netpolicy::name::{Authority, Host, Name};

use super::{
    ControlUsers, EgressFilter, GatewayConfig, Management, PoolsConfig, Resolvers, Uplink,
};
use crate::kernel::Enforcement;
use crate::record::JournalConfig;
use crate::record::syslog::{self, Target};
use crate::resolve::Upstreams;
use crate::telemetry::{Endpoint, EndpointError};

/// Port of DNS.
const DNS: u16 = 53;
/// Port of syslog over UDP (RFC 5426).
const SYSLOG_PORT: u16 = 514;
/// A sandbox pool needs room for the service address and at least a few sandboxes; a lease pool for a budget of names.
const LONGEST_POOL: u8 = 28;

/// Builds the settings; mistakes that shapes cannot express are noted.
pub fn config(section: &Node, mistakes: &mut Mistakes) -> GatewayConfig {
    let path = |key: &str| section.field(key).and_then(Node::scalar).map(PathBuf::from);
    let defaults = GatewayConfig::default();
    let state_dir = path("state_dir").unwrap_or(defaults.state_dir);
    let run_dir = path("run_dir").unwrap_or(defaults.run_dir);
    let control = path("control").unwrap_or_else(|| run_dir.join("control.sock"));
    let management = section
        .field("management")
        .and_then(|node| node.field("listen"))
        .and_then(|node| listen(node, mistakes));
    let mut own_ports: Vec<u16> = own(section, "ports")
        .iter()
        .filter_map(|n| whole(n).and_then(|n| u16::try_from(n).ok()))
        .collect();
    if let Some(Management::Address(address)) = &management {
        // Loopback alone keeps sandboxes out; the floor says so for every other address of the machine too.
        own_ports.push(address.port());
    }
    let telemetry = section
        .field("telemetry")
        .and_then(|node| node.field("otlp"))
        .and_then(|node| collector(node, mistakes));
    GatewayConfig {
        management,
        telemetry,
        namespace: section
            .field("namespace")
            .and_then(Node::scalar)
            .map_or(defaults.namespace, str::to_owned),
        control,
        journal: journal(
            section.field("journal"),
            JournalConfig::under(&state_dir),
            mistakes,
        ),
        pools: pools(section.field("pools"), defaults.pools, mistakes),
        resolvers: section
            .field("resolvers")
            .map_or(Resolvers::System, |node| resolvers(node, mistakes)),
        host_addresses: list(section.field("host_addresses"), mistakes, address),
        local_networks: list(section.field("local_networks"), mistakes, net),
        metadata: list(section.field("metadata"), mistakes, net),
        uplink: if section.field("uplink").and_then(Node::scalar) == Some("this") {
            Uplink::This
        } else {
            Uplink::Host
        },
        egress_filter: match section.field("egress_filter").and_then(Node::scalar) {
            Some("auto") => EgressFilter::Auto,
            Some("off") => EgressFilter::Off,
            _ => EgressFilter::Required,
        },
        no_kernel_part: None,
        open_networks_accepted: false,
        floors: crate::policy::FloorFiles {
            instance: path("instance_floor"),
            workspaces: path("workspace_floors"),
        },
        networks_per_user: section
            .field("networks_per_user")
            .and_then(whole)
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(defaults.networks_per_user),
        control_users: section
            .field("control_users")
            .map_or_else(ControlUsers::default, |node| users(node, mistakes)),
        sources: crate::source::config::sources(section.field("sources"), mistakes),
        enforcement: enforcement(section),
        floods: floods(section.field("floods")),
        own: netpolicy::decide::OwnListeners {
            ports: own_ports,
            names: own(section, "names")
                .iter()
                .filter_map(|n| name(n, mistakes))
                .collect(),
        },
        selftest: selftest(section).unwrap_or(defaults.selftest),
        state_dir,
        run_dir,
    }
}

/// The grammar knows no other words.
fn enforcement(section: &Node) -> Enforcement {
    match section.field("enforcement").and_then(Node::scalar) {
        Some("nftables") => Enforcement::Nftables,
        Some("iptables") => Enforcement::Iptables,
        _ => Enforcement::Auto,
    }
}

fn selftest(section: &Node) -> Option<Duration> {
    let node = section.field("selftest")?.field("every")?;
    node.scalar().and_then(pause)
}

/// Whole minutes or hours, at most a day.
pub(super) fn pause(text: &str) -> Option<Duration> {
    let (number, minutes) = match (text.strip_suffix('m'), text.strip_suffix('h')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => return None,
    };
    if number.len() > 4 || number.starts_with('0') || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let minutes = number.parse::<u64>().ok()? * minutes;
    (1..=24 * 60)
        .contains(&minutes)
        .then(|| Duration::from_mins(minutes))
}

fn floods(node: Option<&Node>) -> netpolicy::ruleset::Limits {
    let defaults = netpolicy::ruleset::Limits::default();
    let rate = |key: &str| {
        node.and_then(|floods| floods.field(key))
            .and_then(whole)
            .and_then(|n| u32::try_from(n).ok())
    };
    netpolicy::ruleset::Limits {
        connects: rate("connects").unwrap_or(defaults.connects),
        questions: rate("questions").unwrap_or(defaults.questions),
        datagrams: rate("datagrams").unwrap_or(defaults.datagrams),
        echoes: rate("echoes").unwrap_or(defaults.echoes),
    }
}

fn own<'a>(section: &'a Node, key: &str) -> &'a [Node] {
    section
        .field("own_listeners")
        .and_then(|own| own.field(key))
        .map_or(&[], Node::items)
}

fn list<T>(
    node: Option<&Node>,
    mistakes: &mut Mistakes,
    read: fn(&Node, &mut Mistakes) -> Option<T>,
) -> Vec<T> {
    node.map_or(&[][..], Node::items)
        .iter()
        .filter_map(|item| read(item, mistakes))
        .collect()
}

/// A text, unless what stands here was reported as none.
fn text(node: &Node) -> Option<&str> {
    node.scalar()
        .filter(|text| !text.is_empty() && !node.is_null())
}

fn address(node: &Node, mistakes: &mut Mistakes) -> Option<IpAddr> {
    parse_ip(text(node)?)
        .map_err(|e| mistakes.add(&node.at, format!("{} is no address: {e}", node.what())))
        .ok()
}

fn net(node: &Node, mistakes: &mut Mistakes) -> Option<IpNet> {
    parse_net(text(node)?)
        .map_err(|e| mistakes.add(&node.at, format!("{} is no prefix: {e}", node.what())))
        .ok()
}

fn name(node: &Node, mistakes: &mut Mistakes) -> Option<Name> {
    Name::parse(text(node)?)
        .map_err(|e| mistakes.add(&node.at, format!("{} is no name: {e}", node.what())))
        .ok()
}

fn resolver(node: &Node, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    server(node, DNS, mistakes)
}

fn server(node: &Node, port: u16, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let text = text(node)?;
    if let Ok(address) = parse_ip(text) {
        return Some(SocketAddr::new(address, port));
    }
    match Authority::parse(text.as_bytes()) {
        Ok(Authority {
            host: Host::Address(address),
            port: said,
        }) => Some(SocketAddr::new(address, said.unwrap_or(port))),
        Ok(_) => {
            mistakes.hint(
                &node.at,
                format!("{} is a name", node.what()),
                "a server is named by its address",
            );
            None
        }
        Err(error) => {
            mistakes.add(&node.at, format!("{} is no server: {error}", node.what()));
            None
        }
    }
}

fn resolvers(node: &Node, mistakes: &mut Mistakes) -> Resolvers {
    if let Value::List(_) = node.value {
        return Resolvers::Fixed(Upstreams {
            default: list(Some(node), mistakes, resolver),
            domains: Vec::new(),
        });
    }
    let default = list(node.field("default"), mistakes, resolver);
    let mut domains = Vec::new();
    for entry in node.field("domains").map_or(&[][..], Node::entries) {
        let servers = list(Some(&entry.value), mistakes, resolver);
        match Name::parse(&entry.key) {
            Ok(apex) => domains.push((apex, servers)),
            Err(error) => mistakes.add(&entry.at, format!("{:?} is no domain: {error}", entry.key)),
        }
    }
    Resolvers::Fixed(Upstreams { default, domains })
}

fn pools(node: Option<&Node>, defaults: PoolsConfig, mistakes: &mut Mistakes) -> PoolsConfig {
    let Some(node) = node else { return defaults };
    let mut four = |key: &str, default: Ipv4Net| match node
        .field(key)
        .and_then(|n| Some((n, net(n, mistakes)?)))
    {
        None => default,
        Some((_, IpNet::V4(pool))) if pool.prefix_len() <= LONGEST_POOL => pool,
        Some((at, _)) => {
            mistakes.add(
                &at.at,
                format!("`{key}` is an IPv4 prefix of at most /{LONGEST_POOL}"),
            );
            default
        }
    };
    let sandboxes = four("sandboxes", defaults.sandboxes);
    let leases = four("leases", defaults.leases);
    if sandboxes.contains(&leases) || leases.contains(&sandboxes) {
        mistakes.hint(
            &node.at,
            format!("the pools {sandboxes} and {leases} overlap"),
            "give each an own prefix",
        );
    }
    let ula = node
        .field("ula")
        .and_then(|n| Some((n, net(n, mistakes)?)))
        .and_then(|(at, pool)| match pool {
            IpNet::V6(pool) if is_ula(pool) => Some(pool),
            _ => {
                mistakes.hint(
                    &at.at,
                    "`ula` is a /48 of fd00::/8 (RFC 4193)",
                    "such as fd12:3456:789a::/48",
                );
                None
            }
        });
    PoolsConfig {
        sandboxes,
        leases,
        ula,
    }
}

fn is_ula(pool: Ipv6Net) -> bool {
    pool.prefix_len() == 48 && pool.addr().octets().first() == Some(&0xfd)
}

fn users(node: &Node, mistakes: &mut Mistakes) -> ControlUsers {
    let mut group = |key: &str| -> BTreeSet<u32> {
        let items = node.field(key).map_or(&[][..], Node::items);
        items
            .iter()
            .filter_map(|item| uid(item, mistakes))
            .collect()
    };
    let mut observe = group("observe");
    let operate = group("operate");
    let attach_any = group("attach_any");
    let (mut attach, workspaces) = tenants(node, mistakes);
    attach.extend(operate.union(&attach_any));
    observe.extend(&attach);
    ControlUsers {
        observe,
        attach,
        workspaces,
        attach_any,
        operate,
    }
}

/// Who may attach, and in which workspaces only. Whoever is named with workspaces anywhere is bound to them.
fn tenants(
    node: &Node,
    mistakes: &mut Mistakes,
) -> (BTreeSet<u32>, BTreeMap<u32, BTreeSet<String>>) {
    let (mut all, mut bound) = (BTreeSet::new(), BTreeMap::<u32, BTreeSet<String>>::new());
    for item in node.field("attach").map_or(&[][..], Node::items) {
        let user = item.field("user");
        let Some(uid) = uid(user.unwrap_or(item), mistakes) else {
            continue;
        };
        all.insert(uid);
        if user.is_some() {
            let names = item.field("workspaces").map_or(&[][..], Node::items);
            let names = names.iter().filter_map(text).map(str::to_owned);
            bound.entry(uid).or_default().extend(names);
        }
    }
    (all, bound)
}

fn uid(node: &Node, mistakes: &mut Mistakes) -> Option<u32> {
    if let Some(number) = whole(node) {
        return u32::try_from(number).ok();
    }
    let name = text(node)?;
    if let Ok(Some(user)) = nix::unistd::User::from_name(name) {
        return Some(user.uid.as_raw());
    }
    mistakes.add(
        &node.at,
        format!("this machine has no user {}", node.what()),
    );
    None
}

fn journal(
    node: Option<&Node>,
    mut journal: JournalConfig,
    mistakes: &mut Mistakes,
) -> JournalConfig {
    let Some(node) = node else { return journal };
    let bytes = |key: &str| node.field(key).and_then(Node::scalar).and_then(size);
    if let Some(days) = node
        .field("days")
        .and_then(whole)
        .and_then(|n| i64::try_from(n).ok())
    {
        journal.keep_ms = days.saturating_mul(24 * 3600 * 1000);
    }
    if let Some(size) = bytes("size") {
        journal.keep_bytes = size;
        // The same tenth as in the default.
        journal.network_bytes = size / 10;
        journal.network_entries = size / 10 / 1024;
    }
    if let Some(segment) = bytes("segment") {
        journal.segment_bytes = segment;
    }
    if let Some(anchors) = node.field("anchors").and_then(Node::scalar) {
        journal.anchors = anchors.into();
    }
    journal.syslog = node.field("syslog").and_then(|node| syslog(node, mistakes));
    journal
}

fn collector(node: &Node, mistakes: &mut Mistakes) -> Option<Endpoint> {
    text(node)?
        .parse()
        .map_err(|e: EndpointError| {
            mistakes.add(&node.at, format!("{} is no collector: {e}", node.what()));
        })
        .ok()
}

fn listen(node: &Node, mistakes: &mut Mistakes) -> Option<Management> {
    let said = text(node)?;
    if said.starts_with('/') && said.len() <= 107 && !said.contains('\0') {
        return Some(Management::Socket(said.into()));
    }
    match said.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() && address.port() != 0 => {
            Some(Management::Address(address))
        }
        _ => {
            mistakes.hint(
                &node.at,
                format!("{} is no loopback address with a port", node.what()),
                "such as 127.0.0.1:9466; for other machines put a server that knows who asks before it",
            );
            None
        }
    }
}

fn syslog(node: &Node, mistakes: &mut Mistakes) -> Option<Target> {
    match text(node)? {
        "local" => Some(Target::Socket(syslog::LOCAL.into())),
        // `sun_path` of unix(7)
        path if path.starts_with('/') && path.len() <= 107 && !path.contains('\0') => {
            Some(Target::Socket(path.into()))
        }
        _ => server(node, SYSLOG_PORT, mistakes).map(Target::Server),
    }
}
