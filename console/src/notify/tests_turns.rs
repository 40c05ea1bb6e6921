//! Who has a turn to be told something when somebody's receivers take nothing.

use super::tests::{hanging, until};
use super::{keep_sending, read, send_due};
use crate::clock;
use crate::outbound::testing::{Origin, answer, local};
use crate::server::testing::Console;
use crate::settings::{Allowed, ConsoleConfig};
use crate::store::notifications::{News, Notification};
use crate::store::testing::each;
use crate::store::users::{Home, NewUser};
use crate::store::{Store, events};

async fn owner(store: &Store, name: &str) -> String {
    let new = NewUser {
        email: format!("{name}@example.com"),
        name: name.into(),
        password: None,
        instance_admin: false,
    };
    store.add_user(&new, Home::Personal, 1).await.unwrap()
}

/// A receiver of a workspace.
async fn receiver(console: &Console, workspace: &str, address: &str) -> String {
    let new = Notification {
        id: clock::id(),
        workspace_id: workspace.to_owned(),
        name: "n".into(),
        kind: "webhook".into(),
        address: address.to_owned(),
        topics: r#"["run.failed"]"#.into(),
        created_at: 1,
    };
    let place = crate::vault::Place {
        kind: crate::store::notifications::KIND,
        id: &new.id,
        workspace,
        version: 1,
    };
    let app = &console.app;
    let key = super::fresh_key().unwrap();
    let sealed = app.vault.seal(&app.store, &place, key.as_bytes()).await;
    let sealed = sealed.unwrap();
    let added = app.store.add_notification(&new, &sealed).await.unwrap();
    assert_eq!(added, Some(true));
    new.id
}

#[tokio::test]
async fn a_person_whose_receivers_hang_in_many_workspaces_holds_nobody_else_up() {
    each(async |store| {
        let mut config = ConsoleConfig {
            outbound: local(),
            ..ConsoleConfig::default()
        };
        config.outbound.allowed = vec![Allowed::Net("127.0.0.0/8".parse().unwrap())];
        let console = Console::with(store.clone(), config);
        let (eve, ada) = (owner(&store, "eve").await, owner(&store, "ada").await);
        let (address, open) = hanging().await;
        let now = clock::now();
        // more than there are places, each workspace at hosts of its own
        for n in 1..=10 {
            let name = format!("E{n}");
            let workspace = store.add_workspace(&name, &eve, 1).await.unwrap();
            for m in 0..8 {
                let hook = format!("http://127.0.{n}.{}:{}/", m / 2 + 1, address.port());
                let id = receiver(&console, &workspace, &hook).await;
                store.deliver(&id, "test", "{}", now - 9).await.unwrap();
            }
        }
        let origin = Origin::answering(answer("204 No Content", "", "")).await;
        let workspace = store.add_workspace("A", &ada, 1).await.unwrap();
        let hook = format!("http://{}/", origin.address);
        let id = receiver(&console, &workspace, &hook).await;
        let app = console.app.clone();
        app.tasks.spawn("sending", keep_sending(app.clone()));
        until("the places that one person has are taken", || {
            open.lock().unwrap().1 >= 16
        })
        .await;
        for told in 1..=3 {
            store
                .deliver(&id, "test", "{}", clock::now())
                .await
                .unwrap();
            crate::store::events::ring();
            until("the other one is told", || origin.asked().len() == told).await;
        }
        assert_eq!(open.lock().unwrap().1, 16, "of one owner");
    })
    .await;
}

#[tokio::test]
async fn owners_whose_receivers_hang_leave_a_place_to_who_comes_later() {
    /// Four of them would have every place if each had as many as one alone.
    const OWNERS: usize = 6;
    each(async |store| {
        let mut config = ConsoleConfig {
            outbound: local(),
            ..ConsoleConfig::default()
        };
        config.outbound.allowed = vec![Allowed::Net("127.0.0.0/8".parse().unwrap())];
        let console = Console::with(store.clone(), config);
        let (address, open) = hanging().await;
        let now = clock::now();
        for who in 1..=OWNERS {
            let eve = owner(&store, &format!("eve{who}")).await;
            for n in 1..=2 {
                let workspace = store
                    .add_workspace(&format!("E{n}"), &eve, 1)
                    .await
                    .unwrap();
                for m in 0..8 {
                    let hook = format!("http://127.{who}.{n}.{}:{}/", m / 4 + 1, address.port());
                    let id = receiver(&console, &workspace, &hook).await;
                    store.deliver(&id, "test", "{}", now - 9).await.unwrap();
                }
            }
        }
        let ada = owner(&store, "ada").await;
        let origin = Origin::answering(answer("204 No Content", "", "")).await;
        let workspace = store.add_workspace("A", &ada, 1).await.unwrap();
        let id = receiver(&console, &workspace, &format!("http://{}/", origin.address)).await;
        let app = console.app.clone();
        app.tasks.spawn("sending", keep_sending(app.clone()));
        until("most places are taken", || open.lock().unwrap().1 >= 40).await;
        store
            .deliver(&id, "test", "{}", clock::now())
            .await
            .unwrap();
        crate::store::events::ring();
        until("who comes later is told", || origin.asked().len() == 1).await;
        assert!(open.lock().unwrap().1 < 64);
    })
    .await;
}

#[tokio::test]
async fn workspaces_have_turns_and_of_one_receiver_only_so_much_waits() {
    each(async |store| {
        let console = Console::on(store.clone());
        let eve = owner(&store, "eve").await;
        let (many, few) = (
            store.add_workspace("M", &eve, 1).await.unwrap(),
            store.add_workspace("F", &eve, 1).await.unwrap(),
        );
        for at in 1..=3 {
            let id = receiver(&console, &many, "http://127.0.0.1/").await;
            store.deliver(&id, "test", "{}", at).await.unwrap();
        }
        let late = receiver(&console, &few, "http://127.0.0.1/").await;
        store.deliver(&late, "test", "{}", 9).await.unwrap();
        let due = store.due_notifications(10).await.unwrap();
        let order: Vec<&str> = due.iter().map(|one| one.workspace_id.as_str()).collect();
        assert_eq!(order, [&many, &few, &many, &many]);
        assert!(due.iter().all(|one| one.owner == eve));
        let from = store.notified().await.unwrap();
        let one = News::asked(&few, "run.failed", &serde_json::json!({}));
        let news = vec![one; 1100];
        assert!(store.queue_news((from, from + 1), &news, 10).await.unwrap());
        let waiting = store.deliveries(&late, "", 2000).await.unwrap();
        assert_eq!(waiting.len(), 1000);
    })
    .await;
}

#[tokio::test]
async fn a_look_that_finds_nothing_wakes_nobody() {
    each(async |store| {
        let console = Console::on(store.clone());
        assert!(!read(&console.app).await.unwrap());
        let mut rung = events::rung();
        rung.mark_unchanged();
        // one that did would be woken by itself, for ever
        assert!(!read(&console.app).await.unwrap());
        assert_eq!(send_due(&console.app, clock::now()).await.unwrap(), 0);
        assert!(!rung.has_changed().unwrap());
        let data = serde_json::json!({});
        store
            .append_event("instance", "news", &data, 1)
            .await
            .unwrap();
        assert!(rung.has_changed().unwrap());
        assert!(read(&console.app).await.unwrap());
    })
    .await;
}
