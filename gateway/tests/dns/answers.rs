//! What a permitted name is answered: leases or real addresses, never a forbidden one, nothing that was not asked for.

use std::net::IpAddr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, RecordType};
use netpolicy::policy::{NetworkMode, Policy};

use crate::lab::{Lab, Read as _, assert_denied, domains, internet, policy, real};
use crate::upstream::{Say, Upstream, alias, host, record, timed};

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// NODATA that says why: the name is permitted, its answer is not.
#[track_caller]
fn assert_forbidden(reply: &hickory_proto::op::Message) {
    assert!(reply.is_nodata(), "{reply:?}");
    let (code, text) = reply.explanation().unwrap();
    assert_eq!(
        (code, text.split(';').next()),
        (17, Some("name_resolves_to_forbidden"))
    );
}

#[tokio::test]
async fn leased_names_get_their_own_addresses_and_keep_them() {
    let upstream = Upstream::zone(
        ["ok.net", "a.ok.net"]
            .iter()
            .flat_map(|n| [host(n, "93.184.216.34"), host(n, "2606:2800::1")])
            .collect(),
    );
    let lab = Lab::new(&upstream, domains(&["ok.net", "*.ok.net"])).await;
    let first = lab.ask("ok.net", RecordType::A).await.addresses();
    let other = lab.ask("a.ok.net", RecordType::A).await.addresses();
    let sixth = lab.ask("ok.net", RecordType::AAAA).await.addresses();
    assert!(
        first[0] != other[0] && matches!(first[0], IpAddr::V4(a) if a.octets()[..2] == [198, 19])
    );
    assert!(matches!(sixth[0], IpAddr::V6(a) if a.segments()[..4] == [0xfd53, 0x616c, 0x6c79, 1]));
    let leases = &lab.network(2).leases;
    assert_eq!(leases.find(first[0]).unwrap().as_str(), "ok.net");
    assert_eq!(leases.find(sixth[0]).unwrap().as_str(), "ok.net");
    assert_eq!(leases.find(ip("198.19.255.254")), None);
    assert_eq!(lab.ask("OK.net", RecordType::A).await.addresses(), first);
    // DNS-40: another network has leases of its own, though the address is the same by design
    lab.attach(3, domains(&["evil.net"]));
    assert_eq!(lab.network(3).leases.find(first[0]), None);
    // a restart remembers
    drop(lab.networks.by_source(ip("127.0.0.2")));
    let again = lab.attach(2, domains(&["ok.net"]));
    assert_eq!(again.leases.find(other[0]).unwrap().as_str(), "a.ok.net");
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses(), first);
}

#[tokio::test]
async fn forbidden_address_spoils_the_whole_answer() {
    // DNS-03, DNS-04, DNS-05, DNS-44: in every order, family and disguise, leased and real
    let bad = [
        "10.0.0.5",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.5",
        "127.0.0.11",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "198.18.0.1",
        "198.18.0.9",
        "198.19.0.7",
        "fd53:616c:6c79::1",
        "64:ff9b::a00:5",
        "192.168.1.1",
        "100.64.0.1",
    ];
    for (index, bad) in bad.into_iter().enumerate() {
        let mut records = vec![
            host("m.net", "93.184.216.34"),
            host("m.net", bad),
            host("ok.net", "93.184.216.34"),
        ];
        if index % 2 == 0 {
            records.swap(0, 1);
        }
        let upstream = Upstream::zone(records);
        let lab = Lab::new(&upstream, domains(&["m.net", "ok.net"])).await;
        lab.attach(3, real(internet()));
        for kind in [RecordType::A, RecordType::AAAA] {
            for sandbox in [2, 3] {
                assert_forbidden(&lab.ask_as(sandbox, "m.net", kind).await);
            }
        }
        assert!(
            lab.network(3).leases.bound(ip(bad)).is_empty()
                && lab.network(3).leases.bound(ip("93.184.216.34")).is_empty()
        );
        assert_eq!(
            lab.network(2).leases.leased(&crate::lab::name("m.net")),
            None
        );
        assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    }
}

#[tokio::test]
async fn denied_address_beats_the_name_that_leads_to_it() {
    let upstream = Upstream::zone(vec![
        host("a.net", "198.51.101.7"),
        host("b.net", "93.184.216.34"),
    ]);
    let lab = Lab::new(
        &upstream,
        policy(
            NetworkMode::Domains,
            &["a.net", "b.net"],
            &["198.51.101.0/24"],
        ),
    )
    .await;
    let reply = lab.ask("a.net", RecordType::A).await;
    assert!(reply.is_nodata());
    assert_eq!(
        reply.explanation().unwrap().1,
        "address_denied; policy lab; lab.yaml:10"
    );
    assert_eq!(lab.ask("b.net", RecordType::A).await.addresses().len(), 1);
}

#[tokio::test]
async fn private_answer_passes_where_the_policy_opens_private() {
    let upstream = Upstream::zone(vec![host("nas.corp.net", "10.0.0.5")]);
    let lab = Lab::new(
        &upstream,
        Policy {
            private: true,
            ..domains(&["*.corp.net"])
        },
    )
    .await;
    assert_eq!(
        lab.ask("nas.corp.net", RecordType::A)
            .await
            .addresses()
            .len(),
        1
    );
    lab.attach(3, domains(&["*.corp.net"]));
    assert_forbidden(&lab.ask_as(3, "nas.corp.net", RecordType::A).await);
}

#[tokio::test]
async fn host_rule_on_an_unusual_port_is_answered() {
    let upstream = Upstream::zone(vec![
        host("git.net", "93.184.216.34"),
        host("bad.git.net", "10.0.0.5"),
    ]);
    let mut ssh = domains(&["git.net", "bad.git.net"]);
    ssh.allow
        .iter_mut()
        .for_each(|rule| rule.ports = netpolicy::policy::Ports(vec![22..=22]));
    let lab = Lab::new(&upstream, ssh).await;
    assert_eq!(lab.ask("git.net", RecordType::A).await.addresses().len(), 1);
    assert_forbidden(&lab.ask("bad.git.net", RecordType::A).await);
}

#[tokio::test]
async fn rebinding_name_is_judged_at_every_answer() {
    // DNS-01, DNS-02
    let upstream = Upstream::start(|name, kind, nth| match (name, kind, nth % 2) {
        ("r.net", RecordType::A, 0) => Say::records(vec![timed("r.net", "93.184.216.34", 0)]),
        ("r.net", RecordType::A, _) => Say::records(vec![timed("r.net", "169.254.169.254", 0)]),
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, real(domains(&["r.net"]))).await;
    for _ in 0..3 {
        let before = upstream
            .log()
            .iter()
            .filter(|heard| heard.kind == RecordType::A)
            .count();
        assert_eq!(
            lab.ask("r.net", RecordType::A).await.addresses(),
            [ip("93.184.216.34")]
        );
        assert_eq!(
            upstream
                .log()
                .iter()
                .filter(|heard| heard.kind == RecordType::A)
                .count(),
            before + 1
        );
        assert_forbidden(&lab.ask("r.net", RecordType::A).await);
    }
    assert!(
        lab.network(2)
            .leases
            .bound(ip("169.254.169.254"))
            .is_empty()
    );
}

#[tokio::test]
async fn alias_inherits_permission_for_this_look_up_only() {
    // DNS-05, DNS-06
    let upstream = Upstream::zone(vec![
        alias("a.net", "x.cdn.org"),
        host("x.cdn.org", "93.184.216.34"),
        alias("b.net", "b.evil.net"),
        alias("b.evil.net", "c.evil.net"),
        host("c.evil.net", "10.0.0.5"),
    ]);
    let lab = Lab::new(&upstream, real(domains(&["a.net", "b.net"]))).await;
    let reply = lab.ask("a.net", RecordType::A).await;
    assert_eq!(reply.addresses(), [ip("93.184.216.34")]);
    assert_eq!(reply.answers[0].name.to_ascii(), "a.net.");
    let bound = lab.network(2).leases.bound(ip("93.184.216.34"));
    assert_eq!(
        bound
            .iter()
            .map(netpolicy::name::Name::as_str)
            .collect::<Vec<_>>(),
        ["a.net"]
    );
    assert_denied(
        &lab.ask("x.cdn.org", RecordType::A).await,
        "name_not_allowed",
    );
    assert_forbidden(&lab.ask("b.net", RecordType::A).await);
}

#[tokio::test]
async fn alias_is_followed_by_further_questions() {
    let upstream = Upstream::start(|name, kind, _| match (name, kind) {
        ("a.net", _) => Say::records(vec![alias("a.net", "b.org")]),
        ("b.org", _) => Say::records(vec![alias("b.org", "c.org")]),
        ("c.org", RecordType::A) => Say::records(vec![host("c.org", "93.184.216.34")]),
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, real(domains(&["a.net"]))).await;
    assert_eq!(
        lab.ask("a.net", RecordType::A).await.addresses(),
        [ip("93.184.216.34")]
    );
}

#[tokio::test]
async fn endless_alias_chain_fails_at_once() {
    // DNS-06: a loop in one answer, a loop over answers, a chain that never ends
    let upstream = Upstream::start(|name, _, nth| match name {
        "loop.net" => Say::records(vec![alias("loop.net", "b.org"), alias("b.org", "loop.net")]),
        "ping.net" => Say::records(vec![alias("ping.net", "pong.org")]),
        "pong.org" => Say::records(vec![alias("pong.org", "ping.net")]),
        "long.net" => {
            let names: Vec<String> = (0..20)
                .map(|n| {
                    if n == 0 {
                        name.to_owned()
                    } else {
                        format!("n{n}.org")
                    }
                })
                .collect();
            Say::records(
                names
                    .windows(2)
                    .map(|pair| alias(&pair[0], &pair[1]))
                    .collect(),
            )
        }
        _ => Say::records(vec![alias(
            name,
            &format!("{}x.org", "x".repeat(name.len() % 20 + nth)),
        )]),
    });
    let lab = Lab::new(
        &upstream,
        domains(&["*.net", "loop.net", "ping.net", "long.net", "ever.net"]),
    )
    .await;
    let started = std::time::Instant::now();
    for name in ["loop.net", "ping.net", "long.net", "ever.net"] {
        let reply = lab.ask(name, RecordType::A).await;
        assert_eq!(reply.code(), ResponseCode::ServFail, "{name}");
        assert!(reply.explanation().unwrap().1.contains("alias"), "{name}");
    }
    assert!(started.elapsed().as_secs() < 2);
    assert!(upstream.log().len() < 60);
}

#[tokio::test]
async fn real_answer_is_bounded_and_bound_before_it_is_sent() {
    // DNS-42: 2000 addresses
    let many: Vec<_> = (0..2000_u16)
        .map(|n| {
            record(
                "big.net",
                60,
                RData::A(A::new(
                    93,
                    184,
                    u8::try_from(n >> 8).unwrap(),
                    u8::try_from(n & 255).unwrap(),
                )),
            )
        })
        .collect();
    let upstream = Upstream::start(move |_, kind, _| match kind {
        RecordType::A => Say {
            truncated: true,
            ..Say::records(many.clone())
        },
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, real(domains(&["big.net"]))).await;
    let reply = lab.ask("big.net", RecordType::A).await;
    assert!(reply.addresses().len() <= 64 && !reply.addresses().is_empty());
    assert!(
        upstream.log().iter().any(|heard| heard.tcp),
        "cut off upstream means TCP upstream"
    );
    let on_disk = std::fs::read_to_string(lab.leases_path(2)).unwrap();
    for address in reply.addresses() {
        assert_eq!(lab.network(2).leases.bound(address)[0].as_str(), "big.net");
        assert!(on_disk.contains(&format!("bind {address} big.net ")));
    }
}

#[tokio::test]
async fn shared_address_is_bound_to_every_name_that_was_asked() {
    // DNS-43
    let upstream = Upstream::zone(vec![
        host("a.net", "93.184.216.34"),
        host("b.net", "93.184.216.34"),
    ]);
    let lab = Lab::new(&upstream, real(domains(&["a.net", "b.net"]))).await;
    for name in ["a.net", "b.net", "a.net"] {
        assert_eq!(
            lab.ask(name, RecordType::A).await.addresses(),
            [ip("93.184.216.34")]
        );
    }
    let bound = lab.network(2).leases.bound(ip("93.184.216.34"));
    assert_eq!(
        bound
            .iter()
            .map(netpolicy::name::Name::as_str)
            .collect::<Vec<_>>(),
        ["a.net", "b.net"]
    );
    // and a restart remembers
    let again = lab.attach(2, real(domains(&["a.net"])));
    assert_eq!(again.leases.bound(ip("93.184.216.34")).len(), 2);
}
