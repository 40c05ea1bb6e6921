//! The way in: decided, limited, cut and recorded like a way out.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::lab::*;
use crate::control::api::IngressRequest;
use crate::kernel::pace::Pace;
use crate::record::Entry;

fn ask(port: u16) -> IngressRequest {
    IngressRequest { port, v6: false }
}

fn listener(sandbox: &Sandbox, port: u16) -> TcpListener {
    sandbox.run(move || TcpListener::bind(("0.0.0.0", port)).unwrap())
}

/// Ends of ways in, in the order in which they came.
fn ends(lab: &Lab) -> Vec<String> {
    lab.block(async |c| {
        let mut lines = c.records(0).await.unwrap();
        let mut ends = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            if let Entry::Close(close) = line.entry {
                ends.push(close.end);
            }
        }
        ends
    })
}

#[test]
fn the_way_in_needs_an_entry_and_is_recorded() {
    let lab = Lab::started();
    let sandbox = lab.attach("policy: app\nnetwork: none\ningress:\n  - ports: [8080]\n");
    let listeners =
        sandbox.run(|| [8080, 8081].map(|port| TcpListener::bind(("0.0.0.0", port)).unwrap()));
    let [open, closed] = listeners;
    let server = std::thread::spawn(move || {
        let (mut stream, from) = open.accept().unwrap();
        let mut request = [0; 4];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"pong").unwrap();
        (request, from.ip())
    });
    let ask = |port| IngressRequest { port, v6: false };
    let denied = lab.block(async |c| c.ingress(&sandbox.view.id, &ask(8081)).await.err().unwrap());
    assert_eq!(denied.problem().unwrap().code, "denied");
    closed.set_nonblocking(true).unwrap();
    assert!(closed.accept().is_err(), "nothing was dialled");
    let answer = lab.block(async |c| {
        let mut stream = c.ingress(&sandbox.view.id, &ask(8080)).await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.unwrap();
        answer
    });
    assert_eq!(&answer, b"pong");
    assert_eq!(
        server.join().unwrap(),
        (*b"ping", std::net::IpAddr::V4(sandbox.view.service_v4))
    );
    eventually("the end in the record", || {
        lab.block(async |c| {
            let mut lines = c.records(0).await.unwrap();
            while let Some(line) = lines.next().await.unwrap() {
                if matches!(&line.entry, Entry::Close(close) if close.up == 4 && close.down == 4) {
                    return Some(());
                }
            }
            None
        })
    });
}

#[test]
fn a_replaced_policy_cuts_the_ways_in_that_it_does_not_name_and_keeps_the_others() {
    let lab = Lab::started();
    let sandbox =
        lab.attach("policy: app\nnetwork: none\ningress:\n  - ports: [8080]\n  - ports: [8081]\n");
    let inside = [8080, 8081].map(|port| listener(&sandbox, port));
    lab.block(async |c| {
        let id = &sandbox.view.id;
        let mut cut = c.ingress(id, &ask(8080)).await.unwrap();
        let mut kept = c.ingress(id, &ask(8081)).await.unwrap();
        let [mut to_cut, mut to_keep] = inside.each_ref().map(|l| l.accept().unwrap().0);
        let (pace, began) = (Pace::watch(), Instant::now());
        let fewer = "policy: app\nnetwork: none\ningress:\n  - ports: [8081]\n";
        let replaced = c.replace_policy(id, &document(fewer)).await.unwrap();
        assert_eq!(replaced.cut, 1);
        assert_eq!(
            cut.read(&mut [0]).await.unwrap_or(0),
            0,
            "the outer half is over"
        );
        to_cut
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        assert_eq!(
            to_cut.read(&mut [0]).unwrap_or(0),
            0,
            "the inner half is over"
        );
        assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
        let denied = c.ingress(id, &ask(8080)).await.err().unwrap();
        assert_eq!(denied.problem().unwrap().code, "denied");
        to_keep.write_all(b"still here").unwrap();
        let mut said = [0; 10];
        kept.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"still here");
    });
    eventually("the cut in the record", || {
        ends(&lab)
            .iter()
            .any(|end| end == "policy_superseded")
            .then_some(())
    });
}

#[test]
fn a_way_in_that_was_being_opened_when_its_entry_went_is_not_opened() {
    let lab = Lab::started();
    let sandbox = lab.attach("policy: app\nnetwork: none\ningress:\n  - ports: [8080]\n");
    // Room for one that nobody accepts: the second waits.
    let inside = sandbox.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let address: std::net::SocketAddr = "0.0.0.0:8080".parse().unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(0).unwrap();
        TcpListener::from(socket)
    });
    let id = sandbox.view.id.clone();
    let (first, second) = lab.block(async |c| {
        let first = c.ingress(&id, &ask(8080)).await.unwrap();
        let (asked, second) = (ask(8080), c.clone());
        let second = second.ingress(&id, &asked);
        let replaced = async {
            // the second is dialling when a place of its network is taken
            while c.health().await.is_ok()
                && lab.within().ctx.networks.by_id(&id).unwrap().ledger.flows() < 2
            {}
            c.replace_policy(&id, &document("policy: app\nnetwork: none\n"))
                .await
                .unwrap();
            inside.accept().unwrap()
        };
        let (second, _accepted) = tokio::join!(second, replaced);
        (first, second)
    });
    let Err(refused) = second else {
        panic!("the second way in was opened");
    };
    assert_eq!(refused.problem().unwrap().code, "denied");
    drop(first);
    let flows = lab.block(async |c| c.flows(Some(&id)).await.unwrap());
    assert!(flows.is_empty(), "{flows:?}");
}

#[test]
fn ways_in_count_against_the_limits_of_their_network() {
    let lab = Lab::started();
    let sandbox = lab.attach(
        "policy: app\nnetwork: none\ningress:\n  - ports: [8080]\nlimits: { flows: 1, download: 1KB }\n",
    );
    let inside = listener(&sandbox, 8080);
    lab.block(async |c| {
        let id = &sandbox.view.id;
        let mut way = c.ingress(id, &ask(8080)).await.unwrap();
        let mut accepted = inside.accept().unwrap().0;
        let error = c.ingress(id, &ask(8080)).await.err().unwrap();
        assert!(error.to_string().contains("limit_flows"), "{error}");
        way.write_all(&[1; 1000]).await.unwrap();
        accepted.read_exact(&mut [0; 1000]).unwrap();
        way.write_all(&[2]).await.unwrap();
        accepted
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        match accepted.read(&mut [0]) {
            Ok(count) => assert_eq!(count, 0, "the byte above the budget never arrives"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        let error = c.ingress(id, &ask(8080)).await.err().unwrap();
        assert!(error.to_string().contains("limit_download"), "{error}");
    });
    eventually("the end in the record", || {
        (ends(&lab) == ["limit_download"]).then_some(())
    });
}
