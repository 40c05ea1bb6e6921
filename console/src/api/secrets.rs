//! Secrets of a workspace: set, replaced, listed, deleted. No answer ever has a value.
//!
//! More hosts need the value again: who may change a secret and does not know it cannot send it elsewhere.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use netpolicy::name::Pattern;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::Fields;
use crate::accounts::variables;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::server::tag::{IfMatch, changed, tag};
use crate::store::secrets::{KIND, Kept, MOST, NewSecret, Secret, SecretChange};
use crate::store::users::Changed;
use crate::vault::{Place, Sealed, VaultError};

/// A key with its certificates fits; a file does not belong here.
const LONGEST_VALUE: usize = 64 << 10;
/// More hosts are no list that somebody has read.
const MOST_HOSTS: usize = 32;
/// Between two attempts the key was turned; that happens once.
const ATTEMPTS: u8 = 3;

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecretView {
    /// Its id.
    pub id: String,
    /// Its name, and that of the variable.
    pub name: String,
    /// Hosts at which it may be used; none: wherever a run that has it may go.
    pub hosts: Vec<String>,
    /// How many values it has had.
    pub version: i64,
    /// When it was made, in milliseconds since 1970.
    pub created_at: Millis,
    /// When its value was set.
    pub changed_at: Millis,
    /// When a run was last given it.
    pub used_at: Option<Millis>,
}

/// A secret to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretInput {
    /// Its name: capital letters, digits and `_`.
    name: String,
    /// Its value. It is never shown again.
    #[serde(deserialize_with = "hidden")]
    #[schema(value_type = String, write_only)]
    value: Zeroizing<String>,
    /// Hosts at which it may be used, such as `api.example.com` or `*.example.com`; none: wherever a run may go.
    #[serde(default)]
    hosts: Vec<String>,
}

/// A change of a secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretChangeInput {
    /// Another value. Needed where `hosts` gets more.
    #[serde(default, deserialize_with = "perhaps_hidden")]
    #[schema(value_type = Option<String>, write_only)]
    value: Option<Zeroizing<String>>,
    /// Other hosts.
    hosts: Option<Vec<String>>,
}

/// A text that leaves memory when it is dropped.
fn hidden<'de, D: Deserializer<'de>>(from: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(from).map(Zeroizing::new)
}

fn perhaps_hidden<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Zeroizing<String>>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(Zeroizing::new))
}

fn view(secret: Secret) -> SecretView {
    SecretView {
        id: secret.id,
        name: secret.name,
        hosts: serde_json::from_str(&secret.hosts).unwrap_or_default(),
        version: secret.value_version,
        created_at: secret.created_at,
        changed_at: secret.changed_at,
        used_at: secret.used_at,
    }
}

fn shown(status: StatusCode, secret: Secret) -> Response {
    let tag = tag(secret.version);
    (status, [(header::ETAG, tag)], Json(view(secret))).into_response()
}

/// The secrets of this workspace.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/secrets", tag = "secrets",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<SecretView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<SecretView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let workspace = &caller.workspace()?.id;
    let secrets = app.store.secrets(workspace, after, limit).await?;
    Ok(Json(Page::of(secrets, limit, |secret| &secret.id, view)))
}

/// One secret.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/secrets/{secret}", tag = "secrets",
    params(("workspace" = String, Path), ("secret" = String, Path)), responses((status = 200, body = SecretView)))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Response, Problem> {
    Ok(shown(StatusCode::OK, found(&app, &caller, &ids.1).await?))
}

/// Keep a secret.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/secrets", tag = "secrets", request_body = SecretInput,
    params(("workspace" = String, Path)), responses((status = 201, body = SecretView)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<SecretInput>,
) -> Result<Response, Problem> {
    let mut fields = Fields::new();
    let name = fields.take(variables::name(&input.name));
    let hosts = fields.take(hosts(&input.hosts));
    fields.0.extend(wrong_value(&input.value));
    fields.done()?;
    let workspace = &caller.workspace()?.id;
    let (id, hosts) = (clock::id(), text(&hosts));
    for _ in 0..ATTEMPTS {
        let sealed = seal(&app, &id, workspace, 1, &input.value).await?;
        let new = NewSecret {
            id: &id,
            workspace,
            name: &name,
            hosts: &hosts,
            sealed: &sealed,
        };
        match app.store.add_secret(new, clock::now()).await {
            Ok(Kept::Stale) => app.vault.refresh(&app.store).await?,
            Ok(Kept::TooMany) => {
                return Err(Problem::conflict(
                    "too_many",
                    format!("a workspace has at most {MOST} secrets"),
                ));
            }
            Ok(Kept::Became(_)) => {
                return Ok(shown(StatusCode::CREATED, found(&app, &caller, &id).await?));
            }
            Err(error) if error.is_taken() => {
                return Err(Problem::conflict(
                    "taken",
                    "there is a secret of this name; PATCH it to replace its value",
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(turning())
}

/// Another value, other hosts.
#[utoipa::path(patch, path = "/api/v1/workspaces/{workspace}/secrets/{secret}", tag = "secrets",
    request_body = SecretChangeInput, params(("workspace" = String, Path), ("secret" = String, Path)),
    responses((status = 200, body = SecretView)))]
pub async fn change(
    State(app): State<App>,
    caller: Caller,
    meant: IfMatch,
    At(ids): At<(String, String)>,
    Input(input): Input<SecretChangeInput>,
) -> Result<Response, Problem> {
    let secret = found(&app, &caller, &ids.1).await?;
    meant.check(secret.version)?;
    let before: Vec<String> = serde_json::from_str(&secret.hosts).unwrap_or_default();
    let mut fields = Fields::new();
    let now = input.hosts.as_deref().map(hosts).transpose();
    let now = fields.take(now).unwrap_or_else(|| before.clone());
    match &input.value {
        Some(value) => fields.0.extend(wrong_value(value)),
        None if is_more(&now, &before) => fields.0.push(Wrong::new(
            "value",
            "set the value again: who does not know it cannot open it to further hosts",
        )),
        None => {}
    }
    fields.done()?;
    let workspace = &caller.workspace()?.id;
    let hosts = text(&now);
    for _ in 0..ATTEMPTS {
        let version = secret.value_version + 1;
        let sealed = match &input.value {
            Some(value) => Some(seal(&app, &secret.id, workspace, version, value).await?),
            None => None,
        };
        let change = SecretChange {
            workspace,
            secret: &secret,
            hosts: &hosts,
            sealed: sealed.as_ref(),
        };
        match app.store.change_secret(change, clock::now()).await? {
            Kept::Stale => app.vault.refresh(&app.store).await?,
            Kept::Became(Changed::Done) => {
                return Ok(shown(
                    StatusCode::OK,
                    found(&app, &caller, &secret.id).await?,
                ));
            }
            Kept::Became(_) | Kept::TooMany => return Err(changed()),
        }
    }
    Err(turning())
}

/// Delete a secret.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/secrets/{secret}", tag = "secrets",
    params(("workspace" = String, Path), ("secret" = String, Path)), responses((status = 204)))]
pub async fn end(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<StatusCode, Problem> {
    let workspace = &caller.workspace()?.id;
    if app.store.end_secret(workspace, &ids.1).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}

async fn found(app: &App, caller: &Caller, id: &str) -> Result<Secret, Problem> {
    let secret = app.store.secret(&caller.workspace()?.id, id).await?;
    secret.ok_or_else(Problem::not_found)
}

async fn seal(
    app: &App,
    id: &str,
    workspace: &str,
    version: i64,
    value: &str,
) -> Result<Sealed, Problem> {
    let place = Place {
        kind: KIND,
        id,
        workspace,
        version,
    };
    Ok(app.vault.seal(&app.store, &place, value.as_bytes()).await?)
}

fn text(hosts: &[String]) -> String {
    serde_json::Value::from(hosts).to_string()
}

/// Hosts as policies have them, each once.
fn hosts(written: &[String]) -> Result<Vec<String>, Wrong> {
    if written.len() > MOST_HOSTS {
        return Err(Wrong::new("hosts", format!("at most {MOST_HOSTS}")));
    }
    let mut hosts = Vec::new();
    for host in written {
        let pattern = Pattern::parse(host)
            .map_err(|_| Wrong::new("hosts", "names such as api.example.com or *.example.com"))?;
        let text = match pattern {
            Pattern::Exact(name) => name.as_str().to_owned(),
            Pattern::Below(name) => format!("*.{}", name.as_str()),
        };
        if !hosts.contains(&text) {
            hosts.push(text);
        }
    }
    Ok(hosts)
}

/// Whether one list permits something that the other does not; an empty one permits everything.
fn is_more(now: &[String], before: &[String]) -> bool {
    let parse = |hosts: &[String]| -> Vec<Pattern> {
        hosts
            .iter()
            .filter_map(|h| Pattern::parse(h).ok())
            .collect()
    };
    let (wide, narrow) = (parse(now), parse(before));
    if narrow.is_empty() {
        return false;
    }
    wide.is_empty()
        || wide
            .iter()
            .any(|host| !narrow.iter().any(|known| known.covers(host)))
}

fn wrong_value(value: &str) -> Option<Wrong> {
    let wrong = |message: String| Some(Wrong::new("value", message));
    if value.is_empty() {
        return wrong("a value".into());
    }
    if value.len() > LONGEST_VALUE {
        return wrong(format!("at most {LONGEST_VALUE} bytes"));
    }
    // a variable of a process ends at its first NUL
    value.contains('\0').then(|| Wrong::new("value", "no NUL"))
}

fn turning() -> Problem {
    Problem::busy("the instance key is being turned; try again")
}

impl From<VaultError> for Problem {
    fn from(error: VaultError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        if matches!(
            error,
            VaultError::Lost { .. } | VaultError::Wrong { .. } | VaultError::NoKey(_)
        ) {
            return Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_key",
                "this console does not have the instance key that the store is sealed with",
            )
            .help("its log says which key is needed, and where it is looked for");
        }
        Self::internal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_permits_more_is_noticed() {
        let list =
            |hosts: &[&str]| -> Vec<String> { hosts.iter().map(|h| (*h).to_owned()).collect() };
        for (now, before, more) in [
            (&["a.example"][..], &["a.example", "b.example"][..], false),
            (&["x.a.example"], &["*.a.example"], false),
            (&["a.example"], &["*.a.example"], true),
            (&["*.a.example"], &["x.a.example"], true),
            (&[], &["a.example"], true),
            (&["a.example"], &[], false),
            (&[], &[], false),
        ] {
            assert_eq!(
                is_more(&list(now), &list(before)),
                more,
                "{before:?} to {now:?}"
            );
        }
    }

    #[test]
    fn hosts_are_names_and_nothing_around_them() {
        let parse = |host: &str| hosts(&[host.to_owned()]);
        assert_eq!(parse("API.Example.com").unwrap(), ["api.example.com"]);
        assert_eq!(parse("*.example.com").unwrap(), ["*.example.com"]);
        for wrong in [
            "",
            "*",
            "https://example.com",
            "example.com:443",
            "a*.example.com",
            "10.0.0.1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
