//! Decisions in one line each: a policy in short form, a question, and the outcome as a word.

mod addresses;
mod aliases;
mod bytes;
mod cost;
mod echo;
mod heard;
mod layers;
mod lookups;
mod names;
mod properties;

use std::net::IpAddr;
use std::sync::Arc;

use super::*;
use crate::addr::AddressBook;
use crate::ids::UnixSeconds;
use crate::policy::Policy;

/// 2026-11-29, a moment before the end of that day.
pub(super) const NOW: UnixSeconds = UnixSeconds(1_795_996_799);

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A policy from the lines after `policy:`.
pub(super) fn policy(file: &str, body: &str) -> Arc<Policy> {
    let text = format!("policy: {file}\n{body}\n");
    match crate::document::parse(file, &text, None) {
        Ok(policy) => Arc::new(policy),
        Err(mistakes) => panic!("{text}\n{mistakes:#?}"),
    }
}

/// The machine of these tests: pools, one host address, a LAN with global IPv6, a learnt NAT64 prefix.
pub(super) fn book() -> Arc<AddressBook> {
    Arc::new(AddressBook {
        gateway: vec![
            "198.18.0.0/15".parse().unwrap(),
            "fd5a:1::/48".parse().unwrap(),
        ],
        host: vec![ip("93.184.216.1"), ip("192.168.7.1")],
        local: vec![
            "192.168.7.0/24".parse().unwrap(),
            "2001:4860:1::/64".parse().unwrap(),
        ],
        nat64: vec![],
        metadata: vec![],
    })
}

pub(super) fn own() -> Arc<OwnListeners> {
    Arc::new(OwnListeners {
        ports: vec![7070],
        names: vec![name("console.example.net")],
    })
}

pub(super) fn layers(all: &[(LayerKind, &str)]) -> Snapshot {
    let all = all
        .iter()
        .map(|(kind, body)| (*kind, policy(kind.word(), body)))
        .collect();
    Snapshot::new(all, book(), own())
}

pub(super) fn job(body: &str) -> Snapshot {
    layers(&[(LayerKind::Job, body)])
}

/// One question, written as a chain.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) intent: Intent,
    pub(super) now: UnixSeconds,
}

/// To a name; not looked up yet.
pub(super) fn to(text: &str, port: u16) -> Ask {
    let to = match text.parse::<IpAddr>() {
        Ok(address) => Destination::Address {
            address,
            bound: vec![],
            heard: Heard::NotYet,
        },
        Err(_) => Destination::Name {
            name: name(text),
            answers: None,
        },
    };
    Ask {
        intent: Intent {
            direction: Direction::Egress,
            protocol: Protocol::Tcp,
            port,
            to,
        },
        now: NOW,
    }
}

impl Ask {
    pub(super) fn udp(mut self) -> Self {
        self.intent.protocol = Protocol::Udp;
        self
    }

    /// As the echo door asks: without a port, and nothing will be heard.
    pub(super) fn echo(mut self) -> Self {
        self.intent.protocol = Protocol::Icmp;
        self.intent.port = 0;
        self.heard_nothing()
    }

    pub(super) fn ingress(mut self) -> Self {
        self.intent.direction = Direction::Ingress;
        self
    }

    pub(super) fn at(mut self, now: i64) -> Self {
        self.now = UnixSeconds(now);
        self
    }

    /// What the resolver said.
    pub(super) fn answers(mut self, all: &[&str]) -> Self {
        if let Destination::Name { answers, .. } = &mut self.intent.to {
            *answers = Some(all.iter().map(|text| ip(text)).collect());
        }
        self
    }

    pub(super) fn bound(mut self, names: &[&str]) -> Self {
        if let Destination::Address { bound, .. } = &mut self.intent.to {
            *bound = names.iter().map(|text| name(text)).collect();
        }
        self
    }

    pub(super) fn heard(mut self, text: &str, found: Option<&[&str]>) -> Self {
        if let Destination::Address { heard, .. } = &mut self.intent.to {
            let answers = found.map(|all| all.iter().map(|text| ip(text)).collect());
            *heard = Heard::Name {
                name: name(text),
                answers,
            };
        }
        self
    }

    pub(super) fn heard_nothing(mut self) -> Self {
        if let Destination::Address { heard, .. } = &mut self.intent.to {
            *heard = Heard::Nothing;
        }
        self
    }

    /// The outcome in words: `dial ADDRESSES SPEAKS [as NAME]`, `look up`, `hear SPEAKS`, `REASON [@LAYER:LINE]`.
    pub(super) fn on(&self, s: &Snapshot) -> String {
        match decide_connect(s, &self.intent, self.now) {
            Connect::Dial(permit) => {
                let addresses: Vec<String> =
                    permit.addresses().iter().map(ToString::to_string).collect();
                let ground = permit.ground();
                let name = ground
                    .name()
                    .map(|name| format!(" as {name}"))
                    .unwrap_or_default();
                format!(
                    "dial {} {}{name}",
                    addresses.join(" "),
                    ground.speaks().word()
                )
            }
            Connect::LookUp(name) => format!("look up {name}"),
            Connect::Hear(speaks) => format!("hear {}", speaks.word()),
            Connect::Deny(denial) => words(&denial),
        }
    }

    pub(super) fn ground(&self, s: &Snapshot) -> Ground {
        match decide_connect(s, &self.intent, self.now) {
            Connect::Dial(permit) => permit.into_ground(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn words(denial: &Denial) -> String {
    match (&denial.layer, &denial.rule) {
        (Some(layer), Some(rule)) => format!("{} @{}:{}", denial.reason, layer.word(), rule.line),
        _ => denial.reason.code().to_owned(),
    }
}
