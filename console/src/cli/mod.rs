//! The command line: every verb, its arguments and its teaching help. One file per verb or family.

mod apply;
mod audit;
mod auth;
mod backup;
mod completions;
mod config;
mod console;
mod doctor;
mod gateway;
mod job;
mod journal;
mod keys;
mod logs;
mod net;
mod policy;
mod record;
mod remote;
mod roles;
mod run;
mod runs;
mod sample;
mod secret;
mod selftest;
mod token;
mod uninstall;
mod up;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

use crate::config::{Config, ConfigFile};
use crate::exit::{Failure, Verdict};
use crate::show::{self, Format};

const AFTER: &str = "\
Examples:
  sallyport run --policy none -- python3 -c 'print(6 * 7)'
  sallyport run --policy internet --copy agent.py -- python3 agent.py
  sallyport policy check policies/*.yml
  sallyport policy explain policies/research.yml api.github.com:443
  sallyport net attach --netns /run/netns/mine --policy internet
  sallyport doctor

Exit codes:
  0    done, or the answer is yes
  1    done, and the answer is no (mistakes in a policy, a denied destination,
       a tampered record, a failed selftest)
  2    wrong usage
  3    could not be done (nobody answers, a file cannot be read, refused)

`run` ends with the code of the command; 124 after the timeout, 125 when Sallyport could not run it, 126 and 127 as a \
shell has them";

/// Runs code that nobody should trust in sandboxes whose only way out is a gateway that decides and records every flow.
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, after_help = AFTER, max_term_width = 110, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    shared: Shared,
}

/// Names the configuration file where no argument does.
const CONFIG_VARIABLE: &str = "SALLYPORT_CONFIG";

/// What every verb takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Shared {
    /// The configuration file [default: /etc/sallyport/config.yml if it exists, else built-in defaults]
    #[arg(long, global = true, value_name = "FILE", env = CONFIG_VARIABLE)]
    pub config: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl Shared {
    /// For people or for programs.
    pub fn format(&self) -> Format {
        Format::of(self.json)
    }

    /// The configuration that applies.
    pub fn load(&self) -> Result<Config, Failure> {
        ConfigFile::find(self.config.as_deref()).load()
    }

    /// The same for who only asks a gateway.
    pub fn load_to_ask(&self) -> Result<Config, Failure> {
        ConfigFile::find_to_ask(self.config.as_deref()).load()
    }

    /// Its file, read or not.
    pub fn file(&self) -> ConfigFile {
        ConfigFile::find(self.config.as_deref())
    }

    /// A client of the gateway that the configuration names.
    pub fn gateway(&self) -> Result<::gateway::control::Client, Failure> {
        Ok(::gateway::control::Client::new(
            self.load_to_ask()?.gateway.control,
        ))
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a command in a sandbox whose only way out is the gateway
    Run(run::Arguments),
    /// Sign in at a console, see as whom, sign out
    Auth(auth::Arguments),
    /// Runs of a console: those that wait or run, or all
    Ps(runs::List),
    /// What a run printed; with -f until it ends, and with its exit code
    Logs(logs::Arguments),
    /// End a run of a console
    Cancel(runs::One),
    /// Run again what a run of a console ran, as it was then
    Retry(runs::One),
    /// Jobs of a console: list, show, create, edit, delete, run
    Job(job::Arguments),
    /// What applying a folder of job files would change, and all mistakes in them
    Plan(apply::Arguments),
    /// Make a console's jobs as a folder of files says
    Apply(apply::Arguments),
    /// Secrets of a console's workspace; a value comes in by standard input
    Secret(secret::Arguments),
    /// Your API tokens: list them, let a program have one
    Token(token::Arguments),
    /// The workspace of the token in use, and who is in it
    Workspace(token::WorkspaceArguments),
    /// Check, explain and show policies
    #[command(subcommand)]
    Policy(policy::Verb),
    /// Networks behind the gateway: list, follow, attach, detach, replace a policy
    #[command(subcommand)]
    Net(net::Verb),
    /// The record of every flow: verify it, export it
    #[command(subcommand)]
    Record(record::Verb),
    /// Run the gateway, or list its kernel rules
    Gateway(gateway::Arguments),
    /// Run the runner
    Runner(roles::RunnerArguments),
    /// Run the console: accounts, API, store
    Console(console::Arguments),
    /// The audit log of people and tokens: list it over the API; verify it, export it from the store
    #[command(subcommand)]
    Audit(audit::Verb),
    /// The instance key that wraps secrets at rest: replace it, show which one it is
    #[command(subcommand)]
    Keys(keys::Verb),
    /// Write the console's store into one encrypted file, while consoles serve
    Backup(backup::Arguments),
    /// Make a store of such a file
    Restore(backup::RestoreArguments),
    /// Run gateway, runner and console on this machine and keep them running
    Up(up::Arguments),
    /// Check the configuration file, or print its schema
    #[command(subcommand)]
    Config(config::Verb),
    /// Find out what is missing or wrong on this machine, and how to fix it
    Doctor(doctor::Arguments),
    /// Prove on this machine that forbidden packets do not leave
    Selftest(selftest::Arguments),
    /// Remove everything that Sallyport made on this machine
    Uninstall(uninstall::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print the version, or the licences of what is inside
    Version(version::Arguments),
}

/// Parses, runs, reports.
pub fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let is_run = matches!(cli.verb, Verb::Run(_));
    match perform(cli.verb, &cli.shared) {
        Ok(outcome) => outcome.into(),
        Err(mut failure) => {
            if is_run && failure.code.is_none() {
                failure.code = Some(crate::exit::NOT_RUN);
            }
            if cli.shared.json {
                let _ = show::json_line(&serde_json::json!({
                    "error": failure.message, "hint": failure.hint, "details": failure.details,
                }));
            }
            show::failure(&failure);
            failure.exit()
        }
    }
}

fn perform(verb: Verb, shared: &Shared) -> Verdict {
    match verb {
        Verb::Run(arguments) => run::perform(arguments, shared),
        Verb::Auth(arguments) => auth::perform(&arguments, shared),
        Verb::Ps(arguments) => runs::list(&arguments, shared),
        Verb::Logs(arguments) => logs::perform(&arguments, shared),
        Verb::Cancel(arguments) => runs::cancel(&arguments, shared),
        Verb::Retry(arguments) => runs::retry(&arguments, shared),
        Verb::Job(arguments) => job::perform(&arguments, shared),
        Verb::Plan(arguments) => apply::plan(&arguments, shared),
        Verb::Apply(arguments) => apply::apply(&arguments, shared),
        Verb::Secret(arguments) => secret::perform(&arguments, shared),
        Verb::Token(arguments) => token::perform(&arguments, shared),
        Verb::Workspace(arguments) => token::workspaces(&arguments, shared),
        Verb::Policy(verb) => policy::perform(verb, shared),
        Verb::Net(verb) => net::perform(verb, shared),
        Verb::Record(verb) => record::perform(verb, shared),
        Verb::Gateway(arguments) => gateway::perform(&arguments, shared),
        Verb::Runner(arguments) => roles::runner(&arguments, shared),
        Verb::Console(arguments) => console::perform(&arguments, shared),
        Verb::Audit(verb) => audit::perform(&verb, shared),
        Verb::Keys(verb) => keys::perform(&verb, shared),
        Verb::Backup(arguments) => backup::perform(&arguments, shared),
        Verb::Restore(arguments) => backup::restore(&arguments, shared),
        Verb::Up(arguments) => up::perform(&arguments, shared),
        Verb::Config(verb) => config::perform(&verb, shared),
        Verb::Doctor(arguments) => doctor::perform(&arguments, shared),
        Verb::Selftest(arguments) => selftest::perform(&arguments, shared),
        Verb::Uninstall(arguments) => uninstall::perform(&arguments, shared),
        Verb::Completions(arguments) => completions::perform(&arguments),
        Verb::Version(arguments) => version::perform(&arguments, shared),
    }
}

/// The command tree for parsing: a variable that is set to nothing names no file, as if it were not set.
fn command() -> clap::Command {
    let named = std::env::var_os(CONFIG_VARIABLE).is_some_and(|file| !file.is_empty());
    let source: Option<&'static str> = named.then_some(CONFIG_VARIABLE);
    tree().mut_arg("config", |config| config.env(source))
}

/// The command tree, for completions.
pub fn tree() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs a future on a runtime of its own: verbs are short and mostly wait.
pub fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    /// Every command with its path.
    fn all(command: &clap::Command, path: &str, into: &mut Vec<(String, clap::Command)>) {
        let path = format!("{path} {}", command.get_name());
        into.push((path.trim().to_owned(), command.clone()));
        command
            .get_subcommands()
            .for_each(|below| all(below, &path, into));
    }

    #[test]
    fn help_fits_the_terminal_and_examples_stay_whole() {
        for width in [80, 100] {
            let (mut tree, mut commands) = (super::tree().term_width(width), Vec::new());
            tree.build();
            all(&tree, "", &mut commands);
            assert!(commands.len() > 40, "{}", commands.len());
            for (path, command) in commands {
                let mut command = command.term_width(width);
                let after = command.get_after_help().map(ToString::to_string);
                let shown = command.render_long_help().to_string();
                for line in shown.lines() {
                    assert!(line.chars().count() <= width, "{path} at {width}: {line}");
                }
                let examples = after.iter().flat_map(|text| text.lines());
                for example in examples.filter(|line| line.starts_with("  ")) {
                    let whole = shown.lines().any(|line| line == example);
                    assert!(whole, "{path} at {width}: {example}");
                }
            }
        }
    }

    #[test]
    fn the_command_tree_is_sound() {
        super::tree().debug_assert();
    }
}
