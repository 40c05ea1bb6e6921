//! What a family of programs does in one sandbox, and what must have happened.
//!
//! Every permitted step has a twin: the same command towards a name that resolves and answers, but that the policy does
//! not permit. So that a denial proves something, the twins run once more where a policy permits them, and must work.
//! Owns the judgement; every failed expectation is reported, not only the first.

use serde_json::Value;

use lab::topology::{OTHER4, OTHER6, ip};

use crate::transcript::{self, Outcome};
use crate::world::{PERMITTED, World};

/// A denied program ends in less: nothing waits for a network timeout (a resolver's is 5 s for each server and try, a
/// connection's over 120 s). Generous, because a runtime needs seconds to start on two busy cores.
const FAST_SECONDS: f64 = 12.0;

#[derive(Debug)]
enum Expected {
    /// Exit code 0, and the output holds this text.
    Works(String),
    /// Another exit code, quickly; and the record holds a denial of this destination with this reason.
    Denied { destination: String, reason: String },
}

#[derive(Debug)]
struct Step {
    name: String,
    command: String,
    expected: Expected,
    /// What a denied command says where it is permitted, if it can be.
    otherwise: Option<String>,
}

/// Steps for one sandbox.
#[derive(Debug)]
pub struct Plan<'a> {
    world: &'a World,
    image: &'a str,
    root: bool,
    allow: &'static str,
    steps: Vec<Step>,
}

impl<'a> Plan<'a> {
    /// Nothing yet, under a `domains` policy with these `allow` entries.
    pub fn new(world: &'a World, image: &'a str, allow: &'static str) -> Self {
        Self {
            world,
            image,
            root: false,
            allow,
            steps: Vec::new(),
        }
    }

    /// As root in the sandbox.
    pub fn rooted(mut self) -> Self {
        self.root = true;
        self
    }

    /// A command with `{host}` in it: works with this host, and is denied with another by name.
    pub fn twins(mut self, name: &str, host: &str, command: &str, holds: &str) -> Self {
        let forbidden = self.world.forbidden(name);
        self.push(
            name,
            command.replace("{host}", host),
            Expected::Works(holds.into()),
            None,
        );
        let denied = Expected::Denied {
            destination: forbidden.clone(),
            reason: "name_not_allowed".into(),
        };
        self.push(
            &format!("{name}-denied"),
            command.replace("{host}", &forbidden),
            denied,
            Some(holds.into()),
        );
        self
    }

    /// A command that works and prints this.
    pub fn works(mut self, name: &str, command: &str, holds: &str) -> Self {
        self.push(
            name,
            command.to_owned(),
            Expected::Works(holds.into()),
            None,
        );
        self
    }

    /// A command that is denied, and why; the destination is a name or an address.
    pub fn denied(mut self, name: &str, command: &str, destination: &str, reason: &str) -> Self {
        let denied = Expected::Denied {
            destination: destination.into(),
            reason: reason.into(),
        };
        self.push(name, command.to_owned(), denied, None);
        self
    }

    fn push(&mut self, name: &str, command: String, expected: Expected, otherwise: Option<String>) {
        self.steps.push(Step {
            name: name.to_owned(),
            command,
            expected,
            otherwise,
        });
    }

    /// Runs everything in one sandbox and judges.
    pub fn run(self) {
        let lab = &self.world.lab;
        let (frames, queries) = (lab.capture.mark(), lab.origins.queries.mark());
        let mut wrong = self.play(&self.steps, self.allow);
        for address in [OTHER4, OTHER6] {
            if let Some(frame) = lab.capture.touching(frames, ip(address)).first() {
                wrong.push(format!("a packet of {address} on the uplink: {frame:?}"));
            }
        }
        if lab.origins.asked(queries, "evil-") {
            wrong.push("a denied name was asked upstream".to_owned());
        }
        let twins: Vec<Step> = self.steps.iter().filter_map(Step::permitted).collect();
        if !twins.is_empty() {
            wrong.extend(self.play(&twins, &every_name(self.allow)));
        }
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }

    /// One sandbox under these `allow` entries; what was not as expected.
    fn play(&self, steps: &[Step], allow: &str) -> Vec<String> {
        let policy = format!("policy: programs\nnetwork: domains\nallow:\n{allow}");
        let script =
            transcript::script(steps.iter().map(|s| (s.name.as_str(), s.command.as_str())));
        let said = self.world.run(self.image, self.root, &policy, &script);
        assert_eq!(
            said.code,
            Some(0),
            "the run failed: {}\n{}",
            said.err,
            said.out
        );
        let outcomes = transcript::read(&said.out);
        let records = self.world.lab.records();
        let mut wrong = Vec::new();
        for step in steps {
            let outcome = outcomes.get(&step.name).cloned().unwrap_or_default();
            for complaint in complaints(step, &outcome, &records, &said.err) {
                wrong.push(format!(
                    "{}: {complaint}\n  $ {}\n  {outcome:?}",
                    step.name, step.command
                ));
            }
        }
        if !wrong.is_empty() {
            wrong.push(format!("sallyport said: {}", said.err));
        }
        wrong
    }
}

impl Step {
    /// The same command where it is permitted.
    fn permitted(&self) -> Option<Self> {
        let expected = Expected::Works(self.otherwise.clone()?);
        Some(Self {
            name: self.name.clone(),
            command: self.command.clone(),
            expected,
            otherwise: None,
        })
    }
}

/// The same entries for every name of the lab.
fn every_name(allow: &str) -> String {
    PERMITTED.iter().fold(allow.to_owned(), |text, name| {
        text.replace(&format!("{name}.sallylab.net"), "'*.sallylab.net'")
    })
}

fn complaints(step: &Step, outcome: &Outcome, records: &[Value], summary: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            complaints.push(what);
        }
    };
    match &step.expected {
        Expected::Works(text) => {
            require(outcome.code == 0, format!("exit code {}", outcome.code));
            require(
                outcome.output.contains(text),
                format!("does not say {text:?}"),
            );
        }
        Expected::Denied {
            destination,
            reason,
        } => {
            require(outcome.code != 0, "exit code 0 where it is denied".into());
            require(
                outcome.took < FAST_SECONDS,
                format!("took {:.1} s to fail", outcome.took),
            );
            require(
                records.iter().any(|r| is_denial(r, destination, reason)),
                format!("no record of {destination} denied with {reason}"),
            );
            let line = |l: &str| {
                l.contains("denied")
                    && l.contains(destination.as_str())
                    && l.contains(reason.as_str())
            };
            require(
                summary.lines().any(line),
                format!("the summary does not tell {destination} and {reason}"),
            );
        }
    }
    complaints
}

/// A denial, or the first of several that were folded, of this name or address.
fn is_denial(record: &Value, destination: &str, reason: &str) -> bool {
    let denied = if record["kind"] == "folded" {
        &record["first"]
    } else {
        record
    };
    let subject = denied.get("subject").unwrap_or(denied);
    (record["kind"] == "denial" || record["kind"] == "folded")
        && denied["reason"] == reason
        && (subject["name"] == destination || subject["address"] == destination)
}
