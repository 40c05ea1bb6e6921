//! People of a provider while they are signed in: who leaves, providers that fail, that are slow, that count.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::tests_double::{Double, console, me, sign_in};
use crate::accounts::oidc::Person;
use crate::accounts::secret::{Opens, Secret};
use crate::clock::{self, MINUTE};
use crate::server::membership;
use crate::server::testing::Console;
use crate::store::identities::{Admitted, Known, Turn};
use crate::store::sessions::{NewSession, NewToken};
use crate::store::testing::each;
use crate::store::users::{Home, NewUser};
use crate::store::{Store, on};

/// As if the provider had last spoken so long ago.
async fn ago(store: &Store, minutes: i64) {
    let at = clock::now() - minutes * MINUTE;
    on!(store, pool => sqlx::query("UPDATE identities SET checked_at = $1, asked_at = $1")
        .bind(at).execute(pool).await.map(|_| ()))
    .unwrap();
}

/// An API token of whoever has this session, and a path that it opens.
async fn token(console: &Console, session: &str) -> (String, String) {
    let user = me(console, session).await.json["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let list = console
        .ask(Method::GET, "/api/v1/workspaces", &[("cookie", session)])
        .await;
    let secret = Secret::fresh(Opens::Api).unwrap();
    let workspace = list.json["items"][0]["id"].as_str().unwrap();
    let new = NewToken {
        workspace,
        user: &user,
        name: "ci",
        scope: "read",
        digest: &secret.digest,
        ends: None,
    };
    console
        .app
        .store
        .add_token(new, clock::now())
        .await
        .unwrap();
    let path = format!("/api/v1/workspaces/{workspace}/jobs");
    (format!("Bearer {}", secret.text), path)
}

async fn by_token(console: &Console, (bearer, path): &(String, String)) -> (StatusCode, Value) {
    let answer = console
        .ask(Method::GET, path, &[("authorization", bearer)])
        .await;
    (answer.status, answer.json["code"].clone())
}

#[tokio::test]
async fn a_provider_that_fails_holds_access_up_and_ends_nothing() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        let session = sign_in(&console, &double, "oidc").await.1.unwrap();
        let bearer = token(&console, &session).await;
        for outage in [500, 503, 429, 401, 403, 404, 400] {
            double.0.lock().unwrap().outage = StatusCode::from_u16(outage).ok();
            // within the quarter of an hour nobody notices
            ago(&store, 10).await;
            membership::check(&console.app, clock::now()).await;
            assert_eq!(me(&console, &session).await.status, 200, "{outage}");
            assert_eq!(by_token(&console, &bearer).await.0, 200, "{outage}");
            ago(&store, 16).await;
            membership::check(&console.app, clock::now()).await;
            assert_eq!(me(&console, &session).await.status, 401, "{outage}");
            let held = by_token(&console, &bearer).await;
            assert_eq!(held, (StatusCode::UNAUTHORIZED, json!("unconfirmed")));
            double.0.lock().unwrap().outage = None;
            membership::check(&console.app, clock::now() + 3 * MINUTE).await;
            assert_eq!(me(&console, &session).await.status, 200, "{outage}");
            assert_eq!(by_token(&console, &bearer).await.0, 200, "{outage}");
        }
        // what the provider does say ends it all
        double.says("groups", json!(["others"]));
        ago(&store, 10).await;
        membership::check(&console.app, clock::now()).await;
        assert_eq!(me(&console, &session).await.status, 401);
        let over = by_token(&console, &bearer).await;
        assert_eq!(over, (StatusCode::UNAUTHORIZED, json!("bad_token")));
    })
    .await;
}

#[tokio::test]
async fn a_token_that_is_good_once_is_kept_whatever_fails_after_it() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        double.0.lock().unwrap().refresh.1 = true;
        let session = sign_in(&console, &double, "oidc").await.1.unwrap();
        // tokens that do not fit say nothing about the person
        double.says("aud", json!("them"));
        for _ in 0..3 {
            ago(&store, 10).await;
            membership::check(&console.app, clock::now()).await;
        }
        double.0.lock().unwrap().claims["aud"] = json!("us");
        ago(&store, 10).await;
        membership::check(&console.app, clock::now()).await;
        assert_eq!(double.0.lock().unwrap().refresh.0, "againxxxx");
        ago(&store, 10).await;
        membership::check(&console.app, clock::now()).await;
        assert_eq!(me(&console, &session).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_after_an_answer_that_was_lost_ends_nothing() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        double.0.lock().unwrap().refresh.1 = true;
        let session = sign_in(&console, &double, "oidc").await.1.unwrap();
        let bearer = token(&console, &session).await;
        ago(&store, 10).await;
        // the provider has another token for them, and nobody hears of it
        double.0.lock().unwrap().outage = Some(StatusCode::BAD_GATEWAY);
        membership::check(&console.app, clock::now()).await;
        double.0.lock().unwrap().outage = None;
        double.0.lock().unwrap().refresh.0 = "another".into();
        membership::check(&console.app, clock::now() + 3 * MINUTE).await;
        assert_eq!(me(&console, &session).await.status, 200);
        assert_eq!(by_token(&console, &bearer).await.0, 200);
        // and a refusal of a token that nothing has used up says what it says
        ago(&store, 10).await;
        membership::check(&console.app, clock::now()).await;
        assert_eq!(me(&console, &session).await.status, 401);
        assert_eq!(by_token(&console, &bearer).await.1, json!("bad_token"));
    })
    .await;
}

#[tokio::test]
async fn who_signs_in_while_their_provider_is_asked_stays_and_nobody_is_asked_about_twice() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        let session = sign_in(&console, &double, "oidc").await.1.unwrap();
        ago(&store, 10).await;
        let turn = Turn {
            provider: "oidc",
            since: clock::now() - MINUTE,
            asked: clock::now() - MINUTE,
        };
        let claim = async || store.claim_identity(turn, clock::now()).await.unwrap();
        let asked = claim().await.unwrap();
        let fresh = sign_in(&console, &double, "oidc").await.1.unwrap();
        assert!(!store.end_access(&asked).await.unwrap());
        for kept in [&session, &fresh] {
            assert_eq!(me(&console, kept).await.status, 200);
        }
        ago(&store, 10).await;
        let asked = claim().await.unwrap();
        assert!(store.end_access(&asked).await.unwrap());
        for over in [&session, &fresh] {
            assert_eq!(me(&console, over).await.status, 401);
        }
        // late in a round that began long ago
        sign_in(&console, &double, "oidc").await.1.unwrap();
        ago(&store, 20).await;
        double.0.lock().unwrap().outage = Some(StatusCode::BAD_GATEWAY);
        membership::check(&console.app, clock::now() - 5 * MINUTE).await;
        assert_eq!(claim().await, None, "it is being asked about them");
    })
    .await;
}

#[tokio::test]
async fn github_that_counts_questions_is_no_loss_and_a_token_taken_back_is() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, None).await;
        let account = json!({ "body": { "id": 3, "login": "eve", "name": null } });
        let member = json!({ "body": { "state": "active", "organization": { "login": "Crew" } } });
        let says = |user: &Value, membership: &Value| {
            double.0.lock().unwrap().github = json!({ "user": user, "user/memberships/orgs/crew": membership });
        };
        says(&account, &member);
        let session = sign_in(&console, &double, "github").await.1.unwrap();
        let counted = json!({ "status": 403, "left": "0", "body": {} });
        let told = json!({ "status": 403, "body": { "message": "You have exceeded a secondary rate limit." } });
        let slower = json!({ "status": 429, "body": {} });
        for limit in [&counted, &told, &slower] {
            for (user, membership) in [(limit, &member), (&account, limit)] {
                says(user, membership);
                ago(&store, 10).await;
                membership::check(&console.app, clock::now()).await;
                assert_eq!(me(&console, &session).await.status, 200, "{limit}");
            }
        }
        for (user, membership) in [
            (&account, &json!({ "status": 403, "body": { "message": "no" } })),
            (&json!({ "status": 401, "body": {} }), &member),
        ] {
            says(&account, &member);
            let session = sign_in(&console, &double, "github").await.1.unwrap();
            says(user, membership);
            ago(&store, 10).await;
            membership::check(&console.app, clock::now()).await;
            assert_eq!(me(&console, &session).await.status, 401, "{user}");
        }
    })
    .await;
}

/// Somebody is signed in whom the double knows by this name.
async fn comes(console: &Console, name: &str) {
    let known = Known {
        provider: "oidc",
        subject: name,
        login: name,
        login_is_listed: false,
    };
    let new = NewUser {
        email: format!("{name}@example.com"),
        name: name.into(),
        password: None,
        instance_admin: false,
    };
    let store = &console.app.store;
    let now = clock::now();
    let admitted = store.admit_identity(known, &new, Home::Personal, now).await;
    let Admitted::As(user) = admitted.unwrap() else {
        panic!("{name} is somebody new");
    };
    let person = Person {
        subject: name.into(),
        login: name.into(),
        name: name.into(),
        email: None,
        groups: Vec::new(),
        refresh: Some(format!("as-{name}")),
    };
    membership::keep(&console.app, &user, &person)
        .await
        .unwrap();
    let session = NewSession {
        user: &user,
        proven: None,
        digest: &Secret::fresh(Opens::Session).unwrap().digest,
        address: "",
        agent: "",
        ends: now + clock::DAY,
    };
    store.add_session(session, now).await.unwrap();
}

#[tokio::test]
async fn many_people_of_a_slow_provider_are_asked_about_at_the_same_time() {
    /// One after the other they would take more than two minutes.
    const PEOPLE: i64 = 70;
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        let begun = clock::now();
        for n in 0..PEOPLE {
            comes(&console, &format!("p{n}")).await;
        }
        ago(&store, 10).await;
        double.0.lock().unwrap().slow = Duration::from_secs(2);
        let asked = Instant::now();
        membership::check(&console.app, clock::now()).await;
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(100), "{took:?}");
        let most = double.0.lock().unwrap().at_once.1;
        assert!((16..=32).contains(&most), "{most}");
        let confirmed: i64 = on!(&store, pool => sqlx::query_scalar("SELECT count(*) FROM identities WHERE checked_at >= $1")
            .bind(begun).fetch_one(pool).await)
        .unwrap();
        assert_eq!(confirmed, PEOPLE);
    })
    .await;
}

#[tokio::test]
async fn a_provider_that_hangs_keeps_nobody_of_the_other_waiting() {
    /// More than are asked about at the same time.
    const PEOPLE: i64 = 40;
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        let account = json!({ "body": { "id": 3, "login": "mona", "name": null } });
        double.0.lock().unwrap().github = json!({ "user": account });
        let session = sign_in(&console, &double, "github").await.1.unwrap();
        ago(&store, 14).await;
        let mona = clock::now();
        for n in 0..PEOPLE {
            comes(&console, &format!("p{n}")).await;
        }
        // they were all asked about before her
        let waits = mona - 12 * MINUTE;
        on!(&store, pool => sqlx::query("UPDATE identities SET checked_at = $1, asked_at = $2 WHERE provider = 'oidc'")
            .bind(waits).bind(mona - 20 * MINUTE).execute(pool).await.map(|_| ()))
        .unwrap();
        double.0.lock().unwrap().slow = Duration::from_hours(1);
        let confirmed = async {
            let since = "SELECT count(*) FROM identities WHERE provider = 'github' AND checked_at >= $1";
            loop {
                let count: i64 = on!(&store, pool => sqlx::query_scalar(since).bind(mona).fetch_one(pool).await).unwrap();
                if count == 1 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let both = async {
            tokio::select! {
                () = membership::check(&console.app, clock::now()) => panic!("it hangs"),
                () = confirmed => {}
            }
        };
        let answered = tokio::time::timeout(Duration::from_mins(1), both).await;
        assert!(answered.is_ok(), "she waits for them");
        // nobody had given up on the one that hangs before she was confirmed
        let hang = double.0.lock().unwrap().at_once.0;
        assert!(hang <= 32, "{hang}");
        assert_eq!(me(&console, &session).await.status, 200);
    })
    .await;
}
