//! `sallyport console sample`: a command as a job of this console, before there is anybody who could submit one.
//!
//! Writes the run into the store as the API would; everything after that goes the usual way: the console gives it to a
//! runner, which tells what it does. What it prints is printed here.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use ::console::jobs::spec::{JobSpec, LimitsSpec, NetworkMode, NetworkSpec};
use ::console::store::flows::FlowFilter;
use ::console::store::queue::{Cause, NewRun, Submitted};
use ::console::store::runs::Run;
use ::console::store::{Store, StoreError};
use ::console::{clock, settings::ConsoleConfig};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::wait;
use crate::exit::{Failure, NOT_RUN, Outcome, Verdict};
use crate::show;

/// Between two looks at what it printed.
const LOOKS: Duration = Duration::from_millis(100);
/// At once.
const BYTES: i64 = 1 << 20;
/// Destinations that are shown.
const SHOWN: i64 = 50;

const HELP: &str = "\
Needs the console's store (its user, or root). The run is in the workspace Sample, which the first owner finds as their \
own. Ends as the command does.

Examples:
  sallyport console sample --policy demo.yml -- curl https://example.com/";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A policy file; without one there is no network
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A variable, as NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Seconds until the run is ended
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub fn perform(arguments: &Arguments, config: &ConsoleConfig) -> Verdict {
    let spec = spec(arguments)?;
    wait(async {
        let store = Store::open(&config.database)
            .await
            .map_err(|e| failure(&e))?;
        let outcome = follow(&store, &spec).await;
        store.close().await;
        outcome
    })
}

fn failure(error: &StoreError) -> Failure {
    let mut failure = Failure::from_error(error);
    failure.hint = error.hint().map(str::to_owned);
    failure
}

fn spec(arguments: &Arguments) -> Result<JobSpec, Failure> {
    let mut env = std::collections::BTreeMap::new();
    for text in &arguments.env {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("--env {text}: NAME=VALUE")))?;
        env.insert(name.to_owned(), value.to_owned());
    }
    let mut network = NetworkSpec::default();
    if let Some(path) = &arguments.policy {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("reading {}: {error}", path.display())))?;
        let file = path.display().to_string();
        let policy = netpolicy::document::parse(&file, &text, None).map_err(|mistakes| {
            Failure::new(format!("{file} has {} mistakes", mistakes.len()))
                .hint("`sallyport policy check` shows them")
        })?;
        network.mode = match policy.network {
            netpolicy::policy::NetworkMode::None => NetworkMode::None,
            netpolicy::policy::NetworkMode::Domains => NetworkMode::Domains,
            netpolicy::policy::NetworkMode::Internet => NetworkMode::Internet,
        };
        network.policy = Some(text);
    }
    Ok(JobSpec {
        command: arguments.command.clone(),
        network,
        env,
        limits: LimitsSpec {
            timeout_seconds: arguments.timeout,
            ..LimitsSpec::default()
        },
        ..JobSpec::default()
    })
}

async fn follow(store: &Store, spec: &JobSpec) -> Verdict {
    let now = clock::now();
    let workspace = store.sample_workspace(now).await.map_err(|e| failure(&e))?;
    let new = NewRun {
        workspace: &workspace,
        job: None,
        name: "sample",
        spec,
        cause: Cause::Person,
        by: None,
        slot: None,
        attempt: 1,
        retry_of: None,
        input: None,
        ready_at: now,
    };
    let submitted = store.submit_run(&new, now).await.map_err(|e| failure(&e))?;
    let Submitted::Queued(run) = submitted else {
        return Err(Failure::new("too many runs wait in the workspace Sample"));
    };
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let mut printed = 0;
    loop {
        // first: what it printed before it was over is there then
        let now = store.run(&workspace, &run).await.map_err(|e| failure(&e))?;
        let seen = now.ok_or_else(|| Failure::new("the run is gone"))?;
        printed = print(store, &run, printed).await?;
        if seen.ended_at.is_some() {
            return end(store, &seen).await;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOKS) => continue,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        store
            .cancel_run(&workspace, &run, clock::now())
            .await
            .map_err(|e| failure(&e))?;
    }
}

/// Prints what is new, as it is; where to go on.
async fn print(store: &Store, run: &str, from: i64) -> Result<i64, Failure> {
    let mut next = from;
    loop {
        let chunks = store
            .output(run, next, BYTES)
            .await
            .map_err(|e| failure(&e))?;
        let before = next;
        for chunk in chunks {
            // a piece is given whole, also if it begins before
            let known = usize::try_from(next - chunk.starts).unwrap_or(0);
            let new = chunk.data.get(known..).unwrap_or_default();
            if chunk.stream == "stderr" {
                std::io::stderr().lock().write_all(new)?;
            } else {
                let mut out = std::io::stdout().lock();
                out.write_all(new)?;
                out.flush()?;
            }
            next = next.max(chunk.starts + i64::try_from(chunk.data.len()).unwrap_or(0));
        }
        if next == before {
            return Ok(next);
        }
    }
}

/// Says what its network saw and how it ended.
async fn end(store: &Store, run: &Run) -> Verdict {
    let flows = store
        .flows(&run.id, FlowFilter::default(), 0, SHOWN)
        .await
        .map_err(|e| failure(&e))?;
    show::note(format_args!("run {}: {}", run.id, run.state));
    for flow in &flows {
        let to = flow
            .name
            .as_deref()
            .or(flow.address.as_deref())
            .unwrap_or("-");
        let by = match (&flow.file, flow.line) {
            (Some(file), Some(line)) => format!(" ({file}:{line})"),
            _ => String::new(),
        };
        let reason = flow
            .reason
            .as_deref()
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        let text = format!(
            "  {:<9} {} {to}:{}{reason}{by}",
            flow.outcome, flow.protocol, flow.port
        );
        show::note(show::clean(&text));
    }
    if let Some(message) = &run.message {
        show::note(format_args!("  {}", show::clean(message)));
    }
    let code = run.exit_code.and_then(|code| u8::try_from(code).ok());
    Ok(Outcome::Code(code.unwrap_or(NOT_RUN)))
}
