//! Requests that are sent again with their `Idempotency-Key`.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::testing::{Answer, Console, signed_in};
use crate::clock::{self, MINUTE};
use crate::store::audit::Told;
use crate::store::change::{Change, Needs, scope};
use crate::store::replays::Turn;
use crate::store::testing::each;
use crate::store::users::{Home, NewUser};
use crate::store::workspaces::Visible;
use crate::store::{Store, StoreError, on};

async fn make(console: &Console, cookie: &str, key: &str, name: &str) -> Answer {
    let headers = [("cookie", cookie), ("idempotency-key", key)];
    console
        .tell(
            Method::POST,
            "/api/v1/workspaces",
            &headers,
            json!({ "name": name }),
        )
        .await
}

/// How many there are beside the personal one.
async fn made(store: &Store, user: &str) -> usize {
    store
        .workspaces_of(user, Visible::Every, "", 100)
        .await
        .unwrap()
        .len()
        - 1
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_answered_again_and_done_once() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let (other, theirs) = signed_in(&store, "bob", false).await;
        let console = Console::on(store.clone());
        let first = make(&console, &cookie, "k1", "A").await;
        let again = make(&console, &cookie, "k1", "A").await;
        assert_eq!(
            (first.status.as_u16(), again.status.as_u16()),
            (201, 201),
            "{}",
            again.text
        );
        assert_eq!(first.text, again.text);
        assert_eq!(first.headers["etag"], again.headers["etag"]);
        assert!(!first.headers.contains_key("idempotency-replayed"));
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert_eq!(made(&store, &user).await, 1);
        let told = store.audit_after(None, 0, 100).await.unwrap();
        assert_eq!(
            told.iter()
                .filter(|entry| entry.action == "workspace.add")
                .count(),
            1
        );
        // another request with the key is none of these
        let differs = make(&console, &cookie, "k1", "B").await;
        assert_eq!(
            (differs.status.as_u16(), &differs.json["code"]),
            (422, &json!("key_used"))
        );
        // another key, or another's key of the same name, is another request
        assert_eq!(make(&console, &cookie, "k2", "A").await.status, 201);
        assert_eq!(make(&console, &theirs, "k1", "A").await.status, 201);
        assert_eq!(
            (made(&store, &user).await, made(&store, &other).await),
            (2, 1)
        );
        for bad in [String::new(), "x".repeat(256), "é".into()] {
            let refused = make(&console, &cookie, &bad, "A").await;
            assert_eq!(
                (refused.status.as_u16(), &refused.json["code"]),
                (400, &json!("bad_key")),
                "{bad}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn many_at_once_with_one_key_do_it_once_and_all_get_the_answer() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        let many = (0..10).map(|_| make(&console, &cookie, "k", "A"));
        let answers = futures_util::future::join_all(many).await;
        for answer in &answers {
            assert_eq!(
                (answer.status.as_u16(), &answer.text),
                (201, &answers[0].text)
            );
        }
        assert_eq!(made(&store, &user).await, 1);
    })
    .await;
}

#[tokio::test]
async fn what_was_refused_gives_its_key_back_and_a_secret_is_not_shown_twice() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        assert_eq!(make(&console, &cookie, "k", "").await.status, 422);
        let fine = make(&console, &cookie, "k", "A").await;
        assert_eq!(fine.status, 201, "{}", fine.text);
        let place = fine.json["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/workspaces/{place}/tokens");
        let headers = [("cookie", &*cookie), ("idempotency-key", "t")];
        let body = json!({ "name": "ci", "scope": "read" });
        let shown = console
            .tell(Method::POST, &path, &headers, body.clone())
            .await;
        assert_eq!(shown.status, 201, "{}", shown.text);
        let again = console.tell(Method::POST, &path, &headers, body).await;
        assert_eq!(
            (again.status.as_u16(), &again.json["code"]),
            (409, &json!("shown_once"))
        );
        assert_eq!(
            store.tokens_of(&place, &user, "", 10).await.unwrap().len(),
            1
        );
    })
    .await;
}

fn digests(name: &str) -> (Vec<u8>, Vec<u8>) {
    let target = "/api/v1/workspaces";
    let mut request = Sha256::new();
    request.update(b"k\0");
    request.update((target.len() as u64).to_be_bytes());
    request.update(target);
    request.update(json!({ "name": name }).to_string());
    (Sha256::digest("k").to_vec(), request.finalize().to_vec())
}

#[tokio::test]
async fn after_a_console_that_died_nothing_is_done_twice() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        let (key, request) = digests("A");
        let then = clock::now() - 3 * MINUTE;
        let Turn::Mine(old) = store
            .claim_key(&format!("user {user}"), &key, &request, then)
            .await
            .unwrap()
        else {
            panic!("the key is free");
        };
        // it died before it changed anything: done now
        assert_eq!(make(&console, &cookie, "k", "A").await.status, 201);
        // and if it lives after all, its claim is over
        let told = Told {
            workspace: None,
            actor: Some(user.clone()),
            credential: "session".into(),
            address: String::new(),
            action: "workspace.add",
            subject: "x".into(),
            status: 201,
        };
        let mut late = Change::new(told, Needs::Nothing, clock::now());
        late.key = Some(old);
        let refused = scope(Arc::new(late), store.add_workspace("A", &user, 5)).await;
        assert!(
            matches!(refused, Err(StoreError::NotAllowed)),
            "{refused:?}"
        );
        assert_eq!(made(&store, &user).await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_said_to_be_done() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        let (key, request) = digests("A");
        let then = clock::now() - 3 * MINUTE;
        let Turn::Mine(claimed) = store
            .claim_key(&format!("user {user}"), &key, &request, then)
            .await
            .unwrap()
        else {
            panic!("the key is free");
        };
        let told = Told {
            workspace: None,
            actor: Some(user.clone()),
            credential: "session".into(),
            address: String::new(),
            action: "workspace.add",
            subject: "x".into(),
            status: 201,
        };
        let mut change = Change::new(told, Needs::Nothing, then);
        change.key = Some(claimed);
        scope(Arc::new(change), store.add_workspace("A", &user, then))
            .await
            .unwrap();
        let lost = make(&console, &cookie, "k", "A").await;
        assert_eq!(
            (lost.status.as_u16(), &lost.json["code"]),
            (409, &json!("answer_lost"))
        );
        assert_eq!(made(&store, &user).await, 1);
        assert_ne!(lost.json["help"], Value::from(""));
    })
    .await;
}

#[tokio::test]
async fn signing_in_is_done_each_time_and_leaves_no_digest_of_a_password() {
    each(async |store| {
        let (_, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        let kept = console.app.passwords.hash("correct horse battery".into());
        let bob = NewUser {
            email: "bob@example.com".into(),
            name: "bob".into(),
            password: Some(kept.await.unwrap()),
            instance_admin: false,
        };
        store.add_user(&bob, Home::Personal, 1).await.unwrap();
        let headers = [("cookie", &*cookie), ("idempotency-key", "k")];
        let body = json!({ "email": "bob@example.com", "password": "correct horse battery" });
        for _ in 0..2 {
            let answer = console
                .tell(Method::POST, "/api/v1/session", &headers, body.clone())
                .await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(answer.headers.contains_key("set-cookie"), "{answer:?}");
        }
        let kept: i64 = on!(&store, pool => sqlx::query_scalar("SELECT count(*) FROM replays").fetch_one(pool).await).unwrap();
        assert_eq!(kept, 0);
    })
    .await;
}
