//! HTTP/2 in the clear through the `http` door: many requests at a time, each judged; streams and trailers.

#![expect(
    clippy::disallowed_methods,
    reason = "clients and origins of the test run beside the gateway"
)]

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::http::{POLICY, start};
use crate::lab::{Lab, accept, hears_nothing, rest, run, write};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that may ask, with the gateway between it and an origin that hands its requests out.
pub struct Talk {
    pub client: SendRequest<Bytes>,
    pub served: tokio::sync::mpsc::UnboundedReceiver<Served>,
    pub driver: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

pub async fn talk(lab: &Lab, listener: &TcpListener) -> Talk {
    let socket = lab.connect(lab.lease("ok.net"), 80);
    let origin = accept(listener).await;
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(connection);
    Talk {
        served: serve(origin),
        client: client.ready().await.unwrap(),
        driver,
    }
}

pub type Served = (Request<RecvStream>, SendResponse<Bytes>);

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

pub fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

pub async fn all(mut body: RecvStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    bytes
}

pub async fn send_all(mut stream: SendStream<Bytes>, bytes: &[u8]) {
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
        let Talk {
            mut client,
            mut served,
            driver,
        } = talk(&lab, &listener).await;
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
        driver.await.unwrap().unwrap();
        assert_eq!(lab.ends(1).await, ["client_closed"]);
    });
}

#[test]
fn messages_of_a_stream_of_both_sides_pass_one_by_one_and_end_in_trailers() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let Talk {
            mut client,
            mut served,
            ..
        } = talk(&lab, &listener).await;
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
            let Talk {
                mut client,
                mut served,
                ..
            } = talk(&lab, &listener).await;
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
