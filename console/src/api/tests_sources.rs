//! Policies in git as the API tells them, what may be proposed, and policies tried on their own tests and on what was
//! recorded.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::routing::{get, post};
use axum::{Json, Router};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::runs_tests::{Desk, carry_out};
use crate::server::testing::Console;
use crate::settings::ConsoleConfig;
use crate::store::on;
use crate::store::testing::each;

fn source(name: &str, workspaces: &Value, proposals: bool) -> Value {
    json!({ "name": name, "remote": "https://git.example/secret-place", "branch": "main", "commit": "a".repeat(40),
        "loaded_ms": 5, "signer": null, "signatures_required": false,
        "policies": [{ "policy": "build", "file": "policies/build.yml" }], "checked_ms": 6, "stale": false,
        "problem": null, "moves": [], "workspaces": workspaces, "proposals": proposals })
}

/// A gateway with these sources, which takes every proposal but one; what it was asked to write.
fn gateway(socket: &Path, sources: Value) -> Arc<Mutex<Vec<Value>>> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let kept = written.clone();
    let resolve = async |Json(asked): Json<Value>| {
        Json(
            json!({ "source": asked["source"], "commit": "a".repeat(40), "file": "policies/build.yml",
            "text": "policy: build\n", "hash": "0".repeat(64) }),
        )
    };
    let propose = async move |Json(asked): Json<Value>| {
        if asked["title"] == "twice" {
            let refused = json!({ "status": 409, "code": "conflict", "message": "the proposal exists already at https://git.example/secret-place", "hint": "choose another name" });
            return (StatusCode::CONFLICT, Json(refused));
        }
        kept.lock().unwrap().push(asked.clone());
        let name = asked["name"].as_str().unwrap();
        let made = json!({ "branch": format!("sallyport/proposals/{name}"), "commit": "b".repeat(40), "base": "a".repeat(40) });
        (StatusCode::OK, Json(made))
    };
    let router = Router::new()
        .route("/v1/sources", get(async move || Json(sources)))
        .route("/v1/resolve", post(resolve))
        .route("/v1/sources/main/proposals", post(propose));
    let listener = UnixListener::bind(socket).unwrap();
    ::gateway::tasks::Tasks::default().spawn("gateway", async move {
        axum::serve(listener, router).await.unwrap();
    });
    written
}

/// The same desk before a console whose gateway has its socket there.
fn beside(desk: &mut Desk, socket: &Path) {
    let mut config = ConsoleConfig::default();
    config.gateway.control = socket.to_owned();
    desk.console = Console::with(desk.console.app.store.clone(), config);
}

#[tokio::test]
async fn a_workspace_sees_and_changes_no_source_that_does_not_speak_for_it() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("g.sock");
        let mut desk = Desk::of(&store, "ada").await;
        let others = source("others", &json!(["another"]), true);
        let mut main = source("main", &json!([desk.workspace]), true);
        main["problem"] = json!({ "since_ms": 1, "commit": null, "message": "cannot read https://git.example/secret-place: gone",
            "hint": null, "mistakes": ["https://git.example/secret-place/x:1:1: no"] });
        let written = gateway(&socket, json!([main, others]));
        beside(&mut desk, &socket);
        let list = desk.get("/policies/sources").await;
        assert_eq!(list.status, 200, "{}", list.text);
        let items = list.json["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["name"], &items[0]["loaded_at"]), (1, &json!("main"), &json!(5)));
        assert!(!list.text.contains("secret-place"), "where it is, is the operator's business: {}", list.text);
        let read = desk.get("/policies/in-force?source=main&policy=build").await;
        assert_eq!(read.json["text"], "policy: build\n", "{}", read.text);

        let propose = async |source: &str, file: &str, title: &str| {
            let body = json!({ "source": source, "file": file, "text": "policy: build\nnetwork: none\n", "title": title });
            desk.tell(Method::POST, "/policies/proposals", body).await
        };
        for (source, file) in [("others", "policies/build.yml"), ("none", "policies/build.yml"), ("../main", "policies/build.yml"),
            ("main", "floors/another.yml"), ("main", "policies/new.yml"), ("main", "../policies/build.yml")] {
            let refused = propose(source, file, "t").await;
            assert_eq!(refused.status, 422, "{source} {file}: {}", refused.text);
        }
        assert_eq!(written.lock().unwrap().len(), 0);
        let made = propose("main", "policies/build.yml", "Let builds reach PyPI").await;
        assert_eq!(made.status, 201, "{}", made.text);
        let branch = made.json["branch"].as_str().unwrap();
        assert!(branch.starts_with("sallyport/proposals/let-builds-reach-pypi-"), "{branch}");
        let asked = written.lock().unwrap()[0].clone();
        assert_eq!(asked["files"], json!([{ "file": "policies/build.yml", "text": "policy: build\nnetwork: none\n" }]));
        let twice = propose("main", "policies/build.yml", "twice").await;
        assert_eq!((twice.status.as_u16(), &twice.json["help"]), (409, &json!("choose another name")), "{}", twice.text);
        assert!(!twice.text.contains("secret-place"), "{}", twice.text);
        let told = store.audit_after(Some(&desk.workspace), 0, 100).await.unwrap();
        let subject = format!("branch={branch} commit={} source=main file=policies/build.yml", "b".repeat(40));
        assert!(told.iter().any(|entry| entry.subject == subject), "{told:?}");
        // before each push its intent, after it how it ended, refused ones as well
        let ended: Vec<i64> = told.iter().filter(|entry| entry.action == "policy.propose").map(|entry| entry.status).collect();
        assert_eq!(ended, [202, 201, 202, 409], "{told:?}");
        let intent = told.iter().find(|entry| entry.status == 202).unwrap();
        assert_eq!(intent.subject, format!("name={} source=main file=policies/build.yml", asked["name"].as_str().unwrap()));
        // nothing is pushed that the audit log does not know of
        let pushed = written.lock().unwrap().len();
        let rename = async |from: &str, to: &str| {
            let statement = format!("ALTER TABLE {from} RENAME TO {to}");
            on!(&store, pool => sqlx::query(sqlx::AssertSqlSafe(statement.as_str())).execute(pool).await.map(|_| ())).unwrap();
        };
        rename("audit", "audit_away").await;
        let unwritten = propose("main", "policies/build.yml", "u").await;
        assert_eq!((unwritten.status.as_u16(), written.lock().unwrap().len()), (500, pushed), "{}", unwritten.text);
        rename("audit_away", "audit").await;
        assert_eq!(propose("main", "policies/build.yml", "u").await.status, 201);
        assert_eq!(written.lock().unwrap().len(), pushed + 1);
    })
    .await;
}

#[tokio::test]
async fn where_no_gateway_answers_nothing_is_listed_and_nothing_proposed() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let mut desk = Desk::of(&store, "ada").await;
        beside(&mut desk, &folder.path().join("none.sock"));
        let list = desk.get("/policies/sources").await;
        assert_eq!(
            (
                list.status.as_u16(),
                list.json["items"].as_array().unwrap().len()
            ),
            (200, 0)
        );
        assert!(list.json["unknown"].is_string(), "{}", list.text);
        let body = json!({ "source": "main", "file": "f.yml", "text": "", "title": "t" });
        assert_eq!(
            desk.tell(Method::POST, "/policies/proposals", body)
                .await
                .status,
            502
        );
        assert_eq!(
            desk.get("/policies/in-force?source=main&policy=x")
                .await
                .status,
            502
        );
    })
    .await;
}

#[tokio::test]
async fn a_policy_is_tried_on_its_own_tests() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let text = "policy: p\nnetwork: domains\nallow:\n  - host: a.example.com\ntests:\n  - { to: 'a.example.com:443', expect: permit }\n  - { to: 'b.example.com:443', expect: permit }\n";
        let tried = desk.tell(Method::POST, "/policies/test", json!({ "text": text })).await;
        assert_eq!(tried.status, 200, "{}", tried.text);
        assert_eq!((&tried.json["passed"], &tried.json["failed"]), (&json!(1), &json!(1)));
        assert_eq!(tried.json["items"][1]["line"], 7);
        assert_eq!(tried.json["items"][1]["found"], "deny name_not_allowed");
        let wrong = desk.tell(Method::POST, "/policies/test", json!({ "text": "nonsense: 1" })).await;
        assert_eq!((wrong.status.as_u16(), &wrong.json["fields"][0]["field"]), (422, &json!("text")));
    })
    .await;
}

#[tokio::test]
async fn recorded_flows_are_decided_again_for_a_job_or_all() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let (one, two) = (
            desk.job("one", json!({})).await,
            desk.job("two", json!({})).await,
        );
        desk.run(&one).await;
        carry_out(&store, &[(1, "a.example.com"), (2, "b.example.com")]).await;
        desk.run(&two).await;
        carry_out(&store, &[(3, "a.example.com")]).await;
        let text = "policy: p\nnetwork: domains\nallow:\n  - host: a.example.com\n";
        let replay = async |job: Option<&str>| {
            let answer = desk
                .tell(
                    Method::POST,
                    "/policies/replay",
                    json!({ "text": text, "job": job }),
                )
                .await;
            assert_eq!(
                (answer.status.as_u16(), &answer.json["partial"]),
                (200, &json!(false)),
                "{}",
                answer.text
            );
            let permitted: Vec<(String, u64)> = answer.json["newly_permitted"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| {
                    (
                        row["to"].as_str().unwrap().to_owned(),
                        row["count"].as_u64().unwrap(),
                    )
                })
                .collect();
            (
                answer.json["flows"].as_u64().unwrap(),
                answer.json["same"].as_u64().unwrap(),
                permitted,
            )
        };
        assert_eq!(
            replay(None).await,
            (3, 1, vec![("a.example.com".to_owned(), 2)])
        );
        assert_eq!(
            replay(Some(&one)).await,
            (2, 1, vec![("a.example.com".to_owned(), 1)])
        );
        assert_eq!(replay(Some("none")).await, (0, 0, Vec::new()));
        let stranger = Desk::of(&store, "eve").await;
        let seen = stranger
            .tell(
                Method::POST,
                "/policies/replay",
                json!({ "text": text, "job": one }),
            )
            .await;
        assert_eq!(seen.json["flows"], 0, "{}", seen.text);
    })
    .await;
}

#[tokio::test]
async fn flows_of_all_runs_are_paged_and_nobody_elses() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let (one, two) = (
            desk.job("one", json!({})).await,
            desk.job("two", json!({})).await,
        );
        desk.run(&one).await;
        carry_out(&store, &[(1, "a.example.com"), (2, "b.example.com")]).await;
        desk.run(&two).await;
        carry_out(&store, &[(3, "a.example.com")]).await;
        let stranger = Desk::of(&store, "eve").await;
        let list = desk.get("/flows?limit=2").await;
        assert_eq!(list.json["items"][0]["run_name"], "two", "{}", list.text);
        let next = list.json["next"].as_str().unwrap();
        assert_eq!(list.json["partial"], false);
        let of_one = desk.get(&format!("/flows?job={one}")).await;
        assert_eq!(
            of_one.json["items"].as_array().unwrap().len(),
            2,
            "{}",
            of_one.text
        );
        let rest = desk.get(&format!("/flows?limit=2&cursor={next}")).await;
        assert_eq!(
            (
                rest.json["items"].as_array().unwrap().len(),
                &rest.json["next"]
            ),
            (1, &Value::Null)
        );
        assert_eq!(stranger.get("/flows").await.json["items"], json!([]));
        for wrong in [
            "limit=0",
            "limit=501",
            "outcome=x",
            "cursor=x",
            "cursor=1.1.%00",
            "q=%00",
        ] {
            assert_eq!(
                desk.get(&format!("/flows?{wrong}")).await.status,
                422,
                "{wrong}"
            );
        }
    })
    .await;
}
