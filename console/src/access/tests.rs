//! The whole matrix: every route of the router, asked by everybody, against a table that was written by hand.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;

use super::Role;
use crate::accounts::secret::{Opens, Secret};
use crate::server::routes;
use crate::server::testing::Console;
use crate::store::Store;
use crate::store::sessions::{NewSession, NewToken};
use crate::store::testing::each;
use crate::store::users::{Home, NewUser, UserChange};

const TABLE: &str = include_str!("matrix.tsv");

/// Who asks; the columns of the table.
const ACTORS: [&str; 10] = [
    "nobody",
    "member",
    "admin",
    "owner",
    "other",
    "instance",
    "deactivated",
    "token_read",
    "token_write",
    "token_other",
];

/// Everybody, around one workspace.
struct Cast {
    workspace: String,
    users: BTreeMap<&'static str, String>,
    elsewhere: String,
}

async fn cast(store: &Store) -> Cast {
    let mut users = BTreeMap::new();
    for name in [
        "member",
        "admin",
        "owner",
        "other",
        "instance",
        "deactivated",
    ] {
        let new = NewUser {
            email: format!("{name}@example.com"),
            name: name.into(),
            password: None,
            instance_admin: name == "instance",
        };
        users.insert(name, store.add_user(&new, Home::Personal, 1).await.unwrap());
    }
    let workspace = store.add_workspace("A", &users["owner"], 1).await.unwrap();
    for (name, role) in [
        ("member", Role::Member),
        ("admin", Role::Admin),
        ("deactivated", Role::Owner),
    ] {
        store
            .add_member(&workspace, &users[name], role, 1)
            .await
            .unwrap();
    }
    let elsewhere = store.add_workspace("B", &users["owner"], 1).await.unwrap();
    Cast {
        workspace,
        users,
        elsewhere,
    }
}

/// A fresh credential of an actor, as a header.
async fn credential(store: &Store, cast: &Cast, actor: &str) -> Option<(&'static str, String)> {
    let now = crate::clock::now();
    if let Some(scope) = actor.strip_prefix("token_") {
        let (workspace, scope) = match scope {
            "other" => (&cast.elsewhere, "write"),
            scope => (&cast.workspace, scope),
        };
        let secret = Secret::fresh(Opens::Api).unwrap();
        // an owner's token: what it may not, no token may
        let token = NewToken {
            workspace,
            user: &cast.users["owner"],
            name: "t",
            scope,
            digest: &secret.digest,
            ends: None,
        };
        store.add_token(token, now).await.unwrap();
        return Some(("authorization", format!("Bearer {}", secret.text)));
    }
    let user = cast.users.get(actor)?;
    let secret = Secret::fresh(Opens::Session).unwrap();
    let session = NewSession {
        user,
        proven: None,
        digest: &secret.digest,
        address: "",
        agent: "",
        ends: now + 1_000_000,
    };
    store.add_session(session, now).await.unwrap();
    Some(("cookie", format!("sallyport_session={}", secret.text)))
}

#[tokio::test]
async fn every_route_answers_everybody_as_the_table_says() {
    each(async |store| {
        let cast = cast(&store).await;
        let user = store
            .user(&cast.users["deactivated"])
            .await
            .unwrap()
            .unwrap();
        let off = UserChange {
            deactivated: Some(true),
            ..UserChange::default()
        };
        store.change_user(&user, &off, 2).await.unwrap();
        let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut cells = line.split('\t');
            rows.insert(cells.next().unwrap(), cells.collect());
        }
        let console = Console::on(store.clone());
        let (_, actions) = routes::table().described();
        for (path, method, _) in actions {
            let route = format!("{method} {path}");
            let expected = rows
                .remove(route.as_str())
                .unwrap_or_else(|| panic!("{route} has no row"));
            assert_eq!(expected.len(), ACTORS.len(), "{route}");
            for (place, (actor, expected)) in ACTORS.iter().zip(expected).enumerate() {
                let mut console = console.clone();
                console.peer = format!("203.0.113.{place}:1").parse().unwrap();
                let header = credential(&store, &cast, actor).await;
                let headers: Vec<(&str, &str)> = header
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                // ids of nothing and a body without sense: who is let through changes nothing and is told so by a handler
                let path = path
                    .replace("{workspace}", &cast.workspace)
                    .replace("{user}", "none")
                    .replace("{session}", "none")
                    .replace("{token}", "none")
                    .replace("{secret}", "none")
                    .replace("{job}", "none")
                    .replace("{hook}", "none")
                    .replace("{runner}", "none")
                    .replace("{run}", "none")
                    .replace("{notification}", "none")
                    .replace("{provider}", "none");
                let method: Method = method.to_uppercase().parse().unwrap();
                let answer = console
                    .tell(method, &path, &headers, json!({ "?": 1 }))
                    .await;
                let seen = if answer.admitted {
                    "yes".to_owned()
                } else {
                    answer.status.as_u16().to_string()
                };
                assert_eq!(seen, expected, "{actor}: {route}: {}", answer.text);
                assert!(
                    answer.status.as_u16() < 500,
                    "{actor}: {route}: {}",
                    answer.text
                );
            }
        }
        assert!(rows.is_empty(), "rows without a route: {rows:?}");
    })
    .await;
}

#[tokio::test]
async fn a_workspace_of_others_answers_like_none() {
    each(async |store| {
        let cast = cast(&store).await;
        let console = Console::on(store.clone());
        let (name, value) = credential(&store, &cast, "other").await.unwrap();
        let mut bodies = Vec::new();
        for workspace in [
            cast.workspace.as_str(),
            "0198f3a0-0000-7000-8000-000000000000",
            "%00",
            "' OR 1=1 --",
        ] {
            let path = format!(
                "/api/v1/workspaces/{}",
                workspace.replace(' ', "%20").replace('\'', "%27")
            );
            let answer = console.ask(Method::GET, &path, &[(name, &value)]).await;
            assert_eq!(answer.status, 404, "{workspace}: {}", answer.text);
            bodies.push(answer.text);
        }
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
    })
    .await;
}
