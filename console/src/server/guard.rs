//! Stands before every route: who is it, may they do what the route needs, is it their turn?
//!
//! A workspace that somebody is not in answers like one that does not exist. Whoever is not let through here has reached
//! no handler.

use std::time::Instant;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};

use super::address::Client;
use super::app::App;
use super::identify::{Caller, Who, identify};
use super::problem::Problem;
use super::rate::Counted;
use crate::access::{Action, ByToken, Reach, Role, rule};
use crate::store::audit::Told;
use crate::store::workspaces::{Visible, Workspace};

/// In the extensions of an answer that a handler gave.
#[derive(Clone, Copy, Debug)]
pub struct Admitted;

/// Lets a request through to its handler, or answers it.
pub async fn admit(
    State((app, action)): State<(App, Action)>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params.map_err(|_| Problem::not_found())?;
    // PostgreSQL takes no NUL in a text; nothing has one in its name
    if params.iter().any(|(_, value)| value.contains('\0')) {
        return Err(Problem::not_found());
    }
    let now = crate::clock::now();
    let who = identify(&app, &parts.headers, now).await?;
    let client = parts
        .extensions
        .get::<Client>()
        .copied()
        .ok_or_else(Problem::internal)?;
    let mut caller = Caller {
        who,
        client,
        workspace: None,
    };
    if let Ok(user) = caller.user()
        && !app
            .rates
            .take(Counted::Account(user.id.clone()), Instant::now())
    {
        return Err(Problem::slow_down(
            "too_many_requests",
            "too many requests of this account",
            1,
        ));
    }
    let rule = rule(action);
    may_by_token(&caller.who, rule.by_token)?;
    match rule.reach {
        Reach::Open => {}
        Reach::Person => {
            caller.user()?;
        }
        Reach::Instance if caller.user()?.instance_admin => {}
        Reach::Instance => {
            return Err(Problem::forbidden(
                "this needs an administrator of the instance",
            ));
        }
        Reach::Workspace(needed) => {
            let named = params
                .iter()
                .find(|(key, _)| *key == "workspace")
                .map(|(_, value)| value);
            let (workspace, role) = membership(&app, &caller, named.unwrap_or_default()).await?;
            if role < needed {
                let needed = needed.word();
                return Err(Problem::forbidden(format!(
                    "this needs the role {needed} in the workspace"
                )));
            }
            caller.workspace = Some((workspace, role));
        }
    }
    let subject: Vec<String> = params
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let changes = !matches!(parts.method, Method::GET | Method::HEAD);
    parts.extensions.insert(caller.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    let status = response.status();
    if changes && is_told(status) {
        let about = response.extensions().get::<About>().cloned();
        let subject = about.map_or_else(|| subject.join(" "), |about| about.0);
        record(&app, &caller, action, &subject, status).await?;
    }
    response.extensions_mut().insert(Admitted);
    Ok(response)
}

/// What was done, and sign-ins and changes that were refused; not what merely did not fit.
fn is_told(status: StatusCode) -> bool {
    status.is_success() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Tells the audit log. A change that cannot be told is answered as a failure, and the log of the console says why.
async fn record(
    app: &App,
    caller: &Caller,
    action: Action,
    subject: &str,
    status: StatusCode,
) -> Result<(), Problem> {
    let credential = match &caller.who {
        Who::Nobody => "none".to_owned(),
        Who::Person(found) => format!("session {}", found.1.id),
        Who::Token(found) => format!("token {}", found.1.id),
    };
    let told = Told {
        workspace: caller
            .workspace
            .as_ref()
            .map(|(workspace, _)| workspace.id.clone()),
        actor: caller.user().ok().map(|user| user.id.clone()),
        credential,
        address: caller.client.0.to_string(),
        action: action.word(),
        subject,
        status: i64::from(status.as_u16()),
    };
    app.store.tell_audit(&told, crate::clock::now()).await?;
    Ok(())
}

/// Whom a change was about, where the path does not say: a handler puts it into its answer's extensions.
#[derive(Clone, Debug)]
pub struct About(pub String);

fn may_by_token(who: &Who, by_token: ByToken) -> Result<(), Problem> {
    let Who::Token(found) = who else {
        return Ok(());
    };
    let may = match by_token {
        ByToken::Never => false,
        ByToken::Read => true,
        ByToken::Write => found.1.scope == "write",
    };
    if may {
        Ok(())
    } else {
        Err(Problem::forbidden("a token with this scope cannot do this"))
    }
}

async fn membership(app: &App, caller: &Caller, named: &str) -> Result<(Workspace, Role), Problem> {
    let user = caller.user()?;
    if let Who::Token(found) = &caller.who
        && found.1.workspace_id != named
    {
        return Err(Problem::not_found());
    }
    let visible = Visible::of(app.config.workspaces);
    let workspace = app.store.workspace_of(&user.id, named, visible).await?;
    let workspace = workspace.ok_or_else(Problem::not_found)?;
    let role = Role::parse(&workspace.role).ok_or_else(Problem::not_found)?;
    Ok((workspace, role))
}
