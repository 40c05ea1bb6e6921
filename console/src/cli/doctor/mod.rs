//! `sallyport doctor`: what is missing, wrong or left over on this machine, each with the command that fixes it.
//!
//! Changes nothing that exists (the kernel is tried in a namespace that is thrown away). A check that cannot tell says
//! so instead of guessing.

mod checklist;
mod host;
mod kernel;
pub mod leftovers;
mod modules;
mod powers;
mod programs;
mod roles;
mod settings;
mod system;
#[cfg(test)]
mod tests;

use gateway::kernel::Enforcement;
use serde::Serialize;

use self::settings::Who;
use self::system::System;
use super::Shared;
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
Exit code 1 when something is wrong that keeps sandboxes from running or from being enforced. Remarks and leftovers \
do not count. Nothing of Sallyport's is changed; `sallyport uninstall` removes leftovers.

With --console it looks at this instance as the page Checklist does, for people and CI: exit code 1 when something is bad, or \
the firewall or its selftest cannot be looked at. It needs the configuration and may read the console's store.

An ordinary user's doctor looks from the user namespace of rootless Podman, as that user's gateway does. Where there is none \
yet Podman makes it: its folders below ~/.config and ~/.local/share, and a process `podman pause` that stays.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Look at the console's deployment checklist instead of at this machine
    #[arg(long)]
    console: bool,
}

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Works, but someone should look.
    Remark,
    /// Keeps sandboxes from running or from being enforced.
    Wrong,
    /// Cannot be told from here.
    Unknown,
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// Stable name.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            seen: seen.into(),
            fix: None,
        }
    }

    /// Not as it should be.
    pub fn not(
        name: &'static str,
        state: State,
        seen: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state,
            seen: seen.into(),
            fix: Some(fix.into()),
        }
    }
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    if arguments.console {
        return checklist::perform(shared);
    }
    // an ordinary user's checks are made where that user's gateway would be
    let entered = ::gateway::ordinary::enter();
    let loaded = shared.load();
    let enforcement = loaded
        .as_ref()
        .map_or(Enforcement::Auto, |config| config.gateway.enforcement);
    let system = System::here();
    let who = if ::gateway::ordinary::is_ordinary() {
        Who::Ordinary
    } else {
        Who::Root
    };
    let mut checks = host::checks(&system, &entered, enforcement);
    checks.extend(settings::checks(&system, who));
    // who has entered has what entering takes
    let lacking = if entered.is_ok() { Who::Root } else { who };
    let sources = loaded
        .as_ref()
        .map(|config| config.gateway.sources.as_slice());
    let user = std::env::var("USER").unwrap_or_default();
    checks.extend(programs::checks(
        &system,
        lacking,
        sources.unwrap_or_default(),
        &user,
    ));
    match loaded {
        Ok(config) => {
            checks.push(host::engine(&config, &system));
            checks.push(host::room(&config.gateway.state_dir));
            checks.push(configuration(shared));
            checks.extend(roles::checks(&config));
            checks.extend(leftovers::checks(&config));
        }
        Err(failure) => {
            let seen = std::iter::once(failure.message)
                .chain(failure.details)
                .collect::<Vec<_>>()
                .join("; ");
            checks.push(Check::not(
                "configuration",
                State::Wrong,
                seen,
                "correct it: `sallyport config check`",
            ));
        }
    }
    let wrong = checks.iter().any(|c| c.state == State::Wrong);
    match shared.format() {
        Format::Json => show::json(&serde_json::json!({ "ok": !wrong, "checks": checks }))?,
        Format::Text => checks.iter().try_for_each(print)?,
    }
    Ok(if wrong {
        Outcome::Negative
    } else {
        Outcome::Good
    })
}

fn print(check: &Check) -> Result<(), crate::exit::Failure> {
    let word = match check.state {
        State::Ok => "ok",
        State::Remark => "remark",
        State::Wrong => "WRONG",
        State::Unknown => "unknown",
    };
    show::out(format_args!(
        "{word:<8} {:<18} {}",
        check.name,
        show::clean(&check.seen)
    ))?;
    match &check.fix {
        Some(fix) => show::out(format_args!(
            "{:<8} {:<18} fix: {}",
            "",
            "",
            show::clean(fix)
        )),
        None => Ok(()),
    }
}

fn configuration(shared: &Shared) -> Check {
    let file = shared.file();
    match file.path() {
        None => Check::ok("configuration", "built-in defaults"),
        Some(path) => Check::ok("configuration", path.display().to_string()),
    }
}
