//! Jobs of a workspace.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Fields;
use super::thinking::{length, read as read_policy, think};
use crate::accounts::names;
use crate::clock::{self, Millis};
use crate::jobs::check;
use crate::jobs::reach::{self, Reached};
use crate::jobs::schedule::Schedule;
use crate::jobs::spec::{JobSpec, NetworkSpec};
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::server::tag::{IfMatch, changed, tag};
use crate::store::jobs::{Job, JobWrite, MOST};

/// A job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobView {
    /// Its id.
    pub id: String,
    /// Its name, of which there is one in the workspace.
    pub name: String,
    /// What it runs, and when.
    pub spec: JobSpec,
    /// Whether it may be triggered.
    pub enabled: bool,
    /// When its schedule is due next, in milliseconds since 1970.
    pub next_at: Option<Millis>,
    /// Whether it has a webhook.
    pub has_webhook: bool,
    /// Who made it.
    pub created_by: Option<String>,
    /// When it was made.
    pub created_at: Millis,
    /// When it was changed.
    pub updated_at: Millis,
    /// Counts its changes; the `ETag` of its answer.
    pub version: i64,
}

/// A job to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobInput {
    /// Its name.
    name: String,
    /// What it runs, and when.
    spec: JobSpec,
    /// Whether it may be triggered.
    #[serde(default = "yes")]
    enabled: bool,
}

const fn yes() -> bool {
    true
}

/// A network setting to look at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachInput {
    /// As in a job.
    network: NetworkSpec,
}

/// What is reached.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReachTable {
    /// One row for each destination; `null` of a policy that only the gateway reads.
    pub rows: Option<Vec<Reached>>,
}

/// What a job says, for whoever sees it.
pub fn view(job: Job) -> Result<JobView, Problem> {
    let spec = JobSpec::read(&job.spec).map_err(|error| {
        tracing::error!(%error, job = job.id, "a job in the store cannot be read");
        Problem::internal()
    })?;
    Ok(JobView {
        id: job.id,
        name: job.name,
        spec,
        enabled: job.enabled,
        next_at: job.next_at,
        has_webhook: job.has_hook,
        created_by: job.created_by,
        created_at: job.created_at,
        updated_at: job.updated_at,
        version: job.version,
    })
}

fn answer(status: StatusCode, job: Job) -> Result<Response, Problem> {
    let tag = tag(job.version);
    let about = Extension(About(format!("job={}", job.id)));
    Ok((status, about, [(header::ETAG, tag)], Json(view(job)?)).into_response())
}

/// A checked job.
struct Checked {
    name: String,
    spec: String,
    enabled: bool,
    next_at: Option<Millis>,
}

impl Checked {
    /// With what was checked; `before`: what the job is so far.
    async fn of(
        app: &App,
        caller: &Caller,
        input: JobInput,
        before: Option<&JobSpec>,
    ) -> Result<(Self, JobInput), Problem> {
        let length = length(&input.spec.network);
        let checked = read_policy(app, caller, length, move || {
            Ok((Self::judge(&input)?, input))
        });
        let (checked, input) = checked.await?;
        tells(app, &caller.workspace()?.id, &input.spec, before).await?;
        Ok((checked, input))
    }

    fn judge(input: &JobInput) -> Result<Self, Problem> {
        let mut fields = Fields::new();
        let name = fields.take(names::name(&input.name));
        fields.0.extend(check::mistakes(&input.spec));
        fields.done()?;
        let schedule = input.spec.schedule.as_ref().filter(|_| input.enabled);
        let next_at = schedule
            .and_then(|spec| Schedule::parse(spec).ok())
            .and_then(|schedule| schedule.next(clock::now()));
        Ok(Self {
            name,
            spec: serde_json::to_string(&input.spec).map_err(|_| Problem::internal())?,
            enabled: input.enabled,
            next_at,
        })
    }

    fn write<'a>(&'a self, workspace: &'a str) -> JobWrite<'a> {
        JobWrite {
            workspace,
            name: &self.name,
            spec: &self.spec,
            enabled: self.enabled,
            next_at: self.next_at,
        }
    }
}

/// Whether everybody is there whom it tells. Who was told before and is there no more keeps nobody from a change.
pub(super) async fn tells(
    app: &App,
    workspace: &str,
    spec: &JobSpec,
    before: Option<&JobSpec>,
) -> Result<(), Problem> {
    let Some(notify) = &spec.notify else {
        return Ok(());
    };
    let had = before.and_then(|spec| spec.notify.as_ref());
    let unknown = app.store.unknown_notifications(workspace, &notify.to);
    let unknown = unknown.await?;
    if unknown
        .iter()
        .all(|name| had.is_some_and(|had| had.to.contains(name)))
    {
        return Ok(());
    }
    let message = "a notification of this workspace has each of these names";
    Err(Problem::invalid("spec.notify.to", message))
}

fn too_many() -> Problem {
    Problem::conflict("too_many", format!("a workspace has at most {MOST} jobs"))
        .help("remove some; runs that are no jobs need none")
}

fn taken() -> Problem {
    let mut problem = Problem::conflict("taken", "there is a job with this name");
    problem.fields.push(Wrong::new("name", "taken"));
    problem
}

/// A job of the workspace that the path names.
pub async fn find(app: &App, caller: &Caller, job: &str) -> Result<Job, Problem> {
    let found = app.store.job(&caller.workspace()?.id, job).await?;
    found.ok_or_else(Problem::not_found)
}

/// The jobs of a workspace.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/jobs", tag = "jobs",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query), ("q" = Option<String>, Query)),
    responses((status = 200, body = Page<JobView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<JobView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let jobs = app
        .store
        .jobs(&caller.workspace()?.id, &paging.q, after, limit)
        .await?;
    let full = i64::try_from(jobs.len()).is_ok_and(|count| count >= limit);
    let next = jobs.last().filter(|_| full).map(|job| job.id.clone());
    let items = jobs.into_iter().map(view).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}

/// Make a job.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/jobs", tag = "jobs", request_body = JobInput,
    params(("workspace" = String, Path)), responses((status = 201, body = JobView)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<JobInput>,
) -> Result<Response, Problem> {
    let (checked, _) = Checked::of(&app, &caller, input, None).await?;
    let (workspace, user) = (&caller.workspace()?.id, &caller.user()?.id);
    let write = checked.write(workspace);
    let id = match app.store.add_job(&write, Some(user), clock::now()).await {
        Err(error) if error.is_taken() => return Err(taken()),
        added => added?.ok_or_else(too_many)?,
    };
    answer(StatusCode::CREATED, find(&app, &caller, &id).await?)
}

/// One job.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/jobs/{job}", tag = "jobs",
    params(("workspace" = String, Path), ("job" = String, Path)), responses((status = 200, body = JobView)))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Response, Problem> {
    answer(StatusCode::OK, find(&app, &caller, &ids.1).await?)
}

/// Change a job. Runs that there are keep what they were submitted with.
#[utoipa::path(put, path = "/api/v1/workspaces/{workspace}/jobs/{job}", tag = "jobs", request_body = JobInput,
    params(("workspace" = String, Path), ("job" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = JobView)))]
pub async fn change(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    meant: IfMatch,
    Input(input): Input<JobInput>,
) -> Result<Response, Problem> {
    let job = find(&app, &caller, &ids.1).await?;
    meant.check(job.version)?;
    let before = view(job.clone())?;
    let (mut checked, input) = Checked::of(&app, &caller, input, Some(&before.spec)).await?;
    if before.enabled == checked.enabled && before.spec.schedule == input.spec.schedule {
        // a time that is due and not fired yet stays due
        checked.next_at = job.next_at;
    }
    let write = checked.write(&job.workspace_id);
    match app
        .store
        .change_job(&job.id, job.version, &write, clock::now())
        .await
    {
        Ok(true) => answer(StatusCode::OK, find(&app, &caller, &job.id).await?),
        Ok(false) => Err(changed()),
        Err(error) if error.is_taken() => Err(taken()),
        Err(error) => Err(error.into()),
    }
}

/// Remove a job. Its runs stay; those that wait are cancelled.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/jobs/{job}", tag = "jobs",
    params(("workspace" = String, Path), ("job" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204)))]
pub async fn remove(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    meant: IfMatch,
) -> Result<StatusCode, Problem> {
    let job = find(&app, &caller, &ids.1).await?;
    meant.check(job.version)?;
    let (workspace, now) = (&job.workspace_id, clock::now());
    if !app
        .store
        .remove_job(workspace, &job.id, job.version, now)
        .await?
    {
        return Err(changed());
    }
    for run in app.store.waiting_of_job(&job.id).await? {
        app.store.cancel_run(workspace, &run, now).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What a network setting reaches, computed by the policy engine. Nothing is kept. Floors of a gateway can only take away.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/jobs/reach", tag = "jobs", request_body = ReachInput,
    params(("workspace" = String, Path)), responses((status = 200, body = ReachTable)))]
pub async fn reached(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<ReachInput>,
) -> Result<Json<ReachTable>, Problem> {
    think(&app, &caller, move || reach(input)).await
}

fn reach(input: ReachInput) -> Result<Json<ReachTable>, Problem> {
    let spec = JobSpec {
        network: input.network,
        ..JobSpec::default()
    };
    let wrong = check::mistakes(&spec);
    Problem::unless_empty(wrong)?;
    let policy = spec.network.policy().and_then(Result::ok);
    let rows = policy.map(|policy| reach::table(policy, gateway::context::now()));
    Ok(Json(ReachTable { rows }))
}
