//! News of denials and of lost enforcement, and what a job says itself about who is told.

use http::Method;
use serde_json::{Value, json};

use super::read;
use crate::api::runs_tests::{Desk, carry_out};
use crate::clock;
use crate::server::tidy::tidy;
use crate::store::testing::each;
use crate::store::{Store, on};

/// Somebody who is told about some topics: the id of the notification.
async fn teller(desk: &Desk, name: &str, topics: &[&str]) -> String {
    let body = json!({ "name": name, "kind": "webhook", "address": "https://93.184.216.34/hook", "topics": topics });
    let made = desk.tell(Method::POST, "/notifications", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.json["id"].as_str().unwrap().to_owned()
}

/// What is to be sent to somebody, newest first: topic and content.
async fn told(desk: &Desk, id: &str) -> Vec<(String, Value)> {
    let store = &desk.console.app.store;
    while read(&desk.console.app).await.unwrap() {}
    let sent = store.deliveries(id, "", 100).await.unwrap();
    sent.into_iter()
        .map(|one| (one.topic, serde_json::from_str(&one.body).unwrap()))
        .collect()
}

async fn runs(store: &Store, desk: &Desk, job: &str, records: &[(u64, &str)]) {
    desk.run(job).await;
    carry_out(store, records).await;
}

#[tokio::test]
async fn a_name_that_a_job_is_denied_is_news_once_and_of_each_job() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        store.notified().await.unwrap();
        let id = teller(&desk, "denials", &["run.denied"]).await;
        let job = desk.job("j", json!({})).await;
        runs(
            &store,
            &desk,
            &job,
            &[(1, "evil.example"), (2, "evil.example"), (3, "<b>.example")],
        )
        .await;
        let first = told(&desk, &id).await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!(
            (first[0].0.as_str(), &first[0].1["data"]["names"]),
            ("run.denied", &json!(["<b>.example", "evil.example"]))
        );
        runs(&store, &desk, &job, &[(4, "evil.example")]).await;
        assert_eq!(told(&desk, &id).await.len(), 1, "it is no news any more");
        runs(
            &store,
            &desk,
            &job,
            &[(5, "evil.example"), (6, "other.example")],
        )
        .await;
        assert_eq!(
            told(&desk, &id).await[0].1["data"]["names"],
            json!(["other.example"])
        );
        let another = desk.job("another", json!({})).await;
        runs(&store, &desk, &another, &[(7, "evil.example")]).await;
        assert_eq!(told(&desk, &id).await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_run_with_more_new_names_than_anybody_reads_is_one_bounded_message() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        store.notified().await.unwrap();
        let id = teller(&desk, "denials", &["run.denied"]).await;
        let job = desk.job("j", json!({})).await;
        let mut names: Vec<String> = (0..300).map(|n| format!("n{n}.example")).collect();
        // a name that sorts behind all others
        names.push("zz.example".into());
        let records: Vec<(u64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
        runs(&store, &desk, &job, &records).await;
        let sent = told(&desk, &id).await;
        assert_eq!(
            (
                sent.len(),
                sent[0].1["data"]["names"].as_array().unwrap().len()
            ),
            (1, 50)
        );
        assert_eq!(sent[0].1["data"]["more"], true);
        assert_eq!(sent[0].1["data"]["names"][0], "zz.example");
        // two runs whose ends are read together
        let twice = desk.job("twice", json!({})).await;
        runs(&store, &desk, &twice, &[(1_001, "a.example")]).await;
        let both = [(1_002, "a.example"), (1_003, "b.example")];
        runs(&store, &desk, &twice, &both).await;
        let sent = told(&desk, &id).await;
        assert_eq!(sent.len(), 3);
        let of = |n: usize| (&sent[n].1["data"]["names"], &sent[n].1["data"]["more"]);
        let mut said = [of(0), of(1)];
        said.sort_by_key(|(names, _)| names.to_string());
        let (a, b, all) = (json!(["a.example"]), json!(["b.example"]), json!(false));
        assert_eq!(said, [(&a, &all), (&b, &all)]);
    })
    .await;
}

#[tokio::test]
async fn that_no_more_names_of_a_job_are_kept_is_told_once_and_names_go_with_their_job() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        store.notified().await.unwrap();
        let id = teller(&desk, "denials", &["run.denied"]).await;
        let (job, other) = (desk.job("j", json!({})).await, desk.job("other", json!({})).await);
        let many = "INSERT INTO denied_names (job_id, name, first_at) \
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2) SELECT $1, 'x' || i, 1 FROM n";
        for (job, count) in [(&job, 4_999_i64), (&other, 3), (&"gone".to_owned(), 2_500)] {
            on!(&store, pool => sqlx::query(many).bind(job).bind(count).execute(pool).await.map(|_| ())).unwrap();
        }
        let said = async |records: &[(u64, &str)]| {
            runs(&store, &desk, &job, records).await;
            told(&desk, &id).await
        };
        let last = said(&[(1, "last.example")]).await;
        assert_eq!((last.len(), &last[0].1["data"]["full"]), (1, &json!(false)));
        let full = said(&[(2, "one.example"), (3, "last.example")]).await;
        let data = &full[0].1["data"];
        assert_eq!((full.len(), &data["full"], &data["names"]), (2, &json!(true), &json!(["one.example"])));
        assert_eq!(said(&[(4, "two.example")]).await.len(), 2, "once");
        let kept = async |job: &str| -> i64 {
            let count = "SELECT count(*) FROM denied_names WHERE job_id = $1";
            on!(&store, pool => sqlx::query_scalar(count).bind(job).fetch_one(pool).await).unwrap()
        };
        assert_eq!((kept(&job).await, kept("gone").await), (5_001, 2_500));
        tidy(&desk.console.app, clock::now()).await.unwrap();
        assert_eq!((kept(&job).await, kept(&other).await, kept("gone").await), (5_001, 3, 0));
        let removed = desk.tell_with(Method::DELETE, &format!("/jobs/{job}"), &[("if-match", "\"1\"")], json!({})).await;
        assert_eq!((removed.status.as_u16(), kept(&job).await), (204, 0), "{}", removed.text);
    })
    .await;
}

#[tokio::test]
async fn a_job_says_itself_who_is_told_and_when() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        store.notified().await.unwrap();
        let all = teller(&desk, "all", &["run.succeeded", "run.failed"]).await;
        let some = teller(&desk, "some", &["run.failed"]).await;
        let job = desk.job("own", json!({ "notify": { "to": ["some"], "on": ["succeeded"] } })).await;
        runs(&store, &desk, &job, &[]).await;
        assert_eq!(told(&desk, &all).await, []);
        assert_eq!(told(&desk, &some).await.len(), 1);
        let nobody = desk.job("nobody", json!({ "notify": {} })).await;
        runs(&store, &desk, &nobody, &[]).await;
        assert_eq!((told(&desk, &all).await.len(), told(&desk, &some).await.len()), (0, 1));
        let usual = desk.job("usual", json!({})).await;
        runs(&store, &desk, &usual, &[]).await;
        assert_eq!((told(&desk, &all).await.len(), told(&desk, &some).await.len()), (1, 1));
        let wrong = json!({ "name": "wrong", "spec": { "notify": { "to": ["nobody-of-this-name"], "on": ["failed"] } } });
        let refused = desk.tell(Method::POST, "/jobs", wrong).await;
        assert_eq!((refused.status.as_u16(), &refused.json["fields"][0]["field"]), (422, &json!("spec.notify.to")));
        let wrong = json!({ "name": "wrong", "spec": { "notify": { "to": ["nobody-of-this-name"], "on": ["failed"] } } });
        let refused = desk.tell(Method::POST, "/runs", wrong).await;
        assert_eq!((refused.status.as_u16(), &refused.json["fields"][0]["field"]), (422, &json!("spec.notify.to")), "{}", refused.text);
        // who is removed is no reason to be silent, nor to keep a job from being changed
        assert_eq!(desk.tell(Method::DELETE, &format!("/notifications/{some}"), json!({})).await.status, 204);
        let before = told(&desk, &all).await.len();
        runs(&store, &desk, &job, &[]).await;
        assert_eq!(told(&desk, &all).await.len(), before + 1);
        runs(&store, &desk, &nobody, &[]).await;
        assert_eq!(told(&desk, &all).await.len(), before + 1, "nobody is nobody");
        let change = async |to: Value, version: u8| {
            let body = json!({ "name": "own", "spec": { "description": "d", "notify": { "to": to, "on": ["failed"] } } });
            let tag = format!("\"{version}\"");
            desk.tell_with(Method::PUT, &format!("/jobs/{job}"), &[("if-match", &tag)], body).await.status.as_u16()
        };
        assert_eq!(change(json!(["some", "other"]), 1).await, 422);
        assert_eq!(change(json!(["some"]), 1).await, 200);
        assert_eq!(change(json!(["all"]), 2).await, 200);
        assert_eq!(change(json!(["some"]), 3).await, 422);
    })
    .await;
}

#[tokio::test]
async fn lost_enforcement_is_told_in_every_workspace_that_asks() {
    each(async |store| {
        let (desk, other) = (Desk::of(&store, "ada").await, Desk::of(&store, "eve").await);
        store.notified().await.unwrap();
        let asks = teller(&desk, "firewall", &["gateway.enforcement"]).await;
        let too = teller(&other, "firewall", &["gateway.enforcement"]).await;
        let not = teller(&desk, "runs", &["run.failed"]).await;
        let data = json!({ "state": "sealed", "cause": "a table is gone" });
        store
            .append_event("instance", "enforcement", &data, clock::now())
            .await
            .unwrap();
        // nobody but the console itself says such a thing
        let topic = format!("workspace/{}", desk.workspace);
        store
            .append_event(&topic, "enforcement", &data, clock::now())
            .await
            .unwrap();
        for (who, id, count) in [(&desk, &asks, 1), (&other, &too, 1), (&desk, &not, 0)] {
            let sent = told(who, id).await;
            assert_eq!(sent.len(), count);
            assert!(
                sent.iter().all(|(_, body)| body["data"] == data),
                "{sent:?}"
            );
        }
    })
    .await;
}
