//! `sallyport job`: the jobs of a workspace, one at a time. Many of them as files are [`super::apply`]'s.

mod edit;
pub mod file;
pub mod form;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::remote::{At, Call, Form, Session, cell, id, quoted, text, time};
use super::run::What;
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

const HELP: &str = "\
Examples:
  sallyport job list
  sallyport job create nightly --policy research.yml -- python3 agent.py
  sallyport job create -f jobs/nightly.yml
  sallyport job show nightly -o yaml
  sallyport job run nightly --follow
  sallyport job edit nightly

`show -o yaml` writes a job as the file that `create -f` and `sallyport apply` read.";

/// `sallyport job`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The jobs of the workspace
    List,
    /// One job
    Show(Named),
    /// Make a job, from a file or as `sallyport run` has it
    Create(Box<Create>),
    /// Change a job in your editor; what somebody else changed meanwhile is not overwritten
    Edit(Named),
    /// Remove a job; its runs stay
    Delete(Named),
    /// Run a job now
    Run(RunNow),
}

#[derive(Debug, Args)]
struct Named {
    /// The job, by name or id
    job: String,
}

#[derive(Debug, Args)]
struct Create {
    /// The job's name
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// A job as a file; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// When it runs by itself: minute, hour, day, month, day of week
    #[arg(long, value_name = "CRON", conflicts_with = "file")]
    schedule: Option<String>,
    /// Time zone of the schedule [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "schedule")]
    timezone: Option<String>,
    /// A secret of the workspace that its runs get; repeat for several
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    secret: Vec<String>,
    #[command(flatten)]
    what: What,
    /// The command and its arguments
    #[arg(
        required_unless_present = "file",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct RunNow {
    /// The job, by name or id
    job: String,
    /// Print what it prints until it ends, and end as it does
    #[arg(long, short)]
    follow: bool,
    /// What its command reads, for jobs with `input: true`; `-` is standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    let at = &arguments.at;
    match &arguments.verb {
        Verb::List => wait(async {
            let session = at.enter().await?;
            let jobs = session.client.list(&session.path("jobs")).await?;
            form.print(&Value::Array(jobs.clone()), || table(&jobs))?;
            Ok(Outcome::Good)
        }),
        Verb::Show(named) => wait(async {
            let session = at.enter().await?;
            let job = find(&session, &named.job).await?;
            print(&job, form)
        }),
        Verb::Create(create) => {
            let input = body(create, shared)?;
            wait(async {
                let session = at.enter().await?;
                let path = session.path("jobs");
                let call = Call::new(Method::POST, &path).with(&input);
                print(&session.client.call(call).await?.body, form)
            })
        }
        Verb::Edit(named) => edit::perform(at, &named.job, form),
        Verb::Delete(named) => wait(async {
            let session = at.enter().await?;
            let job = find(&session, &named.job).await?;
            remove(&session, &job).await?;
            show::note(format_args!("removed {}", show::clean(&text(&job, "name"))));
            Ok(Outcome::Good)
        }),
        Verb::Run(now) => run(at, now, form),
    }
}

/// What the API is sent for a job that is made.
fn body(create: &Create, shared: &Shared) -> Result<Value, Failure> {
    if let Some(file) = &create.file {
        let job = file::read(file)?;
        return Ok(job.body());
    }
    let mut spec = create
        .what
        .spec(&create.command, &shared.load_to_ask()?.gateway)?;
    spec.secrets.clone_from(&create.secret);
    spec.schedule = create
        .schedule
        .as_ref()
        .map(|cron| ::console::jobs::spec::ScheduleSpec {
            cron: cron.clone(),
            timezone: create.timezone.clone().unwrap_or_else(|| "UTC".to_owned()),
            catch_up: ::console::jobs::spec::CatchUp::default(),
        });
    Ok(json!({ "name": create.name, "spec": spec }))
}

/// Prints one job; as YAML it is the file that makes it.
fn print(job: &Value, form: Form) -> Verdict {
    match form {
        Form::Yaml => show::raw(&file::write(job)?)?,
        Form::Json => form.print(job, String::new)?,
        Form::Table => {
            show::out(table(std::slice::from_ref(job)))?;
            show::out("")?;
            show::raw(&file::write(job)?)?;
        }
    }
    Ok(Outcome::Good)
}

fn table(jobs: &[Value]) -> String {
    let rows = jobs.iter().map(|job| {
        let spec = job.get("spec").cloned().unwrap_or_default();
        let network = spec.get("network").cloned().unwrap_or_default();
        let words = spec
            .get("command")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let words: Vec<&str> = words.iter().take(20).filter_map(Value::as_str).collect();
        let enabled = job.get("enabled") == Some(&Value::Bool(true));
        [
            cell(&text(job, "name")),
            if enabled { "yes" } else { "no" }.to_owned(),
            cell(&text(&network, "mode")),
            time(job, "next_at"),
            cell(&words.join(" ")),
            cell(&text(job, "id")),
        ]
    });
    show::table(
        ["name", "enabled", "network", "next", "command", "id"],
        rows,
    )
}

/// A job by name or id. A name that looks like an id is one.
pub async fn find(session: &Session, named: &str) -> Result<Value, Failure> {
    let looks = named.len() == 36 && named.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if looks {
        let path = session.path(&format!("jobs/{}", id(named)?));
        return match session.client.get(&path).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Err(unknown(named)),
            answer => Ok(answer?.body),
        };
    }
    let path = session.path(&format!("jobs?q={}", percent(named)));
    let jobs = session.client.list(&path).await?;
    let found = jobs.into_iter().find(|job| text(job, "name") == named);
    found.ok_or_else(|| unknown(named))
}

fn unknown(named: &str) -> Failure {
    Failure::new(format!("there is no job {}", quoted(named)))
        .hint("`sallyport job list` shows those there are")
}

/// As a query has it.
fn percent(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut made, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            made.push(char::from(byte));
        } else {
            let _ = write!(made, "%{byte:02X}");
        }
        made
    })
}

/// The version of a job as it was read.
pub fn version(job: &Value) -> Result<i64, Failure> {
    let version = job.get("version").and_then(Value::as_i64);
    version.ok_or_else(|| Failure::new("the console answered with a job without a version"))
}

/// Where a job is.
pub fn path(session: &Session, job: &Value) -> Result<String, Failure> {
    Ok(session.path(&format!("jobs/{}", id(&text(job, "id"))?)))
}

/// Removes a job as it was read.
async fn remove(session: &Session, job: &Value) -> Result<(), Failure> {
    let path = path(session, job)?;
    session
        .client
        .call(Call::new(Method::DELETE, &path).at(version(job)?))
        .await?;
    Ok(())
}

/// Changes a job as it was read.
pub async fn change(session: &Session, job: &Value, body: &Value) -> Result<Value, Failure> {
    let path = path(session, job)?;
    let call = Call::new(Method::PUT, &path).with(body).at(version(job)?);
    Ok(session.client.call(call).await?.body)
}

fn run(at: &At, now: &RunNow, form: Form) -> Verdict {
    let input = now.input.as_deref().map(file::text_of).transpose()?;
    wait(async {
        let session = at.enter().await?;
        let job = find(&session, &now.job).await?;
        let path = session.path(&format!("jobs/{}/runs", id(&text(&job, "id"))?));
        let body = json!({ "input": input });
        if now.follow {
            return super::run::submit_and_follow(&session, &path, &body, form).await;
        }
        let run = session
            .client
            .call(Call::new(Method::POST, &path).with(&body))
            .await?
            .body;
        form.print(&run, || super::runs::line(&run))?;
        Ok(Outcome::Good)
    })
}
