//! `sallyport uninstall`: stops nothing that runs for others, removes everything that Sallyport made.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Shared;
use super::doctor::leftovers::{Leftover, find, find_all};
use crate::config::Config;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
Removes the gateway's namespace with every link in it, what a killed doctor or selftest left, sockets, run directories \
and every container that carries Sallyport's labels. The record and other state stay unless --purge is given. \
Stop `sallyport up` (or the services) first; while a role answers, nothing is removed, and --dry-run tells what \
would be.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Also remove state: the record, its key, lease secrets
    #[arg(long)]
    purge: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// One removal and how it went.
struct Removal {
    what: String,
    result: std::io::Result<()>,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    super::gateway::enter();
    let config = shared.load()?;
    if let Some((role, socket)) = running(&config) {
        let told = format!("the {role} is running ({})", socket.display());
        let hint = "stop it first: end `sallyport up`, or `systemctl stop` its service";
        if !arguments.dry_run {
            return Err(Failure::new(told).hint(hint));
        }
        show::note(format_args!(
            "sallyport: {told}, so nothing would be removed now; {hint}"
        ));
    }
    let leftovers = if arguments.dry_run {
        find_all(&config)
    } else {
        find(&config)
    };
    let state = folders(&config, true).len() > folders(&config, false).len();
    let folders = folders(&config, arguments.purge);
    let removals: Vec<Removal> = if arguments.dry_run {
        let what = leftovers
            .iter()
            .map(ToString::to_string)
            .chain(folders.iter().map(|f| folder_text(f)));
        what.map(|what| Removal {
            what,
            result: Ok(()),
        })
        .collect()
    } else {
        let things = leftovers.iter().map(|l| Removal {
            what: l.to_string(),
            result: remove(l, &config),
        });
        let folders = folders.iter().map(|f| Removal {
            what: folder_text(f),
            result: gone(std::fs::remove_dir_all(f)),
        });
        // all of them are tried, whatever happens to one
        things.chain(folders).collect()
    };
    if state && !arguments.purge {
        let (gateway, runner) = (&config.gateway.state_dir, &config.runner.state_dir);
        show::note(format_args!(
            "sallyport: state stays in {} and {}; --purge removes it",
            gateway.display(),
            runner.display()
        ));
    }
    report(&removals, arguments, shared.format())
}

/// A role that answers, with its socket.
fn running(config: &Config) -> Option<(&'static str, &Path)> {
    let roles = [
        ("gateway", config.gateway.control.as_path()),
        ("runner", config.runner.socket.as_path()),
    ];
    let answers = |socket: &Path| std::os::unix::net::UnixStream::connect(socket).is_ok();
    roles.into_iter().find(|(_, socket)| answers(socket))
}

/// What is not there is removed: folders lie below others that are removed as well.
fn gone(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn folder_text(folder: &Path) -> String {
    format!("folder {}", folder.display())
}

/// Folders that are ours. One that is shared with other programs (a configuration may say `/run`) is left alone.
fn folders(config: &Config, purge: bool) -> Vec<PathBuf> {
    let run = [&config.gateway.run_dir, &config.runner.run_dir];
    let state = [&config.gateway.state_dir, &config.runner.state_dir];
    let state = state.into_iter().filter(|_| purge);
    let deep = |folder: &&PathBuf| {
        folder.components().count() > 2 && folder.is_dir() && !folder.is_symlink()
    };
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in run.into_iter().chain(state).filter(deep) {
        // what lies below another goes with it
        if folders.iter().all(|outer| !folder.starts_with(outer)) {
            folders.retain(|inner| !inner.starts_with(folder));
            folders.push(folder.clone());
        }
    }
    folders
}

fn remove(leftover: &Leftover, config: &Config) -> std::io::Result<()> {
    match leftover {
        // links, rules and sockets as the gateway itself would: it knows what it made
        Leftover::Namespace(_) => gateway::appliance::uninstall(&config.gateway)
            .map_err(|error| std::io::Error::other(Failure::from_error(&error).message)),
        Leftover::Trial(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            gateway::kernel::Ns::unlink(&config.gateway.namespaces(), &name)
                .map_err(|error| std::io::Error::other(Failure::from_error(&error).message))
        }
        Leftover::Socket(path) => gone(std::fs::remove_file(path)),
        Leftover::Container(engine, container) => engine.remove(container),
    }
}

fn report(removals: &[Removal], arguments: &Arguments, format: Format) -> Verdict {
    let failed = removals.iter().any(|r| r.result.is_err());
    match format {
        Format::Json => {
            let list: Vec<_> = removals
                .iter()
                .map(|r| serde_json::json!({ "what": r.what, "error": r.result.as_ref().err().map(ToString::to_string) }))
                .collect();
            show::json(
                &serde_json::json!({ "ok": !failed, "dry_run": arguments.dry_run, "removed": list }),
            )?;
        }
        Format::Text => {
            let word = if arguments.dry_run {
                "would remove"
            } else {
                "removed"
            };
            for removal in removals {
                match &removal.result {
                    Ok(()) => show::out(format_args!("{word} {}", show::clean(&removal.what)))?,
                    Err(error) => show::out(format_args!(
                        "could not remove {}: {error}",
                        show::clean(&removal.what)
                    ))?,
                }
            }
            if removals.is_empty() {
                show::out("nothing is left")?;
            }
        }
    }
    Ok(if failed {
        Outcome::Negative
    } else {
        Outcome::Good
    })
}
