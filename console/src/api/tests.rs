//! Accounts from the first owner on, as a browser and a program meet them.

use http::Method;
use serde_json::{Value, json};

use crate::accounts::secret::{Opens, Secret};
use crate::server::testing::{Answer, Console};
use crate::settings::{AppUrl, ConsoleConfig};
use crate::store::Store;
use crate::store::testing::each;

const PASSWORD: &str = "correct horse battery";

async fn claim(console: &Console) -> Answer {
    let secret = Secret::fresh(Opens::Instance).unwrap();
    let now = crate::clock::now();
    console
        .app
        .store
        .offer_instance(&secret.digest, now, now + 100_000)
        .await
        .unwrap();
    let body = json!({ "link": secret.text, "email": "Ada@example.com", "name": "Ada", "password": PASSWORD });
    let answer = console
        .tell(Method::POST, "/api/v1/owner", &[], body.clone())
        .await;
    let again = console.tell(Method::POST, "/api/v1/owner", &[], body).await;
    assert_eq!(
        (again.status.as_u16(), &again.json["code"]),
        (403, &json!("no_link"))
    );
    answer
}

/// The `Cookie` header of who got this answer.
fn cookie(answer: &Answer) -> String {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

async fn sign_in(console: &Console, email: &str, password: &str) -> Answer {
    console
        .tell(
            Method::POST,
            "/api/v1/session",
            &[],
            json!({ "email": email, "password": password }),
        )
        .await
}

async fn get(console: &Console, cookie: &str, path: &str) -> Answer {
    console.ask(Method::GET, path, &[("cookie", cookie)]).await
}

pub(crate) async fn owned(store: Store) -> (Console, String) {
    let console = Console::on(store);
    let claimed = claim(&console).await;
    assert_eq!(claimed.status, 201, "{}", claimed.text);
    (console, cookie(&claimed))
}

/// Another user; its id.
async fn bob(console: &Console, cookie: &str) -> String {
    let body = json!({ "email": "bob@example.com", "name": "Bob", "password": PASSWORD });
    let made = console
        .tell(Method::POST, "/api/v1/users", &[("cookie", cookie)], body)
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.json["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_link_makes_one_owner_who_is_signed_in() {
    each(async |store| {
        let (console, cookie) = owned(store).await;
        let me = get(&console, &cookie, "/api/v1/session").await;
        assert_eq!(
            (&me.json["email"], &me.json["instance_admin"]),
            (&json!("ada@example.com"), &json!(true))
        );
        let list = get(&console, &cookie, "/api/v1/workspaces").await;
        assert_eq!(
            (
                &list.json["items"][0]["role"],
                &list.json["items"][0]["kind"]
            ),
            (&json!("owner"), &json!("personal"))
        );
    })
    .await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_address_are_answered_the_same() {
    each(async |store| {
        let (console, _) = owned(store).await;
        let wrong = sign_in(&console, "ada@example.com", "not the password").await;
        let unknown = sign_in(&console, "eve@example.com", "not the password").await;
        assert_eq!((wrong.status.as_u16(), unknown.status.as_u16()), (401, 401));
        assert_eq!(wrong.text, unknown.text);
        assert_eq!(
            sign_in(&console, "ADA@example.com ", PASSWORD).await.status,
            200
        );
    })
    .await;
}

#[tokio::test]
async fn an_account_is_not_guessed_at_without_end_from_whatever_address() {
    each(async |store| {
        let (console, _) = owned(store).await;
        let mut last = 0;
        for guess in 0..11 {
            let mut console = console.clone();
            console.peer = format!("198.51.100.{guess}:1").parse().unwrap();
            last = sign_in(&console, "ada@example.com", "guess")
                .await
                .status
                .as_u16();
            assert_eq!(last, if guess < 10 { 401 } else { 429 }, "guess {guess}");
        }
        assert_eq!(last, 429);
        let mut elsewhere = console.clone();
        elsewhere.peer = "198.51.100.200:1".parse().unwrap();
        assert_eq!(
            sign_in(&elsewhere, "ada@example.com", PASSWORD)
                .await
                .status,
            429
        );
        // while those who guess keep nobody out where they are signed in, nor from another password
        let here = sign_in(&console, "ada@example.com", PASSWORD).await;
        assert_eq!(here.status, 200);
        let body = json!({ "current": PASSWORD, "password": "staple correct horse" });
        let headers = [("cookie", &*cookie(&here))];
        let changed = console
            .tell(Method::PUT, "/api/v1/session/password", &headers, body)
            .await;
        assert_eq!(changed.status, 204, "{}", changed.text);
        for guess in 0..11 {
            let status = sign_in(&console, "ada@example.com", "guess").await.status;
            assert_eq!(status, if guess < 10 { 401 } else { 429 }, "guess {guess}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_session_set_before_signing_in_opens_nothing_and_is_not_taken_over() {
    each(async |store| {
        let (console, owner) = owned(store).await;
        let planted = "sallyport_session=sps_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(get(&console, planted, "/api/v1/session").await.status, 401);
        let body = json!({ "email": "ada@example.com", "password": PASSWORD });
        let signed = console
            .tell(
                Method::POST,
                "/api/v1/session",
                &[("cookie", planted)],
                body,
            )
            .await;
        let fresh = cookie(&signed);
        assert!(fresh != planted && fresh != owner);
        assert_eq!(get(&console, planted, "/api/v1/session").await.status, 401);
        let both = format!("{fresh}; {planted}");
        assert_eq!(get(&console, &both, "/api/v1/session").await.status, 401);
        let cut = &fresh[..fresh.len() - 1];
        assert_eq!(get(&console, cut, "/api/v1/session").await.status, 401);
        assert_eq!(get(&console, &fresh, "/api/v1/session").await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn signing_out_ends_the_copies_too_and_everywhere_is_everywhere() {
    each(async |store| {
        let (console, one) = owned(store).await;
        let two = cookie(&sign_in(&console, "ada@example.com", PASSWORD).await);
        let three = cookie(&sign_in(&console, "ada@example.com", PASSWORD).await);
        let devices = get(&console, &one, "/api/v1/sessions").await;
        assert_eq!(devices.json["items"].as_array().unwrap().len(), 3);
        let out = console
            .ask(Method::DELETE, "/api/v1/session", &[("cookie", &one)])
            .await;
        assert_eq!(out.status, 204);
        assert!(
            out.headers["set-cookie"]
                .to_str()
                .unwrap()
                .contains("Max-Age=0")
        );
        assert_eq!(get(&console, &one, "/api/v1/session").await.status, 401);
        assert_eq!(get(&console, &two, "/api/v1/session").await.status, 200);
        console
            .ask(Method::DELETE, "/api/v1/sessions", &[("cookie", &two)])
            .await;
        for ended in [&two, &three] {
            assert_eq!(get(&console, ended, "/api/v1/session").await.status, 401);
        }
    })
    .await;
}

#[tokio::test]
async fn another_password_ends_every_other_session() {
    each(async |store| {
        let (console, one) = owned(store).await;
        let two = cookie(&sign_in(&console, "ada@example.com", PASSWORD).await);
        let body = json!({ "current": PASSWORD, "password": "staple correct horse" });
        let wrong = json!({ "current": "wrong", "password": "staple correct horse" });
        let path = "/api/v1/session/password";
        assert_eq!(
            console
                .tell(Method::PUT, path, &[("cookie", &one)], wrong)
                .await
                .status,
            422
        );
        assert_eq!(
            console
                .tell(Method::PUT, path, &[("cookie", &one)], body)
                .await
                .status,
            204
        );
        assert_eq!(get(&console, &one, "/api/v1/session").await.status, 200);
        assert_eq!(get(&console, &two, "/api/v1/session").await.status, 401);
        assert_eq!(
            sign_in(&console, "ada@example.com", PASSWORD).await.status,
            401
        );
    })
    .await;
}

#[tokio::test]
async fn a_token_ends_with_its_creators_access() {
    each(async |store| {
        let (console, owner) = owned(store).await;
        let bob = bob(&console, &owner).await;
        let made = console
            .tell(
                Method::POST,
                "/api/v1/workspaces",
                &[("cookie", &owner)],
                json!({ "name": "Team" }),
            )
            .await;
        let workspace = format!("/api/v1/workspaces/{}", made.json["id"].as_str().unwrap());
        let members = format!("{workspace}/members");
        let member = json!({ "email": "bob@example.com", "role": "member" });
        let join = async || {
            console
                .tell(
                    Method::POST,
                    &members,
                    &[("cookie", &owner)],
                    member.clone(),
                )
                .await
        };
        assert_eq!(join().await.status, 204);
        let signed = cookie(&sign_in(&console, "bob@example.com", PASSWORD).await);
        let body = json!({ "name": "ci", "scope": "read", "expires_in_days": 1 });
        let (tokens, by) = (format!("{workspace}/tokens"), [("cookie", signed.as_str())]);
        let token = console.tell(Method::POST, &tokens, &by, body).await;
        let bearer = format!("Bearer {}", token.json["token"].as_str().unwrap());
        let by_token = async || {
            console
                .ask(Method::GET, &workspace, &[("authorization", &bearer)])
                .await
        };
        assert_eq!(by_token().await.json["role"], "member");
        let listed = get(&console, &signed, &format!("{workspace}/tokens")).await;
        assert!(
            !listed.text.contains(bearer.trim_start_matches("Bearer ")),
            "{}",
            listed.text
        );
        let removed = console
            .ask(
                Method::DELETE,
                &format!("{members}/{bob}"),
                &[("cookie", &owner)],
            )
            .await;
        assert_eq!(removed.status, 204);
        assert_eq!(by_token().await.status, 401);
        // and does not come back with them
        assert_eq!(join().await.status, 204);
        assert_eq!(
            get(&console, &signed, &workspace).await.json["role"],
            "member"
        );
        assert_eq!(by_token().await.status, 401);
        let off = console
            .tell(
                Method::PATCH,
                &format!("/api/v1/users/{bob}"),
                &[("cookie", &owner)],
                json!({ "deactivated": true }),
            )
            .await;
        assert_eq!(off.status, 200, "{}", off.text);
        assert_eq!(by_token().await.status, 401);
        assert_eq!(get(&console, &signed, "/api/v1/session").await.status, 401);
        let refused = sign_in(&console, "bob@example.com", PASSWORD).await;
        assert_eq!(
            refused.json["detail"],
            "Your account is not allowed to use Sallyport"
        );
    })
    .await;
}

#[tokio::test]
async fn without_workspaces_everybody_is_in_one() {
    each(async |store| {
        let config = ConsoleConfig {
            workspaces: false,
            ..ConsoleConfig::default()
        };
        let console = Console::with(store, config);
        let owner = cookie(&claim(&console).await);
        bob(&console, &owner).await;
        let signed = cookie(&sign_in(&console, "bob@example.com", PASSWORD).await);
        for (who, role) in [(&owner, "owner"), (&signed, "member")] {
            let list = get(&console, who, "/api/v1/workspaces").await;
            assert_eq!(
                list.json["items"].as_array().unwrap().len(),
                1,
                "{}",
                list.text
            );
            assert_eq!(
                (
                    &list.json["items"][0]["role"],
                    &list.json["items"][0]["kind"]
                ),
                (&json!(role), &json!("shared"))
            );
        }
        let more = console
            .tell(
                Method::POST,
                "/api/v1/workspaces",
                &[("cookie", &owner)],
                json!({ "name": "More" }),
            )
            .await;
        assert_eq!(more.status, 403);
        // nobody is out of it: the next start would bring them in again
        let me = get(&console, &signed, "/api/v1/session").await;
        let list = get(&console, &owner, "/api/v1/workspaces").await;
        let (workspace, bob) = (&list.json["items"][0]["id"], &me.json["id"]);
        let path = format!(
            "/api/v1/workspaces/{}/members/{}",
            workspace.as_str().unwrap(),
            bob.as_str().unwrap()
        );
        let out = console
            .ask(Method::DELETE, &path, &[("cookie", &owner)])
            .await;
        assert_eq!(
            (out.status.as_u16(), &out.json["code"]),
            (409, &json!("shared"))
        );
    })
    .await;
}

#[tokio::test]
async fn a_change_of_what_has_changed_is_refused() {
    each(async |store| {
        let (console, owner) = owned(store).await;
        let list = get(&console, &owner, "/api/v1/workspaces").await;
        let path = format!(
            "/api/v1/workspaces/{}",
            list.json["items"][0]["id"].as_str().unwrap()
        );
        let tag = get(&console, &owner, &path).await.headers["etag"]
            .to_str()
            .unwrap()
            .to_owned();
        let headers = [("cookie", owner.as_str()), ("if-match", tag.as_str())];
        assert_eq!(
            console
                .tell(Method::PATCH, &path, &headers, json!({ "name": "One" }))
                .await
                .status,
            200
        );
        let late = console
            .tell(Method::PATCH, &path, &headers, json!({ "name": "Two" }))
            .await;
        assert_eq!(
            (late.status.as_u16(), &late.json["code"]),
            (412, &json!("changed"))
        );
        assert_eq!(get(&console, &owner, &path).await.json["name"], "One");
    })
    .await;
}

#[tokio::test]
async fn bodies_that_do_not_fit_are_refused_with_their_fields() {
    each(async |store| {
        let (console, owner) = owned(store).await;
        let cookie = ("cookie", owner.as_str());
        let path = "/api/v1/users";
        let wrong = json!({ "email": "nobody", "name": "a\u{202e}b", "password": "short" });
        let answer = console.tell(Method::POST, path, &[cookie], wrong).await;
        let fields: Vec<&str> = answer.json["fields"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|f| f["field"].as_str())
            .collect();
        assert_eq!(
            (answer.status.as_u16(), fields),
            (422, vec!["email", "name", "password"])
        );
        let foreign =
            json!({ "email": "x@example.com", "name": "X", "password": PASSWORD, "id": "1" });
        assert_eq!(
            console
                .tell(Method::POST, path, &[cookie], foreign)
                .await
                .status,
            422
        );
    })
    .await;
}

#[tokio::test]
async fn bodies_of_other_kinds_and_sizes_are_refused() {
    each(async |store| {
        let (console, owner) = owned(store).await;
        let cookie = ("cookie", owner.as_str());
        let path = "/api/v1/users";
        let form = console
            .ask(
                Method::POST,
                path,
                &[cookie, ("content-type", "text/plain")],
            )
            .await;
        assert_eq!(
            (form.status.as_u16(), &form.json["code"]),
            (415, &json!("not_json"))
        );
        let deep = "[".repeat(100_000);
        let json_kind = ("content-type", "application/json");
        let refused = console
            .send(Method::POST, path, &[cookie, json_kind], deep.into())
            .await;
        assert!(
            matches!(refused.status.as_u16(), 400 | 422),
            "{}",
            refused.text
        );
        let long = format!("\"{}\"", "x".repeat(2 << 20));
        assert_eq!(
            console
                .send(Method::POST, path, &[cookie, json_kind], long.into())
                .await
                .status,
            413
        );
        for query in [
            "limit=-1",
            "limit=1000000000",
            "limit=x",
            "sort=password",
            "cursor=%00",
        ] {
            let answer = get(&console, &owner, &format!("{path}?{query}")).await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 422),
                "{query}: {}",
                answer.text
            );
        }
        let page = get(&console, &owner, &format!("{path}?limit=1")).await;
        assert_eq!(page.json["items"].as_array().unwrap().len(), 1);
        let next = page.json["next"].as_str().unwrap();
        assert_eq!(
            get(&console, &owner, &format!("{path}?cursor={next}"))
                .await
                .json,
            json!({ "items": [], "next": null })
        );
        assert_ne!(page.json["items"][0].get("password"), Some(&Value::Null));
        assert!(!page.text.contains("argon2"), "{}", page.text);
    })
    .await;
}

#[tokio::test]
async fn under_https_the_cookie_is_secure_whatever_a_request_says() {
    each(async |store| {
        let config = ConsoleConfig {
            url: AppUrl::parse("https://sally.example"),
            ..ConsoleConfig::default()
        };
        let console = Console::with(store, config);
        let set = claim(&console).await.headers["set-cookie"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(set.starts_with("__Host-sallyport_session=sps_"), "{set}");
        for flag in ["; Path=/", "; HttpOnly", "; SameSite=Lax", "; Secure"] {
            assert!(set.contains(flag), "{set}");
        }
        assert!(!set.contains("Domain"), "{set}");
    })
    .await;
}
