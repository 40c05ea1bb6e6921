//! Budgets, paces and places: one sandbox cannot carry data out in names, nor take the door from another.

use std::time::{Duration, Instant};

use gateway::resolve::leases::Paces;
use gateway::resolve::upstream::Scope;
use gateway::resolve::{Resolver, Upstreams};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use crate::lab::{Lab, Read as _, assert_denied, domains, internet, name, query, with_names};
use crate::upstream::{Say, Upstream, host};

/// Every name exists.
fn anything() -> Upstream {
    Upstream::start(|name, kind, _| match kind {
        RecordType::A => Say::records(vec![host(name, "93.184.216.34")]),
        _ => Say::nothing(),
    })
}

#[tokio::test]
async fn distinct_names_are_a_budget_also_when_they_do_not_exist() {
    // DNS-14
    let upstream = Upstream::start(|_, _, _| Say::code(ResponseCode::NXDomain));
    let lab = Lab::new(&upstream, with_names(domains(&["*.ok.net"]), 5)).await;
    for n in 0..5 {
        assert_eq!(
            lab.ask(&format!("n{n}.ok.net"), RecordType::TXT)
                .await
                .code(),
            ResponseCode::NXDomain
        );
    }
    let asked = upstream.log().len();
    for n in 5..30 {
        assert_denied(
            &lab.ask(&format!("n{n}.ok.net"), RecordType::A).await,
            "limit_names",
        );
    }
    assert_eq!(upstream.log().len(), asked);
    // names that were counted stay usable
    assert!(
        lab.ask("n0.ok.net", RecordType::TXT)
            .await
            .explanation()
            .is_none()
    );
    // another network has its own budget
    lab.attach(3, domains(&["*.ok.net"]));
    assert!(
        lab.ask_as(3, "n6.ok.net", RecordType::A)
            .await
            .explanation()
            .is_none()
    );
}

#[tokio::test]
async fn long_names_use_the_budget_up_sooner() {
    // DNS-14: octets count, not only names
    let upstream = anything();
    let lab = Lab::new(&upstream, with_names(domains(&["*.ok.net"]), 10)).await;
    let mut octets = 0;
    let mut denied = 0;
    for n in 0..10 {
        let long = format!("{n}{}.{}.ok.net", "a".repeat(62), "b".repeat(63));
        let reply = lab.ask(&long, RecordType::A).await;
        match reply.explanation() {
            None => octets += long.len(),
            Some((_, text)) => {
                assert_eq!(text, "limit_names");
                denied += 1;
            }
        }
    }
    assert!(
        octets <= 480 && denied >= 6,
        "{octets} octets left, {denied} denied"
    );
}

#[tokio::test]
async fn denied_names_use_no_budget() {
    let upstream = anything();
    let lab = Lab::new(&upstream, with_names(domains(&["ok.net"]), 1)).await;
    for n in 0..50 {
        assert_denied(
            &lab.ask(&format!("n{n}.evil.net"), RecordType::A).await,
            "name_not_allowed",
        );
    }
    assert_eq!(lab.ask("ok.net", RecordType::A).await.addresses().len(), 1);
}

#[tokio::test]
async fn flood_of_unanswered_names_is_bounded_and_leaves_others_alone() {
    // DNS-45
    let upstream = Upstream::start(|name, kind, _| match (name, kind) {
        ("other.net", RecordType::A) => Say::records(vec![host(name, "93.184.216.34")]),
        ("other.net", _) => Say::nothing(),
        _ => Say::silence(),
    });
    let lab = Lab::new(&upstream, with_names(domains(&["*.ok.net"]), 100_000)).await;
    lab.attach(3, domains(&["other.net"]));
    let socket = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    socket.connect(lab.door).await.unwrap();
    for n in 0..2000 {
        socket
            .send(
                &query(&format!("r{n}.ok.net"), RecordType::A)
                    .to_vec()
                    .unwrap(),
            )
            .await
            .unwrap();
        if n % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let started = Instant::now();
    assert_eq!(
        lab.ask_as(3, "other.net", RecordType::A)
            .await
            .addresses()
            .len(),
        1
    );
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).await.unwrap();
    let reply = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(reply.code(), ResponseCode::ServFail);
    assert_eq!(reply.explanation().unwrap().1, "limit_rate");
    let names: std::collections::HashSet<String> =
        upstream.log().into_iter().map(|heard| heard.name).collect();
    assert!(names.len() <= 66, "{} names in flight", names.len());
}

#[tokio::test]
async fn question_rate_is_bounded_per_network() {
    let upstream = anything();
    let lab = Lab::paced(
        &[upstream.address],
        Paces {
            questions: 10,
            lookups: 10,
            in_flight: 4,
        },
    )
    .await;
    lab.attach(2, internet());
    lab.attach(3, internet());
    let socket = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    socket.connect(lab.door).await.unwrap();
    let bytes = query("ok.net", RecordType::A).to_vec().unwrap();
    for _ in 0..200 {
        socket.send(&bytes).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(
        lab.ask_as(3, "ok.net", RecordType::A)
            .await
            .addresses()
            .len(),
        1
    );
    let mut replies = 0;
    let mut buffer = [0; 512];
    while tokio::time::timeout(Duration::from_millis(50), socket.recv(&mut buffer))
        .await
        .is_ok()
    {
        replies += 1;
    }
    assert!(
        (1..=30).contains(&replies),
        "{replies} replies to 200 questions"
    );
}

async fn frame(stream: &mut TcpStream, message: &Message) {
    let bytes = message.to_vec().unwrap();
    let mut framed = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    stream.write_all(&framed).await.unwrap();
}

async fn unframe(stream: &mut TcpStream) -> Option<Message> {
    let length = stream.read_u16().await.ok()?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(Message::from_vec(&bytes).unwrap())
}

#[tokio::test]
async fn streams_get_the_same_verdicts() {
    // DNS-26: 200 pipelined questions, half of them denied
    let upstream = anything();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let mut stream = lab.stream(2).await;
    for n in 0..200 {
        frame(
            &mut stream,
            &query(
                if n % 2 == 0 { "ok.net" } else { "evil.net" },
                RecordType::A,
            ),
        )
        .await;
    }
    for n in 0..200 {
        let reply = unframe(&mut stream).await.unwrap();
        if n % 2 == 0 {
            assert_eq!(reply.addresses().len(), 1);
        } else {
            assert_denied(&reply, "name_not_allowed");
        }
    }
    assert_eq!(upstream.asked_for("evil.net"), 0);
}

#[tokio::test]
async fn idle_and_dribbling_streams_take_nothing_from_others() {
    // DNS-26
    let upstream = anything();
    let lab = Lab::new(&upstream, internet()).await;
    lab.attach(3, internet());
    let mut idle = Vec::new();
    for n in 0..200 {
        let mut stream = lab.stream(2).await;
        if n % 2 == 0 {
            stream.write_all(&[0]).await.unwrap();
        }
        idle.push(stream);
    }
    let started = Instant::now();
    let mut stream = lab.stream(3).await;
    frame(&mut stream, &query("ok.net", RecordType::A)).await;
    assert_eq!(unframe(&mut stream).await.unwrap().addresses().len(), 1);
    assert!(started.elapsed() < Duration::from_millis(500));
    // most of the hoard was closed at once: only a few places belong to one network
    let mut closed = 0;
    for stream in &mut idle {
        let read = tokio::time::timeout(Duration::from_millis(5), stream.read_u8()).await;
        closed += usize::from(matches!(read, Ok(Err(_))));
    }
    assert!(closed >= 184, "{closed} of 200 closed");
}

#[tokio::test]
async fn message_of_no_length_is_malformed_and_half_a_message_ends_the_stream() {
    // DNS-26
    let upstream = anything();
    let lab = Lab::new(&upstream, internet()).await;
    let mut stream = lab.stream(2).await;
    stream.write_all(&[0, 0]).await.unwrap();
    assert!(unframe(&mut stream).await.is_none());
    let mut stream = lab.stream(2).await;
    stream.write_all(&[0, 30, 1, 2, 3]).await.unwrap();
    let started = Instant::now();
    assert!(unframe(&mut stream).await.is_none());
    assert!(started.elapsed() < Duration::from_secs(8));
    let mut stream = lab.stream(2).await;
    frame(&mut stream, &query("ok.net", RecordType::A)).await;
    assert_eq!(unframe(&mut stream).await.unwrap().addresses().len(), 1);
}

#[tokio::test]
async fn silent_servers_of_many_networks_take_no_place_of_another() {
    let upstream = Upstream::start(|name, kind, _| match (name, kind) {
        ("ok.net", RecordType::A) => Say::records(vec![host(name, "93.184.216.34")]),
        ("ok.net", _) => Say::nothing(),
        _ => Say::silence(),
    });
    let resolver = Resolver::new(Upstreams {
        default: vec![upstream.address],
        domains: Vec::new(),
    });
    // ten attackers ask for more than all places there are
    let asked: Vec<_> = (0..10)
        .flat_map(|n| {
            let scope = Scope::fresh();
            (0..60).map(move |m| (scope.clone(), name(&format!("slow{m}.a{n}.net"))))
        })
        .collect();
    let attacks = asked
        .iter()
        .map(|(scope, name)| resolver.addresses(scope, name, &|_| true));
    let attack = futures_util::future::join_all(attacks);
    let victim = async {
        let limit = Instant::now() + Duration::from_secs(10);
        while upstream.log().len() < 600 {
            assert!(Instant::now() < limit, "{} asked", upstream.log().len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (started, scope, wanted) = (Instant::now(), Scope::fresh(), name("ok.net"));
        let found = resolver.addresses(&scope, &wanted, &|_| true).await;
        assert_eq!(found.unwrap().addresses.len(), 1);
        started.elapsed()
    };
    let took = tokio::select! {
        _ = attack => panic!("silent servers answered"),
        took = victim => took,
    };
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn flood_of_names_evicts_nothing_of_another_network() {
    let upstream = Upstream::start(|name, kind, _| match kind {
        RecordType::A => Say::records(
            (0..64)
                .map(|n| host(name, &format!("93.184.216.{n}")))
                .collect(),
        ),
        _ => Say::nothing(),
    });
    let resolver = Resolver::new(Upstreams {
        default: vec![upstream.address],
        domains: Vec::new(),
    });
    let (attacker, victim) = (Scope::fresh(), Scope::fresh());
    let wanted = name("ok.net");
    resolver
        .addresses(&victim, &wanted, &|_| true)
        .await
        .unwrap();
    let names: Vec<_> = (0..600).map(|n| name(&format!("n{n}.net"))).collect();
    for some in names.chunks(20) {
        let all = some
            .iter()
            .map(|name| resolver.addresses(&attacker, name, &|_| true));
        futures_util::future::join_all(all).await;
    }
    // the attacker's own cache is full: it does not hold all of its names
    let now = Instant::now();
    let held = names
        .iter()
        .filter(|name| resolver.known(&attacker, name, now).is_some());
    assert!(held.count() < 500);
    assert!(resolver.known(&victim, &wanted, now).is_some());
}
