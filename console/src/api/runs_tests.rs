//! Jobs and runs as a client meets them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::accounts::secret::{Opens, Secret};
use crate::server::testing::{Answer, Console};
use crate::store::Store;
use crate::store::output::{Piece, Printed};
use crate::store::queue::{Begun, Claimer, End, QueueRules};
use crate::store::sessions::NewSession;
use crate::store::testing::{each, record};
use crate::store::users::{Home, NewUser};

/// Somebody with a workspace.
pub struct Desk {
    /// The console that they ask.
    pub console: Console,
    /// What they are signed in by.
    pub cookie: String,
    /// Where their jobs are.
    pub workspace: String,
}

impl Desk {
    /// Of somebody new.
    pub async fn of(store: &Store, name: &str) -> Self {
        let new = NewUser {
            email: format!("{name}@example.com"),
            name: name.into(),
            password: None,
            instance_admin: false,
        };
        let user = store.add_user(&new, Home::Personal, 1).await.unwrap();
        let workspace = store.add_workspace("W", &user, 1).await.unwrap();
        let secret = Secret::fresh(Opens::Session).unwrap();
        let now = crate::clock::now();
        let session = NewSession {
            user: &user,
            proven: None,
            digest: &secret.digest,
            address: "",
            agent: "",
            ends: now + 1_000_000,
        };
        store.add_session(session, now).await.unwrap();
        Self {
            console: Console::on(store.clone()),
            cookie: format!("sallyport_session={}", secret.text),
            workspace,
        }
    }

    /// Asks for something below the workspace.
    pub async fn get(&self, path: &str) -> Answer {
        let path = format!("/api/v1/workspaces/{}{path}", self.workspace);
        self.console
            .ask(Method::GET, &path, &[("cookie", &self.cookie)])
            .await
    }

    /// Says something below the workspace.
    pub async fn tell(&self, method: Method, path: &str, body: Value) -> Answer {
        self.tell_with(method, path, &[], body).await
    }

    /// The same, with further headers.
    pub async fn tell_with(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let path = format!("/api/v1/workspaces/{}{path}", self.workspace);
        let headers = [&[("cookie", &*self.cookie)], more].concat();
        self.console.tell(method, &path, &headers, body).await
    }

    /// Makes a job and returns its id.
    pub async fn job(&self, name: &str, spec: Value) -> String {
        let made = self
            .tell(Method::POST, "/jobs", json!({ "name": name, "spec": spec }))
            .await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.json["id"].as_str().unwrap().to_owned()
    }

    /// Runs a job and returns the run's id.
    pub async fn run(&self, job: &str) -> String {
        let made = self
            .tell(Method::POST, &format!("/jobs/{job}/runs"), json!({}))
            .await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.json["id"].as_str().unwrap().to_owned()
    }
}

fn codes(answer: &Answer) -> Vec<&str> {
    let fields = answer.json["fields"].as_array().unwrap();
    fields
        .iter()
        .map(|field| field["field"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_job_is_made_read_changed_at_its_version_and_removed() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let name = "<img src=x onerror=alert(1)>";
        let job = desk.job(name, json!({ "command": ["true"], "schedule": { "cron": "0 4 * * *", "timezone": "Europe/Berlin" } })).await;
        let path = format!("/jobs/{job}");
        let read = desk.get(&path).await;
        assert_eq!((read.json["name"].as_str(), read.headers["etag"].to_str().unwrap()), (Some(name), "\"1\""));
        assert!(read.json["next_at"].as_i64().unwrap() > crate::clock::now());
        let again = desk.tell(Method::POST, "/jobs", json!({ "name": name, "spec": {} })).await;
        assert_eq!((again.status.as_u16(), &again.json["code"]), (409, &json!("taken")));
        let other = json!({ "name": "b", "spec": { "command": ["false"] }, "enabled": false });
        let stale = desk.tell_with(Method::PUT, &path, &[("if-match", "\"7\"")], other.clone()).await;
        assert_eq!(stale.status, 412, "{}", stale.text);
        let changed = desk.tell_with(Method::PUT, &path, &[("if-match", "\"1\"")], other).await;
        assert_eq!((changed.status.as_u16(), &changed.json["version"]), (200, &json!(2)));
        assert_eq!(changed.json["next_at"], Value::Null);
        let off = desk.tell(Method::POST, &format!("{path}/runs"), json!({})).await;
        assert_eq!((off.status.as_u16(), &off.json["code"]), (409, &json!("disabled")));
        assert_eq!(desk.get("/jobs?q=B").await.json["items"].as_array().unwrap().len(), 1);
        assert_eq!(desk.tell(Method::DELETE, &path, json!({})).await.status, 204);
        assert_eq!(desk.get(&path).await.status, 404);
        let told = store.audit_after(Some(&desk.workspace), 0, 10).await.unwrap();
        let actions: Vec<_> = told.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["job.add", "job.change", "job.remove"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_job_is_told_field_by_field_and_changes_nothing() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let policy = "policy: p\nnetwork: domains\nallow:\n  - hots: a.example\n";
        let wrong = json!({ "name": "a\u{202e}b", "spec": {
            "command": ["a\u{0}"], "network": { "mode": "domains", "policy": policy },
            "schedule": { "cron": "* * *" },
        } });
        let refused = desk.tell(Method::POST, "/jobs", wrong).await;
        assert_eq!(refused.status, 422);
        let mut fields = codes(&refused);
        fields.dedup();
        assert_eq!(
            fields,
            [
                "name",
                "spec.command",
                "spec.network.policy",
                "spec.schedule.cron"
            ]
        );
        assert!(refused.text.contains("job.yaml:4:5:"), "{}", refused.text);
        for body in [
            json!({ "name": "a", "spec": { "comand": [] } }),
            json!({ "name": "a" }),
            json!([]),
        ] {
            let refused = desk.tell(Method::POST, "/jobs", body).await;
            assert_eq!(refused.status, 422, "{}", refused.text);
        }
        assert_eq!(desk.get("/jobs").await.json["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn hostile_questions_are_refused_and_never_a_failure_inside() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("j", json!({})).await;
        let run = desk.run(&job).await;
        for path in [
            "/runs?state=%00".to_owned(),
            "/runs?job=%00".to_owned(),
            "/runs?cursor=%00".to_owned(),
            "/runs?limit=0".to_owned(),
            "/runs?limit=99999999999999999999".to_owned(),
            "/jobs?q=%00".to_owned(),
            "/runs/%00".to_owned(),
            "/jobs/%00".to_owned(),
            format!("/runs/{run}/flows?q=%00"),
            format!("/runs/{run}/flows?outcome=x"),
            format!("/runs/{run}/flows?limit=-1"),
            format!("/runs/{run}/output?from=-1"),
            format!("/runs/{run}/output?limit=99999999"),
            format!("/runs/{run}/diff?against=%00"),
            format!("/runs/{run}/steps?limit=0"),
            "/now?minutes=0".to_owned(),
        ] {
            let answer = desk.get(&path).await;
            assert!(
                (400..500).contains(&answer.status.as_u16()),
                "{path}: {} {}",
                answer.status,
                answer.text
            );
        }
        for path in [
            format!("/runs/{run}/output?from={}", i64::MAX),
            format!("/runs/{run}/flows?after={}", i64::MIN),
            format!("/runs/{run}/flows?q=%25%27%22!_"),
            "/runs?cursor=zzz&job=none".to_owned(),
            format!("/runs/{run}/steps?after={}", i64::MAX),
        ] {
            let answer = desk.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
    })
    .await;
}

#[tokio::test]
async fn another_workspaces_jobs_and_runs_are_not_there() {
    each(async |store| {
        let (ada, eve) = (Desk::of(&store, "ada").await, Desk::of(&store, "eve").await);
        let job = ada.job("j", json!({})).await;
        let run = ada.run(&job).await;
        for path in [
            "",
            "/output",
            "/output/raw",
            "/steps",
            "/flows",
            "/destinations",
            "/diff",
        ] {
            assert_eq!(
                eve.get(&format!("/runs/{run}{path}")).await.status,
                404,
                "{path}"
            );
            assert_eq!(
                ada.get(&format!("/runs/{run}{path}")).await.status,
                200,
                "{path}"
            );
        }
        assert_eq!(eve.get(&format!("/jobs/{job}")).await.status, 404);
        for path in [
            format!("/runs/{run}/cancel"),
            format!("/runs/{run}/retry"),
            format!("/jobs/{job}/runs"),
        ] {
            assert_eq!(
                eve.tell(Method::POST, &path, json!({})).await.status,
                404,
                "{path}"
            );
        }
        let put = json!({ "name": "x", "spec": {} });
        assert_eq!(
            eve.tell(Method::PUT, &format!("/jobs/{job}"), put)
                .await
                .status,
            404
        );
        assert_eq!(
            eve.tell(Method::DELETE, &format!("/jobs/{job}"), json!({}))
                .await
                .status,
            404
        );
        let own = eve.job("own", json!({})).await;
        let own = eve.run(&own).await;
        assert_eq!(
            eve.get(&format!("/runs/{own}/diff?against={run}"))
                .await
                .status,
            404
        );
        assert_eq!(
            eve.get(&format!("/runs?job={job}")).await.json["items"],
            json!([])
        );
    })
    .await;
}

#[tokio::test]
async fn a_job_that_takes_no_input_is_given_none() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("k", json!({})).await;
        let path = format!("/jobs/{job}/runs");
        let refused = desk
            .tell(Method::POST, &path, json!({ "input": "x" }))
            .await;
        assert_eq!(
            (refused.status.as_u16(), codes(&refused)),
            (422, vec!["input"])
        );
    })
    .await;
}

#[tokio::test]
async fn runs_are_listed_newest_first_filtered_cancelled_and_run_again() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("j", json!({ "input": true })).await;
        let plain = desk.job("k", json!({})).await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(desk.run(&job).await);
        }
        runs.push(desk.run(&plain).await);
        let page = desk.get("/runs?limit=3").await.json;
        let ids = |page: &Value| -> Vec<String> {
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|run| run["id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(ids(&page), [&*runs[3], &runs[2], &runs[1]]);
        let rest = desk
            .get(&format!(
                "/runs?limit=3&cursor={}",
                page["next"].as_str().unwrap()
            ))
            .await
            .json;
        assert_eq!(ids(&rest), [&*runs[0]]);
        assert_eq!(rest["next"], Value::Null);
        let cancelled = desk
            .tell(
                Method::POST,
                &format!("/runs/{}/cancel", runs[0]),
                json!({}),
            )
            .await;
        assert_eq!(
            (cancelled.status.as_u16(), &cancelled.json["state"]),
            (202, &json!("cancelled"))
        );
        let over = desk
            .tell(
                Method::POST,
                &format!("/runs/{}/cancel", runs[0]),
                json!({}),
            )
            .await;
        assert_eq!(
            (over.status.as_u16(), &over.json["code"]),
            (409, &json!("over"))
        );
        assert_eq!(
            ids(&desk
                .get(&format!("/runs?state=cancelled&job={job}"))
                .await
                .json),
            [&*runs[0]]
        );
        let early = desk
            .tell(Method::POST, &format!("/runs/{}/retry", runs[1]), json!({}))
            .await;
        assert_eq!(
            (early.status.as_u16(), &early.json["code"]),
            (409, &json!("not_over"))
        );
        let again = desk
            .tell(Method::POST, &format!("/runs/{}/retry", runs[0]), json!({}))
            .await;
        assert_eq!(
            (again.status.as_u16(), again.json["retry_of"].as_str()),
            (201, Some(&*runs[0]))
        );
    })
    .await;
}

/// Brings the oldest run that waits to its end, with some output and records.
pub async fn carry_out(store: &Store, records: &[(u64, &str)]) {
    let claimer = Claimer {
        runner: "r",
        workspace: None,
        most: 9,
    };
    let rules = QueueRules::default();
    let hold = store
        .claim_run(claimer, &rules, crate::clock::now())
        .await
        .unwrap()
        .unwrap()
        .hold;
    assert_eq!(store.begin_run(&hold, 5).await.unwrap(), Begun::Yes);
    assert!(
        store
            .run_started(&hold, &json!({ "engine": "test" }), 6)
            .await
            .unwrap()
    );
    let piece = Piece {
        to: Printed::Stdout,
        data: b"\x1b[31m<script>\xff\0",
        at: 7,
    };
    store.tell_output(&hold, 0, &[piece], 7).await.unwrap();
    let lines: Vec<_> = records
        .iter()
        .map(|(seq, name)| record(*seq, name))
        .collect();
    store.tell_flows(&hold, &lines, 8).await.unwrap();
    let end = End {
        state: "succeeded",
        reason: None,
        message: None,
        exit_code: Some(0),
    };
    store.finish_run(&hold, &end, 9).await.unwrap();
}

#[tokio::test]
async fn what_a_run_left_is_read_back_byte_by_byte_and_compared_with_the_run_before() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("j", json!({})).await;
        desk.run(&job).await;
        carry_out(&store, &[(1, "a.example"), (2, "old.example")]).await;
        let run = desk.run(&job).await;
        carry_out(
            &store,
            &[(3, "a.example"), (4, "new.example"), (5, "new.example")],
        )
        .await;
        let of = |path: &str| format!("/runs/{run}{path}");
        let output = desk.get(&of("/output?from=5")).await.json;
        assert_eq!(
            STANDARD
                .decode(output["pieces"][0]["data"].as_str().unwrap())
                .unwrap(),
            b"\x1b[31m<script>\xff\0"
        );
        assert_eq!(
            (&output["next"], &output["total"], &output["over"]),
            (&json!(15), &json!(15), &json!(true))
        );
        assert_eq!(output["truncated"], json!(false));
        let raw = desk.get(&of("/output/raw")).await;
        assert_eq!(
            (
                raw.headers["content-type"].to_str().unwrap(),
                raw.text.len()
            ),
            ("application/octet-stream", 17)
        );
        assert!(
            raw.headers["content-disposition"]
                .to_str()
                .unwrap()
                .starts_with("attachment")
        );
        let flows = desk.get(&of("/flows?q=NEW&limit=1")).await.json;
        assert_eq!(
            (&flows["items"][0]["name"], &flows["next"]),
            (&json!("new.example"), &json!(4))
        );
        assert_eq!(
            (&flows["items"][0]["file"], &flows["items"][0]["line"]),
            (&json!("p.yaml"), &json!(3))
        );
        let diff = desk.get(&of("/diff")).await.json;
        assert_eq!(
            (&diff["added"][0]["destination"], &diff["added"][0]["times"]),
            (&json!("new.example"), &json!(2))
        );
        assert_eq!(
            (&diff["gone"][0]["destination"], &diff["changed"]),
            (&json!("old.example"), &json!([]))
        );
        let detail = desk.get(&of("")).await.json;
        assert_eq!(
            (&detail["run"]["denied"], &detail["facts"]["engine"]),
            (&json!(3), &json!("test"))
        );
        let now = desk.get("/now?minutes=1440").await.json;
        assert_eq!((&now["waiting"], &now["running"]), (&json!(0), &json!([])));
    })
    .await;
}

#[tokio::test]
async fn questions_about_policies_are_answered_and_not_told_as_changes() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let text = "policy: p\nnetwork: domains\nallow:\n  - hots: a.example\n";
        let report = desk
            .tell(Method::POST, "/policies/check", json!({ "text": text }))
            .await;
        assert_eq!(
            (report.status.as_u16(), &report.json["ok"]),
            (200, &json!(false))
        );
        assert_eq!(
            (
                &report.json["mistakes"][0]["line"],
                &report.json["mistakes"][0]["column"]
            ),
            (&json!(4), &json!(5))
        );
        let text = text.replace("hots", "host");
        let report = desk
            .tell(Method::POST, "/policies/check", json!({ "text": text }))
            .await;
        assert_eq!(
            (&report.json["ok"], &report.json["network"]),
            (&json!(true), &json!("domains"))
        );
        let network = json!({ "mode": "domains", "domains": ["a.example.com"] });
        for (destination, decision) in [
            ("https://a.example.com/x", "permit"),
            ("b.example.com:443", "deny"),
        ] {
            let question = json!({ "network": network, "destination": destination });
            let answer = desk.tell(Method::POST, "/policies/explain", question).await;
            assert_eq!(answer.json["decision"], json!(decision), "{}", answer.text);
        }
        let bad = desk
            .tell(
                Method::POST,
                "/policies/explain",
                json!({ "network": network, "destination": "\u{0}" }),
            )
            .await;
        assert_eq!(
            (bad.status.as_u16(), codes(&bad)),
            (422, vec!["destination"])
        );
        let reach = desk
            .tell(Method::POST, "/jobs/reach", json!({ "network": network }))
            .await;
        assert!(
            reach.json["rows"]
                .as_array()
                .unwrap()
                .iter()
                .any(|row| row["what"] == "Listed"),
            "{}",
            reach.text
        );
        let after = "policy: p\nnetwork: internet\n";
        let diff = desk
            .tell(
                Method::POST,
                "/policies/diff",
                json!({ "before": text, "after": after }),
            )
            .await;
        assert!(
            diff.json["changes"]
                .as_array()
                .unwrap()
                .iter()
                .any(|c| c["effect"] == "wider"),
            "{}",
            diff.text
        );
        assert_eq!(store.audit_after(None, 0, 10).await.unwrap(), []);
    })
    .await;
}
