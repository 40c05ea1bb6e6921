//! Webhooks as their callers meet them.

use axum::body::Body;
use http::Method;
use serde_json::json;

use super::runs_tests::Desk;
use crate::server::testing::{Answer, Console};
use crate::store::queue::{Claimer, QueueRules};
use crate::store::testing::each;

/// Somebody who is not signed in calls.
async fn call(console: &Console, path: &str, body: &'static [u8]) -> Answer {
    console
        .send(Method::POST, path, &[], Body::from(body))
        .await
}

async fn hook(desk: &Desk, job: &str) -> String {
    let made = desk
        .tell(Method::POST, &format!("/jobs/{job}/webhook"), json!({}))
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let url = made.json["url"].as_str().unwrap();
    url[url.find("/api/").unwrap()..].to_owned()
}

#[tokio::test]
async fn a_webhook_runs_its_job_with_the_body_as_it_came_and_nothing_else() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("j", json!({ "input": true })).await;
        let old = hook(&desk, &job).await;
        let path = hook(&desk, &job).await;
        assert_eq!(
            call(&desk.console, &old, b"x").await.status,
            404,
            "one is over with the next"
        );
        let body = b"{\"a\":\"\0\xff<script>\"";
        let called = call(&desk.console, &path, body).await;
        assert_eq!(called.status, 202, "{}", called.text);
        let claimer = Claimer {
            runner: "r",
            workspace: None,
            most: 9,
        };
        let claimed = store
            .claim_run(claimer, &QueueRules::default(), crate::clock::now())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (claimed.input.as_deref(), claimed.run.cause.as_str()),
            (Some(&body[..]), "webhook")
        );
        let told = store.audit_after(None, 0, 10).await.unwrap();
        let secret = path.rsplit('/').next().unwrap();
        assert!(
            told.iter().any(|entry| entry.action == "job.webhook_call"),
            "{told:?}"
        );
        assert!(
            told.iter()
                .all(|entry| !entry.subject.contains("sph_") && !entry.subject.contains(secret)),
            "{told:?}"
        );
        assert_eq!(
            desk.tell(Method::DELETE, &format!("/jobs/{job}/webhook"), json!({}))
                .await
                .status,
            204
        );
        assert_eq!(call(&desk.console, &path, b"x").await.status, 404);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_webhook_too_long_or_too_often_runs_nothing() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk
            .job("j", json!({ "overlap": { "rule": "parallel" } }))
            .await;
        let path = hook(&desk, &job).await;
        for wrong in [
            "x",
            "%00",
            "sph_",
            "' OR 1=1 --",
            &format!("sph_{}", "A".repeat(43)),
        ] {
            let wrong = format!(
                "/api/v1/hooks/{}",
                wrong.replace(' ', "%20").replace('\'', "%27")
            );
            assert_eq!(
                call(&desk.console, &wrong, b"x").await.status,
                404,
                "{wrong}"
            );
        }
        let long = vec![b'x'; (256 << 10) + 1];
        let refused = desk
            .console
            .send(Method::POST, &path, &[], Body::from(long))
            .await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json["code"]),
            (413, &json!("too_large"))
        );
        let mut answers = Vec::new();
        for _ in 0..61 {
            answers.push(call(&desk.console, &path, b"").await.status.as_u16());
        }
        assert!(
            answers[..60].iter().all(|status| *status == 202),
            "{answers:?}"
        );
        assert_eq!(answers[60], 429);
        assert_eq!(store.waiting_runs(&desk.workspace).await.unwrap(), 60);
    })
    .await;
}
