//! The heaviest policies that may be written, shape by shape, each with what is dearest to decide under it.
//!
//! Ten thousand entries, and as much about one name or one address as one policy may say, arranged so that every index
//! helps least. For the bench, and for the test that bounds what it measures.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netpolicy::addr::AddressBook;
use netpolicy::decide::{
    Answers, Connect, Destination, Direction, Evidence, Ground, Heard, Intent, LayerKind,
    OwnListeners, Snapshot, decide_bytes, decide_connect,
};
use netpolicy::ids::UnixSeconds;
use netpolicy::name::{Host, Name};
use netpolicy::policy::Protocol;

/// Entries of one policy.
const ENTRIES: usize = 10_000;
/// What may be said about one name or one address.
const ON_ONE: usize = 256;
const NOW: UnixSeconds = UnixSeconds(0);

/// A policy, and a flow under it.
pub struct Shape {
    /// What is many.
    pub name: &'static str,
    snapshot: Snapshot,
    intent: Intent,
    /// First bytes that are judged after the connect is permitted.
    evidence: Option<Evidence>,
}

impl Shape {
    fn new(name: &'static str, body: &str, intent: Intent) -> Self {
        let text = format!("policy: heavy\nnetwork: domains\nprivate: true\n{body}");
        let policy = netpolicy::document::parse("heavy.yml", &text, None)
            .unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}"));
        let snapshot = Snapshot::new(
            vec![(LayerKind::Job, Arc::new(policy))],
            Arc::new(AddressBook::default()),
            Arc::new(OwnListeners::default()),
        );
        Self {
            name,
            snapshot,
            intent,
            evidence: None,
        }
    }

    /// How long one decision about a connect takes, measured over so many.
    pub fn connect(&self, rounds: u32) -> Duration {
        let started = Instant::now();
        for _ in 0..rounds {
            let intent = std::hint::black_box(&self.intent);
            std::hint::black_box(decide_connect(&self.snapshot, intent, NOW));
        }
        started.elapsed() / rounds
    }

    /// The same for the first bytes, where there are some.
    pub fn bytes(&self, rounds: u32) -> Option<Duration> {
        let evidence = self.evidence.as_ref()?;
        let ground = self.ground();
        let started = Instant::now();
        for _ in 0..rounds {
            let evidence = std::hint::black_box(evidence);
            let _ = std::hint::black_box(decide_bytes(&self.snapshot, &ground, evidence, NOW));
        }
        Some(started.elapsed() / rounds)
    }

    fn ground(&self) -> Ground {
        match decide_connect(&self.snapshot, &self.intent, NOW) {
            Connect::Dial(permit) => permit.ground().clone(),
            other => panic!("{}: {other:?}", self.name),
        }
    }

    fn judging(self, evidence: Evidence) -> Self {
        Self {
            evidence: Some(evidence),
            ..self
        }
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn flow(port: u16, to: Destination) -> Intent {
    Intent {
        direction: Direction::Egress,
        protocol: Protocol::Tcp,
        port,
        to,
    }
}

fn to_name(text: &str, port: u16) -> Intent {
    let addresses: Vec<IpAddr> = vec![[93, 184, 216, 34].into()];
    let answers = Some(Answers::from(addresses));
    let name = name(text);
    flow(port, Destination::Name { name, answers })
}

fn to_address(text: &str, port: u16) -> Intent {
    let to = Destination::Address {
        address: text.parse().expect("an address"),
        bound: Vec::new(),
        heard: Heard::NotYet,
    };
    flow(port, to)
}

/// Entries that concern nobody here, until the policy is full.
fn filled(mut list: String, entries: usize) -> String {
    for number in entries..ENTRIES {
        let _ = writeln!(list, "  - {{ host: h{number}.example.com }}");
    }
    list
}

fn list<I: Iterator<Item = String>>(key: &str, entries: I) -> String {
    entries.fold(format!("{key}:\n"), |text, entry| {
        format!("{text}  - {{ {entry} }}\n")
    })
}

/// Every shape.
pub fn shapes() -> Vec<Shape> {
    let tls = |text: &str| Evidence::Tls {
        name: Some(name(text)),
    };
    vec![
        Shape::new(
            "wildcards",
            &list(
                "allow",
                (0..ENTRIES).map(|n| format!("host: '*.w{n}.example.net'")),
            ),
            to_name("a.b.w9999.example.net", 443),
        ),
        deep_wildcards().judging(tls(&deep())),
        Shape::new(
            "entries of one host",
            &one_host(),
            to_name("one.example.net", 8_000 + 255),
        )
        .judging(Evidence::Opaque),
        Shape::new(
            "ranges of one host",
            &filled(
                format!(
                    "allow:\n  - {{ host: one.example.net, ports: [{}], speaks: any }}\n",
                    ports()
                ),
                1,
            ),
            to_name("one.example.net", 10_000 + 510),
        )
        .judging(tls("one.example.net")),
        Shape::new(
            "denials of one host on other ports",
            &format!(
                "{}{}",
                list(
                    "deny",
                    (1..=ON_ONE).map(|n| format!("host: one.example.net, ports: [{n}]"))
                ),
                filled(
                    "allow:\n  - { host: one.example.net, ports: [9000], speaks: any }\n".into(),
                    ON_ONE + 1
                )
            ),
            to_name("one.example.net", 9_000),
        )
        .judging(tls("one.example.net")),
        nested("nested prefixes", "93.184.216.34", 32, 7),
        nested("nested prefixes of IPv6", "2606:2800:220:1::1", 128, 1),
        Shape::new(
            "prefixes side by side",
            &list(
                "allow",
                (0..ENTRIES)
                    .map(|n| format!("cidr: 93.{}.{}.0/24, ports: [443]", n / 256, n % 256)),
            ),
            to_address("93.30.216.34", 443),
        ),
        Shape::new(
            "prefixes of special ranges",
            &filled(
                list(
                    "allow",
                    (0..ON_ONE).map(|n| format!("cidr: 198.51.100.0/24, ports: [{}]", n + 1)),
                ),
                ON_ONE,
            ),
            to_address("198.51.100.7", 255),
        ),
        named_set(),
        requests(),
    ]
}

fn ports() -> String {
    let ports: Vec<String> = (0..ON_ONE).map(|n| (10_000 + 2 * n).to_string()).collect();
    ports.join(", ")
}

fn one_host() -> String {
    let ports =
        (0..ON_ONE).map(|n| format!("host: one.example.net, ports: [{}], speaks: any", 8_000 + n));
    filled(list("allow", ports), ON_ONE)
}

/// As many labels as a name can have.
fn deep() -> String {
    let labels = ["a"; 120].join(".");
    format!("{labels}.net")
}

/// A wildcard above every label.
fn deep_wildcards() -> Shape {
    let name = deep();
    let wild = |n: usize| format!("host: '*.{}.net', speaks: tls", ["a"; 119][..=n].join("."));
    let body = filled(list("allow", (0..119).map(wild)), 119);
    Shape::new("wildcards above each other", &body, to_name(&name, 443))
}

/// Prefixes that hold each other and the address, permitted on its port by the widest and denied on others by all.
fn nested(what: &'static str, address: &str, bits: usize, each: usize) -> Shape {
    let nets = |port: usize| {
        (0..=bits).flat_map(move |length| {
            (0..each)
                .map(move |n| (length, port + n))
                .collect::<Vec<_>>()
        })
    };
    let entry = |(length, port): (usize, usize)| {
        format!(
            "cidr: '{}/{length}', ports: [{port}]",
            network(address, length)
        )
    };
    let entries = 2 * (bits + 1) * each;
    let allow = filled(list("allow", nets(443).map(entry)), entries);
    let body = format!("{}{allow}", list("deny", nets(8_000).map(entry)));
    Shape::new(what, &body, to_address(address, 443))
}

/// The first address of a prefix.
fn network(address: &str, length: usize) -> IpAddr {
    match address.parse().expect("an address") {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::try_from(length).expect("a length"));
            IpAddr::from((u32::from(ip) & mask.unwrap_or(0)).to_be_bytes())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::try_from(length).expect("a length"));
            IpAddr::from((u128::from(ip) & mask.unwrap_or(0)).to_be_bytes())
        }
    }
}

/// The same hosts by a set of the author's own, many times.
fn named_set() -> Shape {
    let mut body = String::from("sets:\n  mine:\n");
    for number in 0..ENTRIES {
        let _ = writeln!(
            body,
            "    - {{ host: s{number}.example.org, ports: [443, 8000-8999] }}"
        );
    }
    body.push_str("use: [mine]\n");
    Shape::new("a named set", &body, to_name("s9999.example.org", 8_500))
}

/// Requests of one host, the last of which is meant.
fn requests() -> Shape {
    let path = |n: usize| format!("{{ methods: [GET], paths: ['/**/a*b*{n}/**'] }}");
    let http: Vec<String> = (0..ON_ONE - 2).map(path).collect();
    let entry = format!(
        "allow:\n  - {{ host: one.example.net, ports: [80], http: [{}] }}\n",
        http.join(", ")
    );
    let shape = Shape::new(
        "requests of one host",
        &filled(entry, 1),
        to_name("one.example.net", 80),
    );
    shape.judging(Evidence::Http {
        host: Some(Host::Name(name("one.example.net"))),
        port: None,
        method: "GET".to_owned(),
        path: format!("/{}", ["segment"; 12].join("/")),
    })
}
