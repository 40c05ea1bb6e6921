//! The hardening checklist: what cannot be looked at is never good, and what is mended is.

use gateway::control::api::PostureView;
use http::Method;

use super::checklist::{CheckItem, FRESH, firewall, https, look, policies, selftest};
use crate::clock::{HOUR, Millis};
use crate::jobs::spec::{JobSpec, NetworkMode};
use crate::server::testing::{Console, signed_in};
use crate::settings::{ConsoleConfig, Database};
use crate::store::Store;
use crate::store::testing::each;

fn state(answer: &serde_json::Value, id: &str) -> String {
    let items = answer["items"].as_array().unwrap();
    let row = items.iter().find(|row| row["id"] == id).unwrap();
    assert_eq!(row["fix"].is_null(), row["state"] == "good", "{row}");
    row["state"].as_str().unwrap().to_owned()
}

async fn add(store: &Store, workspace: &str, name: &str, spec: &JobSpec) {
    let write = crate::store::jobs::JobWrite {
        workspace,
        name,
        spec: &serde_json::to_string(spec).unwrap(),
        enabled: true,
        next_at: None,
    };
    store.add_job(&write, None, 1).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_never_good_and_what_is_mended_is() {
    each(async |store| {
        let (ada, cookie) = signed_in(&store, "ada", true).await;
        let folder = tempfile::tempdir().unwrap();
        let mut config = ConsoleConfig {
            state_dir: folder.path().to_owned(),
            key_file: folder.path().join("key"),
            database: Database::Sqlite(folder.path().join("console.db")),
            ..ConsoleConfig::default()
        };
        config.gateway.control = folder.path().join("none.sock");
        let ask = async |config: &ConsoleConfig| {
            let console = Console::with(store.clone(), config.clone());
            console
                .ask(Method::GET, "/api/v1/checklist", &[("cookie", &cookie)])
                .await
        };
        let before = ask(&config).await;
        assert_eq!(before.status, 200, "{}", before.text);
        for (id, expected) in [
            ("firewall", "unknown"),
            ("selftest", "unknown"),
            ("https", "good"),
            ("another_way_in", "bad"),
            ("key_apart", "bad"),
            ("guessing", "good"),
            ("config_file", "good"),
            ("backup", "bad"),
            ("runners", "bad"),
            ("isolation", "unknown"),
            ("job_networks", "good"),
            ("own_calls", "bad"),
            ("told", "bad"),
            ("room", "good"),
            ("policies", "unknown"),
        ] {
            assert_eq!(state(&before.json, id), expected, "{id}");
        }
        let place = store.add_workspace("W", &ada, 1).await.unwrap();
        let mut spec = JobSpec::default();
        spec.network.mode = NetworkMode::Domains;
        let word = r#"policy_name":"x"},"root":"#;
        spec.description = format!("\"{word}");
        spec.env.insert("policy_name".into(), word.into());
        add(&store, &place, "named", &spec).await;
        assert_eq!(state(&ask(&config).await.json, "job_networks"), "good");
        spec.network.policy_name = Some("build".into());
        add(&store, &place, "git", &spec).await;
        assert_eq!(state(&ask(&config).await.json, "job_networks"), "unknown");
        spec.network.policy_name = None;
        spec.network.mode = NetworkMode::Internet;
        spec.network.allow_private = true;
        add(&store, &place, "open", &spec).await;
        signed_in(&store, "eve", true).await;
        let apart = tempfile::tempdir().unwrap();
        config.key_file = apart.path().join("key");
        config.outbound.allow_private = false;
        config.listen = "0.0.0.0:8420".parse().unwrap();
        let after = ask(&config).await;
        for (id, expected) in [
            ("https", "bad"),
            ("another_way_in", "good"),
            ("key_apart", "good"),
            ("job_networks", "bad"),
            ("own_calls", "good"),
        ] {
            assert_eq!(state(&after.json, id), expected, "{id}");
        }
        let good = after.json["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["state"] == "good")
            .count();
        assert_eq!(after.json["good"], good);
    })
    .await;
}

#[tokio::test]
async fn a_backup_is_known_of_once_it_was_noted_and_ports_are_looked_at() {
    each(async |store| {
        let list = async || look(&ConsoleConfig::default(), &store).await.unwrap().items;
        let backup =
            |items: &[CheckItem]| items.iter().find(|row| row.id == "backup").unwrap().state;
        let before = list().await;
        // how that row comes out depends on the machine
        assert!(before.iter().any(|row| row.id == "ports"), "{before:?}");
        assert_eq!(backup(&before), "bad");
        store.note_backup(1).await.unwrap();
        assert_eq!(backup(&list().await), "bad", "of long ago");
        store.note_backup(crate::clock::now()).await.unwrap();
        assert_eq!(backup(&list().await), "good");
    })
    .await;
}

#[test]
fn a_sealed_gateway_and_a_failed_selftest_are_bad() {
    let posture = |state: &str, failed: usize, at: Millis| -> PostureView {
        serde_json::from_value(serde_json::json!({
            "state": state, "label": "Private networks blocked", "cause": null, "hint": null, "generation": 1,
            "since_ms": 1, "notes": [], "selftest": { "at_ms": at, "why": "schedule", "variant": "namespace", "took_ms": 1,
                "passed": 10, "failed": failed, "skipped": 0, "held": [], "rest": [] },
        })).unwrap()
    };
    let now = 100 * HOUR;
    let both = |posture: &PostureView| {
        (
            firewall(Some(posture)).state,
            selftest(Some(posture), now).state,
        )
    };
    assert_eq!(both(&posture("enforcing", 0, now - HOUR)), ("good", "good"));
    assert_eq!(both(&posture("sealed", 1, now - HOUR)), ("bad", "bad"));
    assert_eq!(
        both(&posture("without_enforcement", 0, now - FRESH - 1)),
        ("bad", "bad")
    );
    assert_eq!(selftest(None, now).state, "unknown");
}

#[test]
fn certificates_of_its_own_are_good_and_a_source_of_which_nothing_is_loaded_is_bad() {
    let mut config = ConsoleConfig {
        listen: "0.0.0.0:8420".parse().unwrap(),
        ..ConsoleConfig::default()
    };
    assert_eq!(https(&config).state, "bad");
    config.tls = Some(crate::settings::TlsFiles {
        certificate: "c.pem".into(),
        key: "k.pem".into(),
    });
    assert_eq!(https(&config).state, "good");
    let source = |commit: Option<&str>| -> gateway::source::SourceView {
        serde_json::from_value(serde_json::json!({
            "name": "main", "remote": "r", "branch": "main", "commit": commit, "loaded_ms": null, "signer": null,
            "signatures_required": false, "policies": [], "checked_ms": null, "stale": false, "problem": null, "moves": [],
        })).unwrap()
    };
    let state = |sources: &[_]| policies(Some(sources)).map(|row| row.state);
    assert_eq!(state(&[]), None);
    assert_eq!(state(&[source(Some("a"))]), Some("good"));
    assert_eq!(state(&[source(Some("a")), source(None)]), Some("bad"));
}
