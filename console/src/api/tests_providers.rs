//! Sign-in by providers as a browser meets it, against doubles that check what real ones check.

use http::Method;
use serde_json::{Value, json};

use super::tests_double::{Double, back, console, leave, me, sign_in};
use crate::accounts::oidc::challenge;
use crate::clock;
use crate::server::membership;
use crate::server::testing::Console;
use crate::settings::{AppUrl, ConsoleConfig, OidcSettings, Redacted};
use crate::store::testing::each;

#[tokio::test]
async fn who_is_in_a_group_comes_in_and_goes_when_they_leave_it() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        let (place, session) = sign_in(&console, &double, "oidc").await;
        let session = session.unwrap();
        assert_eq!(place, "/");
        let seen = me(&console, &session).await;
        assert_eq!(
            (&seen.json["email"], &seen.json["instance_admin"]),
            (&json!("eve@example.com"), &json!(false))
        );
        // the same person again is the same user
        let (_, again) = sign_in(&console, &double, "oidc").await;
        assert_eq!(
            me(&console, &again.unwrap()).await.json["id"],
            seen.json["id"]
        );
        let audit = store.audit_after(None, 0, 100).await.unwrap();
        assert!(
            audit
                .iter()
                .any(|e| e.action == "provider.come_back" && e.subject.starts_with("user=")),
            "{audit:?}"
        );
        // asked again within a quarter of an hour, by what the provider says then
        let later = clock::now() + 10 * clock::MINUTE;
        membership::check(&console.app, later).await;
        assert_eq!(me(&console, &session).await.status, 200);
        double.says("groups", json!(["others"]));
        membership::check(&console.app, later + 10 * clock::MINUTE).await;
        assert_eq!(me(&console, &session).await.status, 401);
        let (place, none) = sign_in(&console, &double, "oidc").await;
        assert_eq!((place.as_str(), none), ("/#sign-in=not_allowed", None));
        // a provider that takes the token back says no
        double.says("groups", json!(["crew"]));
        let (_, session) = sign_in(&console, &double, "oidc").await;
        double.0.lock().unwrap().refreshes = false;
        membership::check(&console.app, later).await;
        assert_eq!(me(&console, &session.unwrap()).await.status, 401);
    })
    .await;
}

#[tokio::test]
async fn claims_that_only_look_like_a_group_let_nobody_in() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, Some(&["crew"])).await;
        for groups in [
            json!("crew"),
            json!("crew,admins"),
            json!([]),
            json!(["Crew"]),
            json!(["crews"]),
            json!([["crew"]]),
            json!({ "crew": true }),
            Value::Null,
        ] {
            double.says("groups", groups.clone());
            let (place, session) = sign_in(&console, &double, "oidc").await;
            assert_eq!(
                (place.as_str(), session),
                ("/#sign-in=not_allowed", None),
                "{groups}"
            );
        }
        // nobody was made a user by trying
        assert_eq!(store.users("", "", 10).await.unwrap().len(), 1);
        double.says("groups", json!(["others", "crew"]));
        assert!(sign_in(&console, &double, "oidc").await.1.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_way_back_counts_once_and_in_the_browser_that_left() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store, &double, None).await;
        let (cookie, state) = leave(&console, &double, "oidc").await;
        let (other, _) = leave(&console, &double, "oidc").await;
        let (cookie2, state2) = leave(&console, &double, "oidc").await;
        let good = format!("code=good&state={state}");
        for (cookie, query) in [
            (other.as_str(), good.as_str()),
            ("", good.as_str()),
            (cookie.as_str(), "code=good&state="),
            (cookie.as_str(), "code=good"),
            (cookie.as_str(), "code=good&state=spl_x"),
        ] {
            let answer = back(&console, &double, "oidc", cookie, query).await;
            assert_eq!(answer.headers["location"], "/#sign-in=expired", "{query}");
        }
        // another provider's way back, another code, no code
        let answer = back(&console, &double, "github", &cookie, &good).await;
        assert_eq!(answer.headers["location"], "/#sign-in=expired");
        let answer = back(&console, &double, "oidc", &cookie, &good).await;
        assert_eq!(
            answer.headers["location"], "/#sign-in=expired",
            "taken by the try before"
        );
        let answer = back(
            &console,
            &double,
            "oidc",
            &cookie2,
            &format!("error=access_denied&state={state2}"),
        )
        .await;
        assert_eq!(answer.headers["location"], "/#sign-in=failed");
        // an answer that names another issuer, or a verifier that is not the one of this sign-in
        let (cookie, state) = leave(&console, &double, "oidc").await;
        let path = format!(
            "/api/v1/providers/oidc/callback?code=good&state={state}&iss=https://evil.example"
        );
        let mixed = console
            .ask(Method::GET, &path, &[("cookie", &cookie)])
            .await;
        assert_eq!(mixed.headers["location"], "/#sign-in=failed");
        let (cookie, state) = leave(&console, &double, "oidc").await;
        double.0.lock().unwrap().challenge = challenge("another");
        let answer = back(
            &console,
            &double,
            "oidc",
            &cookie,
            &format!("code=good&state={state}"),
        )
        .await;
        assert_eq!(answer.headers["location"], "/#sign-in=failed");
        let (_, session) = sign_in(&console, &double, "oidc").await;
        assert!(session.is_some());
    })
    .await;
}

#[tokio::test]
async fn an_address_that_a_provider_names_makes_nobody_somebody_else() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store.clone(), &double, None).await;
        for (email, verified, place) in [
            ("ada@example.com", true, "/#sign-in=address_taken"),
            ("ADA@example.com", true, "/#sign-in=address_taken"),
            // not checked by the provider: no address at all, and so nobody's
            ("ada@example.com", false, "/"),
        ] {
            double.says("email", json!(email));
            double.says("email_verified", json!(verified));
            let (led, session) = sign_in(&console, &double, "oidc").await;
            assert_eq!(led, place, "{email} {verified}");
            if let Some(session) = session {
                let seen = me(&console, &session).await;
                assert!(
                    seen.json["email"]
                        .as_str()
                        .unwrap()
                        .ends_with("@oidc.invalid"),
                    "{}",
                    seen.text
                );
                assert_eq!(seen.json["instance_admin"], false);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn github_lets_listed_users_and_active_members_in() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store, &double, None).await;
        let account = |id: u64, login: &str| json!({ "body": { "id": id, "login": login, "name": null } });
        let member = |state: &str| json!({ "body": { "state": state, "organization": { "login": "Crew" } } });
        let refused = json!({ "status": 403, "body": {} });
        let broken = json!({ "status": 500, "body": {} });
        for (user, membership, place) in [
            (account(1, "mona"), refused.clone(), "/"),
            // the name of somebody who has been here, on another account
            (account(2, "MONA"), refused.clone(), "/#sign-in=not_allowed"),
            (account(3, "eve"), member("active"), "/"),
            (account(4, "mallory"), member("pending"), "/#sign-in=not_allowed"),
            (account(4, "mallory"), refused, "/#sign-in=not_allowed"),
            (account(4, "mallory"), json!({ "status": 404, "body": {} }), "/#sign-in=not_allowed"),
            (account(4, "mallory"), broken.clone(), "/#sign-in=failed"),
            (broken, member("active"), "/#sign-in=failed"),
        ] {
            double.0.lock().unwrap().github = json!({ "user": user, "user/memberships/orgs/crew": membership });
            let (led, _) = sign_in(&console, &double, "github").await;
            assert_eq!(led, place, "{user} {membership}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_first_owner_comes_by_the_link_alone() {
    each(async |store| {
        let double = Double::start().await;
        let origin = double.origin();
        let mut config = ConsoleConfig {
            url: AppUrl::parse("http://localhost:8420"),
            ..ConsoleConfig::default()
        };
        config.providers.oidc = Some(OidcSettings {
            name: "Company".into(),
            issuer: origin,
            client_id: "us".into(),
            client_secret: Redacted::new("s3cret".to_owned()),
            allowed_groups: None,
            groups_claim: "groups".into(),
            scopes: vec!["openid".into()],
        });
        let console = Console::with(store.clone(), config);
        let (place, session) = sign_in(&console, &double, "oidc").await;
        assert_eq!((place.as_str(), session), ("/#sign-in=no_owner", None));
        assert_eq!(store.users("", "", 10).await.unwrap().len(), 0);
        let about = console.ask(Method::GET, "/api/v1", &[]).await;
        assert_eq!(
            about.json["providers"],
            json!([{ "id": "oidc", "name": "Company" }])
        );
        assert!(!about.text.contains("s3cret"), "{}", about.text);
    })
    .await;
}

#[tokio::test]
async fn a_discovery_document_that_leads_elsewhere_is_refused_and_says_so() {
    each(async |store| {
        let double = Double::start().await;
        let console = console(store, &double, None).await;
        for (name, value, told) in [
            ("issuer", "https://evil.example", "another issuer"),
            (
                "token_endpoint",
                "http://169.254.169.254/latest",
                "points to cloud metadata",
            ),
            (
                "jwks_uri",
                "http://127.0.0.2:4711/keys",
                "points to a private or local network address",
            ),
            (
                "userinfo_endpoint",
                "http://[::1]:4711/me",
                "points to a private or local network address",
            ),
            (
                "token_endpoint",
                "http://user:pass@example.com/",
                "has a user name or a password in it",
            ),
            (
                "token_endpoint",
                "file:///etc/passwd",
                "begins with neither",
            ),
            (
                "authorization_endpoint",
                "javascript:alert(1)",
                "is no address",
            ),
        ] {
            double.0.lock().unwrap().discovery = json!({ name: value });
            let left = console
                .tell(
                    Method::POST,
                    "/api/v1/providers/oidc/sign-in",
                    &[],
                    json!({}),
                )
                .await;
            assert_eq!(left.status, 502, "{name} {value}: {}", left.text);
            let told_us = left.json["detail"].as_str().unwrap();
            assert!(told_us.contains(told), "{told_us}");
            assert!(name == "issuer" || told_us.contains(name), "{told_us}");
            assert!(!left.headers.contains_key("set-cookie"));
            // nor is it believed on the way back
            double.0.lock().unwrap().discovery = json!({});
            let (cookie, state) = leave(&console, &double, "oidc").await;
            double.0.lock().unwrap().discovery = json!({ name: value });
            let query = format!("code=good&state={state}");
            let answer = back(&console, &double, "oidc", &cookie, &query).await;
            assert_eq!(answer.headers["location"], "/#sign-in=failed", "{name}");
        }
        // the issuer's own host may be private: the operator has named it
        double.0.lock().unwrap().discovery = json!({});
        assert!(sign_in(&console, &double, "oidc").await.1.is_some());
    })
    .await;
}
