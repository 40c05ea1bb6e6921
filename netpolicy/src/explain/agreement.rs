//! An explanation and the decisions themselves, asked about the same destination under the same layers.
//!
//! What is asked of the decisions here is what the gateway's doors ask of them, step by step: decide, look up, hear, decide
//! again, judge the bytes. The doors are not here, so a door that asked otherwise would go unseen; their own tests are for
//! that.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{Draft, NOW, draft, policy, question, snapshot};
use crate::decide::{
    Answers, Connect, Denial, Destination, Direction, Evidence, Ground, Heard, Intent, Lookup,
    decide_bytes, decide_connect, decide_lookup, decide_unleased,
};
use crate::policy::Speaks;

/// More than a name and a heard name never has to be looked up or heard.
const MOST_STEPS: usize = 5;

/// Addresses that a name without supposed addresses may turn out to have: something of every kind that drafts name.
const SOMEWHERE: &[&str] = &[
    "8.8.8.8",
    "8.9.0.1",
    "9.9.9.9",
    "1.1.1.1",
    "93.184.216.34",
    "10.0.0.1",
    "10.1.2.3",
    "192.168.7.1",
    "2606:4700::1",
    "2a00::1",
    "fd00::1",
    "240.0.0.1",
    "240.1.0.1",
];

/// Connect and bytes as a door has them decided; the answers of the resolver are given.
fn decided(s: &Snapshot, q: &Question, answers: &Answers) -> Result<Ground, Denial> {
    let to = match &q.to {
        Host::Name(name) => Destination::Name {
            name: name.clone(),
            answers: None,
        },
        Host::Address(address) => Destination::Address {
            address: *address,
            bound: q.bound.clone(),
            heard: Heard::NotYet,
        },
    };
    let mut intent = Intent {
        direction: Direction::Egress,
        protocol: q.protocol,
        port: q.port,
        to,
    };
    for _ in 0..MOST_STEPS {
        match door(s, q, &intent) {
            Connect::Deny(denial) => return Err(denial),
            Connect::Dial(permit) => return bytes(s, q, permit.into_ground()),
            Connect::LookUp(_) => match &mut intent.to {
                Destination::Name { answers: said, .. }
                | Destination::Address {
                    heard: Heard::Name { answers: said, .. },
                    ..
                } => *said = Some(answers.clone()),
                Destination::Address { .. } => panic!("no name to look up: {intent:?}"),
            },
            Connect::Hear(_) => match &mut intent.to {
                Destination::Address { heard, .. } => {
                    *heard = q.sni.clone().map_or(Heard::Nothing, |name| Heard::Name {
                        name,
                        answers: None,
                    });
                }
                Destination::Name { .. } => panic!("a name is heard already: {intent:?}"),
            },
        }
    }
    panic!("no end: {q:?}")
}

/// The decision that a gateway's door asks for: an address of the pools is told from others by its leases.
fn door(s: &Snapshot, q: &Question, intent: &Intent) -> Connect {
    if q.unleased {
        decide_unleased(s, intent, NOW)
    } else {
        decide_connect(s, intent, NOW)
    }
}

fn bytes(s: &Snapshot, q: &Question, ground: Ground) -> Result<Ground, Denial> {
    let Some(name) = q.sni.clone().filter(|_| q.protocol == Protocol::Tcp) else {
        return Ok(ground);
    };
    let evidence = if ground.speaks() == Speaks::Http {
        Evidence::Http {
            host: Some(Host::Name(name)),
            port: None,
            method: "GET".to_owned(),
            path: "/".to_owned(),
        }
    } else {
        Evidence::Tls { name: Some(name) }
    };
    decide_bytes(s, &ground, &evidence, NOW).map(|_| ground)
}

/// The parts of an outcome that people and programs are told.
type Told = (
    Decision,
    Option<Reason>,
    Option<Class>,
    Option<LayerKind>,
    Option<Line>,
);

fn told(outcome: Result<Ground, Denial>) -> Told {
    match outcome {
        Ok(ground) => {
            let last = ground.rules().last();
            (
                Decision::Permit,
                None,
                ground.class(),
                last.map(|(layer, _, _)| *layer),
                last.map(|(_, _, at)| at.into()),
            )
        }
        Err(denial) => (
            Decision::Deny,
            Some(denial.reason),
            denial.class,
            denial.layer,
            denial.rule.as_ref().map(Into::into),
        ),
    }
}

fn explained(s: &Snapshot, q: &Question) -> Told {
    let e = explain(s, q, NOW);
    (e.decision, e.reason, e.class, e.layer, e.rule)
}

/// Floors and a job: what the gateway composes, in its order.
fn layers() -> impl Strategy<Value = Vec<(LayerKind, Draft)>> {
    let floor = |kind| prop::option::of(draft().prop_map(move |draft| (kind, draft)));
    let job = draft().prop_map(|draft| (LayerKind::Job, draft));
    (floor(LayerKind::Instance), floor(LayerKind::Workspace), job).prop_map(
        |(instance, workspace, job)| instance.into_iter().chain(workspace).chain([job]).collect(),
    )
}

/// The gateway refuses to run what is not enforced yet, so nobody is asked and no request is judged.
fn enforced(draft: &Draft) -> Draft {
    let runs = |entries: &[String]| {
        entries
            .iter()
            .filter(|line| !line.contains("http:"))
            .cloned()
            .collect()
    };
    Draft {
        head: draft.head.replace("unknown: ask", "unknown: deny"),
        allow: runs(&draft.allow),
        deny: runs(&draft.deny),
    }
}

fn composed(layers: &[(LayerKind, Draft)]) -> Snapshot {
    let one = |(kind, draft): &(LayerKind, Draft)| {
        let file = format!("{}.yaml", kind.word());
        (*kind, policy(&file, &enforced(draft).text()))
    };
    snapshot(layers.iter().map(one).collect())
}

/// A gateway's pools: some of what is asked about is in them.
const POOLS: [&str; 2] = ["198.18.0.0/15", "fd00:5a11::/48"];
const POOLED: [&str; 3] = ["198.18.0.1", "198.19.7.7", "fd00:5a11:0:2::7"];

/// With any server name, also for a destination by name, as clients send it; with what a live network knows beside the
/// policy: names bound to an address, aliases of a name, addresses of its pools.
fn asked() -> impl Strategy<Value = Question> {
    let other = || prop::option::weighted(0.3, question());
    let pooled = prop::option::weighted(0.2, prop::sample::select(&POOLED[..]));
    (question(), other(), other(), pooled).prop_map(|(mut q, other, known, pooled)| {
        (q.method, q.path) = (None, None);
        if let Some(Host::Name(name)) = known.map(|known| known.to) {
            match &q.to {
                Host::Name(_) if !q.resolves_to.is_empty() => q.aliases = vec![name],
                Host::Name(_) => {}
                Host::Address(_) => q.bound = vec![name],
            }
        }
        if let Some(address) = pooled {
            q.to = Host::Address(address.parse().unwrap());
            q.unleased = address != POOLED[0];
            q.bound = Vec::new();
        }
        if let Some(Host::Name(name)) = other.map(|other| other.to) {
            q.sni = Some(name);
        } else if let (Host::Name(name), Protocol::Tcp, true) = (&q.to, q.protocol, q.port == 443) {
            q.sni = Some(name.clone());
        }
        q
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_explanation_says_what_the_decisions_say(layers in layers(), q in asked()) {
        let s = composed(&layers);
        let mut book = crate::addr::AddressBook::clone(s.book());
        book.gateway.extend(POOLS.iter().map(|pool| pool.parse::<ipnet::IpNet>().unwrap()));
        let s = s.with_book(std::sync::Arc::new(book));
        let found = explained(&s, &q);
        let texts: Vec<String> = layers.iter().map(|(_, draft)| enforced(draft).text()).collect();
        let context = format!("{q:#?}\n{}", texts.join("---\n"));
        if let (Host::Name(_), true) = (&q.to, q.resolves_to.is_empty()) {
            // whatever is acceptable: permitted if some address is, and denied as the name is denied with all of them
            let all = SOMEWHERE.iter().map(|text| decided(&s, &q, &vec![text.parse().unwrap()].into()));
            let all: Vec<_> = all.map(told).collect();
            let permitted = all.iter().any(|told| told.0 == Decision::Permit);
            prop_assert_eq!(found.0 == Decision::Permit, permitted, "{:?}\n{:?}\n{}", found, all, context);
            let alike = |told: &Told| (told.0, told.1, &told.3, &told.4) == (found.0, found.1, &found.3, &found.4);
            prop_assert!(all.iter().any(alike), "{:?}\n{:?}\n{}", found, all, context);
        } else {
            let supposed = match &q.to {
                Host::Address(address) if q.resolves_to.is_empty() => vec![*address],
                _ => q.resolves_to.clone(),
            };
            let answers = Answers { addresses: supposed, aliases: q.aliases.clone() };
            prop_assert_eq!(&found, &told(decided(&s, &q, &answers)), "{}", context);
            if q.unleased {
                prop_assert_eq!(found.1, Some(Reason::LeaseUnknown), "{}", context);
            }
        }
        // what is permitted may be looked up, or nobody could come to dial it
        if let (Host::Name(name), Decision::Permit) = (&q.to, found.0) {
            prop_assert!(matches!(decide_lookup(&s, name, NOW), Lookup::Permit(_)), "{}", context);
        }
    }
}
