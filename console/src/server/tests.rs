//! The stack as a client meets it.

use axum::body::Body;
use http::Method;
use serde_json::Value;

use super::routes;
use super::testing::Console;
use crate::settings::{AppUrl, ConsoleConfig};
use crate::store::testing::each;

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    each(async |store| {
        let console = Console::on(store);
        let document = console
            .ask(Method::GET, "/api/v1/openapi.json", &[])
            .await
            .json;
        let (_, actions) = routes::table().described();
        let mut described = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                described += 1;
                let route = actions.iter().find(|(p, m, _)| p == path && m == method);
                assert!(route.is_some(), "{method} {path} is described and no route");
                assert!(
                    operation["responses"]["default"].is_object(),
                    "{method} {path}"
                );
                let answer = console
                    .ask(method.to_uppercase().parse().unwrap(), path, &[])
                    .await;
                assert_ne!(answer.json["code"], "method_not_allowed", "{method} {path}");
            }
        }
        assert_eq!(described, actions.len());
    })
    .await;
}

#[test]
fn operations_have_names_of_their_own_and_say_truly_who_may() {
    let document = super::describe::document(routes::table().described());
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{method} {path}: {name} again");
        }
    }
    let security =
        |path: &str, method: &str| document["paths"][path][method]["security"].to_string();
    let tokens = "/api/v1/workspaces/{workspace}/tokens";
    assert_eq!(security(tokens, "post"), r#"[{"session":[]}]"#);
    assert_eq!(
        security("/api/v1/workspaces/{workspace}", "get"),
        r#"[{"session":[]},{"token":[]}]"#
    );
    assert_eq!(security("/api/v1/session", "post"), "[]");
}

#[tokio::test]
async fn every_answer_has_the_security_headers_and_an_id() {
    each(async |store| {
        let config = ConsoleConfig {
            url: AppUrl::parse("https://sally.example"),
            ..ConsoleConfig::default()
        };
        let console = Console::with(store, config);
        for (path, host) in [
            ("/", "localhost"),
            ("/api/v1", "sally.example"),
            ("/nothing", "localhost"),
            ("/api/v1", "evil.example"),
        ] {
            let answer = console.ask(Method::GET, path, &[("host", host)]).await;
            let policy = answer.headers["content-security-policy"].to_str().unwrap();
            assert!(
                policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"),
                "{policy}"
            );
            assert!(!policy.contains("unsafe"), "{policy}");
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
            ] {
                assert_eq!(answer.headers[name], value, "{path}");
            }
            assert!(answer.headers.contains_key("strict-transport-security"));
            assert_eq!(answer.headers["x-request-id"].len(), 36);
        }
        let numbers = console.app.metrics.text();
        assert!(
            numbers.contains("sallyport_console_requests_total{method=\"Get\",status=\"421\"} 1"),
            "{numbers}"
        );
    })
    .await;
}

#[tokio::test]
async fn another_host_or_site_is_refused_before_any_route() {
    each(async |store| {
        let console = Console::on(store);
        let answer = console
            .ask(Method::GET, "/api/v1", &[("host", "evil.example")])
            .await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json["code"]),
            (421, &Value::from("other_host"))
        );
        let answer = console
            .ask(Method::POST, "/api/v1", &[("sec-fetch-site", "cross-site")])
            .await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json["code"]),
            (403, &Value::from("other_site"))
        );
        assert_eq!(console.ask(Method::GET, "/api/v1", &[]).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn tricks_with_path_and_method_meet_the_same_router() {
    each(async |store| {
        let console = Console::on(store);
        for path in [
            "//api/v1",
            "/api/v1/",
            "/api/../api/v1",
            "/API/v1",
            "/api%2fv1",
            "/api/v1;x",
            "/%2e%2e/api/v1",
        ] {
            let answer = console.ask(Method::GET, path, &[]).await;
            assert_eq!(
                (answer.status.as_u16(), &answer.json["code"]),
                (404, &Value::from("not_found")),
                "{path}"
            );
        }
        for method in ["TRACE", "OPTIONS", "DELETE", "BREW"] {
            let answer = console
                .ask(
                    method.parse().unwrap(),
                    "/api/v1",
                    &[("x-http-method-override", "GET")],
                )
                .await;
            assert_eq!(answer.status, 405, "{method}");
        }
        let head = console.ask(Method::HEAD, "/api/v1", &[]).await;
        assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    })
    .await;
}

#[tokio::test]
async fn a_caller_who_asks_without_end_is_told_to_slow_down() {
    each(async |store| {
        let console = Console::on(store);
        let mut refused = None;
        for _ in 0..2000 {
            let answer = console
                .send(Method::GET, "/api/v1", &[], Body::empty())
                .await;
            if answer.status == 429 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("a refusal");
        assert_eq!(refused.json["code"], "too_many_requests");
        assert_eq!(refused.headers["retry-after"], "1");
    })
    .await;
}
