//! Letting programs in by a code, on both engines: once, in time, by people, and never by guessing.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::clock;
use crate::server::testing::{Answer, Console, signed_in};
use crate::store::testing::each;
use crate::store::{Lock, Store};

struct Lobby {
    console: Console,
    cookie: String,
    workspace: String,
}

async fn lobby(store: &Store) -> Lobby {
    let (user, cookie) = signed_in(store, &clock::id(), false).await;
    let workspace = store.add_workspace("W", &user, 1).await.unwrap();
    Lobby {
        console: Console::on(store.clone()),
        cookie,
        workspace,
    }
}

impl Lobby {
    async fn begin(&self, scope: &str) -> Value {
        let answer = self.try_begin(scope).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json
    }

    async fn try_begin(&self, scope: &str) -> Answer {
        let body = json!({ "name": "ci", "scope": scope });
        self.console
            .tell(
                Method::POST,
                "/api/v1/codes",
                &[("user-agent", "sallyport/1")],
                body,
            )
            .await
    }

    async fn person(&self, path: &str, body: Value) -> Answer {
        self.console
            .tell(Method::POST, path, &[("cookie", &self.cookie)], body)
            .await
    }

    async fn approve(&self, code: &Value, scope: &str) -> Answer {
        let path = format!("/api/v1/workspaces/{}/codes", self.workspace);
        self.person(
            &path,
            json!({ "code": code, "scope": scope, "expires_in_days": 1 }),
        )
        .await
    }

    async fn state(&self, asked: &Value) -> Value {
        let path = format!("/api/v1/codes/{}", asked["id"].as_str().unwrap());
        self.console.ask(Method::GET, &path, &[]).await.json["state"].clone()
    }

    /// What the program may with its token.
    async fn try_token(&self, asked: &Value) -> u16 {
        let bearer = format!("Bearer {}", asked["token"].as_str().unwrap());
        let path = format!("/api/v1/workspaces/{}", self.workspace);
        self.console
            .ask(Method::GET, &path, &[("authorization", &bearer)])
            .await
            .status
            .as_u16()
    }
}

#[tokio::test]
async fn a_token_is_none_before_somebody_said_yes_and_is_got_once() {
    each(async |store| {
        let lobby = lobby(&store).await;
        let asked = lobby.begin("write").await;
        assert_eq!(
            (lobby.state(&asked).await, lobby.try_token(&asked).await),
            (json!("waiting"), 401)
        );
        let seen = lobby
            .person("/api/v1/codes/look", json!({ "code": asked["code"] }))
            .await;
        assert_eq!(
            (
                &seen.json["name"],
                &seen.json["agent"],
                &seen.json["address"]
            ),
            (&json!("ci"), &json!("sallyport/1"), &json!("203.0.113.7"))
        );
        assert!(!seen.text.contains("spt_"), "{}", seen.text);
        assert_eq!(lobby.approve(&asked["code"], "write").await.status, 201);
        assert_eq!(
            (lobby.state(&asked).await, lobby.try_token(&asked).await),
            (json!("approved"), 200)
        );
        // the same code lets nothing in any more, and its token is one of the list that can be revoked
        assert_eq!(lobby.approve(&asked["code"], "write").await.status, 422);
        let path = format!("/api/v1/workspaces/{}/tokens", lobby.workspace);
        let listed = lobby
            .console
            .ask(Method::GET, &path, &[("cookie", &lobby.cookie)])
            .await
            .json;
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
        let token = format!("{path}/{}", listed["items"][0]["id"].as_str().unwrap());
        lobby
            .console
            .ask(Method::DELETE, &token, &[("cookie", &lobby.cookie)])
            .await;
        assert_eq!(lobby.try_token(&asked).await, 401);
        // who said yes is in the audit log, and not that somebody asked: strangers would write it full
        let all = store.audit_after(None, 0, 1000).await.unwrap();
        assert!(
            all.iter().all(|entry| entry.action != "code.ask"),
            "{all:?}"
        );
        let entries = store
            .audit_after(Some(&lobby.workspace), 0, 100)
            .await
            .unwrap();
        assert!(
            entries
                .iter()
                .any(|entry| entry.action == "code.approve" && entry.status == 201),
            "{entries:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_was_refused_or_is_over_or_asks_for_less_gives_nothing_more() {
    each(async |store| {
        let lobby = lobby(&store).await;
        let refused = lobby.begin("write").await;
        assert_eq!(
            lobby
                .person("/api/v1/codes/refuse", json!({ "code": refused["code"] }))
                .await
                .status,
            204
        );
        assert_eq!(lobby.state(&refused).await, "refused");
        assert_eq!(lobby.approve(&refused["code"], "write").await.status, 422);
        assert_eq!(lobby.try_token(&refused).await, 401);
        let reads = lobby.begin("read").await;
        let more = lobby.approve(&reads["code"], "write").await;
        assert_eq!(
            (more.status.as_u16(), &more.json["fields"][0]["field"]),
            (422, &json!("scope")),
            "{}",
            more.text
        );
        assert_eq!(lobby.approve(&reads["code"], "read").await.status, 201);
        // over: the store is asked with a time after its end
        let late = lobby.begin("read").await;
        let code = late["code"].as_str().unwrap().replace('-', "");
        let now = clock::now();
        assert!(store.code(&code, now).await.unwrap().is_some());
        assert_eq!(
            store.code(&code, now + 10 * clock::MINUTE).await.unwrap(),
            None
        );
        assert_eq!(
            store
                .code_state(late["id"].as_str().unwrap(), now + 10 * clock::MINUTE)
                .await
                .unwrap(),
            None
        );
        assert!(
            !store
                .refuse_code(late["id"].as_str().unwrap(), now + 10 * clock::MINUTE)
                .await
                .unwrap()
        );
    })
    .await;
}

#[tokio::test]
async fn guessing_ends_and_asking_without_end_does_too() {
    each(async |store| {
        let lobby = lobby(&store).await;
        let asked = lobby.begin("read").await;
        for _ in 0..20 {
            let guess = lobby
                .person("/api/v1/codes/look", json!({ "code": "BBBB-BBBB" }))
                .await;
            assert_eq!(guess.status, 422, "{}", guess.text);
        }
        // the right one too, by whichever way
        for path in ["/api/v1/codes/look", "/api/v1/codes/refuse"] {
            assert_eq!(
                lobby
                    .person(path, json!({ "code": asked["code"] }))
                    .await
                    .status,
                429
            );
        }
        assert_eq!(lobby.approve(&asked["code"], "read").await.status, 429);
        assert_eq!(lobby.state(&asked).await, "waiting");
        let mut answers = Vec::new();
        for _ in 0..25 {
            answers.push(lobby.try_begin("read").await.status.as_u16());
        }
        assert_eq!(
            answers.iter().filter(|status| **status == 201).count(),
            19,
            "{answers:?}"
        );
        assert_eq!(answers.last(), Some(&429));
        // somebody at another address is not kept out by that
        let mut elsewhere = lobby.console.clone();
        elsewhere.peer = "198.51.100.9:1".parse().unwrap();
        let body = json!({ "name": "x", "scope": "read" });
        assert_eq!(
            elsewhere
                .tell(Method::POST, "/api/v1/codes", &[], body)
                .await
                .status,
            201
        );
        let long = json!({ "name": "x".repeat(20_000), "scope": "read" });
        assert_eq!(
            elsewhere
                .tell(Method::POST, "/api/v1/codes", &[], long)
                .await
                .status,
            413
        );
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_to_be_let_in_waits_for_no_lock_of_others() {
    each(async |store| {
        let lobby = lobby(&store).await;
        let Store::Postgres(pool) = &store else {
            // SQLite has one writer at a time anyway
            assert_eq!(lobby.try_begin("read").await.status, 201);
            return;
        };
        let mut other = pool.begin().await.unwrap();
        for lock in [Lock::Accounts, Lock::Audit] {
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(lock as i64)
                .execute(&mut *other)
                .await
                .unwrap();
        }
        let asked = tokio::time::timeout(Duration::from_secs(10), lobby.begin("read")).await;
        assert!(asked.is_ok(), "it waits for who is changing accounts");
        other.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_token_ends_itself_and_lets_nobody_in() {
    each(async |store| {
        let lobby = lobby(&store).await;
        let asked = lobby.begin("write").await;
        lobby.approve(&asked["code"], "write").await;
        let bearer = format!("Bearer {}", asked["token"].as_str().unwrap());
        let by_token = [("authorization", &*bearer)];
        let further = lobby.begin("write").await;
        let body = json!({ "code": further["code"], "scope": "read" });
        let path = format!("/api/v1/workspaces/{}/codes", lobby.workspace);
        assert_eq!(
            lobby
                .console
                .tell(Method::POST, &path, &by_token, body)
                .await
                .status,
            403
        );
        let person = [("cookie", &*lobby.cookie)];
        assert_eq!(
            lobby
                .console
                .ask(Method::DELETE, "/api/v1/token", &person)
                .await
                .status,
            409
        );
        assert_eq!(
            lobby
                .console
                .ask(Method::DELETE, "/api/v1/token", &by_token)
                .await
                .status,
            204
        );
        assert_eq!(lobby.try_token(&asked).await, 401);
        let entries = store.audit_after(None, 0, 1000).await.unwrap();
        assert!(
            entries
                .iter()
                .any(|entry| entry.action == "token.end_own" && entry.status == 204),
            "{entries:?}"
        );
    })
    .await;
}
