//! `tls` and `any` flows through the transparent door.

use gateway::record::Entry;
use tokio::io::AsyncWriteExt;

use crate::lab::{
    ORIGIN, accept, eventually, hello, is_reset, nothing_reached, read, rest, run, write,
};

pub const DOMAINS: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n  - host: ok.net\n    ports: [22, 5432]\n    speaks: any\n";
pub const INTERNET: &str = "policy: p\nnetwork: internet\ndeny:\n  - host: evil.net\n";
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[test]
fn a_permitted_hello_reaches_its_origin_byte_for_byte() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("ok.net"), 443);
        let said = hello("ok.net");
        // in three segments: nothing may arrive before the whole hello was read
        write(&mut client, &said[..7]).await;
        let mut server = accept(&origin).await;
        write(&mut client, &said[7..20]).await;
        let mut one = [0];
        let early =
            tokio::time::timeout(std::time::Duration::from_millis(50), server.peek(&mut one)).await;
        assert!(early.is_err(), "a prefix of the hello was forwarded");
        write(&mut client, &said[20..]).await;
        assert_eq!(read(&mut server, said.len()).await, said);
        write(&mut server, b"answer").await;
        assert_eq!(read(&mut client, 6).await, b"answer");
        drop(client);
        assert_eq!(rest(&mut server).await.unwrap(), b"");
        drop(server);
        assert_eq!(lab.ends(1).await, ["client_closed"]);
        let entries = lab.entries();
        let Some(Entry::Open(open)) = entries.first() else {
            panic!("{entries:?}")
        };
        assert_eq!(open.subject.name.as_deref(), Some("ok.net"));
        assert_eq!(open.upstream.ip(), ORIGIN);
        let Some(Entry::Close(close)) = entries.last() else {
            panic!("{entries:?}")
        };
        assert_eq!(
            (close.up, close.down, close.sni.as_deref()),
            (said.len() as u64, 6, Some("ok.net"))
        );
    });
}

#[test]
fn a_stream_with_pauses_arrives_byte_for_byte_and_holds_no_pipe_while_it_is_idle() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("ok.net"), 443);
        let said = hello("ok.net");
        write(&mut client, &said).await;
        let mut server = accept(&origin).await;
        read(&mut server, said.len()).await;
        // bulk, a piece, bulk that begins where the last pause ended; each is awaited, so each is followed by a pause
        for burst in [300_000_u32, 3, 70_000, 17_000, 900_000] {
            let bytes: Vec<u8> = (0..burst).map(|n| (n % 251) as u8).collect();
            let (written, arrived) =
                tokio::join!(server.write_all(&bytes), read(&mut client, bytes.len()));
            written.unwrap();
            assert!(arrived == bytes, "a burst of {burst} arrived changed");
        }
        eventually(|| (lab.ctx.ceilings.pipes().0 == 0).then_some(())).await;
        write(&mut server, b"after").await;
        assert_eq!(read(&mut client, 5).await, b"after");
    });
}

#[test]
fn tls_02_another_name_is_denied_with_an_alert_and_not_forwarded() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("ok.net"), 443);
        write(&mut client, &hello("evil.net")).await;
        let mut server = accept(&origin).await;
        assert!(
            !matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()),
            "bytes reached the origin"
        );
        assert_eq!(rest(&mut client).await.unwrap(), ACCESS_DENIED);
        assert_eq!(lab.ends(1).await, ["tls_name_mismatch"]);
        assert_eq!(lab.denials(), ["tls_name_mismatch"]);
    });
}

#[test]
fn tls_30_plain_text_on_a_tls_rule_is_reset() {
    run(DOMAINS, |lab| async move {
        lab.door(443);
        let _origin = lab.origin(443).await;
        for said in [
            &b"GET / HTTP/1.1\r\nHost: ok.net\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
        ] {
            let mut client = lab.connect(lab.lease("ok.net"), 443);
            write(&mut client, said).await;
            assert!(is_reset(&rest(&mut client).await));
        }
        assert_eq!(lab.ends(2).await, ["tls_malformed", "tls_malformed"]);
    });
}

#[test]
fn a_name_that_is_not_permitted_dials_nothing() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("evil.net"), 443);
        assert!(is_reset(&rest(&mut client).await));
        let mut unleased = lab.connect([198, 19, 7, 7], 443);
        assert!(is_reset(&rest(&mut unleased).await));
        nothing_reached(&origin).await;
        assert_eq!(lab.denials(), ["name_not_allowed", "lease_unknown"]);
    });
}

#[test]
fn tls_01_a_permitted_name_to_an_address_that_is_not_its_own_gets_no_syn() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect([93, 184, 216, 35], 443);
        write(&mut client, &hello("ok.net")).await;
        assert_eq!(rest(&mut client).await.unwrap(), ACCESS_DENIED);
        nothing_reached(&origin).await;
        // its own address, unleased, is permitted once the name is heard
        let mut client = lab.connect(ORIGIN, 443);
        write(&mut client, &hello("ok.net")).await;
        let mut server = accept(&origin).await;
        assert_eq!(
            read(&mut server, hello("ok.net").len()).await,
            hello("ok.net")
        );
        assert_eq!(lab.denials(), ["address_not_allowed"]);
    });
}

#[test]
fn tls_32_a_server_that_speaks_first_is_not_delayed() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        // the best of a few: a busy machine may be slow by itself, a delay is there every time
        let most = std::time::Duration::from_millis(300);
        let mut tries = 0;
        let (mut client, mut server) = loop {
            let began = std::time::Instant::now();
            let mut client = lab.connect(lab.lease("ok.net"), 22);
            let mut server = accept(&origin).await;
            write(&mut server, b"SSH-2.0-server\r\n").await;
            assert_eq!(read(&mut client, 16).await, b"SSH-2.0-server\r\n");
            if began.elapsed() < most {
                break (client, server);
            }
            tries += 1;
            assert!(tries < 5, "{:?}", began.elapsed());
        };
        write(&mut client, b"S").await;
        assert_eq!(
            read(&mut server, 1).await,
            b"S",
            "and neither is the client"
        );
    });
}

#[test]
fn a_client_that_says_one_byte_and_waits_is_answered() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(5432).await;
        lab.door(5432);
        let mut client = lab.connect(lab.lease("ok.net"), 5432);
        write(&mut client, b"x").await;
        let mut server = accept(&origin).await;
        assert_eq!(read(&mut server, 1).await, b"x");
        write(&mut server, b"y").await;
        assert_eq!(read(&mut client, 1).await, b"y");
    });
}

#[test]
fn tls_31_a_name_inside_an_any_flow_must_agree_also_after_the_server_spoke() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        for said in [
            hello("evil.net"),
            b"GET / HTTP/1.1\r\nHost: evil.net\r\n\r\n".to_vec(),
        ] {
            let mut client = lab.connect(lab.lease("ok.net"), 22);
            let mut server = accept(&origin).await;
            write(&mut server, b"220 hi\r\n").await;
            read(&mut client, 8).await;
            write(&mut client, &said).await;
            assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        }
        assert_eq!(
            lab.ends(2).await,
            ["tls_name_mismatch", "http_host_mismatch"]
        );
    });
}

#[test]
fn a_request_to_a_server_that_is_none_of_http_is_denied_with_the_line_that_let_the_flow_in() {
    const JUDGED: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [22]\n    speaks: any\ndeny:\n  - host: evil.net\n";
    run(JUDGED, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        write(&mut server, b"SSH-2.0-x\r\n").await;
        read(&mut client, 11).await;
        write(&mut client, b"GET / HTTP/1.1\r\nHost: ok.net\r\n\r\n").await;
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        assert_eq!(lab.ends(1).await, ["http_malformed"]);
        let by = lab.entries().into_iter().find_map(|entry| {
            if let Entry::Denial(denied) = entry {
                denied.by
            } else {
                None
            }
        });
        assert_eq!(by.map(|by| by.at.line), Some(4));
    });
}

#[test]
fn in_internet_a_denied_name_is_heard_before_anything_is_dialled() {
    run(INTERNET, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(ORIGIN, 443);
        write(&mut client, &hello("evil.net")).await;
        assert_eq!(rest(&mut client).await.unwrap(), ACCESS_DENIED);
        nothing_reached(&origin).await;
        let mut client = lab.connect(ORIGIN, 443);
        write(&mut client, &hello("anything.net")).await;
        let mut server = accept(&origin).await;
        read(&mut server, hello("anything.net").len()).await;
        assert_eq!(lab.denials(), ["name_denied"]);
    });
}

#[test]
fn in_internet_a_silent_client_reaches_a_server_that_speaks_first() {
    run(INTERNET, |lab| async move {
        let origin = lab.origin(25).await;
        lab.door(25);
        let began = std::time::Instant::now();
        let mut client = lab.connect(ORIGIN, 25);
        let mut server = accept(&origin).await;
        assert!(began.elapsed() < std::time::Duration::from_secs(1));
        write(&mut server, b"220 hi\r\n").await;
        assert_eq!(read(&mut client, 8).await, b"220 hi\r\n");
        // and what the client then says is still judged
        write(&mut client, &hello("evil.net")).await;
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        assert_eq!(lab.denials(), ["name_denied"]);
    });
}

#[test]
fn a_stranger_is_reset() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut stranger = lab.connect_as([127, 0, 0, 9].into(), lab.lease("ok.net"), 22);
        assert!(is_reset(&rest(&mut stranger).await));
        nothing_reached(&origin).await;
        assert!(lab.entries().is_empty());
    });
}

#[test]
fn tls_13_and_34_a_head_that_is_due_is_waited_for_ten_seconds() {
    let policy = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n";
    run(policy, |lab| async move {
        let (tls, _http) = (lab.origin(443).await, lab.origin(80).await);
        lab.door(443);
        lab.door(80);
        let lease = lab.lease("ok.net");
        let began = std::time::Instant::now();
        let mut stalled = lab.connect(lease, 443);
        write(&mut stalled, &[22]).await;
        let mut server = accept(&tls).await;
        let mut silent = lab.connect(lease, 443);
        let mut slow = lab.connect(lease, 80);
        write(&mut slow, b"GET / HTTP/1.1\r\nHost: ok").await;
        let (stalled, silent, slow, reached) = tokio::join!(
            rest(&mut stalled),
            rest(&mut silent),
            rest(&mut slow),
            rest(&mut server)
        );
        let waited = began.elapsed().as_secs();
        assert!((9..25).contains(&waited), "{waited} s");
        assert_eq!(stalled.unwrap(), ACCESS_DENIED);
        assert!(is_reset(&silent));
        assert!(slow.unwrap().starts_with(b"HTTP/1.1 400 "));
        assert!(!matches!(reached, Ok(bytes) if !bytes.is_empty()));
        assert_eq!(lab.denials().len(), 3);
    });
}

#[test]
fn ipv6_is_served_and_denied_alike() {
    run(INTERNET, |lab| async move {
        let there = std::net::Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 0x34);
        // its addresses are routed here without being anybody's own, so binding one needs an option
        let socket =
            socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        socket.set_freebind_v6(true).unwrap();
        socket
            .bind(&std::net::SocketAddr::from((there, 443)).into())
            .unwrap();
        socket.listen(16).unwrap();
        socket.set_nonblocking(true).unwrap();
        let origin = tokio::net::TcpListener::from_std(socket.into()).unwrap();
        lab.door_v6(443);
        let sandbox: std::net::SocketAddr = (lab.network.v6, 0).into();
        let mut client = lab.connect_with(sandbox, (there, 443).into());
        write(&mut client, &hello("evil.net")).await;
        assert_eq!(rest(&mut client).await.unwrap(), ACCESS_DENIED);
        let mut client = lab.connect_with(
            sandbox,
            ("fd00::5".parse::<std::net::IpAddr>().unwrap(), 443).into(),
        );
        assert!(is_reset(&rest(&mut client).await));
        nothing_reached(&origin).await;
        let mut client = lab.connect_with(sandbox, (there, 443).into());
        write(&mut client, &hello("good.net")).await;
        let mut server = accept(&origin).await;
        assert_eq!(
            read(&mut server, hello("good.net").len()).await,
            hello("good.net")
        );
        assert_eq!(lab.denials(), ["name_denied", "address_private"]);
    });
}
