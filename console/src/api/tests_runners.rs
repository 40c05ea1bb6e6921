//! The runner protocol as a runner meets it, on both engines, against one console or two.

use std::sync::Arc;
use std::time::Duration;

use gateway::control::PolicySource;
use http::Method;
use runner::protocol::{SESSION, Work};
use runner::sealed::OwnKey;
use serde_json::{Value, json};

use crate::clock;
use crate::jobs::spec::{JobSpec, NetworkMode, NetworkSpec};
use crate::server::routes;
use crate::server::testing::{Answer, Console, signed_in};
use crate::store::queue::{Cause, NewRun, Submitted};
use crate::store::testing::{Postgres, each};
use crate::store::{Store, on};

/// A runner as its console knows it.
struct Fake {
    console: Console,
    token: String,
    session: String,
    key: Arc<OwnKey>,
}

impl Fake {
    async fn ask(&self, verb: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", &*bearer), (SESSION, &*self.session)];
        self.console
            .tell(Method::POST, &format!("/runner/v1/{verb}"), &headers, body)
            .await
    }

    async fn hello(&self) -> Answer {
        let hello = json!({ "version": "1", "session": self.session, "key": self.key.public().text(), "engine": "x",
            "isolation": ["hardened"], "most": 2 });
        self.ask("hello", hello).await
    }

    async fn claim(&self) -> Option<Work> {
        let answer = self.ask("claim", json!({ "holding": [] })).await;
        assert!(answer.status.is_success(), "{}", answer.text);
        (answer.status == 200).then(|| serde_json::from_value(answer.json).unwrap())
    }

    async fn of_run(&self, work: &Work, verb: &str, mut body: Value) -> Answer {
        body["fence"] = json!(work.fence);
        self.ask(&format!("runs/{}/{verb}", work.run), body).await
    }

    /// The same runner, as another process or at another console.
    fn as_seen(&self, console: &Console, session: &str) -> Self {
        Self {
            console: console.clone(),
            token: self.token.clone(),
            session: session.into(),
            key: self.key.clone(),
        }
    }
}

async fn fake(console: &Console) -> Fake {
    let (_, cookie) = signed_in(&console.app.store, &clock::id(), true).await;
    let headers = [("cookie", &*cookie)];
    let made = console
        .tell(
            Method::POST,
            "/api/v1/runners",
            &headers,
            json!({ "name": "r" }),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = made.json["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("spr_"), "{token}");
    let listed = console.ask(Method::GET, "/api/v1/runners", &headers).await;
    assert!(!listed.text.contains(&token));
    let fake = Fake {
        console: console.clone(),
        token,
        session: "one".into(),
        key: Arc::new(OwnKey::fresh().unwrap()),
    };
    let welcome = fake.hello().await;
    assert_eq!(welcome.status, 200, "{}", welcome.text);
    fake
}

async fn submit(store: &Store) -> (String, String) {
    let (user, _) = signed_in(store, &clock::id(), false).await;
    let place = store.add_workspace("W", &user, 1).await.unwrap();
    let spec = JobSpec {
        command: vec!["true".into()],
        network: NetworkSpec {
            mode: NetworkMode::Domains,
            domains: vec!["*.example.com".into()],
            ..NetworkSpec::default()
        },
        ..JobSpec::default()
    };
    let new = NewRun {
        workspace: &place,
        job: None,
        name: "j\u{202e}\"",
        spec: &spec,
        cause: Cause::Person,
        by: None,
        slot: None,
        attempt: 1,
        retry_of: None,
        input: Some(b"in"),
        ready_at: 1,
    };
    let Submitted::Queued(run) = store.submit_run(&new, clock::now()).await.unwrap() else {
        panic!("it waits");
    };
    (place, run)
}

fn piece(text: &str) -> Value {
    use base64::Engine;
    let data = base64::engine::general_purpose::STANDARD.encode(text);
    json!({ "error": false, "at": 5, "data": data })
}

#[tokio::test]
async fn what_is_told_twice_is_kept_once_and_the_end_is_the_end() {
    each(async |store| {
        let console = Console::on(store.clone());
        let fake = fake(&console).await;
        let (place, run) = submit(&store).await;
        let work = fake.claim().await.unwrap();
        assert_eq!(work.run, run);
        assert!(matches!(&work.job.policy, PolicySource::Document { text, .. } if text.contains("*.example.com")));
        assert_eq!(
            fake.of_run(&work, "begin", json!({})).await.json,
            json!("yes")
        );
        let step = json!([{ "seq": 1, "at": 5, "kind": "started", "data": { "image": "i" } }]);
        let tell = json!({ "starts": 0, "output": [piece("one "), piece("two")], "steps": step });
        for _ in 0..2 {
            let heard = fake.of_run(&work, "tell", tell.clone()).await;
            assert_eq!(heard.json["output"], 7, "{}", heard.text);
        }
        let heard = fake
            .of_run(
                &work,
                "tell",
                json!({ "starts": 4, "output": [piece("two three")] }),
            )
            .await;
        assert_eq!(heard.json["output"], 13);
        // what would leave a gap is not taken, and where to go on is said
        let gap = fake
            .of_run(
                &work,
                "tell",
                json!({ "starts": 99, "output": [piece("x")] }),
            )
            .await;
        assert_eq!(gap.json["output"], 13, "{}", gap.text);
        let chunks = store.output(&run, 0, 1000).await.unwrap();
        let text: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.data).collect();
        assert_eq!(String::from_utf8(text).unwrap(), "one two three");
        assert_eq!(
            store.run(&place, &run).await.unwrap().unwrap().state,
            "running"
        );
        let end = json!({ "end": { "ended": { "code": 3, "reason": "exited" } } });
        for _ in 0..2 {
            assert_eq!(fake.of_run(&work, "finish", end.clone()).await.status, 204);
        }
        let seen = store.run(&place, &run).await.unwrap().unwrap();
        assert_eq!((seen.state.as_str(), seen.exit_code), ("failed", Some(3)));
        let late = fake
            .of_run(
                &work,
                "tell",
                json!({ "starts": 13, "output": [piece("late")] }),
            )
            .await;
        assert_eq!(
            (late.status.as_u16(), &late.json["code"]),
            (410, &json!("stale"))
        );
    })
    .await;
}

#[tokio::test]
async fn a_run_that_its_runner_stopped_before_is_lost_and_cancelled_by_nobody() {
    each(async |store| {
        let console = Console::on(store.clone());
        let fake = fake(&console).await;
        for (code, state) in [
            ("stopping", "lost"),
            ("cancelled", "cancelled"),
            ("busy", "failed"),
        ] {
            let (place, run) = submit(&store).await;
            let work = fake.claim().await.unwrap();
            let end = json!({ "end": { "failed": { "code": code, "message": "no" } } });
            assert_eq!(fake.of_run(&work, "finish", end).await.status, 204);
            let seen = store.run(&place, &run).await.unwrap().unwrap();
            assert_eq!(seen.state, state, "{code}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_older_process_of_a_runner_and_an_older_claim_change_nothing() {
    each(async |store| {
        let console = Console::on(store.clone());
        let old = fake(&console).await;
        let (place, run) = submit(&store).await;
        let work = old.claim().await.unwrap();
        let new = old.as_seen(&console, "two");
        assert_eq!(new.hello().await.status, 200);
        let refused = old.of_run(&work, "begin", json!({})).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json["code"]),
            (409, &json!("superseded"))
        );
        // it had not begun, so the next process gets it, and the claim before is worth nothing
        let again = new.claim().await.unwrap();
        assert!(again.run == run && again.fence > work.fence, "{again:?}");
        assert_eq!(new.of_run(&work, "begin", json!({})).await.status, 410);
        assert_eq!(new.of_run(&again, "begin", json!({})).await.status, 200);
        // one that had begun is lost with its process
        let third = new.as_seen(&console, "three");
        assert_eq!(third.hello().await.status, 200);
        assert_eq!(
            store.run(&place, &run).await.unwrap().unwrap().state,
            "lost"
        );
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_got_lost_is_given_again_and_a_cancelled_run_is_heard_of() {
    each(async |store| {
        let console = Console::on(store.clone());
        let fake = fake(&console).await;
        let (place, run) = submit(&store).await;
        // the runner never heard of it
        fake.claim().await.unwrap();
        let work = fake.claim().await.unwrap();
        assert_eq!(work.run, run);
        let keep = json!({ "runs": [[work.run, work.fence], ["none", 1]], "ending": [] });
        let kept = fake.ask("keep", keep).await;
        assert_eq!(kept.json, json!({ "cancelled": [], "stale": ["none"] }));
        fake.of_run(&work, "begin", json!({})).await;
        store.cancel_run(&place, &run, clock::now()).await.unwrap();
        let kept = fake
            .ask(
                "keep",
                json!({ "runs": [[work.run, work.fence]], "ending": [] }),
            )
            .await;
        assert_eq!(kept.json, json!({ "cancelled": [run], "stale": [] }));
        assert_eq!(
            fake.of_run(&work, "begin", json!({})).await.json,
            json!("cancelled")
        );
        assert_eq!(
            fake.of_run(&work, "finish", json!({ "end": "cancelled" }))
                .await
                .status,
            204
        );
        assert_eq!(
            store.run(&place, &run).await.unwrap().unwrap().state,
            "cancelled"
        );
    })
    .await;
}

#[tokio::test]
async fn a_runners_token_opens_the_runners_routes_and_no_other() {
    each(async |store| {
        let console = Console::on(store.clone());
        let fake = fake(&console).await;
        let bearer = format!("Bearer {}", fake.token);
        let (_, actions) = routes::table().described();
        let mut ours = 0;
        for (path, method, _) in actions {
            let runners = path.starts_with("/runner/");
            ours += usize::from(runners);
            let path = path.replace(['{', '}'], "");
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = console
                .tell(
                    method,
                    &path,
                    &[("authorization", &*bearer)],
                    json!({ "?": 1 }),
                )
                .await;
            assert_eq!(answer.admitted, runners, "{path}: {}", answer.text);
            assert!(runners || answer.status == 401, "{path}: {}", answer.text);
        }
        assert!(ours >= 6, "{ours}");
        // and it ends with its row
        let (_, cookie) = signed_in(&store, "root", true).await;
        let runner = store.runners("", 10).await.unwrap().remove(0).id;
        let path = format!("/api/v1/runners/{runner}");
        let ended = console
            .ask(Method::DELETE, &path, &[("cookie", &cookie)])
            .await;
        assert_eq!(ended.status, 204, "{}", ended.text);
        assert_eq!(fake.hello().await.status, 401);
    })
    .await;
}

#[tokio::test]
async fn who_guesses_at_runners_tokens_waits() {
    each(async |store| {
        let console = Console::on(store.clone());
        let fake = fake(&console).await;
        let wrong = Fake {
            token: format!("spr_{}", "A".repeat(43)),
            ..fake.as_seen(&console, "x")
        };
        let mut last = 0;
        for _ in 0..5000 {
            last = wrong.hello().await.status.as_u16();
            if last == 429 {
                break;
            }
            assert_eq!(last, 401);
        }
        assert_eq!(last, 429);
        // from elsewhere the runner itself goes on
        let mut elsewhere = console.clone();
        elsewhere.peer = "198.51.100.9:1".parse().unwrap();
        assert_eq!(fake.as_seen(&elsewhere, "one").hello().await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn two_consoles_of_one_store_serve_one_runner() {
    let database = Postgres::shared().database();
    let (one, two) = (
        Store::open(&database).await.unwrap(),
        Store::open(&database).await.unwrap(),
    );
    let (first, second) = (Console::on(one.clone()), Console::on(two.clone()));
    let fake = fake(&first).await;
    let there = fake.as_seen(&second, "one");
    let (place, run) = submit(&two).await;
    let work = fake.claim().await.unwrap();
    assert_eq!(
        there.of_run(&work, "begin", json!({})).await.json,
        json!("yes")
    );
    // the first console dies
    first.app.stop.cancel();
    one.close().await;
    let heard = there
        .of_run(
            &work,
            "tell",
            json!({ "starts": 0, "output": [piece("told")] }),
        )
        .await;
    assert_eq!(heard.json["output"], 4, "{}", heard.text);
    let end = json!({ "end": { "ended": { "code": 0, "reason": "exited" } } });
    assert_eq!(there.of_run(&work, "finish", end).await.status, 204);
    assert_eq!(
        two.run(&place, &run).await.unwrap().unwrap().state,
        "succeeded"
    );
    two.close().await;
}

#[tokio::test]
async fn a_claim_that_waits_gets_nothing_once_its_runner_is_revoked() {
    each(async |store| {
        let console = Console::on(store.clone());
        let (stolen, good) = (fake(&console).await, fake(&console).await);
        let mut waiting = Box::pin(stolen.ask("claim", json!({ "holding": [] })));
        let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "nothing is there to be claimed: {early:?}");
        let runners = store.runners("", 10).await.unwrap();
        assert!(store.end_runner(&runners[0].id).await.unwrap());
        let (_, run) = submit(&store).await;
        let answer = waiting.await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        assert_eq!(good.claim().await.unwrap().run, run);
    })
    .await;
}

#[tokio::test]
async fn who_has_a_whole_network_guesses_no_more_tokens_and_a_path_lifts_no_limit() {
    each(async |store| {
        let mut console = Console::on(store);
        let headers = [("authorization", "Bearer spr_x")];
        let mut refused = 0;
        for n in 0..400_u32 {
            console.peer = format!("[2001:db8::{n:x}]:1").parse().unwrap();
            let answer = console
                .ask(Method::POST, "/runner/v1/hello", &headers)
                .await;
            refused += u32::from(answer.status == 429);
        }
        assert!(refused > 0, "every address has guesses of its own");
        console.peer = "203.0.113.99:1".parse().unwrap();
        let mut last = 404;
        for _ in 0..1000 {
            last = console
                .ask(Method::GET, "/runner/v1/nothing", &[])
                .await
                .status
                .as_u16();
            if last != 404 {
                break;
            }
        }
        assert_eq!(last, 429);
    })
    .await;
}

#[tokio::test]
async fn a_runner_that_comes_back_with_another_key_is_refused_shown_and_told_once_an_hour() {
    each(async |store| {
        let console = Console::on(store);
        let fake = fake(&console).await;
        submit(&console.app.store).await;
        let store = &console.app.store;
        let thief = || Fake {
            key: Arc::new(OwnKey::fresh().unwrap()),
            ..fake.as_seen(&console, "two")
        };
        // what the audit log could not be told is told the next time
        let aside = async |from: &'static str, to: &'static str| {
            let rename = sqlx::AssertSqlSafe(format!("ALTER TABLE {from} RENAME TO {to}"));
            on!(store, pool => sqlx::query(rename).execute(pool).await.map(|_| ())).unwrap();
        };
        aside("audit", "aside").await;
        assert_eq!(thief().hello().await.status, 500);
        aside("aside", "audit").await;
        for _ in 0..3 {
            let refused = thief().hello().await;
            assert_eq!(refused.status, 409, "{}", refused.text);
            assert_eq!(refused.json["code"], "key_changed");
        }
        let refused = thief().ask("claim", json!({ "holding": [] })).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        let (_, cookie) = signed_in(&console.app.store, &clock::id(), true).await;
        let headers = [("cookie", &*cookie)];
        let listed = console.ask(Method::GET, "/api/v1/runners", &headers).await;
        let shown = &listed.json["items"][0];
        assert_eq!(shown["key"], fake.key.public().text());
        assert!(shown["other_key_at"].is_i64(), "{shown}");
        let told = async || {
            let audit = store.audit_after(None, 0, 100).await.unwrap();
            let told = audit.iter().filter(|entry| entry.action == "pull.hello");
            told.count()
        };
        assert_eq!(told().await, 1);
        on!(store, pool => sqlx::query("UPDATE runners SET refused_at = refused_at - 3600000").execute(pool).await.map(|_| ()))
            .unwrap();
        for _ in 0..2 {
            assert_eq!(thief().hello().await.status, 409);
            assert_eq!(told().await, 2);
        }
        // the twin: the runner itself goes on, also as another process
        assert!(fake.claim().await.is_some());
        let again = fake.as_seen(&console, "three").hello().await;
        assert_eq!(again.status, 200, "{}", again.text);
    })
    .await;
}
