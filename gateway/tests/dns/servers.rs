//! Servers that lie, stall, cut off or die.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use gateway::resolve::leases::Paces;
use gateway::resolve::upstream::{MayFollow, Scope};
use gateway::resolve::{LookupError, Resolver, Upstreams};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::RecordType;

use crate::lab::{Lab, Read as _, domains, internet, name};
use crate::upstream::{Say, Upstream, host};

/// Follows every alias.
const ALL: MayFollow<'static> = &|_| true;

fn resolver(servers: &[SocketAddr]) -> Resolver {
    Resolver::new(Upstreams {
        default: servers.to_vec(),
        domains: Vec::new(),
    })
}

/// A server that answers one name with one address, after `first` was sent.
fn forging(first: fn(Vec<u8>) -> Vec<u8>) -> Upstream {
    Upstream::start(move |name, kind, _| match kind {
        RecordType::A => Say {
            first: Some(first),
            ..Say::records(vec![host(name, "93.184.216.34")])
        },
        _ => Say::nothing(),
    })
}

#[tokio::test]
async fn reply_with_another_id_or_question_is_not_believed() {
    // DNS-09
    let forgeries: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |mut reply| {
            reply[0] ^= 0xff;
            reply
        },
        |mut reply| {
            // ok.net asked, on.net answered
            reply[14] = b'n';
            let at = reply.len() - 4;
            reply[at..at + 4].copy_from_slice(&[10, 0, 0, 5]);
            reply
        },
        |mut reply| {
            // a query, not a reply
            reply[2] &= 0x7f;
            reply
        },
        |mut reply| {
            // another type
            reply[21] = 28;
            reply
        },
    ];
    for forge in forgeries {
        let upstream = forging(forge);
        let found = resolver(&[upstream.address])
            .addresses(&Scope::fresh(), &name("ok.net"), ALL)
            .await
            .unwrap();
        assert_eq!(
            found.addresses,
            ["93.184.216.34".parse::<std::net::IpAddr>().unwrap()]
        );
    }
}

#[tokio::test]
async fn reply_from_another_address_is_not_heard() {
    // DNS-09: the kernel delivers only what the connected server sent
    let upstream = Upstream::start(|name, kind, _| match kind {
        RecordType::A => Say::records(vec![host(name, "93.184.216.34")]),
        _ => Say::nothing(),
    });
    let silent = Upstream::start(|_, _, _| Say::silence());
    let resolver = Arc::new(resolver(&[silent.address]));
    let (wanted, scope) = (name("ok.net"), Scope::fresh());
    let asking = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        resolver.addresses(&scope, &wanted, ALL),
    );
    let forger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (found, ()) = tokio::join!(asking, async {
        while silent.log().is_empty() {
            tokio::task::yield_now().await;
        }
        for heard in silent.log() {
            let mut reply = Message::from_vec(&heard.bytes).unwrap();
            reply.metadata.message_type = MessageType::Response;
            reply.add_answer(host("ok.net", "10.0.0.5"));
            forger
                .send_to(&reply.to_vec().unwrap(), heard.from)
                .unwrap();
        }
    });
    assert!(
        found.is_err(),
        "still waiting for the true server: {found:?}"
    );
    assert!(
        resolver_of(&upstream)
            .addresses(&Scope::fresh(), &name("ok.net"), ALL)
            .await
            .is_ok()
    );
}

fn resolver_of(upstream: &Upstream) -> Resolver {
    resolver(&[upstream.address])
}

#[tokio::test]
async fn malformed_reply_moves_on_to_the_next_server() {
    // DNS-25 in a reply: a pointer to itself, and other wrecks
    let wrecks: [fn(Vec<u8>) -> Vec<u8>; 3] = [
        |mut reply| {
            reply.splice(24..26, [0xc0, 24]);
            reply
        },
        |mut reply| {
            reply.truncate(30);
            reply
        },
        |mut reply| {
            reply[7] = 200;
            reply
        },
    ];
    for wreck in wrecks {
        let bad = Upstream::start(move |name, kind, _| match kind {
            RecordType::A => Say {
                spoil: Some(wreck),
                ..Say::records(vec![host(name, "10.0.0.5")])
            },
            _ => Say::nothing(),
        });
        let good = Upstream::zone(vec![host("ok.net", "93.184.216.34")]);
        let started = Instant::now();
        let found = resolver(&[bad.address, good.address])
            .addresses(&Scope::fresh(), &name("ok.net"), ALL)
            .await
            .unwrap();
        assert_eq!(found.addresses[0].to_string(), "93.184.216.34");
        assert!(started.elapsed().as_secs() < 2);
        let alone = resolver(&[bad.address])
            .addresses(&Scope::fresh(), &name("ok.net"), ALL)
            .await;
        assert!(matches!(alone, Err(LookupError::Upstream(_))), "{alone:?}");
    }
}

#[tokio::test]
async fn failing_server_is_passed_over_and_failure_is_servfail() {
    let broken = Upstream::start(|_, _, _| Say::code(ResponseCode::ServFail));
    let good = Upstream::zone(vec![host("ok.net", "93.184.216.34")]);
    let both = Lab::paced(&[broken.address, good.address], Paces::default()).await;
    both.attach(2, internet());
    assert_eq!(both.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    let lab = Lab::new(&broken, domains(&["ok.net"])).await;
    let reply = lab.ask("ok.net", RecordType::A).await;
    assert_eq!(reply.code(), ResponseCode::ServFail);
    let (code, text) = reply.explanation().unwrap();
    assert_eq!(code, 23);
    assert!(
        text.starts_with("name_unresolvable; ") && text.contains("Server Failure"),
        "{text}"
    );
    assert!(
        !text.contains("127.0.0.1"),
        "the address of a resolver is nobody's business: {text}"
    );
}

#[tokio::test]
async fn closed_port_is_noticed_at_once() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let good = Upstream::zone(vec![host("ok.net", "93.184.216.34")]);
    let resolver = resolver(&[closed, good.address]);
    let started = Instant::now();
    assert!(
        resolver
            .addresses(&Scope::fresh(), &name("ok.net"), ALL)
            .await
            .is_ok()
    );
    assert!(
        started.elapsed().as_millis() < 1500,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn one_family_that_never_answers_does_not_stop_the_other() {
    let upstream = Upstream::start(|name, kind, _| match kind {
        RecordType::A => Say::records(vec![host(name, "93.184.216.34")]),
        _ => Say::silence(),
    });
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let started = Instant::now();
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    assert!(started.elapsed().as_secs() < 4);
}

#[tokio::test]
async fn equal_look_ups_are_one() {
    let upstream = Upstream::zone(vec![host("ok.net", "93.184.216.34")]);
    let resolver = resolver_of(&upstream);
    let (wanted, scope) = (name("ok.net"), Scope::fresh());
    let all =
        futures_util::future::join_all((0..50).map(|_| resolver.addresses(&scope, &wanted, ALL)))
            .await;
    assert!(
        all.iter()
            .all(|found| found.as_ref().is_ok_and(|f| f.addresses.len() == 1))
    );
    assert_eq!(upstream.log().len(), 2);
    // and the cache holds
    resolver.addresses(&scope, &wanted, ALL).await.unwrap();
    assert_eq!(upstream.log().len(), 2);
}

#[tokio::test]
async fn invariant_5_networks_share_no_cached_answer() {
    let upstream = Upstream::zone(vec![host("ok.net", "93.184.216.34")]);
    let resolver = resolver_of(&upstream);
    let (wanted, one, other) = (name("ok.net"), Scope::fresh(), Scope::fresh());
    resolver.addresses(&one, &wanted, ALL).await.unwrap();
    assert!(resolver.known(&one, &wanted, Instant::now()).is_some());
    assert!(resolver.known(&other, &wanted, Instant::now()).is_none());
    // nor one look-up at the same time
    let third = Scope::fresh();
    let both = Box::pin(futures_util::future::join(
        resolver.addresses(&other, &wanted, ALL),
        resolver.addresses(&third, &wanted, ALL),
    ));
    assert!(both.await.0.is_ok());
    assert_eq!(upstream.log().len(), 6);
}

#[tokio::test]
async fn split_dns_asks_the_longest_domain() {
    let [public, corp, lab] = ["1.1.1.1", "10.0.0.1", "10.0.0.2"].map(|address| {
        Upstream::start(move |name, kind, _| match kind {
            RecordType::A => Say::records(vec![host(name, address)]),
            _ => Say::nothing(),
        })
    });
    let resolver = Resolver::new(Upstreams {
        default: vec![public.address],
        domains: vec![
            (name("corp.net"), vec![corp.address]),
            (name("lab.corp.net"), vec![lab.address]),
        ],
    });
    for (asked, answer) in [
        ("ok.net", "1.1.1.1"),
        ("corp.net", "10.0.0.1"),
        ("x.corp.net", "10.0.0.1"),
        ("notcorp.net", "1.1.1.1"),
        ("x.lab.corp.net", "10.0.0.2"),
    ] {
        assert_eq!(
            resolver
                .addresses(&Scope::fresh(), &name(asked), ALL)
                .await
                .unwrap()
                .addresses[0]
                .to_string(),
            answer,
            "{asked}"
        );
    }
}

#[tokio::test]
async fn system_resolvers_are_followed() {
    let [old, new] = ["1.1.1.1", "1.1.1.2"].map(|a| Upstream::zone(vec![host("ok.net", a)]));
    let (resolver, scope) = (resolver_of(&old), Scope::fresh());
    assert_eq!(
        resolver
            .addresses(&scope, &name("ok.net"), ALL)
            .await
            .unwrap()
            .addresses[0]
            .to_string(),
        "1.1.1.1"
    );
    resolver.set_upstreams(Upstreams {
        default: vec![new.address],
        domains: Vec::new(),
    });
    assert_eq!(
        resolver
            .addresses(&scope, &name("ok.net"), ALL)
            .await
            .unwrap()
            .addresses[0]
            .to_string(),
        "1.1.1.2"
    );
}

#[tokio::test]
async fn translation_prefix_is_learnt_and_never_invented() {
    // DNS-47
    let translating = Upstream::zone(vec![
        host("ipv4only.arpa", "2001:db8:64::192.0.0.170"),
        host("ipv4only.arpa", "2001:db8:64::192.0.0.171"),
    ]);
    let resolver = resolver_of(&translating);
    let watch = resolver.nat64();
    resolver.learn_nat64().await.unwrap();
    assert_eq!(*watch.borrow(), ["2001:db8:64::/96".parse().unwrap()]);
    let plain = Upstream::zone(vec![host("ipv4only.arpa", "192.0.0.170")]);
    let resolver = resolver_of(&plain);
    resolver.learn_nat64().await.unwrap();
    assert!(resolver.nat64().borrow().is_empty());
    // the sandbox's own question about it stays here
    let lab = Lab::new(&plain, internet()).await;
    let asked = plain.log().len();
    crate::lab::assert_denied(
        &lab.ask("ipv4only.arpa", RecordType::AAAA).await,
        "name_not_allowed",
    );
    assert_eq!(plain.log().len(), asked);
}
