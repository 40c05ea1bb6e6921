//! A job's definition: the JSON that the API takes, the store keeps and a run freezes when it is submitted.
//!
//! What is absent takes the runner's default. Unknown keys are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock::{HOUR, Millis, SECOND};

/// Later attempts wait no longer than this.
const LONGEST_WAIT: Millis = HOUR;

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobSpec {
    /// What it is for, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Program and arguments; empty runs what the image itself would.
    pub command: Vec<String>,
    /// Image; the runner's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Isolation class; the runner's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationWord>,
    /// What it may reach.
    pub network: NetworkSpec,
    /// Run as root instead of `agent`.
    pub root: bool,
    /// Time, memory, CPU, processes.
    pub limits: LimitsSpec,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Working directory; the image's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Names of secrets of the workspace that the run gets.
    pub secrets: Vec<String>,
    /// Whether the command reads what the trigger sent on its standard input.
    pub input: bool,
    /// When it runs by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// What happens when a run of it is there already.
    pub overlap: OverlapSpec,
    /// Which ends are followed by another attempt.
    pub retry: RetrySpec,
    /// Who is told about its runs; absent: as the workspace's notifications ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifySpec>,
}

/// Who is told about the runs of a job, instead of those who ask for such news of the whole workspace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifySpec {
    /// Notifications of the workspace, by their names; none: nobody is told.
    pub to: Vec<String>,
    /// When.
    pub on: Vec<NotifyOn>,
}

/// What of a job is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotifyOn {
    /// A run failed, took too long or was lost.
    Failed,
    /// A run succeeded.
    Succeeded,
    /// A run was denied a name that the job was not denied before.
    Denied,
}

impl NotifyOn {
    /// As notifications call it.
    pub const fn topic(self) -> &'static str {
        match self {
            Self::Failed => "run.failed",
            Self::Succeeded => "run.succeeded",
            Self::Denied => "run.denied",
        }
    }
}

/// Which isolation class is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationWord {
    /// The strongest that the host has.
    Auto,
    /// runc or crun with everything taken away.
    Hardened,
    /// gVisor.
    Gvisor,
}

/// **Network** and **Allow private network** as the job's page shows them, or a policy that says it all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSpec {
    /// Internet access, allowed domains only, or no network.
    pub mode: NetworkMode,
    /// Whether private networks and the host may be reached. Of a policy it is `private:` that counts.
    pub allow_private: bool,
    /// What may be reached with `domains` and without a policy: names such as `api.example.com` or `*.example.com`.
    pub domains: Vec<String>,
    /// The text of a policy document. Its `network:` and `private:` must say what `mode` and `allow_private` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The name, or path, of a policy of a source that the gateway follows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_name: Option<String>,
}

/// The network setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// No network.
    #[default]
    None,
    /// Allowed domains only.
    Domains,
    /// Internet access.
    Internet,
}

/// What a run may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSpec {
    /// Seconds until the run is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Memory in MiB, without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// When a job runs by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Five fields (minute, hour, day of month, month, day of week), such as `30 4 * * MON-FRI`.
    pub cron: String,
    /// IANA time zone, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub timezone: String,
    /// What becomes of times that passed while no console ran.
    #[serde(default)]
    pub catch_up: CatchUp,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// What becomes of times that passed while no console ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// One run for all of them.
    #[default]
    Once,
    /// None.
    Never,
}

/// What happens when a run is there already.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OverlapSpec {
    /// The rule.
    pub rule: OverlapRule,
    /// How many at once with `parallel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Jobs of the workspace with the same group count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The rule for a run that finds another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapRule {
    /// It is noted as skipped.
    Skip,
    /// It waits until the other is over.
    #[default]
    Queue,
    /// Both run, up to `most`.
    Parallel,
}

/// Which ends are followed by another attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySpec {
    /// Further attempts, at most; 0: none.
    pub most: u32,
    /// After which ends.
    pub on: Vec<RetryOn>,
    /// Seconds before the second attempt; each later one waits twice as long as the one before, at most an hour.
    pub wait_seconds: u32,
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self {
            most: 0,
            on: vec![RetryOn::Failed, RetryOn::TimedOut, RetryOn::Lost],
            wait_seconds: 30,
        }
    }
}

/// An end that another attempt may follow. Nobody retries what somebody cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// The command failed, or could not be started.
    Failed,
    /// It took too long.
    TimedOut,
    /// Its runner was not heard of any more.
    Lost,
}

impl RetryOn {
    /// The state of a run that it means.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
        }
    }
}

impl RetrySpec {
    /// How long the attempt after `attempt` waits, if there is one after this end.
    pub fn wait(&self, state: &str, attempt: i64) -> Option<Millis> {
        let again = attempt <= i64::from(self.most) && self.on.iter().any(|on| on.word() == state);
        let doubled = u32::try_from(attempt - 1).ok().map(|times| times.min(16));
        let wait = Millis::from(self.wait_seconds) * SECOND;
        doubled
            .filter(|_| again)
            .map(|times| (wait << times).min(LONGEST_WAIT))
    }
}

/// Runs that count together, and how many of them may be live at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Which.
    pub name: String,
    /// How many.
    pub most: i64,
    /// Whether a run that finds another one is skipped.
    pub skips: bool,
}

impl JobSpec {
    /// From the JSON that the store keeps.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The lane of its runs. `owner` is the job, or the run if it is of none.
    pub fn lane(&self, workspace: &str, owner: &str) -> Lane {
        let name = match &self.overlap.group {
            Some(group) => format!("group/{workspace}/{group}"),
            None => format!("job/{owner}"),
        };
        let most = match self.overlap.rule {
            OverlapRule::Parallel => i64::from(self.overlap.most.unwrap_or(PARALLEL)),
            OverlapRule::Skip | OverlapRule::Queue => 1,
        };
        Lane {
            name,
            most,
            skips: self.overlap.rule == OverlapRule::Skip,
        }
    }
}

/// How many at once, unless a job says otherwise.
const PARALLEL: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_attempts_wait_longer_and_end() {
        let retry = RetrySpec {
            most: 3,
            on: vec![RetryOn::Failed],
            wait_seconds: 600,
        };
        let waits: Vec<_> = (1..=4).map(|n| retry.wait("failed", n)).collect();
        let minutes = |m: Millis| Some(m * 60 * SECOND);
        assert_eq!(waits, [minutes(10), minutes(20), minutes(40), None]);
        assert_eq!(retry.wait("lost", 1), None);
        assert_eq!(retry.wait("cancelled", 1), None);
        let steep = RetrySpec {
            most: u32::MAX,
            ..retry
        };
        assert_eq!(
            steep.wait("failed", i64::from(u32::MAX)),
            Some(LONGEST_WAIT)
        );
    }

    #[test]
    fn a_spec_survives_the_store_and_unknown_keys_do_not() {
        let spec = JobSpec {
            command: vec!["true".into()],
            ..JobSpec::default()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(JobSpec::read(&text).unwrap(), spec);
        assert!(JobSpec::read(r#"{"comand":["true"]}"#).is_err());
    }

    #[test]
    fn jobs_of_a_group_share_a_lane_within_their_workspace() {
        let grouped = |group: &str| JobSpec {
            overlap: OverlapSpec {
                group: Some(group.into()),
                ..OverlapSpec::default()
            },
            ..JobSpec::default()
        };
        assert_eq!(grouped("g").lane("w", "a"), grouped("g").lane("w", "b"));
        assert_ne!(grouped("g").lane("w", "a"), grouped("g").lane("v", "a"));
        assert_ne!(
            JobSpec::default().lane("w", "a"),
            JobSpec::default().lane("w", "b")
        );
    }
}
