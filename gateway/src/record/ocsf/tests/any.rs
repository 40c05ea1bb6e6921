//! Any record at all, with names and paths that somebody hostile chose.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netpolicy::addr::Class;
use netpolicy::decide::{Direction, LayerKind};
use netpolicy::ids::{Generation, PolicyHash};
use netpolicy::policy::{Place, Protocol};
use netpolicy::reason::Reason;
use proptest::prelude::*;

use crate::network::flows::Door;
use crate::record::entry::{
    Close, DecidedBy, Denied, Entry, NetworkChange, Open, SourceChange, Subject, Vouched,
};
use crate::record::{Line, chain};
use crate::selftest::report::{Check, Family, Outcome, SelftestDone, SelftestReport, Variant};

fn address() -> BoxedStrategy<IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
    .boxed()
}

fn socket() -> BoxedStrategy<SocketAddr> {
    (address(), any::<u16>()).prop_map(SocketAddr::from).boxed()
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}",
        any::<String>(),
        Just("\u{1b}[31m\n\"}".to_owned())
    ]
    .boxed()
}

fn subject() -> BoxedStrategy<Subject> {
    let door = prop_oneof![
        Just(Door::Tcp),
        Just(Door::Dns),
        Just(Door::Proxy),
        Just(Door::Ingress)
    ];
    let ways = (
        door,
        prop_oneof![Just(Direction::Egress), Just(Direction::Ingress)],
        prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)],
    );
    let run = prop::option::of(text());
    (
        ways,
        run,
        socket(),
        prop::option::of(text()),
        prop::option::of(address()),
        any::<u16>(),
    )
        .prop_map(
            |((door, direction, protocol), run, source, name, address, port)| Subject {
                network: "dev-1".parse().unwrap(),
                run,
                door,
                direction,
                protocol,
                source,
                name,
                address,
                port,
            },
        )
        .boxed()
}

fn by() -> BoxedStrategy<DecidedBy> {
    let layer = prop_oneof![
        Just(LayerKind::Instance),
        Just(LayerKind::Workspace),
        Just(LayerKind::Job)
    ];
    (layer, text(), text(), any::<u32>())
        .prop_map(|(layer, policy, file, line)| DecidedBy {
            layer,
            policy,
            at: Place {
                file: Arc::from(file),
                line,
                column: 1,
                commit: None,
            },
            vouched: Vouched::Unverified,
        })
        .boxed()
}

fn open() -> BoxedStrategy<Open> {
    let by = prop::collection::vec(by(), 0..4);
    (
        any::<u64>(),
        subject(),
        socket(),
        prop::option::of(socket()),
        by,
        any::<[u8; 32]>(),
    )
        .prop_map(|(flow, subject, upstream, local, by, policy)| Open {
            flow,
            subject,
            upstream,
            local,
            class: Some(Class::Public),
            by,
            policy: PolicyHash(policy),
            generation: Generation(flow),
        })
        .boxed()
}

fn close() -> BoxedStrategy<Close> {
    let http = prop::option::of((prop_oneof![text(), Just("GET".to_owned())], text()));
    let tls = (
        prop::option::of(text()),
        prop::collection::vec(text(), 0..3),
    );
    let numbers = any::<(u64, u64, u64, u64, Option<(u64, u64)>)>();
    (
        numbers,
        subject(),
        tls,
        http,
        prop_oneof![text(), Just("reset".to_owned())],
    )
        .prop_map(
            |((flow, up, down, duration_ms, datagrams), subject, (sni, alpn), http, end)| Close {
                flow,
                subject,
                sni,
                alpn,
                http,
                datagrams,
                up,
                down,
                duration_ms,
                end,
            },
        )
        .boxed()
}

fn denied() -> BoxedStrategy<Box<Denied>> {
    let reason = prop::sample::select(Reason::ALL);
    (
        subject(),
        reason,
        prop::option::of(by()),
        prop::option::of(text()),
    )
        .prop_map(|(subject, reason, by, heard)| {
            Box::new(Denied {
                subject,
                reason,
                by,
                class: None,
                upstream: heard.as_ref().map(|_| ([203, 0, 113, 9], 443).into()),
                heard,
                policy: PolicyHash([2; 32]),
                generation: Generation(1),
            })
        })
        .boxed()
}

fn entry() -> BoxedStrategy<Entry> {
    let change = (text(), prop::option::of(text())).prop_map(|(change, run)| NetworkChange {
        network: "dev-1".parse().unwrap(),
        run,
        change,
        policy: PolicyHash([2; 32]),
        generation: Generation(1),
    });
    let posture =
        (text(), text(), any::<u64>()).prop_map(|(state, cause, generation)| Entry::Posture {
            state,
            cause,
            generation,
        });
    let source = (text(), text(), prop::option::of(text())).prop_map(|(source, change, why)| {
        Entry::Source(SourceChange {
            source,
            change,
            commit: why.clone(),
            before: why.clone(),
            moved: why.clone(),
            why,
        })
    });
    let selftest = (text(), text(), any::<u64>()).prop_map(|(why, detail, took_ms)| {
        let row = Check {
            check: why.clone(),
            family: Family::Both,
            variant: Variant::Namespace,
            outcome: Outcome::Failed,
            promise: detail.clone(),
            detail: detail.clone(),
        };
        let checks = vec![row];
        let report = SelftestReport { checks, took_ms };
        Entry::Selftest(Box::new(SelftestDone::of(&report, &why, 0)))
    });
    prop_oneof![
        selftest,
        source,
        open().prop_map(|open| Entry::Open(Box::new(open))),
        close().prop_map(|close| Entry::Close(Box::new(close))),
        denied().prop_map(Entry::Denial),
        denied().prop_map(Entry::Failure),
        (denied(), any::<u64>(), any::<bool>()).prop_map(|(first, count, failed)| Entry::Folded {
            first,
            count,
            failed
        }),
        change.prop_map(Entry::Network),
        posture,
        any::<u64>().prop_map(|window_ms| Entry::Gap { window_ms }),
    ]
    .boxed()
}

/// Any line, as the journal itself writes and reads it.
pub fn line() -> impl Strategy<Value = Line> {
    (any::<u32>(), any::<i32>(), entry()).prop_map(|(seq, t, entry)| {
        let before = chain::Position {
            seq: seq.into(),
            link: chain::Link::ORIGIN,
        };
        let mut text = Vec::new();
        chain::compose(
            before,
            t.into(),
            &serde_json::to_vec(&entry).unwrap(),
            &mut text,
        );
        serde_json::from_slice(&text).unwrap()
    })
}
