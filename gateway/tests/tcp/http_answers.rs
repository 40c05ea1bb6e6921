//! Answers on `http` flows: framings, interim and odd ones, switches, streams, and ends of either side.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::http::{GET, OK, POLICY, asked, pair, start};
use crate::lab::{hears_nothing, is_reset, read, rest, run, write};

#[test]
fn bodies_of_both_framings_pass_exactly() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        let body = vec![b'u'; 300_000];
        let head = format!(
            "POST / HTTP/1.1\r\nHost: ok.net\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), &body].concat();
        let sent = request.clone();
        let ((), got) = tokio::join!(write(&mut client, &sent), read(&mut server, request.len()));
        assert!(got == request);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n";
        write(&mut server, chunked).await;
        assert_eq!(read(&mut client, chunked.len()).await, chunked);
        let post = b"POST / HTTP/1.1\r\nHost: ok.net\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        write(&mut client, post).await;
        assert_eq!(read(&mut server, post.len()).await, post);
        write(&mut server, OK).await;
        assert_eq!(read(&mut client, OK.len()).await, OK);
        // a malformed chunk goes no further
        write(&mut client, b"POST / HTTP/1.1\r\nHost: ok.net\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n").await;
        let got = rest(&mut server).await.unwrap_or_default();
        assert!(
            !got.windows(3).any(|part| part == b"abc"),
            "{}",
            got.escape_ascii()
        );
        assert_eq!(lab.ends(1).await, ["http_malformed"]);
    });
}

#[test]
fn http_12_no_raw_bytes_before_101() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let offer = b"GET /ws HTTP/1.1\r\nHost: ok.net\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let smuggled = b"GET /x HTTP/1.1\r\nHost: evil.net\r\n\r\n";
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, &[&offer[..], smuggled].concat()).await;
        assert_eq!(read(&mut server, offer.len()).await, offer);
        write(&mut server, OK).await;
        assert_eq!(read(&mut client, OK.len()).await, OK);
        assert!(
            rest(&mut client)
                .await
                .unwrap()
                .starts_with(b"HTTP/1.1 403"),
            "parsed as a request, not passed on"
        );
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        // the twin: after 101 both sides say what they like
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, &[&offer[..], b"\x81ahead"].concat()).await;
        read(&mut server, offer.len()).await;
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x82server";
        write(&mut server, switch).await;
        assert_eq!(read(&mut client, switch.len()).await, switch);
        assert_eq!(read(&mut server, 6).await, b"\x81ahead");
        write(&mut client, b"GET / raw").await;
        assert_eq!(read(&mut server, 9).await, b"GET / raw");
        drop(server);
        assert_eq!(rest(&mut client).await.unwrap(), b"");
    });
}

#[test]
fn a_switch_that_nobody_offered_is_never_raw() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = asked(&lab, &origin).await;
        write(&mut server, b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await;
        read(&mut client, 36).await;
        write(&mut client, b"GET /x HTTP/1.1\r\nHost: evil.net\r\n\r\n").await;
        hears_nothing(&server).await;
    });
}

#[test]
fn http_14_a_client_that_waits_for_100_gets_it() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        let head =
            b"PUT / HTTP/1.1\r\nHost: ok.net\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        write(&mut client, head).await;
        assert_eq!(read(&mut server, head.len()).await, head);
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        write(&mut server, interim).await;
        assert_eq!(read(&mut client, interim.len()).await, interim);
        write(&mut client, b"body").await;
        assert_eq!(read(&mut server, 4).await, b"body");
        write(&mut server, OK).await;
        assert_eq!(read(&mut client, OK.len()).await, OK);
    });
}

#[test]
fn an_early_answer_is_delivered_while_the_body_is_still_coming() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(
            &mut client,
            b"PUT / HTTP/1.1\r\nHost: ok.net\r\nContent-Length: 100000000\r\n\r\nstart",
        )
        .await;
        let answer = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!";
        write(&mut server, answer).await;
        drop(server);
        assert_eq!(read(&mut client, answer.len()).await, answer);
    });
}

#[test]
fn events_and_trailers_arrive_one_by_one() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = asked(&lab, &origin).await;
        // server-sent events: each is read before the next is written
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        write(&mut server, head).await;
        assert_eq!(read(&mut client, head.len()).await, head);
        for number in 10..40 {
            let event = format!("a\r\ndata: {number}\n\n\r\n");
            // a chunk in two parts: its size first
            let (size, data) = event.as_bytes().split_at(3);
            write(&mut server, size).await;
            assert_eq!(read(&mut client, size.len()).await, size);
            write(&mut server, data).await;
            assert_eq!(read(&mut client, data.len()).await, data);
        }
        let trailer = b"0\r\nLast-Event: 39\r\n\r\n";
        write(&mut server, trailer).await;
        assert_eq!(read(&mut client, trailer.len()).await, trailer);
        // a late answer on the same connection
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
        hears_nothing(&client).await;
        write(&mut server, OK).await;
        assert_eq!(read(&mut client, OK.len()).await, OK);
        // and trailers of a request, chunk by chunk
        let head = b"POST /up HTTP/1.1\r\nHost: ok.net\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        for part in [&head[..], b"3\r\nabc\r\n", b"0\r\nSum: 1\r\n\r\n"] {
            write(&mut client, part).await;
            assert_eq!(read(&mut server, part.len()).await, part);
        }
    });
}

#[test]
fn http_17_a_response_until_close_survives_a_half_closed_client() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        client.shutdown().await.unwrap();
        read(&mut server, GET.len()).await;
        write(&mut server, b"HTTP/1.1 200 OK\r\n\r\npart one").await;
        read(&mut client, 27).await;
        write(&mut server, b" part two").await;
        drop(server);
        assert_eq!(rest(&mut client).await.unwrap(), b" part two");
        assert_eq!(lab.ends(1).await, ["server_closed"]);
    });
}

#[test]
fn http_30_after_an_odd_response_no_request_follows() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        for odd in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nhi"[..],
            b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz",
        ] {
            let (mut client, mut server) = asked(&lab, &origin).await;
            write(&mut server, odd).await;
            assert_eq!(
                read(&mut client, odd.len()).await,
                odd,
                "relayed as it came"
            );
            write(&mut client, GET).await;
            hears_nothing(&server).await;
        }
        let (mut client, mut server) = asked(&lab, &origin).await;
        write(&mut server, &[OK, b"extra"].concat()).await;
        assert_eq!(rest(&mut client).await.unwrap(), [OK, b"extra"].concat());
    });
}

#[test]
fn a_dead_client_resets_its_upstream_while_the_answer_is_awaited() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (client, mut server) = asked(&lab, &origin).await;
        socket2::SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        assert!(is_reset(&rest(&mut server).await));
        assert_eq!(lab.ends(1).await, ["reset"]);
    });
}
