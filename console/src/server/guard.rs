//! Stands before every route: who is it, may they do what the route needs, is it their turn?
//!
//! A workspace that somebody is not in answers like one that does not exist. Whoever is not let through here has reached
//! no handler.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::sync::oneshot;

use super::address::Client;
use super::app::App;
use super::idempotent::{self, Go};
use super::identify::{Caller, Who, identify, identify_runner};
use super::input;
use super::problem::Problem;
use super::rate::Counted;
use crate::access::{Action, ByToken, Reach, Role, rule};
use crate::store::audit::Told;
use crate::store::change::{self, Change, Needs};
use crate::store::workspaces::{Visible, Workspace};

/// Of whom or what a change was, in the audit log; ids are shorter.
const SUBJECT: usize = 320;

/// What strangers send is held in memory before anybody knows who they are: no more than a form has.
const FORM: usize = 16 << 10;

/// In the extensions of an answer that a handler gave.
#[derive(Clone, Copy, Debug)]
pub struct Admitted;

/// Lets a request through to its handler, or answers it.
pub async fn admit(
    State((app, action, success)): State<(App, Action, StatusCode)>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let asked = Asked::of(action, success, &mut parts).await?;
    let mut caller = asked.caller(&app, &parts).await?;
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
    // browsers come back from a provider with a GET; it is bound to a POST before it
    let safe = matches!(parts.method, Method::GET | Method::HEAD) || action.only_asks();
    let changes = !safe || action == Action::ComeBackFromProvider;
    if let Err(refused) = permit(&app, &asked, &mut caller).await {
        if changes && refused.status == StatusCode::FORBIDDEN && caller.user().is_ok() {
            record(&app, &caller, &asked, &asked.subject, StatusCode::FORBIDDEN).await?;
        }
        return Err(refused);
    }
    // what runners tell is no change that somebody asked for: the store has whose it is
    if !changes || rule(action).reach == Reach::Runner {
        return Ok(answer(parts, body, caller, next).await);
    }
    // A body may come as slowly as its sender likes: whoever may no longer when it is there may not.
    let body = match action {
        Action::SignIn | Action::ClaimInstance | Action::AskCode => {
            input::whole(input::at_most(FORM, body)).await?
        }
        _ => input::whole(body).await?,
    };
    // anybody asks to be let in: who says yes changes something, and is told
    if action == Action::AskCode {
        return Ok(answer(parts, Body::from(body), caller, next).await);
    }
    if !body.is_empty() && rule(action).reach != Reach::Open {
        caller = asked.caller(&app, &parts).await?;
        permit(&app, &asked, &mut caller).await?;
    }
    // a session is begun each time, and a password leaves no digest that is quicker to make than its own
    let turn = if rule(action).reach == Reach::Open {
        Go::On(None)
    } else {
        idempotent::turn(&app, &caller, &parts, &body).await?
    };
    let key = match turn {
        Go::On(key) => key,
        Go::Answered(mut response) => {
            response.extensions_mut().insert(Admitted);
            return Ok(response);
        }
    };
    let change = asked.change(&caller, key);
    parts.extensions.insert(caller.clone());
    let request = Request::from_parts(parts, Body::from(body));
    // In a task of its own: a client that hangs up, or an answer that takes too long, ends the waiting and not a change
    // between being made and being told.
    let (answering, answered) = oneshot::channel();
    app.tasks.clone().spawn("change", async move {
        let done = carry_out(&app, &caller, &asked, change, next.run(request));
        let _ = answering.send(done.await);
    });
    answered.await.unwrap_or_else(|_| Err(Problem::internal()))
}

/// The handler's answer to what changes nothing that is told.
async fn answer(mut parts: Parts, body: Body, caller: Caller, next: Next) -> Response {
    parts.extensions.insert(caller);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    response.extensions_mut().insert(Admitted);
    response
}

/// What is asked, and of what.
struct Asked {
    action: Action,
    /// As what the route says that it answers when it was done.
    success: StatusCode,
    /// The workspace that the path names.
    workspace: String,
    /// What else the path names, for the audit log.
    subject: String,
}

impl Asked {
    async fn of(action: Action, success: StatusCode, parts: &mut Parts) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, &()).await;
        let params = params.map_err(|_| Problem::not_found())?;
        // PostgreSQL takes no NUL in a text; nothing has one in its name
        if params.iter().any(|(_, value)| value.contains('\0')) {
            return Err(Problem::not_found());
        }
        let workspace = params.iter().find(|(key, _)| *key == "workspace");
        // a webhook's address is its secret
        let subject: Vec<String> = params
            .iter()
            .filter(|(key, _)| *key != "hook")
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Ok(Self {
            action,
            success,
            workspace: workspace.map_or_else(String::new, |(_, value)| value.to_owned()),
            subject: subject.join(" "),
        })
    }

    /// The change, for the transaction that makes it.
    fn change(&self, caller: &Caller, key: Option<crate::store::replays::Claimed>) -> Arc<Change> {
        let needs = match rule(self.action).reach {
            Reach::Open | Reach::Runner => Needs::Nothing,
            Reach::Person => Needs::Person,
            Reach::Instance => Needs::Instance,
            Reach::Workspace(role) => Needs::Role(role, self.workspace.clone()),
        };
        let told = told(caller, self, &self.subject, self.success);
        let mut change = Change::new(told, needs, crate::clock::now());
        change.user = caller.user().ok().map(|user| user.id.clone());
        change.credential = match &caller.who {
            Who::Nobody | Who::Runner(_) => None,
            Who::Person(found) => Some(found.1.id.clone()),
            Who::Token(found) => Some(found.1.id.clone()),
        };
        change.key = key;
        Arc::new(change)
    }

    /// Who asks, by what the store says now.
    async fn caller(&self, app: &App, parts: &Parts) -> Result<Caller, Problem> {
        let client = parts.extensions.get::<Client>().copied();
        let client = client.ok_or_else(Problem::internal)?;
        let now = crate::clock::now();
        let who = if rule(self.action).reach == Reach::Runner {
            identify_runner(app, &parts.headers, client, now).await?
        } else {
            identify(app, &parts.headers, now).await?
        };
        Ok(Caller {
            who,
            client,
            workspace: None,
        })
    }
}

/// Whether they may; notes what they are in the workspace.
async fn permit(app: &App, asked: &Asked, caller: &mut Caller) -> Result<(), Problem> {
    let rule = rule(asked.action);
    may_by_token(&caller.who, rule.by_token)?;
    match rule.reach {
        Reach::Open => {}
        Reach::Runner => {
            caller.runner()?;
        }
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
            let (workspace, role) = membership(app, caller, &asked.workspace).await?;
            // before anything is refused: its admins are told what their members tried
            caller.workspace = Some((workspace, role));
            if role < needed {
                let needed = needed.word();
                return Err(Problem::forbidden(format!(
                    "this needs the role {needed} in the workspace"
                )));
            }
        }
    }
    Ok(())
}

/// In the extensions of an answer to what [`intend`] was told before: however it ended is told.
#[derive(Clone, Copy, Debug)]
pub struct Intended;

/// Tells the audit log of what is about to be done outside of the store, which cannot be undone: as accepted (202), before
/// it is done. Without that entry it is not done.
pub async fn intend(
    app: &App,
    caller: &Caller,
    action: Action,
    subject: &str,
) -> Result<(), Problem> {
    let asked = Asked {
        action,
        success: StatusCode::ACCEPTED,
        workspace: String::new(),
        subject: String::new(),
    };
    let told = told(caller, &asked, subject, StatusCode::ACCEPTED);
    Ok(app.store.tell_audit(&told, crate::clock::now()).await?)
}

/// Carries a request out. Its change tells itself; what changed nothing, and refusals, are told here.
async fn carry_out(
    app: &App,
    caller: &Caller,
    asked: &Asked,
    change: Arc<Change>,
    act: impl Future<Output = Response>,
) -> Result<Response, Problem> {
    let mut response = change::scope(change.clone(), act).await;
    let status = response.status();
    let is_good = status.is_success() || status.is_redirection();
    let intended = response.extensions().get::<Intended>().is_some();
    if (is_told(status) || intended) && !(is_good && change.made()) {
        let about = response.extensions().get::<About>();
        let subject = about.map_or_else(|| change.subject(), |about| about.0.clone());
        record(app, caller, asked, &subject, status).await?;
    }
    if let Some(key) = &change.key {
        response = idempotent::settle(app, key, change.made(), response).await;
    }
    response.extensions_mut().insert(Admitted);
    Ok(response)
}

/// What was done, and sign-ins and changes that were refused; not what merely did not fit.
fn is_told(status: StatusCode) -> bool {
    let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    status.is_success() || status == StatusCode::SEE_OTHER || refused
}

/// Tells the audit log. A change that cannot be told is answered as a failure that says so; the console's log has the entry.
async fn record(
    app: &App,
    caller: &Caller,
    asked: &Asked,
    subject: &str,
    status: StatusCode,
) -> Result<(), Problem> {
    let told = told(caller, asked, subject, status);
    let kept = app.store.tell_audit(&told, crate::clock::now()).await;
    kept.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            ?told,
            "the audit log could not be written"
        );
        Problem::untold(status)
    })
}

/// The entry.
fn told(caller: &Caller, asked: &Asked, subject: &str, status: StatusCode) -> Told<'static> {
    let credential = match &caller.who {
        Who::Nobody => "none".to_owned(),
        Who::Person(found) => format!("session {}", found.1.id),
        Who::Token(found) => format!("token {}", found.1.id),
        Who::Runner(found) => format!("runner {}", found.id),
    };
    let workspace = caller.workspace.as_ref();
    Told {
        workspace: workspace.map(|(workspace, _)| workspace.id.clone()),
        actor: caller.user().ok().map(|user| user.id.clone()),
        credential,
        address: caller.client.0.to_string(),
        action: asked.action.word(),
        // what a caller writes into a path may be as long as a head
        subject: subject.chars().take(SUBJECT).collect(),
        status: i64::from(status.as_u16()),
    }
}

/// Whom a change was about, where the path does not say: a handler puts it into its answer's extensions.
#[derive(Clone, Debug)]
pub struct About(pub String);

fn may_by_token(who: &Who, by_token: ByToken) -> Result<(), Problem> {
    let Who::Token(found) = who else {
        return Ok(());
    };
    let may = match by_token {
        ByToken::Never => {
            return Err(Problem::forbidden(
                "no token may do this, whatever its scope: sign in",
            ));
        }
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
