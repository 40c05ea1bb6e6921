//! Records of other types, records nobody asked for, and how long records live.

use hickory_proto::rr::rdata::svcb::{
    Alpn, EchConfigList, IpHint, Mandatory, SVCB, SvcParamKey, SvcParamValue, Unknown,
};
use hickory_proto::rr::rdata::{A, AAAA, HTTPS, MX, SRV, TXT};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::answers::ip;
use crate::lab::{Lab, Read as _, assert_denied, domains, internet, real};
use crate::upstream::{Say, Upstream, host, record, timed};

fn service(priority: u16, target: &str, params: Vec<(SvcParamKey, SvcParamValue)>) -> RData {
    RData::HTTPS(HTTPS(SVCB::new(
        priority,
        Name::from_ascii(target).unwrap(),
        params,
    )))
}

#[tokio::test]
async fn service_records_lose_hints_ech_and_the_unknown() {
    // DNS-32, DNS-33
    use SvcParamKey as Key;
    use SvcParamValue as Value;
    let params = vec![
        (Key::Alpn, Value::Alpn(Alpn(vec!["h3".to_owned()]))),
        (Key::Port, Value::Port(8443)),
        (
            Key::Ipv4Hint,
            Value::Ipv4Hint(IpHint(vec![A::new(10, 0, 0, 5)])),
        ),
        (
            Key::EchConfigList,
            Value::EchConfigList(EchConfigList(vec![1; 64])),
        ),
        (
            Key::Ipv6Hint,
            Value::Ipv6Hint(IpHint(vec![AAAA("fd00::5".parse().unwrap())])),
        ),
        (Key::Key(65280), Value::Unknown(Unknown(vec![9; 1000]))),
    ];
    let must = |key| {
        vec![
            (Key::Mandatory, Value::Mandatory(Mandatory(vec![key]))),
            (Key::Port, Value::Port(443)),
        ]
    };
    let upstream = Upstream::zone(vec![
        record("ok.net", 60, service(1, "svc.evil.net.", params)),
        record("ok.net", 60, service(2, ".", must(Key::Port))),
        record("ok.net", 60, service(3, ".", must(Key::EchConfigList))),
        record("alias.net", 60, service(0, "x.evil.net.", Vec::new())),
    ]);
    let lab = Lab::new(&upstream, domains(&["ok.net", "alias.net"])).await;
    let reply = lab.ask("ok.net", RecordType::HTTPS).await;
    let seen: Vec<&SVCB> = reply
        .answers
        .iter()
        .map(|r| {
            if let RData::HTTPS(h) = &r.data {
                &h.0
            } else {
                panic!()
            }
        })
        .collect();
    let [first, second] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    let keys: Vec<Key> = first.svc_params.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [Key::Alpn, Key::Port]);
    assert_eq!(first.target_name.to_ascii(), "svc.evil.net.");
    assert_eq!(second.svc_priority, 2);
    assert_eq!(
        lab.ask("alias.net", RecordType::HTTPS).await.answers.len(),
        1
    );
    // a target is not permitted by being a target
    for name in ["svc.evil.net", "x.evil.net"] {
        for kind in [RecordType::A, RecordType::HTTPS, RecordType::SVCB] {
            assert_denied(&lab.ask(name, kind).await, "name_not_allowed");
        }
        assert_eq!(upstream.asked_for(name), 0);
    }
}

#[tokio::test]
async fn other_types_pass_and_permit_nothing() {
    let name = |text: &str| Name::from_ascii(text).unwrap();
    let unknown = RData::Unknown {
        code: RecordType::Unknown(65534),
        rdata: hickory_proto::rr::rdata::NULL::with(vec![1, 2, 3]),
    };
    let upstream = Upstream::zone(vec![
        record("ok.net", 60, RData::MX(MX::new(10, name("mail.evil.net.")))),
        record(
            "ok.net",
            60,
            RData::TXT(TXT::new(vec!["v=spf1".to_owned()])),
        ),
        record(
            "ok.net",
            60,
            RData::SRV(SRV::new(1, 2, 443, name("srv.evil.net."))),
        ),
        record("ok.net", 60, unknown),
    ]);
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let mail = lab.ask("ok.net", RecordType::MX).await;
    assert!(
        matches!(&mail.answers[0].data, RData::MX(mx) if mx.exchange == name("mail.evil.net.")),
        "{mail:?}"
    );
    let service = lab.ask("ok.net", RecordType::SRV).await;
    assert!(
        matches!(&service.answers[0].data, RData::SRV(srv) if srv.target == name("srv.evil.net."))
    );
    for kind in [RecordType::TXT, RecordType::Unknown(65534)] {
        assert_eq!(lab.ask("ok.net", kind).await.answers.len(), 1, "{kind}");
    }
    assert!(lab.ask("ok.net", RecordType::CAA).await.is_nodata());
    for target in ["mail.evil.net", "srv.evil.net"] {
        assert_denied(&lab.ask(target, RecordType::A).await, "name_not_allowed");
    }
}

#[tokio::test]
async fn unrelated_records_are_neither_answered_nor_kept() {
    // DNS-08
    let upstream = Upstream::start(|name, kind, _| match (name, kind) {
        ("ok.net", RecordType::A) => Say {
            answers: vec![
                host("victim.net", "10.0.0.5"),
                host("ok.net", "93.184.216.34"),
                host("other.net", "1.2.3.4"),
            ],
            authorities: vec![host("victim.net", "10.0.0.6")],
            additionals: vec![host("ok.net", "10.0.0.7"), host("other.net", "1.2.3.5")],
            ..Say::default()
        },
        ("other.net", RecordType::A) => Say::records(vec![host("other.net", "93.184.216.35")]),
        _ => Say::nothing(),
    });
    let lab = Lab::new(&upstream, real(domains(&["ok.net", "other.net"]))).await;
    assert_eq!(
        lab.ask("ok.net", RecordType::A).await.addresses(),
        [ip("93.184.216.34")]
    );
    for address in ["10.0.0.5", "1.2.3.4", "10.0.0.7", "1.2.3.5"] {
        assert!(lab.network(2).leases.bound(ip(address)).is_empty());
    }
    assert_eq!(
        lab.ask("other.net", RecordType::A).await.addresses(),
        [ip("93.184.216.35")]
    );
}

#[tokio::test]
async fn lifetimes_are_bounded_both_ways() {
    // DNS-41
    let upstream = Upstream::start(|name, kind, _| {
        let ttl = match name {
            "zero.net" => 0,
            "one.net" => 1,
            "sign.net" => 1 << 31,
            "most.net" => u32::MAX,
            _ => i32::MAX.unsigned_abs(),
        };
        if kind == RecordType::A {
            Say::records(vec![timed(name, "93.184.216.34", ttl)])
        } else {
            Say::nothing()
        }
    });
    let lab = Lab::new(&upstream, internet()).await;
    for (name, expected) in [
        ("zero.net", 0),
        ("one.net", 1),
        ("sign.net", 0),
        ("most.net", 0),
        ("long.net", 60),
    ] {
        let reply = lab.ask(name, RecordType::A).await;
        assert_eq!(reply.answers[0].ttl, expected, "{name}");
    }
    // the lease outlives every TTL
    let lease = lab.ask("zero.net", RecordType::A).await.addresses()[0];
    assert_eq!(
        lab.network(2).leases.find(lease).unwrap().as_str(),
        "zero.net"
    );
}
