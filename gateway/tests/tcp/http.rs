//! `http` flows through the transparent door.

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, accept, read, rest, run, write};

pub const POLICY: &str = "policy: p\nnetwork: domains\nexplain: true\nallow:\n  - host: ok.net\n";

pub async fn pair(lab: &Lab, origin: &TcpListener) -> (TcpStream, TcpStream) {
    let client = lab.connect(lab.lease("ok.net"), 80);
    let server = accept(origin).await;
    (client, server)
}

pub async fn start(lab: &Lab) -> TcpListener {
    let origin = lab.origin(80).await;
    lab.door(80);
    origin
}

/// A pair whose origin has the first request.
pub async fn asked(lab: &Lab, origin: &TcpListener) -> (TcpStream, TcpStream) {
    let (mut client, mut server) = pair(lab, origin).await;
    write(&mut client, GET).await;
    read(&mut server, GET.len()).await;
    (client, server)
}

pub const GET: &[u8] = b"GET /a?q=1 HTTP/1.1\r\nhOst: OK.net:80\r\nX-Odd:  kept  \r\n\r\n";
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

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
        let (mut client, mut server) = asked(&lab, &origin).await;
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
