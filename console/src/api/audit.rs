//! The audit log of a workspace for its admins, of everything for administrators of the instance.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock::Millis;
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Asked;
use crate::server::problem::Problem;
use crate::store::audit::Entry;

/// At once.
const MOST: i64 = 500;
/// At once when somebody looks back, who reads the newest and rarely more.
const MOST_BACK: i64 = 100;

/// Where to go on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// The `seq` of the last entry that was seen.
    #[serde(default)]
    after: i64,
    /// Instead: the `seq` of the entry before which to read, newest first.
    before: Option<i64>,
}

/// One entry.
#[derive(Debug, Serialize, ToSchema)]
pub struct EntryView {
    /// Its number.
    pub seq: i64,
    /// When, in milliseconds since 1970.
    pub at: Millis,
    /// In which workspace, if in one.
    pub workspace: Option<String>,
    /// Which user, if anybody was signed in.
    pub actor: Option<String>,
    /// By which credential.
    pub credential: String,
    /// From which address.
    pub address: String,
    /// What, by the word that the description gives each route.
    pub action: String,
    /// To whom or what.
    pub subject: String,
    /// How it was answered.
    pub status: i64,
    /// The entry's place in the chain.
    pub hash: String,
}

/// Entries, oldest first; newest first before a number.
#[derive(Debug, Serialize, ToSchema)]
pub struct Entries {
    /// At most 500; go on with `after`, or with `before`.
    pub items: Vec<EntryView>,
}

fn view(entry: Entry) -> EntryView {
    EntryView {
        seq: entry.seq,
        at: entry.at,
        workspace: entry.workspace_id,
        actor: entry.actor,
        credential: entry.credential,
        address: entry.address,
        action: entry.action,
        subject: entry.subject,
        status: entry.status,
        hash: entry.hash,
    }
}

/// What was changed in this workspace, and by whom.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/audit", tag = "audit",
    params(("workspace" = String, Path), ("after" = Option<i64>, Query), ("before" = Option<i64>, Query)), responses((status = 200, body = Entries)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(asked): Asked<After>,
) -> Result<Json<Entries>, Problem> {
    let workspace = &caller.workspace()?.id;
    entries(&app, Some(workspace), &asked).await
}

/// What was changed anywhere.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit",
    params(("after" = Option<i64>, Query), ("before" = Option<i64>, Query)), responses((status = 200, body = Entries)))]
pub async fn whole(
    State(app): State<App>,
    Asked(asked): Asked<After>,
) -> Result<Json<Entries>, Problem> {
    entries(&app, None, &asked).await
}

async fn entries(
    app: &App,
    workspace: Option<&str>,
    asked: &After,
) -> Result<Json<Entries>, Problem> {
    let entries = match asked.before {
        None => app.store.audit_after(workspace, asked.after, MOST).await?,
        Some(seq) => app.store.audit_before(workspace, seq, MOST_BACK).await?,
    };
    Ok(Json(Entries {
        items: entries.into_iter().map(view).collect(),
    }))
}
