//! Which names are answered at all, and what leaves the machine for them.

use gateway::network::flows::Door;
use gateway::record::Entry;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use netpolicy::addr::Class;
use netpolicy::policy::{NetworkMode, Policy};
use netpolicy::reason::Reason;
use tokio::net::UdpSocket;

use crate::lab::{
    Lab, Read as _, SERVICE_V4, SERVICE_V6, assert_denied, domains, has_short_soa, internet, policy,
};
use crate::upstream::{Say, Upstream, alias, host};

pub fn web() -> Upstream {
    Upstream::zone(vec![
        host("ok.net", "93.184.216.34"),
        host("a.ok.net", "93.184.216.35"),
        alias("evil.net", "ok.net"),
    ])
}

#[tokio::test]
async fn denied_name_is_nxdomain_for_every_type_and_nothing_leaves() {
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    // DNS-07, DNS-13: also where it points at a listed name
    for kind in [
        1_u16, 28, 5, 16, 15, 2, 33, 10, 257, 35, 52, 64, 65, 65534, 255, 12, 6, 43, 48,
    ] {
        for name in ["evil.net", "x.evil.net", "secret.ok.net.evil.net"] {
            assert_denied(
                &lab.ask(name, RecordType::from(kind)).await,
                "name_not_allowed",
            );
        }
    }
    assert!(upstream.log().is_empty(), "{:?}", upstream.log());
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    assert_eq!(upstream.asked_for("ok.net"), 2);
}

#[tokio::test]
async fn denial_says_which_line_made_it_only_when_the_policy_explains() {
    let upstream = web();
    let lab = Lab::new(
        &upstream,
        policy(NetworkMode::Internet, &[], &["*.evil.net"]),
    )
    .await;
    let (code, text) = lab
        .ask("x.evil.net", RecordType::A)
        .await
        .explanation()
        .unwrap();
    assert_eq!(
        (code, text.as_str()),
        (15, "name_denied; policy lab; lab.yaml:10")
    );
    lab.attach(
        3,
        Policy {
            explain: false,
            ..policy(NetworkMode::Internet, &[], &["*.evil.net"])
        },
    );
    let (_, text) = lab
        .ask_as(3, "x.evil.net", RecordType::A)
        .await
        .explanation()
        .unwrap();
    assert_eq!(text, "name_denied");
}

#[tokio::test]
async fn wildcard_covers_names_below_and_nothing_else() {
    // DNS-18
    let upstream = Upstream::zone(
        ["a.ok.net", "a.b.ok.net", "ok.net", "notok.net", "xok.net"]
            .map(|n| host(n, "93.184.216.34"))
            .to_vec(),
    );
    let lab = Lab::new(&upstream, domains(&["*.ok.net"])).await;
    for name in ["a.ok.net", "a.b.ok.net"] {
        assert_eq!(
            lab.ask(name, RecordType::A).await.addresses().len(),
            1,
            "{name}"
        );
    }
    let asked = upstream.log().len();
    for name in ["notok.net", "ok.net.evil.net", "xok.net"] {
        assert_denied(&lab.ask(name, RecordType::A).await, "name_not_allowed");
    }
    assert!(lab.ask("ok.net", RecordType::A).await.is_nodata());
    assert_eq!(upstream.log().len(), asked);
}

#[tokio::test]
async fn ancestor_of_a_permitted_name_exists_and_holds_nothing() {
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["a.b.ok.net"])).await;
    for name in ["b.ok.net", "ok.net", "net"] {
        let reply = lab.ask(name, RecordType::A).await;
        assert!(reply.is_nodata(), "{name}: {reply:?}");
        assert_eq!(reply.explanation().unwrap().1, "name_not_allowed");
    }
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn no_network_means_no_dns_except_the_broker() {
    // NET-49
    let upstream = web();
    let lab = Lab::new(&upstream, policy(NetworkMode::None, &[], &[])).await;
    for kind in [RecordType::A, RecordType::TXT, RecordType::AAAA] {
        assert_denied(&lab.ask("ok.net", kind).await, "network_none");
    }
    let broker = "broker.sallyport.internal";
    assert_eq!(
        lab.ask(broker, RecordType::A).await.addresses(),
        [std::net::IpAddr::V4(SERVICE_V4)]
    );
    assert_eq!(
        lab.ask(broker, RecordType::AAAA).await.addresses(),
        [std::net::IpAddr::V6(SERVICE_V6)]
    );
    assert!(lab.ask(broker, RecordType::TXT).await.is_nodata());
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn sealed_gateway_answers_nothing_but_its_own_names() {
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    let asked = upstream.log().len();
    lab.seal.send(false).unwrap();
    // also what the cache knows: the verdict comes first
    for name in ["ok.net", "a.ok.net"] {
        let reply = lab.ask(name, RecordType::A).await;
        assert_denied(&reply, "gateway_sealed");
        assert_eq!(reply.explanation().unwrap().0, 14);
    }
    assert_eq!(
        lab.ask("broker.sallyport.internal", RecordType::A)
            .await
            .addresses()
            .len(),
        1
    );
    assert_eq!(upstream.log().len(), asked);
    lab.seal.send(true).unwrap();
    assert_eq!(
        lab.ask("a.ok.net", RecordType::A).await.addresses().len(),
        1
    );
}

#[tokio::test]
async fn tightened_policy_denies_what_the_cache_knows() {
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net", "a.ok.net"])).await;
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
    lab.network(2)
        .live
        .store(std::sync::Arc::new(crate::lab::live(domains(&[
            "a.ok.net",
        ]))));
    assert!(lab.ask("ok.net", RecordType::A).await.is_nodata());
    assert_eq!(
        lab.ask("a.ok.net", RecordType::A).await.addresses().len(),
        1
    );
}

#[tokio::test]
async fn stranger_gets_no_answer() {
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    let socket = UdpSocket::bind("127.0.0.9:0").await.unwrap();
    let bytes = crate::lab::query("ok.net", RecordType::A).to_vec().unwrap();
    socket.send_to(&bytes, lab.door).await.unwrap();
    // a question of the known sandbox that came later is answered: the earlier one was read and dropped
    assert_eq!(
        lab.ask("a.ok.net", RecordType::A).await.addresses().len(),
        1
    );
    let mut buffer = [0; 512];
    assert!(socket.try_recv_from(&mut buffer).is_err());
    assert_eq!(upstream.asked_for("ok.net"), 0);
}

#[tokio::test]
async fn ended_run_is_told_so() {
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    lab.network(2).ended.cancel();
    assert_denied(&lab.ask("ok.net", RecordType::A).await, "run_ended");
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn permitted_name_that_does_not_exist_says_so() {
    // DNS-38: NXDOMAIN for the name, NODATA for a family that it lacks
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["*.ok.net", "ok.net"])).await;
    let reply = lab.ask("gone.ok.net", RecordType::A).await;
    assert_eq!(reply.code(), ResponseCode::NXDomain);
    assert!(has_short_soa(&reply) && reply.explanation().is_none());
    let reply = lab.ask("ok.net", RecordType::AAAA).await;
    assert!(reply.is_nodata(), "{reply:?}");
}

#[tokio::test]
async fn service_questions_inherit_the_permission_of_their_host() {
    // DNS-23
    let upstream = Upstream::start(|_, _, _| Say::nothing());
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    for (name, kind) in [
        ("_http._tcp.ok.net", RecordType::SRV),
        ("_8443._https.ok.net", RecordType::HTTPS),
    ] {
        assert!(lab.ask(name, kind).await.is_nodata(), "{name}");
        assert_eq!(upstream.asked_for(name), 1);
    }
    for name in [
        "_http._tcp.evil.net",
        "_x.ok.net",
        "a._tcp.ok.net",
        "_dmarc.evil.net",
    ] {
        assert_denied(&lab.ask(name, RecordType::SRV).await, "name_not_allowed");
    }
    lab.attach(3, domains(&["*.ok.net"]));
    for name in [
        "_acme-challenge.ok.net",
        "_dmarc.ok.net",
        "my_service.ok.net",
    ] {
        assert!(
            lab.ask_as(3, name, RecordType::TXT).await.is_nodata(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn every_denial_is_in_the_record_with_the_line_that_made_it() {
    let upstream = Upstream::zone(vec![
        host("ok.net", "93.184.216.34"),
        host("inside.net", "10.0.0.5"),
    ]);
    let lab = Lab::new(
        &upstream,
        policy(NetworkMode::Internet, &[], &["*.evil.net"]),
    )
    .await;
    lab.ask("x.evil.net", RecordType::TXT).await;
    lab.ask("inside.net", RecordType::A).await;
    lab.ask("ok.net", RecordType::A).await;
    let entries = lab.entries();
    let [Entry::Denial(named), Entry::Denial(inside)] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(named.subject.name.as_deref(), Some("x.evil.net"));
    assert_eq!(
        (named.subject.door, named.subject.port, named.reason),
        (Door::Dns, 0, Reason::NameDenied)
    );
    assert_eq!(
        named.by.as_ref().map(|by| (&*by.at.file, by.at.line)),
        Some(("lab.yaml", 10))
    );
    assert_eq!(
        (inside.reason, inside.class),
        (Reason::NameResolvesToForbidden, Some(Class::Private))
    );
}

#[tokio::test]
async fn failed_look_up_is_recorded_as_a_failure() {
    let upstream = Upstream::start(|_, _, _| Say::code(ResponseCode::Refused));
    let lab = Lab::new(&upstream, internet()).await;
    assert_eq!(
        lab.ask("ok.net", RecordType::A).await.code(),
        ResponseCode::ServFail
    );
    let entries = lab.entries();
    let [Entry::Failure(failure)] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(failure.reason, Reason::NameUnresolvable);
}
