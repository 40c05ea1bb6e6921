//! Callers who hang up in the middle, or take their time in the middle: what they may is what they may when it is done,
//! and what was done is told.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::testing::{Console, signed_in};
use crate::access::Role;
use crate::store::Store;
use crate::store::audit::Entry;
use crate::store::testing::each;
use crate::store::users::UserChange;
use crate::store::workspaces::Visible;

/// A body that comes when it is let, and when somebody waits for it.
fn late(body: &Value) -> (Body, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (awaited, is_awaited) = oneshot::channel();
    let (letting, is_let) = oneshot::channel();
    let bytes = Bytes::from(body.to_string());
    let piece = async move {
        let _ = awaited.send(());
        let _ = is_let.await;
        Ok::<_, Infallible>(bytes)
    };
    (Body::from_stream(stream::once(piece)), is_awaited, letting)
}

const KIND: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn who_is_put_out_while_their_body_comes_changes_nothing_any_more() {
    each(async |store| {
        let (_, _) = signed_in(&store, "ada", true).await;
        let (eve, cookie) = signed_in(&store, "eve", true).await;
        let console = Console::on(store.clone());
        let path = format!("/api/v1/users/{eve}");
        let headers = [("cookie", &*cookie), KIND];
        let off = UserChange {
            deactivated: Some(true),
            ..UserChange::default()
        };
        for (name, put_out, status) in [("Eve", false, 200), ("Back", true, 401)] {
            let (body, is_awaited, letting) = late(&json!({ "name": name, "deactivated": false }));
            let asking = console.send(Method::PATCH, &path, &headers, body);
            let meanwhile = async {
                is_awaited.await.unwrap();
                if put_out {
                    let user = store.user(&eve).await.unwrap().unwrap();
                    store.change_user(&user, &off, 5).await.unwrap();
                }
                letting.send(()).unwrap();
            };
            let (answer, ()) = tokio::join!(asking, meanwhile);
            assert_eq!(answer.status, status, "{}", answer.text);
        }
        let user = store.user(&eve).await.unwrap().unwrap();
        assert_eq!((user.deactivated_at, &*user.name), (Some(5), "Eve"));
    })
    .await;
}

async fn told(store: &Store, action: &str) -> Vec<Entry> {
    let mut entries = store.audit_after(None, 0, 10_000).await.unwrap();
    entries.retain(|entry| entry.action == action);
    entries
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_change_untold() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "ada", false).await;
        let console = Console::on(store.clone());
        let headers = [("cookie", &*cookie)];
        let ask = |name: String| {
            let body = json!({ "name": name });
            console.tell(Method::POST, "/api/v1/workspaces", &headers, body)
        };
        // from no time at all to twice as much as one takes on this machine
        let begun = Instant::now();
        assert_eq!(ask("whole".to_owned()).await.status, 201);
        let whole = begun.elapsed();
        for step in 0..200 {
            let asking = ask(format!("W{step}"));
            let _ = tokio::time::timeout(whole * step / 100, asking).await;
        }
        let begun = Instant::now();
        loop {
            let made = store.workspaces_of(&user, Visible::Every, "", 1000).await;
            // all but the personal one
            let made = made.unwrap().len() - 1;
            let told = told(&store, "workspace.add").await.len();
            if made == told && made > 0 {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_mins(1),
                "{made} made, {told} told"
            );
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_that_somebody_may_not_make_is_told() {
    each(async |store| {
        let (user, cookie) = signed_in(&store, "mallory", false).await;
        let console = Console::on(store.clone());
        let headers = [("cookie", &*cookie)];
        let long = "x".repeat(2000);
        let path = format!("/api/v1/users/{long}");
        let body = json!({ "instance_admin": true });
        let refused = console.tell(Method::PATCH, &path, &headers, body).await;
        assert_eq!(refused.status, 403);
        let told = told(&store, "user.change").await;
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].status, told[0].actor.as_deref()),
            (403, Some(&*user))
        );
        assert!(told[0].subject.len() < 400, "{}", told[0].subject);
    })
    .await;
}

#[tokio::test]
async fn what_a_member_may_not_do_is_told_to_the_admins_of_their_workspace() {
    each(async |store| {
        let (ada, _) = signed_in(&store, "ada", false).await;
        let (eve, cookie) = signed_in(&store, "eve", false).await;
        let place = store.add_workspace("A", &ada, 1).await.unwrap();
        let added = store.add_member(&place, &eve, Role::Member, 1).await;
        assert!(added.unwrap());
        let console = Console::on(store.clone());
        let path = format!("/api/v1/workspaces/{place}");
        let body = json!({ "name": "Mine" });
        let refused = console
            .tell(Method::PATCH, &path, &[("cookie", &cookie)], body)
            .await;
        assert_eq!(refused.status, 403);
        let told = store.audit_after(Some(&place), 0, 10).await.unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (told[0].status, &*told[0].action),
            (403, "workspace.rename")
        );
    })
    .await;
}

#[tokio::test]
async fn who_is_not_known_yet_sends_no_more_than_a_form() {
    each(async |store| {
        let console = Console::on(store);
        for path in ["/api/v1/session", "/api/v1/owner"] {
            let body = json!({ "email": "a".repeat(64 << 10) });
            let refused = console.tell(Method::POST, path, &[], body).await;
            assert_eq!(
                (refused.status.as_u16(), &refused.json["code"]),
                (413, &json!("too_large")),
                "{path}: {}",
                refused.text
            );
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_makes_workspaces_without_end() {
    each(async |store| {
        let (eve, cookie) = signed_in(&store, "eve", false).await;
        let (_, theirs) = signed_in(&store, "ada", false).await;
        for n in 0..99 {
            store
                .add_workspace(&format!("W{n}"), &eve, 1)
                .await
                .unwrap();
        }
        let console = Console::on(store);
        let make = async |cookie: &str| {
            let body = json!({ "name": "W" });
            let headers = [("cookie", cookie)];
            let made = console
                .tell(Method::POST, "/api/v1/workspaces", &headers, body)
                .await;
            made.status.as_u16()
        };
        assert_eq!(make(&cookie).await, 201);
        assert_eq!(make(&cookie).await, 409);
        assert_eq!(make(&theirs).await, 201);
    })
    .await;
}
