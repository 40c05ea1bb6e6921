//! Random policies and questions that meet each other, for the properties of lints, diff, replay and learn.

use std::sync::Arc;

use proptest::prelude::*;

use crate::addr::AddressBook;
use crate::decide::{LayerKind, OwnListeners, Snapshot};
use crate::explain::Question;
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::{Policy, Protocol};

/// 2026-11-29.
pub(crate) const NOW: UnixSeconds = UnixSeconds(1_795_996_799);

const NAMES: &[&str] = &[
    "a.com",
    "b.a.com",
    "c.b.a.com",
    "x.org",
    "co.uk",
    "acme.co.uk",
    "nas.local",
    "b.local",
    "printer",
    "home.arpa",
    "metadata.google.internal",
    "z.onion",
    "api.github.com",
];
const NETS: &[&str] = &[
    "8.8.8.8/32",
    "8.8.0.0/16",
    "8.0.0.0/7",
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "240.0.0.0/8",
    "240.1.0.0/16",
    "169.254.169.254/32",
    "192.168.7.0/24",
    "2606:4700::/32",
    "fd00::/8",
    "127.0.0.0/8",
];
const ADDRESSES: &[&str] = &[
    "8.8.8.8",
    "8.8.4.4",
    "9.9.9.9",
    "1.1.1.1",
    "10.0.0.1",
    "10.1.2.3",
    "192.168.7.1",
    "240.0.0.1",
    "240.1.0.1",
    "169.254.169.254",
    "127.0.0.1",
    "93.184.216.1",
    "2606:4700::1",
    "2a00::1",
    "fd00::1",
    "64:ff9b::808:808",
    "64:ff9b::a01:203",
    "::ffff:8.8.8.8",
];
const PORTS: &[u16] = &[22, 80, 443, 7070];

fn one_of(all: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(all)
}

/// One entry of `allow` or `deny` as a line.
fn entry(key: &'static str) -> impl Strategy<Value = String> {
    let host = (one_of(NAMES), any::<bool>()).prop_map(|(name, wild)| {
        (
            true,
            format!("host: '{}{name}'", if wild { "*." } else { "" }),
        )
    });
    let cidr = one_of(NETS).prop_map(|net| (false, format!("cidr: '{net}'")));
    let ports = one_of(&[
        "",
        "ports: any",
        "ports: [22]",
        "ports: [443]",
        "ports: [80, 443]",
        "ports: [1-100, 7070]",
    ]);
    let how = one_of(&[
        "",
        "",
        "speaks: any",
        "speaks: tls",
        "protocol: udp",
        "protocol: icmp",
        "until: 2020-01-01",
        "until: 2030-01-01",
        "http: [{ methods: [GET] }]",
        "http: [{ methods: [GET] }, { methods: [POST], paths: [/up/**] }]",
    ]);
    (prop_oneof![3 => host, 2 => cidr], ports, how).prop_map(move |((is_host, to), ports, how)| {
        let ports = if how == "protocol: icmp" {
            ""
        } else if ports.is_empty() && !is_host && key == "allow" {
            "ports: any"
        } else {
            ports
        };
        let fits = match key {
            "deny" => how.starts_with("protocol"),
            _ => is_host || !how.starts_with("http"),
        };
        let parts: Vec<&str> = [to.as_str(), ports, if fits { how } else { "" }]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        format!("  - {{ {} }}\n", parts.join(", "))
    })
}

/// A policy as lines, so that it can be shuffled, shortened and printed.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) head: String,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
}

impl Draft {
    /// The document.
    pub(crate) fn text(&self) -> String {
        format!("policy: p\n{}", self.body())
    }

    /// The document without its first line.
    pub(crate) fn body(&self) -> String {
        let list = |key: &str, entries: &[String]| {
            if entries.is_empty() {
                String::new()
            } else {
                format!("{key}:\n{}", entries.concat())
            }
        };
        format!(
            "{}{}{}",
            self.head,
            list("allow", &self.allow),
            list("deny", &self.deny)
        )
    }

    /// Its meaning.
    pub(crate) fn policy(&self) -> Policy {
        policy("p.yaml", &self.text())
    }
}

/// A document's meaning.
pub(crate) fn policy(file: &str, text: &str) -> Policy {
    match crate::document::parse(file, text, None) {
        Ok(policy) => policy,
        Err(mistakes) => panic!("{text}\n{mistakes:#?}"),
    }
}

/// Random policies.
pub(crate) fn draft() -> impl Strategy<Value = Draft> {
    let modes = one_of(&[
        "none", "domains", "domains", "domains", "domains", "internet", "internet",
    ]);
    let head = (modes, any::<bool>(), any::<bool>()).prop_map(|(network, private, ask)| {
        let unknown = if ask { "ask" } else { "deny" };
        format!("network: {network}\nprivate: {private}\nunknown: {unknown}\n")
    });
    (
        head,
        prop::collection::vec(entry("allow"), 0..7),
        prop::collection::vec(entry("deny"), 0..4),
    )
        .prop_map(|(head, allow, deny)| Draft { head, allow, deny })
}

/// A snapshot over policies on a machine with a LAN and an address of its own.
pub(crate) fn snapshot(layers: Vec<(LayerKind, Policy)>) -> Snapshot {
    let book = AddressBook {
        gateway: vec!["198.18.0.0/15".parse().unwrap()],
        host: vec!["93.184.216.1".parse().unwrap()],
        ..AddressBook::default()
    };
    let layers = layers
        .into_iter()
        .map(|(kind, policy)| (kind, Arc::new(policy)))
        .collect();
    Snapshot::new(layers, Arc::new(book), Arc::new(OwnListeners::default()))
}

/// A snapshot of one policy.
pub(crate) fn job(policy: Policy) -> Snapshot {
    snapshot(vec![(LayerKind::Job, policy)])
}

fn name() -> impl Strategy<Value = Name> {
    let below = prop_oneof![3 => Just(""), 1 => Just("w."), 1 => Just("v.w.")];
    (below, one_of(NAMES)).prop_map(|(below, name)| Name::parse(&format!("{below}{name}")).unwrap())
}

fn address() -> impl Strategy<Value = std::net::IpAddr> {
    one_of(ADDRESSES).prop_map(|text| text.parse().unwrap())
}

/// Random questions about what the policies name, and near it.
pub(crate) fn question() -> impl Strategy<Value = Question> {
    let to = prop_oneof![2 => name().prop_map(Host::Name), 1 => address().prop_map(Host::Address)];
    let port = prop_oneof![4 => prop::sample::select(PORTS), 1 => 1_u16..];
    let request = prop_oneof![
        3 => Just(None), 1 => Just(Some(("GET", "/x"))), 1 => Just(Some(("POST", "/up/a"))), 1 => Just(Some(("POST", "/b")))
    ];
    let heard = prop::option::weighted(0.3, name());
    (
        to,
        port,
        prop::sample::select(&Protocol::ALL[..]),
        prop::collection::vec(address(), 0..2),
        request,
        heard,
    )
        .prop_map(
            |(to, port, protocol, resolves_to, request, heard)| Question {
                resolves_to: if matches!(to, Host::Name(_)) {
                    resolves_to
                } else {
                    Vec::new()
                },
                sni: heard.filter(|_| matches!(to, Host::Address(_)) && protocol == Protocol::Tcp),
                method: request.map(|(method, _)| method.to_owned()),
                path: request.map(|(_, path)| path.to_owned()),
                ..Question::new(to, if protocol.has_ports() { port } else { 0 }, protocol)
            },
        )
}
