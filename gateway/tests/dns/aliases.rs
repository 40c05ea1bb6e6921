//! Aliases: permission goes by the name that was asked for, a denial by every name on the way.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{CNAME, MX, SRV};
use hickory_proto::rr::{Name as WireName, RData, RecordType};
use netpolicy::policy::{NetworkMode, Policy};

use crate::answers::ip;
use crate::lab::{Lab, Read as _, assert_denied, domains, live, policy, real};
use crate::upstream::{Say, Upstream, alias, host, record};

/// `a.net`, `b.net` and `ok.net` are permitted, `evil.org` and everything below `ads.org` is denied.
fn fenced() -> Policy {
    policy(
        NetworkMode::Domains,
        &["a.net", "b.net", "ok.net", "meta.net", "own.net"],
        &["evil.org", "*.ads.org"],
    )
}

/// A server that never says more than one link of a chain, so every next name needs a question of its own.
fn link_by_link(links: &'static [(&'static str, &'static str)]) -> Upstream {
    Upstream::start(move |name, kind, _| {
        match (links.iter().find(|(owner, _)| *owner == name), kind) {
            (Some((owner, target)), _) => Say::records(vec![alias(owner, target)]),
            (None, RecordType::A) => Say::records(vec![host(name, "93.184.216.34")]),
            (None, _) => Say::nothing(),
        }
    })
}

#[tokio::test]
async fn denied_alias_is_never_asked_for_and_denies_the_name() {
    let upstream = link_by_link(&[
        ("a.net", "cdn.org"),
        ("cdn.org", "x.ads.org"),
        ("b.net", "evil.org"),
        ("ok.net", "fine.org"),
        ("meta.net", "metadata.google.internal"),
        ("own.net", "printer.local"),
    ]);
    let lab = Lab::new(&upstream, fenced()).await;
    lab.attach(3, real(fenced()));
    for sandbox in [2, 3] {
        for (name, target, reason) in [
            ("a.net", "x.ads.org", "name_denied"),
            ("b.net", "evil.org", "name_denied"),
            ("meta.net", "metadata.google.internal", "address_metadata"),
            ("own.net", "printer.local", "name_not_allowed"),
        ] {
            for kind in [
                RecordType::A,
                RecordType::AAAA,
                RecordType::TXT,
                RecordType::HTTPS,
                RecordType::MX,
            ] {
                assert_denied(&lab.ask_as(sandbox, name, kind).await, reason);
            }
            assert_eq!(upstream.asked_for(target), 0, "{target}");
        }
        // the permitted twin: an alias that nobody denies is followed, though no rule allows it
        let reply = lab.ask_as(sandbox, "ok.net", RecordType::A).await;
        assert_eq!(reply.addresses().len(), 1);
    }
    assert!(upstream.asked_for("cdn.org") > 0 && upstream.asked_for("fine.org") > 0);
    assert!(lab.network(3).leases.bound(ip("93.184.216.34")).len() == 1);
    assert!(
        lab.network(2)
            .leases
            .leased(&crate::lab::name("a.net"))
            .is_none()
    );
    // what the record says: the line of the denial and the alias that met it
    let told = serde_json::to_string(&lab.entries()).unwrap();
    assert!(told.contains("name_denied") && told.contains("lab.yaml"));
}

#[tokio::test]
async fn denied_alias_inside_an_answer_denies_it_too() {
    // the server sends the whole chain at once, addresses and all
    let upstream = Upstream::zone(vec![
        alias("a.net", "evil.org"),
        alias("evil.org", "cdn.org"),
        host("cdn.org", "93.184.216.34"),
        alias("ok.net", "cdn.org"),
        // only one family is an alias
        host("b.net", "93.184.216.34"),
    ]);
    let lab = Lab::new(&upstream, fenced()).await;
    assert_denied(&lab.ask("a.net", RecordType::A).await, "name_denied");
    assert_denied(&lab.ask("a.net", RecordType::AAAA).await, "name_denied");
    assert_denied(&lab.ask("a.net", RecordType::CNAME).await, "name_denied");
    for name in ["ok.net", "b.net"] {
        assert_eq!(lab.ask(name, RecordType::A).await.addresses().len(), 1);
    }
    let shown = lab.ask("ok.net", RecordType::CNAME).await;
    assert_eq!(shown.answers.len(), 1);
}

#[tokio::test]
async fn one_family_behind_a_denied_alias_denies_both() {
    let upstream = Upstream::start(|name, kind, _| match (name, kind) {
        ("a.net", RecordType::AAAA) => Say::records(vec![alias("a.net", "evil.org")]),
        (_, RecordType::A) => Say::records(vec![host(name, "93.184.216.34")]),
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, fenced()).await;
    for kind in [RecordType::A, RecordType::AAAA, RecordType::A] {
        assert_denied(&lab.ask("a.net", kind).await, "name_denied");
    }
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    assert_eq!(upstream.asked_for("evil.org"), 0);
}

#[tokio::test]
async fn cached_answer_is_judged_by_the_policy_of_now() {
    let upstream = link_by_link(&[("a.net", "evil.org")]);
    let lab = Lab::new(&upstream, domains(&["a.net"])).await;
    assert_eq!(lab.ask("a.net", RecordType::A).await.addresses().len(), 1);
    lab.network(2).live.store(live(fenced()).into());
    assert_denied(&lab.ask("a.net", RecordType::A).await, "name_denied");
    lab.network(2).live.store(live(domains(&["a.net"])).into());
    assert_eq!(lab.ask("a.net", RecordType::A).await.addresses().len(), 1);
}

#[tokio::test]
async fn alias_to_what_is_no_host_name_is_not_followed() {
    // no rule could name it: not by a dot inside a label, not by an A-label that IDNA would not write
    for target in [
        &[&b"x.evil"[..], b"org"][..],
        &[b"xn--a", b"ads", b"org"],
        &[b"\0", b"ads", b"org"],
    ] {
        let target = WireName::from_labels(target.iter().copied()).unwrap();
        let upstream = Upstream::start(move |name, kind, _| match (name, kind) {
            ("a.net", _) => Say::records(vec![record(
                "a.net",
                60,
                RData::CNAME(CNAME(target.clone())),
            )]),
            (_, RecordType::A) => Say::records(vec![host("ok.net", "93.184.216.34")]),
            _ => Say::nothing(),
        });
        let lab = Lab::new(&upstream, fenced()).await;
        let reply = lab.ask("a.net", RecordType::A).await;
        assert_eq!(reply.code(), ResponseCode::ServFail);
        assert!(reply.explanation().unwrap().1.contains("alias"));
        assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
        let asked = upstream.log();
        assert!(
            asked
                .iter()
                .all(|h| h.name == "a.net" || h.name == "ok.net")
        );
    }
}

#[tokio::test]
async fn targets_inside_records_are_told_and_judged_when_they_are_asked() {
    let target = || WireName::from_ascii("evil.org.").unwrap();
    let upstream = Upstream::start(move |name, kind, _| match kind {
        RecordType::MX => Say::records(vec![record(name, 60, RData::MX(MX::new(1, target())))]),
        RecordType::SRV => Say::records(vec![record(
            name,
            60,
            RData::SRV(SRV::new(1, 1, 443, target())),
        )]),
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, fenced()).await;
    for (name, kind) in [
        ("a.net", RecordType::MX),
        ("_xmpp._tcp.a.net", RecordType::SRV),
    ] {
        assert_eq!(lab.ask(name, kind).await.answers.len(), 1);
    }
    assert_denied(&lab.ask("evil.org", RecordType::A).await, "name_denied");
    assert_eq!(upstream.asked_for("evil.org"), 0);
}
