//! The vault on both engines: wrong and lost keys, tampered rows, rotation that is interrupted, what a runner gets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use netpolicy::policy::Policy;
use runner::sealed::OwnKey;

use super::key::{InstanceKey, KeyFile};
use super::*;
use crate::store::secrets::{KIND, Kept, NewSecret};
use crate::store::testing::each;
use crate::store::users::{Changed, Home, NewUser};
use crate::store::{Store, on};

async fn workspace(store: &Store) -> String {
    let new = NewUser {
        email: format!("{}@example.com", clock::id()),
        name: "ada".into(),
        password: None,
        instance_admin: false,
    };
    let user = store.add_user(&new, Home::Personal, 1).await.unwrap();
    store.add_workspace("A", &user, 1).await.unwrap()
}

async fn add(store: &Store, vault: &Vault, workspace: &str, name: &str, hosts: &str) -> String {
    let id = clock::id();
    let place = Place {
        kind: KIND,
        id: &id,
        workspace,
        version: 1,
    };
    let sealed = vault
        .seal(store, &place, format!("value of {name}").as_bytes())
        .await
        .unwrap();
    let new = NewSecret {
        id: &id,
        workspace,
        name,
        hosts,
        sealed: &sealed,
    };
    let kept = store.add_secret(new, 5).await.unwrap();
    assert_eq!(kept, Kept::Became(Changed::Done));
    id
}

fn policy(text: &str) -> Policy {
    netpolicy::document::parse("test.yml", text, None).unwrap()
}

async fn reveal(
    store: &Store,
    vault: &Vault,
    workspace: &str,
    name: &str,
    allowed: &str,
) -> Result<String, RevealError> {
    let own = OwnKey::fresh().unwrap();
    let asked = ForRun {
        workspace,
        names: &[name.to_owned()],
        policy: &policy(allowed),
        runner: &own.public(),
        context: b"run 1 claim 1",
    };
    let message = vault.reveal_for_run(store, asked, 9).await?;
    assert!(own.open(b"run 2 claim 1", &message).is_err());
    let opened = own.open(b"run 1 claim 1", &message).unwrap();
    Ok(String::from_utf8(opened.to_vec()).unwrap())
}

const NOTHING: &str = "policy: p\nnetwork: none\n";
const ANYTHING: &str = "policy: p\nnetwork: internet\n";

fn vault(folder: &Path) -> Vault {
    Vault::at(folder.join("instance.key"))
}

#[tokio::test]
async fn a_wrong_or_lost_key_is_said_and_nothing_is_touched() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let place = workspace(&store).await;
        let id = add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        let before = store.sealed(KIND, &id, &place, 1).await.unwrap();
        let file = folder.path().join("instance.key");
        let kept = folder.path().join("kept");
        std::fs::rename(&file, &kept).unwrap();
        let error = vault(folder.path()).ready(&store).await.unwrap_err();
        assert!(matches!(error, VaultError::Lost { .. }), "{error}");
        assert!(
            !file.exists(),
            "no key is made in place of one that was lost"
        );
        KeyFile::at(file.clone())
            .create(&InstanceKey::fresh().unwrap())
            .unwrap();
        let error = vault(folder.path()).ready(&store).await.unwrap_err();
        assert!(matches!(error, VaultError::Wrong { .. }), "{error}");
        assert!(
            error.hint().unwrap().contains("put the key back"),
            "{error}"
        );
        assert!(vault(folder.path()).rotate(&store).await.is_err());
        assert_eq!(store.sealed(KIND, &id, &place, 1).await.unwrap(), before);
        std::fs::rename(&kept, &file).unwrap();
        let text = reveal(&store, &vault(folder.path()), &place, "TOKEN", NOTHING)
            .await
            .unwrap();
        assert_eq!(text, r#"{"TOKEN":"value of TOKEN"}"#);
        assert_eq!(
            store.secret(&place, &id).await.unwrap().unwrap().used_at,
            Some(9)
        );
    })
    .await;
}

#[tokio::test]
async fn a_row_that_was_moved_or_changed_does_not_open() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let vault = vault(folder.path());
        let (one, two) = (workspace(&store).await, workspace(&store).await);
        let ours = add(&store, &vault, &one, "OURS", "[]").await;
        let theirs = add(&store, &vault, &two, "THEIRS", "[]").await;
        reveal(&store, &vault, &one, "OURS", NOTHING).await.unwrap();
        // who may write into the store gives a row of theirs the place of ours
        for (text, values) in [
            ("UPDATE sealed SET wrapped = (SELECT wrapped FROM sealed WHERE id = $2), body = (SELECT body FROM sealed WHERE id = $2) WHERE id = $1", [&ours, &theirs]),
            ("UPDATE secrets SET workspace_id = $2 WHERE id = $1", [&theirs, &one]),
        ] {
            on!(&store, pool => sqlx::query(text).bind(values[0]).bind(values[1]).execute(pool).await.map(|_| ())).unwrap();
        }
        on!(&store, pool => sqlx::query("UPDATE sealed SET workspace_id = $1").bind(&one).execute(pool).await.map(|_| ())).unwrap();
        for name in ["OURS", "THEIRS"] {
            let refused = reveal(&store, &vault, &one, name, NOTHING).await.unwrap_err();
            assert!(matches!(refused, RevealError::Vault { source: VaultError::Tampered, .. }), "{name}: {refused}");
        }
        // and it ends no rotation
        vault.rotate(&store).await.unwrap();
        assert_eq!(store.ring().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_secret_goes_only_to_a_run_that_can_speak_to_its_hosts_alone() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let vault = vault(folder.path());
        let place = workspace(&store).await;
        add(
            &store,
            &vault,
            &place,
            "TOKEN",
            r#"["api.example.com","*.files.example.com"]"#,
        )
        .await;
        let domains = |hosts: &[&str]| {
            let allow: Vec<String> = hosts
                .iter()
                .map(|host| format!("  - host: \"{host}\"\n"))
                .collect();
            let allow = allow.concat();
            format!("policy: p\nnetwork: domains\nallow:\n{allow}")
        };
        for (text, fits) in [
            (domains(&["api.example.com"]), true),
            (domains(&["api.example.com", "a.files.example.com"]), true),
            (domains(&["api.example.com", "evil.example"]), false),
            (domains(&["*.example.com"]), false),
            (ANYTHING.to_owned(), false),
            (NOTHING.to_owned(), true),
            // whoever is let in hears what is said to them
            (format!("{NOTHING}ingress:\n  - ports: [8080]\n"), false),
        ] {
            let revealed = reveal(&store, &vault, &place, "TOKEN", &text).await;
            assert_eq!(revealed.is_ok(), fits, "{text}: {revealed:?}");
        }
        let missing = reveal(&store, &vault, &workspace(&store).await, "TOKEN", NOTHING).await;
        assert!(
            matches!(missing, Err(RevealError::Missing(_))),
            "{missing:?}"
        );
    })
    .await;
}

/// Whether five secrets can be read by a console that has served since before, and by one that starts now.
async fn readable(store: &Store, serving: &Vault, folder: &Path, place: &str, when: &str) {
    for n in 0..5 {
        let name = format!("T{n}");
        for one in [serving, &vault(folder)] {
            let text = reveal(store, one, place, &name, NOTHING).await;
            assert!(
                text.unwrap().contains(&format!("value of {name}")),
                "{when}"
            );
        }
    }
}

#[tokio::test]
async fn a_rotation_that_ends_anywhere_goes_on_and_loses_nothing() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let serving = vault(folder.path());
        let place = workspace(&store).await;
        for n in 0..5 {
            add(&store, &serving, &place, &format!("T{n}"), "[]").await;
        }
        let old = serving.keys(&store).await.unwrap().current.id().to_owned();
        let readable =
            async |when: &str| readable(&store, &serving, folder.path(), &place, when).await;
        // ended after the new key was on the disk
        let file = KeyFile::at(folder.path().join("instance.key"));
        let new = InstanceKey::fresh().unwrap();
        file.next().create(&new).unwrap();
        readable("beside").await;
        // ended after the store has named it, and one value was wrapped
        store.turn_ring(&old, new.id(), 7).await.unwrap();
        readable("named").await;
        let fresh = vault(folder.path());
        let keys = fresh.load(&store).await.unwrap();
        let row = store
            .wrapped_by_others(new.id(), 1)
            .await
            .unwrap()
            .remove(0);
        let at = Place {
            kind: &row.kind,
            id: &row.id,
            workspace: &row.workspace_id,
            version: row.version,
        };
        let wrapped = envelope::rewrap(
            keys.before.as_ref().unwrap(),
            &keys.current,
            &at,
            &row.wrapped,
        )
        .unwrap();
        assert_eq!(
            store.wrapped_anew(&row, new.id(), &wrapped).await.unwrap(),
            1
        );
        readable("half").await;
        // who sealed with the old key meanwhile is told to seal again
        let sealed = envelope::seal(
            keys.before.as_ref().unwrap(),
            &Place { id: "late", ..at },
            b"v",
        )
        .unwrap();
        let late = NewSecret {
            id: "late",
            workspace: &place,
            name: "LATE",
            hosts: "[]",
            sealed: &sealed,
        };
        assert_eq!(store.add_secret(late, 8).await.unwrap(), Kept::Stale);
        assert!(store.secret(&place, "late").await.unwrap().is_none());
        // ended before the file took the old one's place
        let rotated = vault(folder.path()).finish_rotation(&store).await.unwrap();
        assert_eq!((rotated.key.as_str(), rotated.values), (new.id(), 4));
        assert_eq!(file.read().unwrap().unwrap().id(), new.id());
        assert!(file.next().read().unwrap().is_none());
        std::fs::rename(file.path(), file.next().path()).unwrap();
        file.create(&InstanceKey::fresh().unwrap()).unwrap();
        readable("renaming").await;
        vault(folder.path()).rotate(&store).await.unwrap();
        readable("done").await;
        assert_eq!(file.read().unwrap().unwrap().id(), new.id());
        let again = serving.rotate(&store).await.unwrap();
        assert_eq!(again.values, 5);
        readable("again").await;
    })
    .await;
}

#[tokio::test]
async fn people_read_and_write_secrets_while_the_key_turns() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let serving = vault(folder.path());
        let place = workspace(&store).await;
        add(&store, &serving, &place, "FIRST", "[]").await;
        let turning = async {
            for _ in 0..4 {
                vault(folder.path()).rotate(&store).await.unwrap();
            }
        };
        let writing = async {
            for n in 0..20 {
                let id = clock::id();
                let at = Place {
                    kind: KIND,
                    id: &id,
                    workspace: &place,
                    version: 1,
                };
                loop {
                    let sealed = serving.seal(&store, &at, b"value").await.unwrap();
                    let name = format!("W{n}");
                    let new = NewSecret {
                        id: &id,
                        workspace: &place,
                        name: &name,
                        hosts: "[]",
                        sealed: &sealed,
                    };
                    match store.add_secret(new, 5).await.unwrap() {
                        Kept::Stale => serving.refresh(&store).await.unwrap(),
                        kept => break assert_eq!(kept, Kept::Became(Changed::Done)),
                    }
                }
                reveal(&store, &serving, &place, "FIRST", NOTHING)
                    .await
                    .unwrap();
            }
        };
        let both = futures_util::future::join(turning, writing);
        tokio::time::timeout(Duration::from_mins(1), both)
            .await
            .unwrap();
        for n in 0..20 {
            reveal(&store, &serving, &place, &format!("W{n}"), NOTHING)
                .await
                .unwrap();
        }
        assert_eq!(store.ring().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn who_has_lost_the_key_begins_anew_without_the_secrets() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let place = workspace(&store).await;
        add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        std::fs::remove_file(folder.path().join("instance.key")).unwrap();
        assert_eq!(vault(folder.path()).forget(&store).await.unwrap(), 1);
        assert_eq!(store.secrets(&place, "", 10).await.unwrap(), []);
        add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        reveal(&store, &vault(folder.path()), &place, "TOKEN", NOTHING)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_file_that_holds_no_key_is_put_aside_when_everything_is_forgotten() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let place = workspace(&store).await;
        add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        let file = folder.path().join("instance.key");
        std::fs::write(&file, "spk_half").unwrap();
        let error = vault(folder.path()).ready(&store).await.unwrap_err();
        assert!(error.hint().unwrap().contains("keys forget"), "{error}");
        // what others may read is told before anything is deleted
        let mode = |bits| std::fs::set_permissions(&file, PermissionsExt::from_mode(bits));
        mode(0o644).unwrap();
        assert!(vault(folder.path()).forget(&store).await.is_err());
        let name = store.secret_named(&place, "TOKEN").await.unwrap();
        assert!(name.is_some());
        mode(0o600).unwrap();
        assert_eq!(vault(folder.path()).forget(&store).await.unwrap(), 1);
        add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        reveal(&store, &vault(folder.path()), &place, "TOKEN", NOTHING)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn many_who_turn_the_key_at_once_lose_none() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let place = workspace(&store).await;
        add(&store, &vault(folder.path()), &place, "TOKEN", "[]").await;
        for _ in 0..5 {
            let turning = (0..6).map(|n| {
                let (store, vault) = (store.clone(), vault(folder.path()));
                let runtime = tokio::runtime::Handle::current();
                // threads of their own: files are read and moved without a pause in between
                tokio::task::spawn_blocking(move || {
                    runtime.block_on(async {
                        if n % 2 == 0 {
                            vault.rotate(&store).await
                        } else {
                            vault.finish_rotation(&store).await
                        }
                    })
                })
            });
            for turned in futures_util::future::join_all(turning).await {
                turned.unwrap().unwrap();
            }
            reveal(&store, &vault(folder.path()), &place, "TOKEN", NOTHING)
                .await
                .unwrap();
            assert_eq!(store.ring().await.unwrap().len(), 1);
        }
    })
    .await;
}
