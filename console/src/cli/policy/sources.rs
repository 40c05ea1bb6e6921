//! `sallyport policy source, sync`: policies in git, over the gateway's control socket.

use clap::Args;
use gateway::source::SourceView;
use gateway::source::view::SyncRequest;

use crate::cli::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

pub const SYNC_HELP: &str = "\
Looks at the remote, and puts its newest commit in force if all of it is in order: every policy checks, every new commit \
is signed where that is required, and the branch simply grew. Otherwise what was in force stays, exit code 1.

Examples:
  sallyport policy sync
  sallyport policy sync main
  sallyport policy sync main --accept 3f2a9c1d4b5e6f708192a3b4c5d6e7f8091a2b3c";

#[derive(Debug, Args)]
pub struct SyncArguments {
    /// The source [default: all]
    source: Option<String>,
    /// Accept exactly this commit although history was rewritten or set back for it
    #[arg(long, value_name = "COMMIT", requires = "source")]
    accept: Option<String>,
}

/// `policy source`
pub fn list(shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let all = wait(async { Ok(client.sources().await?) })?;
    report(&all, shared.format())
}

/// `policy sync`
pub fn sync(arguments: SyncArguments, shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let SyncArguments { source, accept } = arguments;
    let request = SyncRequest { accept };
    let all = wait(async {
        let names = match source {
            Some(name) => vec![name],
            None => client
                .sources()
                .await?
                .into_iter()
                .map(|s| s.name)
                .collect(),
        };
        let mut all = Vec::new();
        for name in names {
            // A name is part of a path of the request.
            if !gateway::source::names::is_short_name(&name) {
                return Err(Failure::new(format!("{name:?} is no name of a source")));
            }
            all.push(client.sync_source(&name, &request).await?);
        }
        Ok(all)
    })?;
    report(&all, shared.format())
}

fn report(all: &[SourceView], format: Format) -> Verdict {
    match format {
        Format::Json => show::json(&all)?,
        Format::Text if all.is_empty() => {
            show::note("no policy source is configured (`gateway.sources`)");
        }
        Format::Text => all.iter().try_for_each(print)?,
    }
    let good = all
        .iter()
        .all(|source| source.problem.is_none() && !source.stale);
    Ok(if good {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

fn print(source: &SourceView) -> Result<(), Failure> {
    show::out(format_args!(
        "{} ({}, branch {})",
        source.name,
        clean(&source.remote),
        clean(&source.branch)
    ))?;
    let line = |key: &str, value: &str| show::out(format_args!("  {key:<14}{}", clean(value)));
    line(
        "in force",
        source.commit.as_deref().unwrap_or("nothing yet"),
    )?;
    if let Some(loaded) = source.loaded_ms {
        line("since", &ago(loaded))?;
    }
    line(
        "looked at",
        &source.checked_ms.map_or_else(|| "not yet".to_owned(), ago),
    )?;
    let signer = source.signer.as_deref().unwrap_or("nobody yet");
    line(
        "signatures",
        if source.signatures_required {
            signer
        } else {
            "not required"
        },
    )?;
    for policy in &source.policies {
        line("policy", &format!("{} ({})", policy.policy, policy.file))?;
    }
    if let Some(moved) = source.moves.last() {
        let outcome = if moved.followed {
            "followed"
        } else {
            "not followed"
        };
        line(
            "REWRITTEN",
            &format!(
                "{} {}, from {} to {}: {outcome}",
                moved.manner.words(),
                ago(moved.at_ms),
                moved.from,
                moved.to
            ),
        )?;
    }
    if source.stale {
        line(
            "STALE",
            "the remote was not seen in order for long: what is in force may be outdated",
        )?;
    }
    if let Some(problem) = &source.problem {
        line(
            "REFUSED",
            &format!("{} ({})", problem.message, ago(problem.since_ms)),
        )?;
        problem
            .mistakes
            .iter()
            .try_for_each(|mistake| line("", mistake))?;
        if let Some(hint) = &problem.hint {
            line("hint", hint)?;
        }
    }
    Ok(())
}

fn ago(at_ms: i64) -> String {
    let seconds = gateway::context::now_ms().saturating_sub(at_ms).max(0) / 1000;
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7199 => format!("{} min ago", seconds / 60),
        7200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}
