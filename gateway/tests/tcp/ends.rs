//! How flows end, and that both sides hear of it: half closes, resets, ended networks, policies and seals.

use netpolicy::reason::Reason;
use tokio::io::AsyncWriteExt;

use crate::lab::{accept, eventually, hello, is_reset, nothing_reached, read, rest, run, write};
use crate::stream::DOMAINS;

#[test]
fn http_17_half_closes_are_passed_on_both_ways() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        write(&mut client, b"\0question").await;
        client.shutdown().await.unwrap();
        assert_eq!(rest(&mut server).await.unwrap(), b"\0question");
        let long = vec![7; 3 << 20];
        let sent = long.clone();
        let ((), got) = tokio::join!(
            async move {
                write(&mut server, &sent).await;
                drop(server);
            },
            rest(&mut client)
        );
        assert!(got.unwrap() == long, "all of it after the half-close");
        assert_eq!(lab.ends(1).await, ["client_closed"]);
        // and the other way round
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        server.shutdown().await.unwrap();
        assert_eq!(rest(&mut client).await.unwrap(), b"");
        let upload = vec![1; 2 << 20];
        let sent = upload.clone();
        let ((), got) = tokio::join!(
            async move {
                write(&mut client, &sent).await;
                drop(client);
            },
            rest(&mut server)
        );
        assert!(got.unwrap() == upload);
        assert_eq!(lab.ends(2).await[1], "server_closed");
    });
}

#[test]
fn a_reset_is_mirrored_as_a_reset() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let linger = |stream: &tokio::net::TcpStream| {
            socket2::SockRef::from(stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        };
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let server = accept(&origin).await;
        lab.flows(1).await;
        linger(&server);
        drop(server);
        assert!(is_reset(&rest(&mut client).await));
        let client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        lab.flows(1).await;
        linger(&client);
        drop(client);
        assert!(is_reset(&rest(&mut server).await));
        assert_eq!(lab.ends(2).await, ["reset", "reset"]);
    });
}

#[test]
fn net_43_an_ended_flow_is_reset_on_both_sides_at_once() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        write(&mut client, b"\0").await;
        read(&mut server, 1).await;
        lab.network.flows.end_all(Reason::RunEnded);
        assert!(is_reset(&rest(&mut client).await));
        assert!(is_reset(&rest(&mut server).await));
        assert_eq!(lab.ends(1).await, ["run_ended"]);
        eventually(|| {
            (lab.network.flows.all().is_empty() && lab.network.ledger.flows() == 0).then_some(())
        })
        .await;
    });
}

#[test]
fn a_tightened_policy_decides_bytes_that_come_after_it() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("ok.net"), 443);
        let mut server = accept(&origin).await;
        lab.flows(1).await;
        lab.replace("policy: p\nnetwork: domains\nallow:\n  - host: other.net\n");
        write(&mut client, &hello("ok.net")).await;
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        assert_eq!(lab.ends(1).await, ["name_not_allowed"]);
    });
}

#[test]
fn a_sealed_gateway_opens_nothing_and_keeps_what_is_open() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut before = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        lab.flows(1).await;
        lab.seal.send_replace(false);
        let mut after = lab.connect(lab.lease("ok.net"), 22);
        assert!(is_reset(&rest(&mut after).await));
        nothing_reached(&origin).await;
        write(&mut before, b"\0").await;
        assert_eq!(read(&mut server, 1).await, b"\0");
        assert_eq!(lab.denials(), ["gateway_sealed"]);
    });
}
