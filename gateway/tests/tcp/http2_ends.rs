//! How HTTP/2 in the clear ends: resets, servers that go away, slow readers, policies that change, budgets and floods.

#![expect(
    clippy::disallowed_methods,
    reason = "clients and origins of the test run beside the gateway"
)]

use std::time::Duration;

use bytes::Bytes;
use gateway::context::now;
use gateway::network::redecide::cut_forbidden;
use h2::Reason;
use http::{Request, Response};

use crate::http::{POLICY, start};
use crate::http2::{PREFACE, Talk, all, get, send_all, talk};
use crate::lab::{accept, is_reset, rest, run};

#[test]
fn a_reset_of_one_side_is_a_reset_of_the_other_and_of_that_stream_only() {
    run(POLICY, |lab| async move {
        let listener = start(&lab).await;
        let Talk {
            mut client,
            mut served,
            ..
        } = talk(&lab, &listener).await;
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
        let Talk {
            mut client,
            mut served,
            ..
        } = talk(&lab, &listener).await;
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
        let Talk {
            mut client,
            mut served,
            ..
        } = talk(&lab, &listener).await;
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
        let Talk {
            mut client,
            mut served,
            driver,
        } = talk(&lab, &listener).await;
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
            let Talk {
                mut client,
                mut served,
                ..
            } = talk(&lab, &listener).await;
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
        let Talk {
            mut client,
            mut served,
            driver,
        } = talk(&lab, &listener).await;
        tokio::spawn(async move { while served.recv().await.is_some() {} });
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
        drop(driver.await);
        // and the door is as it was
        let Talk {
            mut client,
            mut served,
            ..
        } = talk(&lab, &listener).await;
        let (answer, _) = client.send_request(get("http://ok.net/"), true).unwrap();
        let (_, mut respond) = served.recv().await.unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
    });
}
