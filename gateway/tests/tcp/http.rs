//! `http` flows through the transparent door.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, accept, hears_nothing, is_reset, read, rest, run, write};

const POLICY: &str = "policy: p\nnetwork: domains\nexplain: true\nallow:\n  - host: ok.net\n";

async fn pair(lab: &Lab, origin: &TcpListener) -> (TcpStream, TcpStream) {
    let client = lab.connect(lab.lease("ok.net"), 80);
    let server = accept(origin).await;
    (client, server)
}

async fn start(lab: &Lab) -> TcpListener {
    let origin = lab.origin(80).await;
    lab.door(80);
    origin
}

const GET: &[u8] = b"GET /a?q=1 HTTP/1.1\r\nhOst: OK.net:80\r\nX-Odd:  kept  \r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn requests_and_responses_pass_unchanged_and_the_connection_stays() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        for _ in 0..3 {
            write(&mut client, GET).await;
            assert_eq!(read(&mut server, GET.len()).await, GET);
            write(&mut server, OK).await;
            assert_eq!(read(&mut client, OK.len()).await, OK);
        }
        drop(client);
        assert_eq!(rest(&mut server).await.unwrap(), b"");
        assert_eq!(lab.ends(1).await, ["client_closed"]);
    });
}

#[test]
fn tls_19_every_request_of_a_kept_connection_is_checked() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
        write(&mut server, OK).await;
        read(&mut client, OK.len()).await;
        write(
            &mut client,
            b"GET /secret HTTP/1.1\r\nHost: evil.net\r\n\r\n",
        )
        .await;
        let said = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
        assert!(said.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{said}");
        assert!(
            said.contains("\r\nSallyport-Reason: http_host_mismatch\r\n"),
            "{said}"
        );
        let body: serde_json::Value =
            serde_json::from_str(said.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["error"], "egress_denied");
        assert_eq!(body["destination"], "evil.net:80");
        assert_eq!(body["policy"], "p");
        assert_eq!(body["rule"], "test.yaml:5:5");
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        assert_eq!(lab.denials(), ["http_host_mismatch"]);
    });
}

#[test]
fn http_11_a_pipelined_request_is_checked_by_itself() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(
            &mut client,
            &[GET, b"GET /x HTTP/1.1\r\nHost: evil.net\r\n\r\n"].concat(),
        )
        .await;
        assert_eq!(read(&mut server, GET.len()).await, GET);
        write(&mut server, OK).await;
        assert_eq!(read(&mut client, OK.len()).await, OK);
        assert!(
            rest(&mut client)
                .await
                .unwrap()
                .starts_with(b"HTTP/1.1 403")
        );
        assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
    });
}

#[test]
fn malformed_heads_have_an_answer_and_never_an_origin() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        for (said, status, reason) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "400", "http_malformed"),
            (
                b"GET / HTTP/1.1\r\nHost: ok.net\r\nHost: ok.net\r\n\r\n",
                "400",
                "http_malformed",
            ),
            (b"GET / HTTP/1.1\nHost: ok.net\n\n", "400", "http_malformed"),
            (
                b"GET / HTTP/1.1\r\nHost: ok.net\r\nExpect: bogus\r\n\r\n",
                "417",
                "http_malformed",
            ),
            (
                b"GET / HTTP/1.1\r\nHost: ok.net:81\r\n\r\n",
                "403",
                "http_host_mismatch",
            ),
            (
                b"CONNECT ok.net:80 HTTP/1.1\r\nHost: ok.net:80\r\n\r\n",
                "403",
                "protocol_not_allowed",
            ),
            (b"GET / HTTP/1.0\r\n\r\n", "403", "http_host_mismatch"),
        ] {
            let (mut client, mut server) = pair(&lab, &origin).await;
            write(&mut client, said).await;
            let answer = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{}: {answer}",
                said.escape_ascii()
            );
            assert!(
                answer.contains(&format!("Sallyport-Reason: {reason}\r\n")),
                "{answer}"
            );
            assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        }
        let (mut client, _server) = pair(&lab, &origin).await;
        write(&mut client, b"HEAD / HTTP/1.1\r\nHost: evil.net\r\n\r\n").await;
        let answer = rest(&mut client).await.unwrap();
        assert!(answer.ends_with(b"\r\n\r\n"), "no body after HEAD");
    });
}

#[test]
fn tls_23_an_offer_of_http2_in_the_clear_is_not_sent_onward_and_cannot_be_accepted() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        for offer in ["h2c", "H2C", "websocket, h2c", "h2c-14"] {
            let said = format!(
                "GET /a?b HTTP/1.1\r\nHost: ok.net\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\n\
                 HTTP2-Settings: AAEAAEAA\r\nAccept: */*\r\n\r\n"
            );
            let sent = b"GET /a?b HTTP/1.1\r\nhost: ok.net\r\naccept: */*\r\n\r\n";

            let (mut client, mut server) = pair(&lab, &origin).await;
            write(&mut client, said.as_bytes()).await;
            assert_eq!(read(&mut server, sent.len()).await, sent, "{offer}");
            write(&mut server, OK).await;
            assert_eq!(
                read(&mut client, OK.len()).await,
                OK,
                "the client gets its answer in HTTP/1"
            );
            write(&mut client, GET).await;
            assert_eq!(read(&mut server, GET.len()).await, GET, "and goes on in it");

            let (mut client, mut server) = pair(&lab, &origin).await;
            write(&mut client, said.as_bytes()).await;
            read(&mut server, sent.len()).await;
            write(
                &mut server,
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            )
            .await;
            write(&mut client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            client.shutdown().await.unwrap();
            drop(client);
            assert!(
                !matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()),
                "{offer}"
            );
        }
    });
}

#[test]
fn http_32_a_denial_says_back_nothing_that_could_be_markup_or_a_header() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, _server) = pair(&lab, &origin).await;
        write(
            &mut client,
            b"GET /<script>%0d%0aX:y HTTP/1.1\r\nHost: other.net\r\n\r\n",
        )
        .await;
        let answer = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
        assert!(
            !answer.contains("script") && !answer.contains("\r\nX:y"),
            "{answer}"
        );
        assert!(
            !answer.contains("ok.net"),
            "what is permitted is not listed: {answer}"
        );
    });
}

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
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
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
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
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
            let (mut client, mut server) = pair(&lab, &origin).await;
            write(&mut client, GET).await;
            read(&mut server, GET.len()).await;
            write(&mut server, odd).await;
            assert_eq!(
                read(&mut client, odd.len()).await,
                odd,
                "relayed as it came"
            );
            write(&mut client, GET).await;
            hears_nothing(&server).await;
        }
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
        write(&mut server, &[OK, b"extra"].concat()).await;
        assert_eq!(rest(&mut client).await.unwrap(), [OK, b"extra"].concat());
    });
}

#[test]
fn a_dead_client_resets_its_upstream_while_the_answer_is_awaited() {
    run(POLICY, |lab| async move {
        let origin = start(&lab).await;
        let (mut client, mut server) = pair(&lab, &origin).await;
        write(&mut client, GET).await;
        read(&mut server, GET.len()).await;
        socket2::SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        assert!(is_reset(&rest(&mut server).await));
        assert_eq!(lab.ends(1).await, ["reset"]);
    });
}

#[test]
fn methods_and_paths_are_judged_on_every_request() {
    let policy = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [80]\n    http:\n      - { methods: [GET], paths: [\"/public/**\"] }\n";
    run(policy, |lab| async move {
        let origin = start(&lab).await;
        for denied in [
            "GET /secret",
            "POST /public/a",
            "GET /public/../secret",
            "GET /public/%2e%2e/secret",
            "GET //public/a",
        ] {
            let (mut client, mut server) = pair(&lab, &origin).await;
            write(
                &mut client,
                format!("{denied} HTTP/1.1\r\nHost: ok.net\r\n\r\n").as_bytes(),
            )
            .await;
            let answer = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
            assert!(
                answer.contains("Sallyport-Reason: http_request_not_allowed"),
                "{denied}: {answer}"
            );
            assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        }
        let (mut client, mut server) = pair(&lab, &origin).await;
        let good = b"GET /public/a%2Fb?x HTTP/1.1\r\nHost: ok.net\r\n\r\n";
        write(&mut client, good).await;
        assert_eq!(read(&mut server, good.len()).await, good);
    });
}
