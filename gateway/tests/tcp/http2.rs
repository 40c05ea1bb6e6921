//! HTTP/2 in the clear through the `http` door: many requests at a time, each judged; streams, trailers and resets.

#![expect(
    clippy::disallowed_methods,
    reason = "clients and origins of the test run beside the gateway"
)]

use std::time::Duration;

use bytes::Bytes;
use gateway::context::now;
use gateway::network::redecide::cut_forbidden;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, accept, hears_nothing, is_reset, rest, run, write};

const POLICY: &str = "policy: p\nnetwork: domains\nexplain: true\nallow:\n  - host: ok.net\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client and an origin with the gateway between them, before the first request.
struct Pair {
    client: SendRequest<Bytes>,
    driver: tokio::task::JoinHandle<Result<(), h2::Error>>,
    origin: TcpStream,
}

async fn pair(lab: &Lab, origin: &TcpListener) -> Pair {
    let socket = lab.connect(lab.lease("ok.net"), 80);
    let origin = accept(origin).await;
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(connection);
    Pair {
        client,
        driver,
        origin,
    }
}

async fn start(lab: &Lab) -> TcpListener {
    let origin = lab.origin(80).await;
    lab.door(80);
    origin
}

type Served = (Request<RecvStream>, SendResponse<Bytes>);

/// An origin that hands its requests out.
fn serve(socket: TcpStream) -> tokio::sync::mpsc::UnboundedReceiver<Served> {
    let (hand, hands) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok(served)) = connection.accept().await {
            let _ = hand.send(served);
        }
    });
    hands
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

async fn all(mut body: RecvStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    bytes
}

async fn send_all(mut stream: SendStream<Bytes>, bytes: &[u8]) {
    for piece in bytes.chunks(10_000) {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx))
                .await
                .unwrap()
                .unwrap();
            stream
                .send_data(piece.split_to(room.min(piece.len())), false)
                .unwrap();
        }
    }
    stream.send_data(Bytes::new(), true).unwrap();
}

#[test]
fn tls_23_requests_by_prior_knowledge_are_carried_many_at_a_time() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        // the first waits while the second is answered
        let (slow, _) = client
            .send_request(get("http://ok.net/slow?a=b"), true)
            .unwrap();
        let (request, mut slow_answer) = served.recv().await.unwrap();
        assert_eq!(request.uri(), "http://ok.net/slow?a=b");
        let body = vec![b'u'; 700_000];
        let (fast, up) = client
            .send_request(
                Request::post("http://OK.net:80/up")
                    .header("x-odd", "kept")
                    .body(())
                    .unwrap(),
                false,
            )
            .unwrap();
        let (request, mut answer) = served.recv().await.unwrap();
        assert_eq!(request.headers()["x-odd"], "kept");
        let ((), got) = tokio::join!(send_all(up, &body), all(request.into_body()));
        assert!(got == body);
        let down = answer.send_response(Response::new(()), false).unwrap();
        let ((), got) = tokio::join!(send_all(down, &body), async {
            all(fast.await.unwrap().into_body()).await
        });
        assert!(got == body);
        slow_answer
            .send_response(Response::builder().status(404).body(()).unwrap(), true)
            .unwrap();
        assert_eq!(slow.await.unwrap().status(), 404);
        drop(client);
        pair.driver.await.unwrap().unwrap();
        assert_eq!(lab.ends(1).await, ["client_closed"]);
    });
}

#[test]
fn messages_of_a_stream_of_both_sides_pass_one_by_one_and_end_in_trailers() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        let call = Request::post("http://ok.net/lab.Salute/Both")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (answer, mut up) = client.send_request(call, false).unwrap();
        let (request, mut respond) = served.recv().await.unwrap();
        assert_eq!(request.headers()["te"], "trailers");
        let mut said = request.into_body();
        respond
            .send_informational(Response::builder().status(103).body(()).unwrap())
            .unwrap();
        let mut down = respond.send_response(Response::new(()), false).unwrap();
        let mut answer = answer.await.unwrap().into_body();
        for number in 0..50_u32 {
            let message = Bytes::from(format!("message {number}"));
            up.send_data(message.clone(), false).unwrap();
            assert_eq!(said.data().await.unwrap().unwrap(), message);
            down.send_data(message.clone(), false).unwrap();
            assert_eq!(answer.data().await.unwrap().unwrap(), message);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        up.send_trailers(trailers.clone()).unwrap();
        assert!(said.data().await.is_none());
        assert_eq!(said.trailers().await.unwrap().unwrap(), trailers);
        down.send_trailers(trailers.clone()).unwrap();
        assert!(answer.data().await.is_none());
        assert_eq!(answer.trailers().await.unwrap().unwrap(), trailers);
    });
}

#[test]
fn tls_20_every_request_of_a_connection_is_judged() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let two_hosts = |a: &str, b: &str| {
            Request::get("http://ok.net/")
                .header("host", a)
                .header("host", b)
                .body(())
                .unwrap()
        };
        let cases = [
            (get("http://evil.net/"), 403, "http_host_mismatch"),
            (get("http://ok.net:81/"), 403, ""),
            (
                Request::get("http://ok.net/")
                    .header("host", "evil.net")
                    .body(())
                    .unwrap(),
                400,
                "http_malformed",
            ),
            (two_hosts("ok.net", "evil.net"), 400, "http_malformed"),
            (
                Request::get("http://evil.net/")
                    .header("host", "ok.net")
                    .body(())
                    .unwrap(),
                400,
                "http_malformed",
            ),
            (get("https://ok.net/"), 400, "http_malformed"),
            (
                Request::connect("ok.net:80").body(()).unwrap(),
                403,
                "protocol_not_allowed",
            ),
        ];
        let count = cases.len();
        for (request, status, reason) in cases {
            let shown = format!("{request:?}");
            let pair = pair(&lab, &listener).await;
            let mut served = serve(pair.origin);
            let mut client = pair.client.ready().await.unwrap();
            // the twin comes first
            let (twin, _) = client.send_request(get("http://ok.net/"), true).unwrap();
            let (_, mut respond) = served.recv().await.unwrap();
            respond.send_response(Response::new(()), true).unwrap();
            assert_eq!(twin.await.unwrap().status(), 200);
            let (denied, _) = client.send_request(request, true).unwrap();
            let denied = denied.await.unwrap();
            assert_eq!(denied.status(), status, "{shown}");
            if !reason.is_empty() {
                assert_eq!(denied.headers()["sallyport-reason"], reason, "{shown}");
            }
            let text = String::from_utf8(all(denied.into_body()).await).unwrap();
            assert!(text.contains("\"help\""), "{shown}: {text}");
            assert!(served.recv().await.is_none(), "{shown} reached the origin");
        }
        assert_eq!(lab.ends(count).await.len(), count);
    });
}

#[test]
fn a_host_field_alone_names_the_host_and_none_at_all_is_refused() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        // HEADERS with fields as literals: `:method GET`, `:scheme http`, `:path /`, and maybe `host`
        for (host, reaches) in [("ok.net", true), ("evil.net", false), ("", false)] {
            let mut client = lab.connect(lab.lease("ok.net"), 80);
            let origin = accept(&listener).await;
            let mut block = vec![0x82, 0x86, 0x84];
            if !host.is_empty() {
                // `host` is entry 38 of the static table (RFC 7541 A): a literal without indexing
                block.extend([0x0f, 38 - 15, u8::try_from(host.len()).unwrap()]);
                block.extend(host.bytes());
            }
            let mut frames = PREFACE.to_vec();
            frames.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
            frames.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
            frames.extend(block);
            write(&mut client, &frames).await;
            if reaches {
                let (request, _) = serve(origin).recv().await.unwrap();
                assert_eq!(request.headers()["host"], "ok.net");
            } else {
                let answer = rest(&mut client).await.unwrap_or_default();
                assert!(!answer.is_empty(), "{host:?} gets an answer");
                let mut origin = origin;
                assert!(
                    !matches!(rest(&mut origin).await, Ok(bytes) if !bytes.is_empty()),
                    "{host:?} reached the origin"
                );
            }
        }
    });
}

#[test]
fn nothing_is_said_upstream_before_the_first_request() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let mut client = lab.connect(lab.lease("ok.net"), 80);
        let origin = accept(&listener).await;
        write(&mut client, PREFACE).await;
        write(&mut client, &[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        hears_nothing(&origin).await;
        drop(client);
    });
}

#[test]
fn a_reset_of_one_side_is_a_reset_of_the_other_and_of_that_stream_only() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        let (kept, _) = client
            .send_request(get("http://ok.net/kept"), true)
            .unwrap();
        let (_, mut kept_answer) = served.recv().await.unwrap();
        // the client gives up while it waits
        let (gone, mut up) = client
            .send_request(get("http://ok.net/gone"), false)
            .unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        up.send_reset(Reason::CANCEL);
        drop(gone);
        let reason = std::future::poll_fn(|cx| respond.poll_reset(cx))
            .await
            .unwrap();
        assert_eq!(reason, Reason::CANCEL);
        // the server gives up in the middle of its answer
        let (answer, _) = client
            .send_request(get("http://ok.net/half"), true)
            .unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        let mut down = respond.send_response(Response::new(()), false).unwrap();
        down.send_data(Bytes::from_static(b"half"), false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "half");
        down.send_reset(Reason::INTERNAL_ERROR);
        let error = body.data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        kept_answer.send_response(Response::new(()), true).unwrap();
        assert_eq!(kept.await.unwrap().status(), 200);
    });
}

#[test]
fn a_server_that_dies_or_goes_away_is_mirrored() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        let (answer, _) = client.send_request(get("http://ok.net/"), true).unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        let mut down = respond.send_response(Response::new(()), false).unwrap();
        down.send_data(Bytes::from_static(b"half"), false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "half");
        // dropped without an end
        drop((down, respond, served));
        assert!(
            body.data().await.unwrap().is_err(),
            "a cut answer never looks complete"
        );
    });
}

#[test]
fn a_slow_reader_slows_its_writer() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        let (answer, _) = client.send_request(get("http://ok.net/"), true).unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        let mut down = respond.send_response(Response::new(()), false).unwrap();
        let answer = answer.await.unwrap();
        let mut sent = 0;
        // the client takes nothing: windows fill, and then no more is taken from the server
        loop {
            down.reserve_capacity(16_384);
            let room = tokio::time::timeout(
                Duration::from_millis(500),
                std::future::poll_fn(|cx| down.poll_capacity(cx)),
            );
            let Ok(Some(Ok(room))) = room.await else {
                break;
            };
            let piece = vec![b'x'; room.min(16_384)];
            sent += piece.len();
            down.send_data(piece.into(), false).unwrap();
            assert!(sent < 4 << 20, "the gateway takes all that a server sends");
        }
        down.reserve_capacity(0);
        let reader = tokio::spawn(all(answer.into_body()));
        down.send_data(Bytes::new(), true).unwrap();
        assert_eq!(reader.await.unwrap().len(), sent);
    });
}

#[test]
fn invariant_7_a_live_request_that_a_new_policy_denies_ends_the_flow_whichever_came_last() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let socket = lab.connect(lab.lease("ok.net"), 80);
        let origin = accept(&listener).await;
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        let driver = tokio::spawn(connection);
        let mut served = serve(origin);
        let mut client = client.ready().await.unwrap();
        let (first, _) = client.send_request(get("http://ok.net/one"), true).unwrap();
        served.recv().await.unwrap();
        let (second, _) = client.send_request(get("http://ok.net/two"), true).unwrap();
        served.recv().await.unwrap();
        lab.replace("policy: p\nnetwork: domains\nallow:\n  - host: other.net\n");
        assert_eq!(cut_forbidden(&lab.network, now()), 1);
        assert!(first.await.is_err() && second.await.is_err());
        assert!(driver.await.unwrap().is_err());
    });
}

#[test]
fn an_upload_budget_ends_the_flow() {
    run(
        "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\nlimits:\n  upload: 200KB\n",
        |lab| async move {
            let listener = start(&lab).await;
            let pair = pair(&lab, &listener).await;
            let mut served = serve(pair.origin);
            let mut client = pair.client.ready().await.unwrap();
            let (answer, up) = client
                .send_request(Request::post("http://ok.net/").body(()).unwrap(), false)
                .unwrap();
            let (request, _respond) = served.recv().await.unwrap();
            let reader = tokio::spawn(all(request.into_body()));
            tokio::spawn(async move { send_all(up, &vec![b'u'; 190_000]).await });
            assert!(reader.await.unwrap().len() <= 190_000);
            let (_, up) = client
                .send_request(Request::post("http://ok.net/").body(()).unwrap(), false)
                .unwrap();
            tokio::spawn(async move { send_all(up, &vec![b'u'; 190_000]).await });
            assert!(answer.await.is_err());
            assert_eq!(lab.ends(1).await, ["limit_upload"]);
        },
    );
}

#[test]
fn floods_of_headers_and_resets_end_the_connection_and_not_the_gateway() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        // a block of headers that never ends (CONTINUATION after CONTINUATION)
        let mut client = lab.connect(lab.lease("ok.net"), 80);
        let _origin = accept(&listener).await;
        let mut frames = PREFACE.to_vec();
        frames.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        frames.extend([0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82]);
        for _ in 0..20_000 {
            frames.extend([0, 0, 4, 9, 0, 0, 0, 0, 1, 0x00, 1, b'a', 0]);
        }
        let socket = &mut client;
        let flood = tokio::io::AsyncWriteExt::write_all(socket, &frames);
        drop(tokio::time::timeout(Duration::from_secs(10), flood).await);
        let end = rest(&mut client).await;
        assert!(end.is_ok() || is_reset(&end));
        // requests that are reset at once, thousands of them
        let pair = pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        tokio::spawn(async move { while served.recv().await.is_some() {} });
        let mut client = pair.client.ready().await.unwrap();
        for _ in 0..5_000 {
            let Ok(mut ready) = client.clone().ready().await else {
                break;
            };
            let Ok((_, mut up)) = ready.send_request(get("http://ok.net/"), false) else {
                break;
            };
            up.send_reset(Reason::CANCEL);
            client = ready;
        }
        drop(client);
        drop(pair.driver.await);
        // and the door is as it was
        let pair = self::pair(&lab, &listener).await;
        let mut served = serve(pair.origin);
        let mut client = pair.client.ready().await.unwrap();
        let (answer, _) = client.send_request(get("http://ok.net/"), true).unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
    });
}
