//! `sallyport plan` and `sallyport apply`: the jobs of a workspace as files in a folder.
//!
//! Both read every file first and say every mistake at once; nothing is sent while there is one. What is to be done is
//! computed from what the console has now, and each change is meant for the version that was read: who changed a job in
//! between is not overwritten. Jobs without a file are left alone unless `--prune` is said.

mod diff;
mod folder;

use std::path::PathBuf;

use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::job::{self, file::Job};
use super::remote::{At, Call, Form, Session, text};
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;
use diff::differences;
use folder::Others;

const HELP: &str = "\
Reads every *.yml and *.yaml below the folder that begins with `job:`; policies that they name with `policy_file` lie \
there as well. Names that begin with a dot are not looked at; with --prune a file of a job that is hidden so is a mistake. \
`sallyport job show NAME -o yaml` writes such a file.

  job: nightly
  command: [python3, agent.py]
  network: { policy_file: policies/research.yml }
  schedule: { cron: \"30 4 * * *\", timezone: Europe/Berlin }

Exit codes of plan: 0, nothing is to be changed; 1, something is; 3, a file has mistakes (all are listed, each with file, \
line and column) or the console could not be asked. Of apply: 0, it is as the files say; 1, something was not changed \
because somebody else had changed it meanwhile; 3 as above.

Examples:
  sallyport plan -f jobs/
  sallyport apply -f jobs/
  sallyport apply -f jobs/ --prune -o json";

/// `sallyport plan`, `sallyport apply`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// The folder with the files, or one file
    #[arg(long, short, value_name = "DIR")]
    file: PathBuf,
    /// Also remove jobs that no file of the folder is of; a link or a hidden job in it is a mistake then
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    at: At,
}

impl Arguments {
    const fn others(&self) -> Others {
        if self.prune { Others::Go } else { Others::Stay }
    }
}

/// What becomes of one job.
enum Step {
    Create(Job),
    Change {
        job: Job,
        was: Value,
        lines: Vec<String>,
    },
    Remove(Value),
}

impl Step {
    fn word(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Change { .. } => "change",
            Self::Remove(_) => "remove",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Create(job) | Self::Change { job, .. } => job.name.clone(),
            Self::Remove(was) => text(was, "name"),
        }
    }

    fn lines(&self) -> &[String] {
        match self {
            Self::Change { lines, .. } => lines,
            Self::Create(_) | Self::Remove(_) => &[],
        }
    }

    fn sign(&self) -> char {
        match self {
            Self::Create(_) => '+',
            Self::Change { .. } => '~',
            Self::Remove(_) => '-',
        }
    }

    fn value(&self, outcome: &str) -> Value {
        json!({ "action": self.word(), "job": self.name(), "differences": self.lines(), "outcome": outcome })
    }

    fn told(&self) -> String {
        let head = format!(
            "{} {} {}",
            self.sign(),
            self.word(),
            show::clean(&self.name())
        );
        let lines = self
            .lines()
            .iter()
            .map(|line| format!("    {}", show::clean(line)));
        std::iter::once(head)
            .chain(lines)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

pub fn plan(arguments: &Arguments, shared: &Shared) -> Verdict {
    let jobs = folder::read(&arguments.file, arguments.others())?;
    let form = arguments.at.form(shared);
    let (steps, left) = wait(async {
        let session = arguments.at.enter().await?;
        steps(&session, jobs, arguments.others()).await
    })?;
    let values = steps.iter().map(|step| step.value("planned")).collect();
    form.print(&Value::Array(values), || shown(&steps))?;
    leftover(&left, form);
    Ok(if steps.is_empty() {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

fn shown(steps: &[Step]) -> String {
    if steps.is_empty() {
        return "nothing is to be changed".to_owned();
    }
    steps.iter().map(Step::told).collect::<Vec<_>>().join("\n")
}

/// Says what `--prune` would remove.
fn leftover(left: &[String], form: Form) {
    if form == Form::Table && !left.is_empty() {
        let names = left
            .iter()
            .map(|name| show::clean(name).into_owned())
            .collect::<Vec<_>>()
            .join(", ");
        show::note(format_args!(
            "no file is of: {names} (--prune removes them)"
        ));
    }
}

/// What is to be done, and the names of jobs that are left alone.
async fn steps(
    session: &Session,
    jobs: Vec<Job>,
    others: Others,
) -> Result<(Vec<Step>, Vec<String>), Failure> {
    let mut there = session.client.list(&session.path("jobs")).await?;
    let mut steps = Vec::new();
    for job in jobs {
        let place = there.iter().position(|was| text(was, "name") == job.name);
        let Some(was) = place.map(|place| there.swap_remove(place)) else {
            steps.push(Step::Create(job));
            continue;
        };
        let lines = differences(&was, &job)?;
        if !lines.is_empty() {
            steps.push(Step::Change { job, was, lines });
        }
    }
    there.sort_by_key(|was| text(was, "name"));
    if others == Others::Go {
        steps.extend(there.into_iter().map(Step::Remove));
        return Ok((steps, Vec::new()));
    }
    Ok((steps, there.iter().map(|was| text(was, "name")).collect()))
}

pub fn apply(arguments: &Arguments, shared: &Shared) -> Verdict {
    let jobs = folder::read(&arguments.file, arguments.others())?;
    let form = arguments.at.form(shared);
    wait(async {
        let session = arguments.at.enter().await?;
        let (steps, left) = steps(&session, jobs, arguments.others()).await?;
        let mut values = Vec::new();
        let mut good = true;
        for step in &steps {
            let outcome = match take(&session, step).await {
                Ok(()) => "done".to_owned(),
                Err(Untaken::Meanwhile(failure)) => {
                    good = false;
                    failure.message
                }
                // what was done before it is said before it is
                Err(Untaken::Failed(failure)) => {
                    report(form, &values)?;
                    return Err(Failure {
                        message: format!("{} {}: {}", step.word(), step.name(), failure.message),
                        ..failure
                    });
                }
            };
            if form == Form::Table {
                let said = if outcome == "done" {
                    String::new()
                } else {
                    format!("\n    not done: {}", show::clean(&outcome))
                };
                show::out(format_args!("{}{said}", step.told()))?;
            }
            values.push(step.value(&outcome));
        }
        if form == Form::Table && steps.is_empty() {
            show::out("nothing is to be changed")?;
        }
        report(form, &values)?;
        leftover(&left, form);
        Ok(if good {
            Outcome::Good
        } else {
            Outcome::Negative
        })
    })
}

fn report(form: Form, values: &[Value]) -> Result<(), Failure> {
    if form == Form::Table {
        return Ok(());
    }
    form.print(&Value::Array(values.to_vec()), String::new)
}

/// Why a step was not taken.
enum Untaken {
    /// Somebody else was quicker: the files are looked at again.
    Meanwhile(Failure),
    /// Nothing more is tried.
    Failed(Failure),
}

async fn take(session: &Session, step: &Step) -> Result<(), Untaken> {
    let (call_path, method, body, version) = match step {
        Step::Create(job) => (session.path("jobs"), Method::POST, Some(job.body()), None),
        Step::Change { job, was, .. } => (
            path_of(session, was)?,
            Method::PUT,
            Some(job.body()),
            Some(version(was)?),
        ),
        Step::Remove(was) => (
            path_of(session, was)?,
            Method::DELETE,
            None,
            Some(version(was)?),
        ),
    };
    let call = Call {
        method,
        path: &call_path,
        body: body.as_ref(),
        version,
    };
    match session.client.call(call).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let quicker = match error.status() {
                Some(StatusCode::PRECONDITION_FAILED) => true,
                // the name is taken meanwhile; that there are too many is not somebody's change of this one
                Some(StatusCode::CONFLICT) => error.code() != "too_many",
                // the job is gone, unless the workspace is
                Some(StatusCode::NOT_FOUND) => {
                    version.is_some()
                        && session
                            .client
                            .get(&session.path("jobs?limit=1"))
                            .await
                            .is_ok()
                }
                _ => false,
            };
            let failure = Failure::from(error);
            Err(if quicker {
                Untaken::Meanwhile(failure)
            } else {
                Untaken::Failed(failure)
            })
        }
    }
}

fn path_of(session: &Session, was: &Value) -> Result<String, Untaken> {
    job::path(session, was).map_err(Untaken::Failed)
}

fn version(was: &Value) -> Result<i64, Untaken> {
    job::version(was).map_err(Untaken::Failed)
}
