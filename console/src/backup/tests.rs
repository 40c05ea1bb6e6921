//! A backup of either engine becomes a store of either; whatever is wrong or cut, nothing changes.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use age::secrecy::ExposeSecret;
use serde_json::json;

use super::*;
use crate::settings::Database;
use crate::store::dump::{Dumped, Part};
use crate::store::testing::{Postgres, each};
use crate::store::users::{Home, NewUser};
use crate::store::{KNOWN_VERSION, Store};
use crate::vault::Vault;
use crate::vault::key::{InstanceKey, KeyFile};

/// What a test has beside a store.
struct Here {
    folder: tempfile::TempDir,
    vault: Vault,
    own: age::x25519::Identity,
}

impl Here {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            vault: Vault::at(folder.path().join("instance.key")),
            own: age::x25519::Identity::generate(),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn seals(&self) -> Seals {
        Seals::Keys(vec![self.own.to_public()])
    }

    fn opens(&self) -> Opens {
        Opens::Keys(vec![self.own.clone()])
    }

    async fn backup(&self, store: &Store, inside: KeyInside, name: &str) -> Summary {
        let path = self.path(name);
        let made = write(store, &self.vault, inside, self.seals(), &path).await;
        made.unwrap()
    }

    /// Restores it into a new SQLite file.
    async fn restored(&self, from: &Path, name: &str) -> Result<Summary, BackupError> {
        let database = Database::Sqlite(self.path(name));
        let key_file = self.path(&format!("{name}.key"));
        let into = Target {
            database: &database,
            key_file: &key_file,
        };
        restore(into, &self.opens(), from).await
    }

    /// Files of the folder that begin so.
    fn files(&self, begin: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(begin)).collect()
    }
}

async fn person(store: &Store, email: String) -> String {
    let new = NewUser {
        email,
        name: "Ada \u{1f680}\n\"".into(),
        password: Some("$argon2id$x".into()),
        instance_admin: true,
    };
    store.add_user(&new, Home::Personal, 1).await.unwrap()
}

/// Somebody with a session and a secret.
async fn filled(store: &Store, vault: &Vault) -> String {
    let user = person(store, "ada@example.com".into()).await;
    let visible = crate::store::workspaces::Visible::Every;
    let workspaces = store.workspaces_of(&user, visible, "", 1).await.unwrap();
    let workspace = &workspaces[0].id;
    let event = json!({ "a": 1 });
    store.append_event("t", "k", &event, 5).await.unwrap();
    let place = crate::vault::Place {
        kind: crate::store::secrets::KIND,
        id: "s1",
        workspace,
        version: 1,
    };
    let sealed = vault.seal(store, &place, b"s3cret-value").await.unwrap();
    let new = crate::store::secrets::NewSecret {
        id: "s1",
        workspace,
        name: "T",
        hosts: "[]",
        sealed: &sealed,
    };
    store.add_secret(new, 5).await.unwrap();
    let session = crate::store::sessions::NewSession {
        user: &user,
        proven: None,
        digest: b"d",
        address: "",
        agent: "",
        ends: i64::MAX,
    };
    store.add_session(session, 1).await.unwrap();
    user
}

async fn rows(store: &Store) -> Vec<Dumped> {
    let mut rows = Vec::new();
    let read = store.dump(|part| -> Result<(), BackupError> {
        if let Part::Row(row) = part {
            rows.push(row);
        }
        Ok(())
    });
    read.await.unwrap();
    rows
}

#[tokio::test]
async fn a_backup_of_either_engine_is_restored_into_either() {
    each(async |store| {
        let here = Here::new();
        let user = filled(&store, &here.vault).await;
        let before = rows(&store).await;
        let made = here.backup(&store, KeyInside::No, "backup").await;
        assert_eq!(made.rows, before.len() as u64);
        assert!(made.key_id.is_some() && !made.has_key);
        let bytes = std::fs::read(here.path("backup")).unwrap();
        assert!(bytes.starts_with(b"age-encryption.org/v1\n"));
        assert!(!bytes.windows(7).any(|part| part == b"example"));
        let targets = [
            Database::Sqlite(here.path("new.db")),
            Postgres::shared().database(),
        ];
        for database in &targets {
            let key_file = here.path("no.key");
            let into = Target {
                database,
                key_file: &key_file,
            };
            let back = restore(into, &here.opens(), &here.path("backup")).await;
            assert_eq!(back.unwrap(), made);
            assert!(!key_file.exists(), "the key was not asked for");
            let target = Store::open(database).await.unwrap();
            assert_eq!(rows(&target).await, before);
            // what was ended stays ended, secrets open with the key that was kept apart, numbers go on
            assert_eq!(target.sessions_of(&user, 2).await.unwrap(), []);
            here.vault.ready(&target).await.unwrap();
            let next = target.append_event("t", "k", &json!({}), 6).await.unwrap();
            assert!(next > store.last_event().await.unwrap());
            // and it is a store now: nothing is restored over it
            let again = restore(into, &here.opens(), &here.path("backup")).await;
            let there = matches!(again, Err(BackupError::Load(LoadError::NotEmpty(_))));
            assert!(there, "{again:?}");
            target.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_backup_that_is_cut_changed_or_for_others_makes_no_store() {
    each(async |store| {
        let here = Here::new();
        filled(&store, &here.vault).await;
        here.backup(&store, KeyInside::Yes, "backup").await;
        let bytes = std::fs::read(here.path("backup")).unwrap();
        let bad = here.path("bad");
        let mut tried = 0;
        for place in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let mut longer = bytes.clone();
            longer.extend_from_slice(&bytes[..place]);
            for wrong in [&changed, &bytes[..place].to_vec(), &longer] {
                if *wrong == bytes {
                    continue;
                }
                std::fs::write(&bad, wrong).unwrap();
                let refused = here.restored(&bad, "target").await;
                assert!(refused.is_err(), "byte {place}: {refused:?}");
                tried += 1;
            }
        }
        assert!(tried > 60, "{tried}");
        let others = Opens::Keys(vec![age::x25519::Identity::generate()]);
        let database = Postgres::shared().database();
        let key_file = here.path("target.key");
        let into = Target {
            database: &database,
            key_file: &key_file,
        };
        let refused = restore(into, &others, &here.path("backup")).await;
        assert!(
            matches!(refused, Err(BackupError::Closed(_))),
            "{refused:?}"
        );
        assert!(!key_file.exists());
        // the same file, whole and with its key, is one; what failed left an empty database at most
        restore(into, &here.opens(), &here.path("backup"))
            .await
            .unwrap();
        assert!(key_file.exists());
        here.restored(&here.path("backup"), "target").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn rows_that_end_early_or_belong_nowhere_are_rolled_back() {
    let here = Here::new();
    for database in [
        Database::Sqlite(here.path("new.db")),
        Postgres::shared().database(),
    ] {
        let store = Store::untouched(&database).await.unwrap();
        let row = |table: &str, row: serde_json::Value| {
            let row = row.as_object().unwrap().clone();
            let table = table.to_owned();
            Ok(Dumped { table, row })
        };
        let fine = json!({ "topic": "t", "kind": "k", "data": "{}", "at": 1, "seq": 7 });
        for bad in [
            Err(BackupError::Broken("its end is missing")),
            row("events; DROP TABLE users", json!({})),
            row(
                "schema_versions",
                json!({ "version": 900, "name": "x", "applied_at": 1 }),
            ),
            row("sessions", json!({ "id": "x" })),
            row("events", json!({ "no_such_column": 1 })),
            row("events", json!({ "at) VALUES (1); --": 1 })),
            row(
                "members",
                json!({ "workspace_id": "no", "user_id": "no", "role": "owner", "created_at": 1 }),
            ),
        ] {
            let mut rows = [row("events", fine.clone()), bad].into_iter();
            let loaded = store.load(KNOWN_VERSION, &mut rows, 1).await;
            assert!(loaded.is_err());
        }
        let newer = KNOWN_VERSION + 1;
        let refused: Result<(), BackupError> = store.load(newer, &mut std::iter::empty(), 1).await;
        let newer = matches!(refused, Err(BackupError::Load(LoadError::Newer { .. })));
        assert!(newer, "{refused:?}");
        // as empty as before: the good row alone is a store
        let mut rows = std::iter::once(row("events", fine.clone()));
        store.load(KNOWN_VERSION, &mut rows, 1).await.unwrap();
        assert_eq!(store.last_event().await.unwrap(), 7);
        store.close().await;
    }
}

#[tokio::test]
async fn what_a_newer_one_made_leaves_no_database_and_no_hint_says_more_than_is_so() {
    let here = Here::new();
    let made = |name: &str, version: i64| {
        let path = here.path(name);
        let file = std::fs::File::create(&path).unwrap();
        let mut out = here.seals().encryptor().unwrap().wrap_output(file).unwrap();
        let head = json!({ "format": FORMAT, "version": version, "at": 1 });
        std::io::Write::write_all(&mut out, format!("{head}\n").as_bytes()).unwrap();
        out.finish().unwrap();
        path
    };
    let newer = made("newer.age", KNOWN_VERSION + 1);
    let refused = here.restored(&newer, "newer.db").await.unwrap_err();
    assert!(
        matches!(refused, BackupError::Load(LoadError::Newer { .. })),
        "{refused}"
    );
    assert!(refused.hint().unwrap().contains("nothing was changed"));
    assert!(!here.path("newer.db").exists());
    // of one that breaks off an empty database stays, and the hint says so
    let broken = made("broken.age", KNOWN_VERSION);
    let refused = here.restored(&broken, "broken.db").await.unwrap_err();
    assert!(here.path("broken.db").exists());
    assert!(
        refused.hint().unwrap().contains("an empty database"),
        "{:?}",
        refused.hint()
    );
}

#[tokio::test]
async fn a_backup_is_of_one_moment_while_others_write() {
    each(async |store| {
        let here = Here::new();
        filled(&store, &here.vault).await;
        let writing = async {
            for number in 0.. {
                person(&store, format!("p{number}@example.com")).await;
            }
        };
        let backing = async {
            for number in 0..5 {
                let name = format!("backup{number}");
                here.backup(&store, KeyInside::No, &name).await;
                // a member without its user, or the other way round, would be refused or counted
                let target = format!("target{number}");
                here.restored(&here.path(&name), &target).await.unwrap();
                let target = Database::Sqlite(here.path(&target));
                let target = Store::open(&target).await.unwrap();
                let rows = rows(&target).await;
                let count = |table: &str| rows.iter().filter(|row| row.table == table).count();
                assert_eq!(count("users"), count("members"));
                assert_eq!(count("users"), count("workspaces"));
                target.close().await;
            }
        };
        tokio::select! {
            () = writing => unreachable!("it writes without end"),
            () = backing => {}
        }
    })
    .await;
}

#[tokio::test]
async fn the_instance_key_is_inside_only_when_that_is_asked_for() {
    let here = Here::new();
    let database = Database::Sqlite(here.path("console.db"));
    let store = Store::open(&database).await.unwrap();
    filled(&store, &here.vault).await;
    assert!(here.backup(&store, KeyInside::Yes, "backup").await.has_key);
    // another key is not written over
    let key = KeyFile::at(here.path("target.key"));
    let other = InstanceKey::fresh().unwrap();
    key.create(&other).unwrap();
    let refused = here.restored(&here.path("backup"), "target").await;
    assert!(matches!(refused, Err(BackupError::Key(_))), "{refused:?}");
    assert_eq!(key.read().unwrap().unwrap().id(), other.id());
    // a console may have its store there by now: the file is not removed
    assert!(here.path("target").exists());
    std::fs::remove_file(key.path()).unwrap();
    here.restored(&here.path("backup"), "target").await.unwrap();
    let target = Store::open(&Database::Sqlite(here.path("target")))
        .await
        .unwrap();
    Vault::at(here.path("target.key"))
        .ready(&target)
        .await
        .unwrap();
    target.close().await;
    // a file that is there is not written over, and no draft stays
    let (inside, seals) = (KeyInside::No, here.seals());
    let refused = write(&store, &here.vault, inside, seals, &here.path("backup")).await;
    assert!(matches!(refused, Err(BackupError::There(_))), "{refused:?}");
    let drafts = here.files(".");
    assert!(drafts.is_empty(), "{drafts:?}");
    store.close().await;
}

#[tokio::test]
async fn while_the_instance_key_is_turned_there_is_no_backup() {
    let here = Here::new();
    let database = Database::Sqlite(here.path("console.db"));
    let store = Store::open(&database).await.unwrap();
    filled(&store, &here.vault).await;
    let ring = store.ring().await.unwrap();
    store.turn_ring(&ring[0].id, "next", 5).await.unwrap();
    for inside in [KeyInside::No, KeyInside::Yes] {
        let path = here.path("backup");
        let refused = write(&store, &here.vault, inside, here.seals(), &path).await;
        assert!(matches!(refused, Err(BackupError::Turning)), "{refused:?}");
        assert!(!path.exists(), "{inside:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_passphrase_opens_what_it_sealed_and_a_short_one_seals_nothing() {
    let here = Here::new();
    let database = Database::Sqlite(here.path("console.db"));
    let store = Store::open(&database).await.unwrap();
    filled(&store, &here.vault).await;
    std::fs::write(here.path("short"), "tiny\n").unwrap();
    assert!(Seals::passphrase(&here.path("short")).is_err());
    std::fs::write(here.path("long"), "a passphrase that is long\n").unwrap();
    std::fs::write(here.path("other"), "another passphrase\n").unwrap();
    let seals = Seals::passphrase(&here.path("long")).unwrap();
    let path = here.path("backup");
    write(&store, &here.vault, KeyInside::No, seals, &path)
        .await
        .unwrap();
    let database = Database::Sqlite(here.path("target"));
    let key_file = here.path("target.key");
    let into = Target {
        database: &database,
        key_file: &key_file,
    };
    let other = Opens::passphrase(&here.path("other")).unwrap();
    assert!(restore(into, &other, &path).await.is_err());
    let long = Opens::passphrase(&here.path("long")).unwrap();
    restore(into, &long, &path).await.unwrap();
    let keys = here.own.to_string();
    std::fs::write(
        here.path("keys"),
        format!("# made\n{}\n", keys.expose_secret()),
    )
    .unwrap();
    assert!(matches!(Opens::keys(&here.path("keys")), Ok(Opens::Keys(keys)) if keys.len() == 1));
    assert!(Opens::keys(&here.path("long")).is_err());
    assert!(Seals::keys(&["age1x".to_owned()]).is_err());
    store.close().await;
}

/// Names the folder of the process that is to be killed.
const VICTIM: &str = "SALLYPORT_TEST_BACKUP_VICTIM";

/// What is killed: nothing in an ordinary test run.
#[tokio::test]
async fn victim() {
    let Some(folder) = std::env::var_os(VICTIM).map(PathBuf::from) else {
        return;
    };
    let database = Database::Sqlite(folder.join("console.db"));
    let store = Store::open(&database).await.unwrap();
    let vault = Vault::at(folder.join("instance.key"));
    let keys = std::fs::read_to_string(folder.join("keys")).unwrap();
    let own: age::x25519::Identity = keys.trim().parse().unwrap();
    for number in 0.. {
        let path = folder.join(format!("backup{number}"));
        let seals = Seals::Keys(vec![own.to_public()]);
        write(&store, &vault, KeyInside::Yes, seals, &path)
            .await
            .unwrap();
        let into = Target {
            database: &Database::Sqlite(folder.join(format!("target{number}"))),
            key_file: &folder.join(format!("target{number}.key")),
        };
        let opens = Opens::Keys(vec![own.clone()]);
        restore(into, &opens, &path).await.unwrap();
    }
}

#[tokio::test]
async fn whatever_is_killed_leaves_no_half_file_and_no_half_store() {
    let here = Here::new();
    let database = Database::Sqlite(here.path("console.db"));
    let store = Store::open(&database).await.unwrap();
    filled(&store, &here.vault).await;
    for number in 0..300 {
        let event = json!({ "n": "x".repeat(1000) });
        store.append_event("t", "k", &event, number).await.unwrap();
    }
    let whole = rows(&store).await.len();
    here.backup(&store, KeyInside::Yes, "kept").await;
    store.close().await;
    let keys = here.own.to_string();
    std::fs::write(here.path("keys"), keys.expose_secret()).unwrap();
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "backup::tests::victim"])
            .env(VICTIM, here.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        while here.files("backup").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it begins");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // somewhere in a backup or a restore
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        for name in here.files("backup") {
            let target = format!("again-{round}-{name}");
            here.restored(&here.path(&name), &target).await.unwrap();
            std::fs::remove_file(here.path(&name)).unwrap();
        }
        for name in here
            .files("target")
            .iter()
            .filter(|name| !name.contains(['-', '.']))
        {
            // as the help says: the same restore again, over what the killed one left, or there is a whole store
            let again = here.restored(&here.path("kept"), name).await;
            let there = matches!(&again, Err(BackupError::Load(LoadError::NotEmpty(_))));
            assert!(there || again.is_ok(), "{again:?}");
            let database = Database::Sqlite(here.path(name));
            let target = Store::open(&database).await.unwrap();
            assert_eq!(rows(&target).await.len(), whole, "{name}");
            let vault = Vault::at(here.path(&format!("{name}.key")));
            vault.ready(&target).await.unwrap();
            target.close().await;
        }
        for name in here.files("target").into_iter().chain(here.files("again")) {
            std::fs::remove_file(here.path(&name)).unwrap();
        }
    }
}
