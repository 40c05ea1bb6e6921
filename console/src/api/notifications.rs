//! Whom a workspace tells about its runs: webhooks and mail, with a test button and a log of what was sent.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Fields;
use crate::accounts::names;
use crate::clock::{self, HOUR, Millis};
use crate::notify::{TEST, TOPICS, fresh_key};
use crate::outbound::{CallError, Purpose};
use crate::server::app::App;
use crate::server::idempotent::ShownOnce;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::store::notifications::{Delivery, KIND, MOST, Notification};
use crate::vault::Place;

/// Tests of a workspace in an hour: whose address it is was never asked.
const MOST_TESTS: i64 = 20;

/// Whom to tell, without the key that signs.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotificationView {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// `webhook` or `email`.
    pub kind: String,
    /// A URL or an address.
    pub address: String,
    /// About what: `run.failed`, `run.succeeded`, `run.denied` (a name that a job was not denied before; `full` in it, once:
    /// no more names of the job are kept),
    /// `gateway.enforcement` (lost, and back).
    pub topics: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_at: Millis,
}

/// Somebody who was just set up.
#[derive(Debug, Serialize, ToSchema)]
pub struct FreshNotification {
    /// Its id.
    pub id: String,
    /// What signs each webhook (Standard Webhooks). It is shown this once.
    pub signing_key: Option<String>,
}

/// Somebody to be told.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationInput {
    /// What to call it.
    name: String,
    /// `webhook` or `email`.
    kind: String,
    /// A URL or an address.
    address: String,
    /// About what: `run.failed`, `run.succeeded`, `run.denied` (a name that a job was not denied before; `full` in it, once:
    /// no more names of the job are kept),
    /// `gateway.enforcement` (lost, and back).
    topics: Vec<String>,
}

/// What was sent, or is to be.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryView {
    /// Its id, which its receiver sees too.
    pub id: String,
    /// About what.
    pub topic: String,
    /// `waiting`, `done` or `failed`.
    pub state: String,
    /// How often it was tried.
    pub attempts: i64,
    /// When it is tried next, if it waits.
    pub next_at: Option<Millis>,
    /// How the last attempt ended.
    pub outcome: String,
    /// When it happened.
    pub created_at: Millis,
}

/// A delivery that was queued.
#[derive(Debug, Serialize, ToSchema)]
pub struct Queued {
    /// Its id.
    pub id: String,
}

fn view(found: Notification) -> NotificationView {
    NotificationView {
        id: found.id,
        name: found.name,
        kind: found.kind,
        address: found.address,
        topics: serde_json::from_str(&found.topics).unwrap_or_default(),
        created_at: found.created_at,
    }
}

fn view_delivery(delivery: Delivery) -> DeliveryView {
    DeliveryView {
        next_at: (delivery.state == "waiting").then_some(delivery.next_at),
        id: delivery.id,
        topic: delivery.topic,
        state: delivery.state,
        attempts: delivery.attempts,
        outcome: delivery.outcome,
        created_at: delivery.created_at,
    }
}

/// Whom this workspace tells.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/notifications", tag = "notifications",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<NotificationView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<NotificationView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let workspace = &caller.workspace()?.id;
    let found = app.store.notifications(workspace, after, limit).await?;
    Ok(Json(Page::of(found, limit, |one| &one.id, view)))
}

/// Tell somebody.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/notifications", tag = "notifications",
    request_body = NotificationInput, params(("workspace" = String, Path)),
    responses((status = 201, body = FreshNotification)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<NotificationInput>,
) -> Result<(StatusCode, Extension<ShownOnce>, Json<FreshNotification>), Problem> {
    let mut fields = Fields::new();
    let name = fields.take(names::name(&input.name));
    let address = fields.take(address(&app, &input).await);
    let known = input
        .topics
        .iter()
        .all(|topic| TOPICS.contains(&topic.as_str()));
    if input.topics.is_empty() || input.topics.len() > TOPICS.len() || !known {
        fields.0.push(Wrong::new("topics", TOPICS.join(", ")));
    }
    fields.done()?;
    let workspace = &caller.workspace()?.id;
    let new = Notification {
        id: clock::id(),
        workspace_id: workspace.clone(),
        name,
        kind: input.kind,
        address,
        topics: serde_json::Value::from(input.topics).to_string(),
        created_at: clock::now(),
    };
    let place = Place {
        kind: KIND,
        id: &new.id,
        workspace,
        version: 1,
    };
    let key = fresh_key()?;
    loop {
        let sealed = app.vault.seal(&app.store, &place, key.as_bytes()).await?;
        match app.store.add_notification(&new, &sealed).await? {
            Some(true) => break,
            Some(false) => app.vault.refresh(&app.store).await?,
            None => {
                let told = format!("a workspace tells at most {MOST}");
                return Err(Problem::conflict("too_many", told));
            }
        }
    }
    let fresh = FreshNotification {
        signing_key: (new.kind == "webhook").then(|| key.to_string()),
        id: new.id,
    };
    Ok((StatusCode::CREATED, Extension(ShownOnce), Json(fresh)))
}

/// Tell somebody nothing any more.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/notifications/{notification}", tag = "notifications",
    params(("workspace" = String, Path), ("notification" = String, Path)), responses((status = 204)))]
pub async fn end(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<StatusCode, Problem> {
    if app
        .store
        .end_notification(&caller.workspace()?.id, &ids.1)
        .await?
    {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}

/// Send a test.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/notifications/{notification}/test", tag = "notifications",
    params(("workspace" = String, Path), ("notification" = String, Path)), responses((status = 202, body = Queued)))]
pub async fn test(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<(StatusCode, Json<Queued>), Problem> {
    let found = found(&app, &caller, &ids.1).await?;
    let now = clock::now();
    let counted = format!("tests:{}", found.workspace_id);
    if !app
        .store
        .count_attempt(&counted, MOST_TESTS, now - HOUR, now)
        .await?
    {
        let told = format!("a workspace sends at most {MOST_TESTS} tests in an hour");
        return Err(Problem::slow_down("too_many_tests", told, 600));
    }
    let body =
        serde_json::json!({ "type": TEST, "at": now, "workspace": found.workspace_id, "data": {} });
    let id = app
        .store
        .deliver(&found.id, TEST, &body.to_string(), now)
        .await?;
    Ok((StatusCode::ACCEPTED, Json(Queued { id })))
}

/// What was sent to somebody, newest first.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/notifications/{notification}/deliveries", tag = "notifications",
    params(("workspace" = String, Path), ("notification" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<DeliveryView>)))]
pub async fn deliveries(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<DeliveryView>>, Problem> {
    let (before, limit) = paging.bounds()?;
    let whom = found(&app, &caller, &ids.1).await?;
    let sent = app.store.deliveries(&whom.id, before, limit).await?;
    Ok(Json(Page::of(sent, limit, |one| &one.id, view_delivery)))
}

async fn found(app: &App, caller: &Caller, id: &str) -> Result<Notification, Problem> {
    let workspace = &caller.workspace()?.id;
    let found = app.store.notification(id).await?;
    let ours = found.filter(|one| one.workspace_id == *workspace);
    ours.ok_or_else(Problem::not_found)
}

/// A URL that may be called, or an address that mail may go to.
async fn address(app: &App, input: &NotificationInput) -> Result<String, Wrong> {
    let wrong = |message: String| Err(Wrong::new("address", message));
    match input.kind.as_str() {
        "webhook" => match app.outbound.check(Purpose::Member, &input.address).await {
            Ok(_) => Ok(input.address.clone()),
            Err(CallError::Refused(refusal)) => wrong(refusal.to_string()),
            Err(error) => wrong(error.to_string()),
        },
        "email" if app.config.mail.is_none() => {
            wrong("no mail server is set here (`mail` in config.yml)".to_owned())
        }
        "email" => {
            names::email(&input.address).map_err(|wrong| Wrong::new("address", wrong.message))
        }
        _ => Err(Wrong::new("kind", "webhook or email")),
    }
}
