//! The gateway's state as the API tells it: a gateway that speaks, none, and one that hangs.

use std::path::{Path, PathBuf};

use axum::routing::get;
use axum::{Json, Router};
use http::Method;
use serde_json::{Value, json};
use tokio::net::UnixListener;

use crate::clock;
use crate::server::testing::{Answer, Console, signed_in};
use crate::settings::ConsoleConfig;
use crate::store::Store;
use crate::store::testing::each;

/// What a person of no workspace and no rank is told by a console whose gateway has its socket there.
async fn told(store: &Store, socket: PathBuf) -> Answer {
    let mut config = ConsoleConfig::default();
    config.gateway.control = socket;
    let console = Console::with(store.clone(), config);
    let (_, cookie) = signed_in(store, &clock::id(), false).await;
    let answer = console
        .ask(Method::GET, "/api/v1/gateway", &[("cookie", &*cookie)])
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// A gateway that answers with this.
fn speaks(socket: &Path, posture: Value) {
    let listener = UnixListener::bind(socket).unwrap();
    let router = Router::new().route("/v1/posture", get(async move || Json(posture)));
    gateway::tasks::Tasks::default().spawn("gateway", async move {
        axum::serve(listener, router).await.unwrap();
    });
}

fn posture(state: &str, label: &str, cause: Option<&str>) -> Value {
    json!({ "state": state, "label": label, "cause": cause, "hint": cause.map(|_| "do this"), "generation": 3,
        "since_ms": 1_700_000_000_000_i64, "enforcement": "nftables", "notes": ["a secret of the machine"], "to_come": 1 })
}

#[tokio::test]
async fn what_the_gateway_says_is_told_and_nothing_beside_it() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good.sock");
        speaks(&good, posture("enforcing", "Private networks blocked", None));
        let answer = told(&store, good).await;
        let expected = json!({ "state": "enforcing", "label": "Private networks blocked", "cause": null, "hint": null,
            "since": 1_700_000_000_000_i64, "enforcement": "nftables" });
        assert_eq!(answer.json, expected);
        let sealed = folder.path().join("sealed.sock");
        speaks(&sealed, posture("sealed", "Not enforced", Some("a table is gone")));
        let answer = told(&store, sealed).await;
        assert_eq!(answer.json["state"], "sealed");
        assert_eq!(answer.json["label"], "Not enforced");
        assert_eq!(answer.json["cause"], "a table is gone");
        assert_eq!(answer.json["hint"], "do this");
    })
    .await;
}

#[tokio::test]
async fn no_gateway_a_hanging_one_and_a_stranger_are_unknown_and_never_good() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let none = told(&store, folder.path().join("none.sock")).await;
        // accepts nothing, ever: whoever connects waits in its queue
        let hangs = folder.path().join("hangs.sock");
        let listener = UnixListener::bind(&hangs).unwrap();
        let begun = std::time::Instant::now();
        let hanging = told(&store, hangs).await;
        assert!(begun.elapsed() < std::time::Duration::from_secs(8));
        drop(listener);
        let strange = folder.path().join("strange.sock");
        speaks(&strange, json!({ "label": "Private networks blocked" }));
        let strange = told(&store, strange).await;
        for (answer, cause) in [
            (none, "no gateway answers on this machine"),
            (
                hanging,
                "the gateway of this machine does not answer in time",
            ),
            (strange, "no gateway answers on this machine"),
        ] {
            assert_eq!(answer.json["state"], "unknown");
            assert_eq!(answer.json["label"], Value::Null);
            assert_eq!(answer.json["cause"], cause);
            assert!(
                answer.json["hint"]
                    .as_str()
                    .unwrap()
                    .contains("sallyport doctor")
            );
        }
    })
    .await;
}
