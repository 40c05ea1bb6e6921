//! Whether gateway and runner answer, and what the gateway says about itself.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gateway::control::Client;
use gateway::control::api::SelftestDone;

use super::{Check, State};
use crate::cli::wait;
use crate::config::Config;

/// A console is on this machine, or it is slow.
const CONSOLE_PATIENCE: Duration = Duration::from_secs(1);

/// The newest outcome of the escape suite.
fn selftest(newest: Option<&SelftestDone>) -> Check {
    let fix = "`sallyport selftest --failed` shows each check; a failure seals the gateway";
    match newest {
        None => Check::not("selftest", State::Unknown, "it has not run yet", fix),
        Some(done) if done.failed > 0 => Check::not("selftest", State::Wrong, done.counts(), fix),
        Some(done) => {
            let seen = format!("{} in {} ms ({})", done.counts(), done.took_ms, done.why);
            Check::ok("selftest", seen)
        }
    }
}

pub fn checks(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    let client = Client::new(&config.gateway.control);
    match wait(async { Ok((client.health().await?, client.posture().await?)) }) {
        Ok((health, posture)) => {
            checks.push(Check::ok(
                "gateway",
                format!(
                    "version {}, {}",
                    health.version,
                    crate::show::count(health.networks, "network")
                ),
            ));
            let seen = match &posture.cause {
                Some(cause) => format!("{}: {cause}", posture.label),
                None => posture.label.clone(),
            };
            checks.push(
                if health.open && posture.label == gateway::posture::BLOCKED {
                    Check::ok("posture", seen)
                } else {
                    let fix = posture
                        .hint
                        .unwrap_or_else(|| "see the gateway's log".to_owned());
                    Check::not("posture", State::Wrong, seen, fix)
                },
            );
            checks.push(selftest(posture.selftest.as_ref()));
            checks.extend(sources(&client));
            checks.extend(posture.notes.into_iter().map(|note| Check {
                name: "posture",
                state: State::Remark,
                seen: note,
                fix: None,
            }));
            if !health.journal {
                let fix = "free room on the disk of `gateway.state_dir`, or correct its owner";
                checks.push(Check::not(
                    "record",
                    State::Wrong,
                    "the journal cannot be written: new flows are refused",
                    fix,
                ));
            }
        }
        Err(_) if !config.gateway.control.exists() => {
            checks.push(Check::not(
                "gateway",
                State::Remark,
                "not running",
                "`sallyport up`, or let `sallyport run` start it",
            ));
        }
        Err(failure) => {
            let fix = failure
                .hint
                .clone()
                .unwrap_or_else(|| "start it again: `sallyport up`".to_owned());
            checks.push(Check::not("gateway", State::Remark, failure.message, fix));
        }
    }
    checks.push(match UnixStream::connect(&config.runner.socket) {
        Ok(_) => Check::ok(
            "runner",
            format!("answers at {}", config.runner.socket.display()),
        ),
        Err(_) => Check::not(
            "runner",
            State::Remark,
            "not running",
            "`sallyport up`, or let `sallyport run` start it",
        ),
    });
    checks.extend(console(config));
    checks
}

/// The console, where there is one: it is no part of a machine that only runs sandboxes.
fn console(config: &Config) -> Option<Check> {
    let (listen, state) = (config.console.listen, &config.console.state_dir);
    match TcpStream::connect_timeout(&listen, CONSOLE_PATIENCE) {
        Ok(_) => Some(Check::ok(
            "console",
            format!("something answers at {listen}"),
        )),
        Err(_) if !state.exists() => None,
        Err(error) => Some(Check::not(
            "console",
            State::Remark,
            format!("nothing answers at {listen}: {error}"),
            "`sallyport console` starts it",
        )),
    }
}

/// Policy sources: what is refused or outdated, and branches that did not simply grow.
fn sources(client: &Client) -> Vec<Check> {
    let all = match wait(async { Ok(client.sources().await?) }) {
        Ok(all) => all,
        Err(failure) => {
            return vec![Check {
                name: "policy source",
                state: State::Unknown,
                seen: failure.message,
                fix: failure.hint,
            }];
        }
    };
    let mut checks = Vec::new();
    for source in all {
        let name = &source.name;
        let fix = format!(
            "`sallyport policy source` says more, `sallyport policy sync {name}` tries again"
        );
        let state = if source.commit.is_none() {
            State::Wrong
        } else {
            State::Remark
        };
        match (&source.problem, &source.commit) {
            (Some(problem), _) => {
                let seen = format!("{name}: {}", problem.message);
                checks.push(Check::not("policy source", state, seen, fix.clone()));
            }
            (None, Some(commit)) => {
                checks.push(Check::ok(
                    "policy source",
                    format!("{name}: commit {commit}"),
                ));
            }
            (None, None) => {
                checks.push(Check::not(
                    "policy source",
                    State::Remark,
                    format!("{name}: nothing loaded yet"),
                    fix.clone(),
                ));
            }
        }
        if source.stale {
            let seen = format!("{name}: the remote was not seen in order for long");
            checks.push(Check::not("policy source", State::Remark, seen, fix));
        }
        if let Some(moved) = source.moves.last() {
            let seen = format!(
                "{name}: {} from {} to {}",
                moved.manner.words(),
                moved.from,
                moved.to
            );
            let fix = "ask whoever may push whether that was meant";
            checks.push(Check::not("policy source", State::Remark, seen, fix));
        }
    }
    checks
}
