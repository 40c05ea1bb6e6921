//! What is wrong with a job: every field at once, in the words of whoever owns the rule (the runner for what it runs,
//! netpolicy for the policy).

use netpolicy::document::text::unusual;
use netpolicy::policy::Policy;
use runner::config::Limits;
use runner::job::Job;

use super::schedule::Schedule;
use super::spec::{JobSpec, NetworkMode, OverlapRule};
use crate::server::problem::Wrong;

/// 30 days; a run that takes longer is not a job.
const LONGEST_TIMEOUT: u64 = 30 * 86_400;
/// Whoever has more resources than this is not using one machine.
const MOST_MEMORY_MIB: u64 = 1 << 22;
/// A thousand CPUs.
const MOST_CPU_MILLIS: u64 = 1_000_000;
/// The kernel's own limit (`PID_MAX_LIMIT`).
const MOST_PIDS: u64 = 1 << 22;
/// A page of text.
const LONGEST_DESCRIPTION: usize = 2_000;
/// The whole definition as JSON.
const LONGEST_SPEC: usize = 512 << 10;
/// Domains, secrets.
const MOST_NAMED: usize = 200;
/// Notifications of a job.
const MOST_TOLD: usize = 20;
/// At once.
const MOST_PARALLEL: u32 = 100;
/// Further attempts.
const MOST_RETRIES: u32 = 20;
/// Seconds between attempts.
const LONGEST_WAIT: u32 = 3_600;

/// Everything that is wrong with a definition.
pub fn mistakes(spec: &JobSpec) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let size = serde_json::to_string(spec).map_or(usize::MAX, |text| text.len());
    if size > LONGEST_SPEC {
        wrong.push(Wrong::new(
            "spec",
            format!("at most {LONGEST_SPEC} bytes as JSON, it has {size}"),
        ));
        return wrong;
    }
    let description = &spec.description;
    if description.chars().count() > LONGEST_DESCRIPTION
        || description
            .chars()
            .any(|c| c != '\n' && (c.is_control() || unusual(c).is_some()))
    {
        let message = format!("at most {LONGEST_DESCRIPTION} characters, none that is not seen");
        wrong.push(Wrong::new("spec.description", message));
    }
    what_runs(spec, &mut wrong);
    network(spec, &mut wrong);
    when(spec, &mut wrong);
    if let Some(notify) = &spec.notify
        && (notify.to.len() > MOST_TOLD || notify.to.iter().any(|name| name.len() > 400))
    {
        let message = format!("at most {MOST_TOLD} names of notifications");
        wrong.push(Wrong::new("spec.notify.to", message));
    }
    wrong
}

/// Command, image, limits: the runner's grammar. What a certain runner has less of it says when it takes the run.
fn what_runs(spec: &JobSpec, wrong: &mut Vec<Wrong>) {
    let limits = Limits {
        max_timeout_seconds: LONGEST_TIMEOUT,
        max_memory_mib: MOST_MEMORY_MIB,
        max_cpu_millis: MOST_CPU_MILLIS,
        max_pids: MOST_PIDS,
        ..Limits::default()
    };
    if let Err(found) = Job::check(spec.request("default"), &limits) {
        wrong.extend(
            found
                .0
                .into_iter()
                .map(|message| Wrong::new(field(&message), message)),
        );
    }
    let name = |name: &String| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.as_bytes().first().is_some_and(u8::is_ascii_digit)
    };
    if spec.secrets.len() > MOST_NAMED || !spec.secrets.iter().all(name) {
        wrong.push(Wrong::new(
            "spec.secrets",
            "names of letters, digits and '_', 1 to 64 long",
        ));
    }
}

/// The field that the runner's sentence begins with.
fn field(message: &str) -> &'static str {
    let fields = [
        ("image", "spec.image"),
        ("command and", "spec.command"),
        ("command", "spec.command"),
        ("env", "spec.env"),
        ("workdir", "spec.workdir"),
        ("timeout", "spec.limits.timeout_seconds"),
        ("memory", "spec.limits.memory_mib"),
        ("cpus", "spec.limits.cpu_millis"),
        ("processes", "spec.limits.pids"),
        ("pids", "spec.limits.pids"),
    ];
    let found = fields
        .into_iter()
        .find(|(begins, _)| message.starts_with(begins));
    found.map_or("spec", |(_, field)| field)
}

fn network(spec: &JobSpec, wrong: &mut Vec<Wrong>) {
    let network = &spec.network;
    if network.policy.is_some() && network.policy_name.is_some() {
        wrong.push(Wrong::new(
            "spec.network.policy_name",
            "a text or a name, not both",
        ));
        return;
    }
    if let Some(name) = &network.policy_name
        && (name.is_empty()
            || name.len() > 200
            || name.chars().any(|c| c.is_control() || unusual(c).is_some()))
    {
        wrong.push(Wrong::new(
            "spec.network.policy_name",
            "the name, or the path, of a policy",
        ));
    }
    let lists = network.mode == NetworkMode::Domains
        && network.policy.is_none()
        && network.policy_name.is_none();
    if !network.domains.is_empty() && !lists {
        wrong.push(Wrong::new(
            "spec.network.domains",
            "only with `mode: domains` and without a policy",
        ));
    }
    if network.domains.len() > MOST_NAMED {
        wrong.push(Wrong::new(
            "spec.network.domains",
            format!("at most {MOST_NAMED}; write a policy for more"),
        ));
        return;
    }
    let Some(parsed) = network.policy() else {
        return;
    };
    let field = if network.policy.is_some() {
        "spec.network.policy"
    } else {
        "spec.network.domains"
    };
    match parsed {
        Err(mistakes) => wrong.extend(
            mistakes
                .iter()
                .map(|mistake| Wrong::new(field, mistake.to_string())),
        ),
        Ok(policy) if network.policy.is_some() => agrees(spec, &policy, wrong),
        Ok(_) => {}
    }
}

/// The settings on a job's page and the policy beside them say the same.
fn agrees(spec: &JobSpec, policy: &Policy, wrong: &mut Vec<Wrong>) {
    let says = NetworkMode::of(policy.network);
    if says != spec.network.mode {
        let message = format!(
            "the policy says `network: {}` ({})",
            says.word(),
            policy.network_at
        );
        wrong.push(Wrong::new("spec.network.mode", message));
    }
    if policy.private != spec.network.allow_private {
        let message = format!("the policy says `private: {}`", policy.private);
        wrong.push(Wrong::new("spec.network.allow_private", message));
    }
    for (feature, at) in &policy.unenforced {
        let message =
            format!("{at}: {feature} is not enforced yet, a run under this policy is refused");
        wrong.push(Wrong::new("spec.network.policy", message));
    }
}

fn when(spec: &JobSpec, wrong: &mut Vec<Wrong>) {
    wrong.extend(
        spec.schedule
            .as_ref()
            .and_then(|s| Schedule::parse(s).err()),
    );
    let overlap = &spec.overlap;
    if overlap.most.is_some_and(|most| {
        overlap.rule != OverlapRule::Parallel || !(1..=MOST_PARALLEL).contains(&most)
    }) {
        wrong.push(Wrong::new(
            "spec.overlap.most",
            format!("1 to {MOST_PARALLEL}, with `rule: parallel`"),
        ));
    }
    if let Some(group) = &overlap.group
        && crate::accounts::names::name(group).as_ref() != Ok(group)
    {
        wrong.push(Wrong::new(
            "spec.overlap.group",
            "1 to 100 characters, none that is not seen",
        ));
    }
    if spec.retry.most > MOST_RETRIES {
        wrong.push(Wrong::new(
            "spec.retry.most",
            format!("at most {MOST_RETRIES}"),
        ));
    }
    if spec.retry.wait_seconds > LONGEST_WAIT {
        wrong.push(Wrong::new(
            "spec.retry.wait_seconds",
            format!("at most {LONGEST_WAIT}"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{NetworkSpec, OverlapSpec};
    use super::*;

    fn fields(spec: &JobSpec) -> Vec<&'static str> {
        mistakes(spec)
            .into_iter()
            .map(|wrong| wrong.field)
            .collect()
    }

    #[test]
    fn a_job_without_anything_runs_the_image_without_a_network() {
        assert_eq!(fields(&JobSpec::default()), [""; 0]);
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_field() {
        let mut spec = JobSpec {
            command: vec!["a\0".into()],
            image: Some("--privileged".into()),
            workdir: Some("/proc/self/fd".into()),
            secrets: vec!["A B".into()],
            description: "\u{202e}".into(),
            overlap: OverlapSpec {
                most: Some(0),
                group: Some("a\0".into()),
                ..OverlapSpec::default()
            },
            ..JobSpec::default()
        };
        spec.limits.memory_mib = Some(1);
        spec.limits.pids = Some(u64::MAX);
        spec.env.insert("SALLYPORT_X".into(), "1".into());
        spec.retry.most = 99;
        let mut found = fields(&spec);
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "spec.command",
                "spec.description",
                "spec.env",
                "spec.image",
                "spec.limits.memory_mib",
                "spec.limits.pids",
                "spec.overlap.group",
                "spec.overlap.most",
                "spec.retry.most",
                "spec.secrets",
                "spec.workdir",
            ]
        );
    }

    #[test]
    fn a_policy_is_checked_where_it_stands_and_must_agree_with_the_settings() {
        let with = |mode, text: &str| JobSpec {
            network: NetworkSpec {
                mode,
                policy: Some(text.into()),
                ..NetworkSpec::default()
            },
            ..JobSpec::default()
        };
        let wrong = mistakes(&with(
            NetworkMode::Domains,
            "policy: p\nnetwork: domains\nallow:\n  - hots: a.example\n",
        ));
        assert!(
            wrong.iter().any(|w| w.message.starts_with("job.yaml:4:5:")),
            "{wrong:?}"
        );
        let text = "policy: p\nnetwork: internet\nprivate: true\n";
        assert_eq!(
            fields(&with(NetworkMode::None, text)),
            ["spec.network.mode", "spec.network.allow_private"]
        );
    }
}
