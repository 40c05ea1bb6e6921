//! Secrets as people and programs meet them: set and never seen again.

use http::Method;
use serde_json::json;

use super::tests::owned;
use crate::server::testing::{Answer, Console};
use crate::store::testing::each;

const VALUE: &str = "s3cr3t-value-of-nobody";

struct Asks {
    console: Console,
    cookie: String,
    base: String,
}

impl Asks {
    async fn of(store: crate::store::Store) -> Self {
        let (console, cookie) = owned(store).await;
        let headers = [("cookie", cookie.as_str())];
        let list = console
            .ask(Method::GET, "/api/v1/workspaces", &headers)
            .await;
        let workspace = list.json["items"][0]["id"].as_str().unwrap();
        let base = format!("/api/v1/workspaces/{workspace}/secrets");
        Self {
            console,
            cookie,
            base,
        }
    }

    async fn tell(&self, method: Method, below: &str, body: serde_json::Value) -> Answer {
        let path = format!("{}{below}", self.base);
        let headers = [("cookie", self.cookie.as_str())];
        self.console.tell(method, &path, &headers, body).await
    }
}

#[tokio::test]
async fn a_value_is_set_replaced_and_never_answered() {
    each(async |store| {
        let asks = Asks::of(store.clone()).await;
        let body = json!({ "name": "TOKEN", "value": VALUE, "hosts": ["API.example.com"] });
        let made = asks.tell(Method::POST, "", body.clone()).await;
        assert_eq!(made.status, 201, "{}", made.text);
        assert_eq!(made.json["hosts"], json!(["api.example.com"]));
        let again = asks.tell(Method::POST, "", body).await;
        assert_eq!(
            (again.status.as_u16(), &again.json["code"]),
            (409, &json!("taken"))
        );
        let one = format!("/{}", made.json["id"].as_str().unwrap());
        let wider = asks.tell(Method::PATCH, &one, json!({ "hosts": [] })).await;
        assert_eq!(wider.json["fields"][0]["field"], "value", "{}", wider.text);
        let narrower = asks
            .tell(
                Method::PATCH,
                &one,
                json!({ "value": "other", "hosts": ["a.example"] }),
            )
            .await;
        assert_eq!(
            (narrower.status.as_u16(), &narrower.json["version"]),
            (200, &json!(2))
        );
        let list = asks.tell(Method::GET, "", json!({})).await;
        let read = asks.tell(Method::GET, &one, json!({})).await;
        let audit = asks
            .console
            .ask(Method::GET, "/api/v1/audit", &[("cookie", &asks.cookie)])
            .await;
        assert!(audit.text.contains("secret.add"), "{}", audit.text);
        for answer in [&made, &again, &wider, &narrower, &list, &read, &audit] {
            assert!(!answer.text.contains(VALUE), "{}", answer.text);
        }
        // by no filter and no order is it found by its value
        for query in ["?q=s3cr3t", "?sort=value", "?value=x"] {
            let asked = asks.tell(Method::GET, query, json!({})).await;
            assert!(
                !asked.text.contains(VALUE) && asked.status.as_u16() < 500,
                "{}",
                asked.text
            );
        }
        assert_eq!(asks.tell(Method::DELETE, &one, json!({})).await.status, 204);
        assert_eq!(asks.tell(Method::GET, &one, json!({})).await.status, 404);
    })
    .await;
}

#[tokio::test]
async fn names_and_values_that_do_harm_are_refused() {
    each(async |store| {
        let asks = Asks::of(store).await;
        for (name, value, field) in [
            ("LD_PRELOAD", "x", "name"),
            ("PATH", "x", "name"),
            ("token", "x", "name"),
            ("A=B", "x", "name"),
            ("", "x", "name"),
            ("TOKEN", "", "value"),
            ("TOKEN", "a\0b", "value"),
            ("TOKEN", &"x".repeat((64 << 10) + 1), "value"),
        ] {
            let refused = asks
                .tell(Method::POST, "", json!({ "name": name, "value": value }))
                .await;
            assert_eq!(refused.status, 422, "{name}: {}", refused.text);
            assert_eq!(refused.json["fields"][0]["field"], field, "{name}");
        }
        let pem = "-----BEGIN KEY-----\nline\r\nline\n-----END KEY-----\n";
        let kept = asks
            .tell(Method::POST, "", json!({ "name": "PEM", "value": pem }))
            .await;
        assert_eq!(kept.status, 201, "{}", kept.text);
    })
    .await;
}

#[tokio::test]
async fn a_console_without_the_key_says_so() {
    each(async |store| {
        let asks = Asks::of(store.clone()).await;
        let body = json!({ "name": "TOKEN", "value": VALUE });
        assert_eq!(asks.tell(Method::POST, "", body).await.status, 201);
        let folder = tempfile::tempdir().unwrap();
        let mut config = asks.console.app.config.clone();
        config.key_file = folder.path().join("elsewhere.key");
        let other = Asks {
            console: Console::with(store, config),
            ..asks
        };
        let refused = other
            .tell(
                Method::POST,
                "",
                json!({ "name": "SECOND", "value": VALUE }),
            )
            .await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json["code"]),
            (503, &json!("no_key")),
            "{}",
            refused.text
        );
    })
    .await;
}

#[tokio::test]
async fn a_secret_is_found_in_its_own_workspace_alone() {
    each(async |store| {
        let asks = Asks::of(store).await;
        let made = asks
            .tell(Method::POST, "", json!({ "name": "TOKEN", "value": VALUE }))
            .await;
        let one = format!("/{}", made.json["id"].as_str().unwrap());
        let headers = [("cookie", asks.cookie.as_str())];
        let second = asks
            .console
            .tell(
                Method::POST,
                "/api/v1/workspaces",
                &headers,
                json!({ "name": "B" }),
            )
            .await;
        let base = format!(
            "/api/v1/workspaces/{}/secrets",
            second.json["id"].as_str().unwrap()
        );
        let console = asks.console.clone();
        let elsewhere = Asks {
            console,
            cookie: asks.cookie.clone(),
            base,
        };
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            let body = json!({ "hosts": [] });
            let of_ours = elsewhere.tell(method.clone(), &one, body.clone()).await;
            let of_nothing = elsewhere.tell(method.clone(), "/none", body).await;
            assert_eq!(of_ours.status, 404, "{method}: {}", of_ours.text);
            assert_eq!(of_ours.text, of_nothing.text, "{method}");
        }
        let still = asks.tell(Method::GET, &one, json!({})).await;
        assert_eq!(still.status, 200, "{}", still.text);
    })
    .await;
}
