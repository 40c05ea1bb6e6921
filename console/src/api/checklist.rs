//! The hardening checklist: what of this instance is as it should be, looked at when it is asked for, each with its fix.
//!
//! A row is here only if something computes it. What cannot be looked at from here (the gateway is silent, the folder
//! cannot be read) is `unknown`, never good.

use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use gateway::control::Client;
use gateway::control::api::PostureView;
use gateway::source::SourceView;
use serde::Serialize;
use utoipa::ToSchema;

use super::checklist_place;
use crate::clock::{self, HOUR, MINUTE, Millis};
use crate::server::app::App;
use crate::server::problem::Problem;
use crate::settings::{ConsoleConfig, Database};
use crate::store::hardening::Hardening;
use crate::store::runners::Runner;
use crate::store::{Store, StoreError};

/// A gateway that lives answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// A selftest that is older says little about today's kernel and engine; the gateway's own schedule is a day.
pub(super) const FRESH: Millis = 49 * HOUR;
/// Who was not heard of for longer is not there.
const AWAY: Millis = MINUTE;
/// Below this the store and the journal soon refuse what is new.
const LITTLE: u64 = 1 << 30;
/// Runners that are looked at.
const RUNNERS: i64 = 1_000;

/// The checklist.
#[derive(Debug, Serialize, ToSchema)]
pub struct Checklist {
    /// Rows that are as they should be.
    pub good: usize,
    /// All rows.
    pub of: usize,
    /// The rows.
    pub items: Vec<CheckItem>,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct CheckItem {
    /// A word that does not change.
    pub id: &'static str,
    /// What should be so.
    pub title: &'static str,
    /// `good`, `bad` or `unknown`.
    pub state: &'static str,
    /// What was found.
    pub found: String,
    /// What to do, if it is not good.
    pub fix: Option<String>,
}

/// What was found about a row: good, bad with what to do, or not to be known.
pub(super) enum Found {
    Good(String),
    Bad(String, String),
    Unknown(String, String),
}

impl CheckItem {
    pub(super) fn of(id: &'static str, title: &'static str, found: Found) -> Self {
        let (state, found, fix) = match found {
            Found::Good(found) => ("good", found, None),
            Found::Bad(found, fix) => ("bad", found, Some(fix)),
            Found::Unknown(found, fix) => ("unknown", found, Some(fix)),
        };
        Self {
            id,
            title,
            state,
            found,
            fix,
        }
    }
}

/// What is to be looked at for a good installation, and how it is.
#[utoipa::path(get, path = "/api/v1/checklist", tag = "gateway", responses((status = 200, body = Checklist)))]
pub async fn read(State(app): State<App>) -> Result<Json<Checklist>, Problem> {
    Ok(Json(look(&app.config, &app.store).await?))
}

/// The same for whoever has the configuration and the store.
pub async fn look(config: &ConsoleConfig, store: &Store) -> Result<Checklist, StoreError> {
    let now = clock::now();
    let client = Client::new(&config.gateway.control);
    let posture = tokio::time::timeout(PATIENCE, client.posture()).await;
    let posture = posture.ok().and_then(Result::ok);
    let sources = tokio::time::timeout(PATIENCE, client.sources()).await;
    let sources = sources.ok().and_then(Result::ok);
    let runners = store.runners("", RUNNERS).await?;
    let counts = store.hardening().await?;
    let backup = store.last_backup().await?;
    let mut items = vec![
        firewall(posture.as_ref()),
        selftest(posture.as_ref(), now),
        https(config),
        checklist_place::ports(config, checklist_place::listening().as_deref()),
        checklist_place::guessing(config),
        another_way_in(config, counts.administrators),
        checklist_place::config_file(config),
        key_apart(config),
        checklist_place::backup(backup, now),
        runner_versions(&runners, now),
        isolation(&runners, now),
        job_networks(&counts),
        own_calls(config),
        told(counts.watchers),
        room(&config.state_dir),
    ];
    items.extend(policies(sources.as_deref()));
    let good = items.iter().filter(|item| item.state == "good").count();
    Ok(Checklist {
        good,
        of: items.len(),
        items,
    })
}

fn silent() -> Found {
    Found::Unknown(
        "no gateway answers on this machine".to_owned(),
        "start `sallyport gateway`, or `sallyport up`; `sallyport doctor` says what it lacks"
            .to_owned(),
    )
}

pub(super) fn firewall(posture: Option<&PostureView>) -> CheckItem {
    let found = posture.map_or_else(silent, |posture| {
        if posture.state == "enforcing" {
            return Found::Good(posture.label.clone());
        }
        let hint = posture.hint.clone();
        Found::Bad(
            posture
                .cause
                .clone()
                .unwrap_or_else(|| posture.label.clone()),
            hint.unwrap_or_else(|| "`sallyport doctor` says what it lacks".to_owned()),
        )
    });
    CheckItem::of("firewall", "The egress firewall is enforced", found)
}

pub(super) fn selftest(posture: Option<&PostureView>, now: Millis) -> CheckItem {
    let again = || "run `sallyport selftest`, and look at the rows that do not hold".to_owned();
    let found = match posture.map(|posture| posture.selftest.as_ref()) {
        None => silent(),
        Some(None) => Found::Bad("none has run".to_owned(), again()),
        Some(Some(done)) if done.failed > 0 => {
            Found::Bad(format!("{} of its rows failed", done.failed), again())
        }
        Some(Some(done)) if now - done.at_ms > FRESH => {
            Found::Bad("the newest one is older than two days".to_owned(), again())
        }
        Some(Some(done)) => Found::Good(format!(
            "{} rows held, {} could not be tried",
            done.passed, done.skipped
        )),
    };
    CheckItem::of("selftest", "The firewall was tried lately, and held", found)
}

pub(super) fn https(config: &ConsoleConfig) -> CheckItem {
    let origin = config.url.as_ref().map(crate::settings::AppUrl::origin);
    let found = match origin {
        Some(origin) if origin.starts_with("https:") => Found::Good(origin),
        None if config.tls.is_some() => {
            Found::Good(format!("{} with a certificate of its own", config.listen))
        }
        None if config.listen.ip().is_loopback() => {
            Found::Good(format!("only this machine reaches {}", config.listen))
        }
        origin => Found::Bad(
            origin.unwrap_or_else(|| format!("{} answers without encryption", config.listen)),
            "put a reverse proxy with a certificate before it, and its https address into `app.url`".to_owned(),
        ),
    };
    CheckItem::of("https", "People reach the console by HTTPS", found)
}

fn another_way_in(config: &ConsoleConfig, administrators: i64) -> CheckItem {
    let provider = config.providers.oidc.is_some() || config.providers.github.is_some();
    let found = if administrators > 1 {
        Found::Good(format!("{administrators} people administer the instance"))
    } else if provider && config.email_password {
        Found::Good("a password, and a sign-in provider".to_owned())
    } else {
        Found::Bad(
            "one person administers the instance, and signs in one way".to_owned(),
            "make somebody else an administrator on the page of users, or set a provider under `auth.providers`".to_owned(),
        )
    };
    CheckItem::of(
        "another_way_in",
        "Losing one sign-in locks nobody out",
        found,
    )
}

fn key_apart(config: &ConsoleConfig) -> CheckItem {
    let key = &config.key_file;
    let beside = match &config.database {
        Database::Sqlite(file) => file.parent().is_some_and(|folder| key.starts_with(folder)),
        Database::Postgres(_) => false,
    };
    let found = if beside {
        Found::Bad(
            format!("{} lies beside the store: a copy of the folder opens every secret", key.display()),
            "move it, name its place as `console.key_file`, and keep a copy of it apart from those of the store".to_owned(),
        )
    } else {
        Found::Good(key.display().to_string())
    };
    CheckItem::of(
        "key_apart",
        "The instance key lies apart from what it opens",
        found,
    )
}

fn here(runner: &Runner, now: Millis) -> bool {
    runner.seen_at.is_some_and(|at| now - at < AWAY)
}

fn runner_versions(runners: &[Runner], now: Millis) -> CheckItem {
    let own = env!("CARGO_PKG_VERSION");
    let there: Vec<&Runner> = runners.iter().filter(|one| here(one, now)).collect();
    let old: Vec<&str> = there
        .iter()
        .filter(|one| one.version.as_deref() != Some(own))
        .map(|one| one.name.as_str())
        .collect();
    let found = if there.is_empty() {
        Found::Bad(
            "no runner is there: runs wait".to_owned(),
            "start `sallyport up`, or a runner with the token that the page of runners gives"
                .to_owned(),
        )
    } else if old.is_empty() {
        Found::Good(format!("{} there, of version {own}", there.len()))
    } else {
        Found::Bad(
            format!("of another version: {}", old.join(", ")),
            format!("bring them to {own}, which this console has"),
        )
    };
    CheckItem::of("runners", "Runners are there, and up to date", found)
}

fn isolation(runners: &[Runner], now: Millis) -> CheckItem {
    let mut there = runners.iter().filter(|one| here(one, now)).peekable();
    let found = if there.peek().is_none() {
        Found::Unknown("no runner is there".to_owned(), "start one".to_owned())
    } else {
        let strong = |one: &Runner| {
            one.facts
                .as_deref()
                .is_some_and(|facts| facts.contains("gvisor"))
        };
        let weak: Vec<&str> = there
            .filter(|one| !strong(one))
            .map(|one| one.name.as_str())
            .collect();
        if weak.is_empty() {
            Found::Good("gVisor on every runner".to_owned())
        } else {
            Found::Bad(
                format!("sandboxes share the kernel of: {}", weak.join(", ")),
                "install gVisor (`runsc`) as a runtime of the container engine there".to_owned(),
            )
        }
    };
    CheckItem::of("isolation", "Sandboxes have a kernel of their own", found)
}

fn job_networks(counts: &Hardening) -> CheckItem {
    let (open, private, git) = (counts.open_jobs, counts.private_jobs, counts.git_jobs);
    let found = if open + private > 0 {
        Found::Bad(
            format!("{open} reach the whole internet, {private} private networks"),
            "list the domains that each of them needs; a replay on the page of policies shows what would be denied".to_owned(),
        )
    } else if git > 0 {
        Found::Unknown(
            format!("{git} reach what a policy in git lets them"),
            "read those policies on the page of policies".to_owned(),
        )
    } else {
        Found::Good("no job reaches more than names that are listed for it".to_owned())
    };
    CheckItem::of(
        "job_networks",
        "Jobs reach what they need, and no more",
        found,
    )
}

fn own_calls(config: &ConsoleConfig) -> CheckItem {
    let found = if config.outbound.allow_private {
        Found::Bad(
            "webhooks of members may go to private addresses".to_owned(),
            "set `network.allow_private_targets: false`, and list what they need under `network.allowed_targets`"
                .to_owned(),
        )
    } else {
        Found::Good("public addresses, and what is listed".to_owned())
    };
    CheckItem::of(
        "own_calls",
        "The console itself calls no private network",
        found,
    )
}

fn told(watchers: i64) -> CheckItem {
    let found = if watchers > 0 {
        Found::Good(format!("{watchers} would be told"))
    } else {
        Found::Bad(
            "nobody is told when the firewall is not enforced any more".to_owned(),
            "tell somebody \"the egress firewall\" on a page of notifications".to_owned(),
        )
    };
    CheckItem::of("told", "Somebody hears when enforcement is lost", found)
}

fn room(folder: &Path) -> CheckItem {
    let found = match nix::sys::statvfs::statvfs(folder) {
        Ok(stat) => {
            let free = stat.blocks_available().saturating_mul(stat.fragment_size());
            let found = format!("{} GiB free at {}", free >> 30, folder.display());
            if free < LITTLE {
                Found::Bad(
                    found,
                    "free some: what cannot be written is refused".to_owned(),
                )
            } else {
                Found::Good(found)
            }
        }
        Err(_) => Found::Unknown(
            format!("{} cannot be asked", folder.display()),
            "look with `df`".to_owned(),
        ),
    };
    CheckItem::of("room", "There is room on disk", found)
}

/// No row where no policies come from git; `None`: the gateway does not say.
pub(super) fn policies(sources: Option<&[SourceView]>) -> Option<CheckItem> {
    let title = "Policies are in force as git has them";
    let Some(sources) = sources else {
        return Some(CheckItem::of("policies", title, silent()));
    };
    if sources.is_empty() {
        return None;
    }
    let bad: Vec<&str> = sources
        .iter()
        .filter(|one| one.problem.is_some() || one.stale || one.commit.is_none())
        .map(|one| one.name.as_str())
        .collect();
    let found = if bad.is_empty() {
        Found::Good(format!("{} followed", sources.len()))
    } else {
        Found::Bad(
            format!("not what the remote has: {}", bad.join(", ")),
            "the page of policies says why".to_owned(),
        )
    };
    Some(CheckItem::of("policies", title, found))
}
