//! What members of a workspace write to reach others: ids that are not theirs, names that are headers, files or formulas,
//! pages on the console's own origin; and jobs of people who left.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{Method, StatusCode};
use serde_json::json;

use super::runs_tests::{Desk, carry_out};
use super::tests_double::{Double, console, sign_in};
use crate::clock;
use crate::jobs::timely::fire_due;
use crate::server::testing::{Answer, signed_in};
use crate::store::testing::each;
use crate::store::users::{Changed, UserChange};

const MATRIX: &str = include_str!("../access/matrix.tsv");

/// Names that are allowed, and would be something else in a header, a file name, a table or a page.
const NAMES: [&str; 6] = [
    "a\"; filename=\"page.html",
    "=HYPERLINK(\"http://evil.example\",\"x\")",
    "+1 -1 @SUM(A1)",
    "<img src=x onerror=alert(1)>",
    "é</script>'; --",
    "%0d%0aSet-Cookie: a=b",
];

fn head(answer: &Answer) -> String {
    format!("{:?}", answer.headers)
}

#[tokio::test]
async fn ids_of_others_in_a_body_name_nothing() {
    each(async |store| {
        let (ours, theirs) = (Desk::of(&store, "ada").await, Desk::of(&store, "eve").await);
        let hook = json!({ "name": "n", "kind": "webhook", "address": "https://a.example/", "topics": ["run.failed"] });
        let made = theirs.tell(Method::POST, "/notifications", hook.clone()).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let id = made.json["id"].as_str().unwrap().to_owned();
        let spec = |to: &str| json!({ "command": ["true"], "notify": { "to": [to], "on": ["failed"] } });
        for to in [id.as_str(), "n"] {
            let body = json!({ "name": to, "spec": spec(to) });
            let refused = ours.tell(Method::POST, "/jobs", body).await;
            assert_eq!(
                (refused.status.as_u16(), &refused.json["fields"][0]["field"]),
                (422, &json!("spec.notify.to")),
                "{}",
                refused.text
            );
        }
        // the same name is somebody else's notification there, and ours here
        assert_eq!(ours.tell(Method::POST, "/notifications", hook).await.status, 201);
        let body = json!({ "name": "j", "spec": spec("n") });
        let job = ours.tell(Method::POST, "/jobs", body).await;
        assert_eq!(job.status, 201, "{}", job.text);
        // what a job is and whose is no field of it
        let path = format!("/jobs/{}", job.json["id"].as_str().unwrap());
        let version = format!("\"{}\"", job.json["version"]);
        for more in ["workspace_id", "workspace", "created_by", "owner_id", "id", "hook"] {
            let mut body = json!({ "name": "j", "enabled": true, "spec": spec("n") });
            body[more] = json!(theirs.workspace);
            for (method, path) in [(Method::POST, "/jobs"), (Method::PUT, &*path)] {
                let refused = ours
                    .tell_with(method.clone(), path, &[("if-match", &version)], body.clone())
                    .await;
                assert!(refused.status.is_client_error(), "{method} {more}: {}", refused.text);
            }
        }
        let kept = ours.get(&path).await;
        assert_eq!(kept.json, job.json);
        let job = theirs.job("theirs", json!({ "command": ["true"] })).await;
        for path in [format!("/jobs/{job}/runs"), format!("/jobs/{job}/webhook")] {
            assert_eq!(ours.tell(Method::POST, &path, json!({})).await.status, 404, "{path}");
        }
        // nobody makes themselves more than they are
        for (path, body) in [
            ("/api/v1/workspaces", json!({ "name": "W", "role": "owner", "instance_admin": true })),
            ("/api/v1/session/password", json!({ "current": "a", "password": "another long password", "instance_admin": true })),
        ] {
            let method = if path.ends_with("password") { Method::PUT } else { Method::POST };
            let by = [("cookie", ours.cookie.as_str())];
            let refused = ours.console.tell(method, path, &by, body).await;
            assert_eq!(refused.status, 422, "{path}: {}", refused.text);
        }
    })
    .await;
}

#[test]
fn no_token_makes_tokens_members_or_workspaces_or_changes_an_account() {
    let header: Vec<&str> = MATRIX.lines().next().unwrap().split('\t').collect();
    let tokens: Vec<usize> = (0..header.len())
        .filter(|n| header[*n].starts_with("token_"))
        .collect();
    assert_eq!(tokens.len(), 3);
    let mut seen = 0;
    for line in MATRIX.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (method, path) = cells[0].split_once(' ').unwrap();
        let about = [
            "/tokens", "/members", "/users", "/session", "/codes", "/owner", "/runners", "/webhook",
        ]
        .iter()
        .any(|part| path.contains(part));
        let makes_one = method == "post" && path == "/api/v1/workspaces";
        let renames = method == "patch" && path == "/api/v1/workspaces/{workspace}";
        if method == "get" || path.starts_with("/runner/") || !(about || makes_one || renames) {
            continue;
        }
        seen += 1;
        for token in &tokens {
            assert_eq!(cells[*token], "403", "{line}");
        }
    }
    assert!(seen > 20, "{seen}");
}

#[tokio::test]
async fn names_stay_in_the_body_and_files_have_names_of_ours() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        for name in NAMES {
            let job = desk.job(name, json!({ "command": ["true"] })).await;
            let run = desk.run(&job).await;
            carry_out(&store, &[(1, "a.example")]).await;
            let raw = desk.get(&format!("/runs/{run}/output/raw")).await;
            assert_eq!(
                raw.headers["content-disposition"].to_str().unwrap(),
                format!("attachment; filename=\"run-{run}.log\"")
            );
            let answers = [
                desk.get(&format!("/jobs/{job}")).await,
                desk.get(&format!("/runs/{run}")).await,
                desk.tell(Method::POST, &format!("/jobs/{job}/runs"), json!({}))
                    .await,
                raw,
            ];
            assert_eq!(answers[0].json["name"], name);
            for answer in &answers {
                assert!(answer.status.is_success(), "{}", answer.text);
                assert!(!head(answer).contains("evil.example"), "{}", head(answer));
                assert!(!head(answer).contains("page.html"), "{}", head(answer));
                assert!(answer.headers.get("location").is_none());
            }
            let over = desk
                .tell(Method::DELETE, &format!("/jobs/{job}"), json!({}))
                .await;
            assert_eq!(over.status, 204, "{}", over.text);
        }
        for name in [
            "a\r\nSet-Cookie: a=b",
            "a\tb",
            "\u{1b}[31m",
            "a\0",
            "a\u{2028}b",
            "a\u{202e}b",
            &"x".repeat(301),
        ] {
            let body = json!({ "name": name, "spec": { "command": ["true"] } });
            let refused = desk.tell(Method::POST, "/jobs", body).await;
            assert_eq!(
                (refused.status.as_u16(), &refused.json["fields"][0]["field"]),
                (422, &json!("name")),
                "{name:?}: {}",
                refused.text
            );
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_run_printed_is_never_a_page_of_the_consoles_own() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("page.html", json!({ "command": ["true"] })).await;
        let run = desk.run(&job).await;
        carry_out(&store, &[(1, "<script>.example")]).await;
        for below in [
            "/output/raw",
            "/output",
            "/flows",
            "/steps",
            "/destinations",
            "/diff",
            "",
        ] {
            // whatever a reader asks for
            for accept in ["text/html", "image/svg+xml", "*/*"] {
                let path = format!("/api/v1/workspaces/{}/runs/{run}{below}", desk.workspace);
                let asked = [("cookie", desk.cookie.as_str()), ("accept", accept)];
                let answer = desk.console.ask(Method::GET, &path, &asked).await;
                let said = |name: &str| answer.headers[name].to_str().unwrap();
                assert_eq!(answer.status, 200, "{path}: {}", answer.text);
                let kind = said("content-type");
                if below == "/output/raw" {
                    assert!(answer.text.contains("<script>"));
                    assert_eq!(kind, "application/octet-stream");
                    assert!(said("content-disposition").starts_with("attachment;"));
                } else {
                    assert_eq!(kind, "application/json", "{path}");
                }
                assert_eq!(said("x-content-type-options"), "nosniff", "{path}");
                let policy = said("content-security-policy");
                assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
                assert!(
                    policy.contains("frame-ancestors 'none'"),
                    "{path}: {policy}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_handed_over_as_a_table_whose_cells_are_formulas() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        for name in NAMES {
            desk.job(name, json!({ "command": ["true"] })).await;
        }
        for path in ["/audit", "/jobs"] {
            let path = format!("/api/v1/workspaces/{}{path}", desk.workspace);
            let asked = [("cookie", desk.cookie.as_str()), ("accept", "text/csv")];
            let answer = desk.console.ask(Method::GET, &path, &asked).await;
            assert_eq!(answer.headers["content-type"], "application/json");
            assert!(answer.json["items"].is_array(), "{}", answer.text);
        }
        // what the API offers to be saved is no table either
        let path = "/api/v1/openapi.json";
        let described = desk.console.ask(Method::GET, path, &[]).await;
        let mut kinds = BTreeSet::new();
        for route in described.json["paths"].as_object().unwrap().values() {
            for operation in route.as_object().unwrap().values() {
                let answers = operation["responses"].as_object().unwrap();
                let contents = answers
                    .values()
                    .filter_map(|one| one["content"].as_object());
                kinds.extend(contents.flat_map(|content| content.keys().cloned()));
            }
        }
        let known = [
            "application/json",
            "application/octet-stream",
            "application/problem+json",
            "text/event-stream",
        ];
        assert!(kinds.contains("application/octet-stream"), "{kinds:?}");
        assert!(
            kinds.iter().all(|kind| known.contains(&&**kind)),
            "{kinds:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn the_way_back_from_a_provider_leads_to_this_console_and_nowhere_else() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        assert_eq!(sign_in(&console, &double, "oidc").await.0, "/");
        for elsewhere in [
            "//evil.example",
            "/%5cevil.example",
            "https:evil.example",
            "javascript:alert(1)",
            "//user@evil.example",
            "/%2f/evil.example",
        ] {
            for key in ["next", "return_to", "redirect", "redirect_uri", "rd", "url"] {
                for path in [
                    format!("/api/v1/providers/oidc/callback?code=a&state=b&{key}={elsewhere}"),
                    format!("/?{key}={elsewhere}"),
                    format!("/device?{key}={elsewhere}"),
                ] {
                    let answer = console.ask(Method::GET, &path, &[]).await;
                    let place = answer.headers.get("location").map(|v| v.to_str().unwrap());
                    assert!(
                        place.is_none_or(|to| to == "/" || to.starts_with("/#")),
                        "{path}: {place:?}"
                    );
                }
            }
            // nor where the path itself is another's address
            let answer = console
                .send(Method::GET, elsewhere, &[], Body::empty())
                .await;
            assert!(answer.headers.get("location").is_none(), "{elsewhere}");
        }
    })
    .await;
}

#[tokio::test]
async fn jobs_of_a_workspace_go_on_without_their_maker_and_wait_when_nobody_is_left() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let schedule = json!({ "command": ["true"], "schedule": { "cron": "* * * * *", "timezone": "UTC" }, "overlap": { "rule": "parallel" } });
        let job = desk.job("j", schedule).await;
        let made = desk.tell(Method::POST, &format!("/jobs/{job}/webhook"), json!({})).await;
        let url = made.json["url"].as_str().unwrap().to_owned();
        let hook = url[url.find("/api/").unwrap()..].to_owned();
        let call = async || desk.console.send(Method::POST, &hook, &[], Body::empty()).await.status;
        let list = desk.get("/members").await;
        let ada = list.json["items"][0]["user"].as_str().unwrap().to_owned();
        let bob = Desk::of(&store, "bob").await;
        let bobs = bob.get("/members").await;
        let bob = bobs.json["items"][0]["user"].as_str().unwrap().to_owned();
        store
            .add_member(&desk.workspace, &bob, crate::access::Role::Member, 1)
            .await
            .unwrap();
        let off = async |user: &str, deactivated: bool| {
            let change = UserChange {
                deactivated: Some(deactivated),
                ..UserChange::default()
            };
            let user = store.user(user).await.unwrap().unwrap();
            let done = store.change_user(&user, &change, clock::now()).await;
            assert_eq!(done.unwrap(), Changed::Done);
        };
        let minutes = |n: i64| clock::now() + n * clock::MINUTE;
        // the instance keeps an administrator, who is no member
        signed_in(&store, "root", true).await;
        // somebody else is there who sees and stops it: the job is the workspace's
        off(&ada, true).await;
        assert_eq!(fire_due(&store, minutes(2)).await.unwrap(), 1);
        assert_eq!(call().await, StatusCode::ACCEPTED);
        // nobody is
        off(&bob, true).await;
        assert_eq!(fire_due(&store, minutes(5)).await.unwrap(), 0);
        assert_eq!(call().await, StatusCode::NOT_FOUND);
        // and once somebody is again, it goes on
        off(&bob, false).await;
        assert_eq!(fire_due(&store, minutes(5)).await.unwrap(), 1);
        assert_eq!(call().await, StatusCode::ACCEPTED);
    })
    .await;
}
