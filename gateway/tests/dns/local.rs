//! Names that mean something here or nothing: special-use names, reverse names, the product's own, metadata.

use hickory_proto::rr::{RData, RecordType};
use netpolicy::policy::{NetworkMode, Policy};

use crate::lab::{Lab, Read as _, assert_denied, internet, policy};
use crate::upstream::{Upstream, host};
use crate::verdicts::web;

#[tokio::test]
async fn special_names_never_leave_the_machine() {
    // DNS-37, in the widest mode
    let upstream = Upstream::zone(vec![
        host("nas.local", "93.184.216.34"),
        host("ok.net", "93.184.216.34"),
    ]);
    let lab = Lab::new(&upstream, internet()).await;
    for name in [
        "router",
        "nas.local",
        "x.internal",
        "x.home.arpa",
        "x.onion",
        "x.alt",
        "x.test",
        "x.invalid",
    ] {
        assert_denied(&lab.ask(name, RecordType::A).await, "name_not_allowed");
    }
    assert_eq!(
        lab.ask("x.localhost", RecordType::A).await.addresses()[0].to_string(),
        "127.0.0.1"
    );
    assert_eq!(
        lab.ask("localhost", RecordType::AAAA).await.addresses()[0].to_string(),
        "::1"
    );
    assert_eq!(
        lab.ask("sandbox", RecordType::A).await.addresses()[0].to_string(),
        "127.0.0.2"
    );
    assert!(upstream.log().is_empty());
    // the twin: a rule names it and `private: true`; never .onion and .alt
    lab.attach(
        3,
        Policy {
            private: true,
            ..policy(
                NetworkMode::Internet,
                &["nas.local", "x.onion", "x.alt"],
                &[],
            )
        },
    );
    assert_eq!(
        lab.ask_as(3, "nas.local", RecordType::A)
            .await
            .addresses()
            .len(),
        1
    );
    for name in ["x.onion", "x.alt"] {
        assert_denied(
            &lab.ask_as(3, name, RecordType::A).await,
            "name_not_allowed",
        );
    }
    assert_eq!(upstream.log().len(), 2);
}

#[tokio::test]
async fn names_of_the_product_are_nobodys_to_define() {
    let upstream = Upstream::zone(vec![host("x.sallyport.internal", "93.184.216.34")]);
    let all = policy(
        NetworkMode::Domains,
        &["*.sallyport.internal", "*.internal"],
        &[],
    );
    let lab = Lab::new(
        &upstream,
        Policy {
            private: true,
            ..all
        },
    )
    .await;
    assert_denied(
        &lab.ask("x.sallyport.internal", RecordType::A).await,
        "name_not_allowed",
    );
    assert!(
        lab.ask("sallyport.internal", RecordType::A)
            .await
            .is_nodata()
    );
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn reverse_names_are_answered_from_leases_or_not_at_all() {
    // DNS-35
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    let ips = [
        "5.0.0.10.in-addr.arpa",
        "254.169.254.169.in-addr.arpa",
        "d.f.ip6.arpa",
        "34.216.184.93.in-addr.arpa",
    ];
    for name in ips {
        assert_denied(&lab.ask(name, RecordType::PTR).await, "name_not_allowed");
    }
    assert!(upstream.log().is_empty());
    let lease = lab.ask("ok.net", RecordType::A).await.addresses()[0];
    let reply = lab
        .ask(
            &hickory_proto::rr::Name::from(lease).to_ascii(),
            RecordType::PTR,
        )
        .await;
    let [record] = reply.answers.as_slice() else {
        panic!("{reply:?}")
    };
    assert!(
        matches!(&record.data, RData::PTR(name) if name.0.to_ascii() == "ok.net."),
        "{record:?}"
    );
    // another network's lease is nothing here
    lab.attach(3, internet());
    let reply = lab
        .ask_as(
            3,
            &hickory_proto::rr::Name::from(lease).to_ascii(),
            RecordType::PTR,
        )
        .await;
    assert_denied(&reply, "name_not_allowed");
}

#[tokio::test]
async fn metadata_names_are_denied_in_every_mode() {
    let upstream = Upstream::zone(vec![host("metadata.google.internal", "169.254.169.254")]);
    let open = policy(NetworkMode::Internet, &["metadata.google.internal"], &[]);
    let lab = Lab::new(
        &upstream,
        Policy {
            private: true,
            ..open
        },
    )
    .await;
    assert_denied(
        &lab.ask("metadata.google.internal", RecordType::A).await,
        "address_metadata",
    );
    assert!(upstream.log().is_empty());
}
