//! Why a destination is permitted or denied, and what would change it.
//!
//! Asks the decisions themselves, with what the question supposes (server name, addresses, request), and puts the
//! outcome into words. Owns no rule of its own: an explanation that could differ from a decision would be worse than
//! none. Also serves policies that cannot be run yet, because `http`, `secrets` and `unknown: ask` are understood.

mod change;
mod destination;
mod outcome;
mod words;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::addr::Class;
use crate::decide::{LayerKind, Snapshot};
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::{Expectation, Expected, Place, Protocol};
use crate::reason::Reason;

pub use destination::{Asked, AskedError};
pub(crate) use outcome::{Outcome, of as outcome_of};

/// What is asked about: a destination, and what shall be supposed about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Name or address.
    pub to: Host,
    /// Destination port.
    pub port: u16,
    /// Transport.
    pub protocol: Protocol,
    /// The server name (or Host) that the client sends.
    pub sni: Option<Name>,
    /// The addresses that the name (or the server name) has. Empty: whatever is acceptable.
    pub resolves_to: Vec<IpAddr>,
    /// Names that aliases on the way to those addresses lead to.
    pub aliases: Vec<Name>,
    /// Names that are bound to the address in the network that asks (`names: real`).
    pub bound: Vec<Name>,
    /// Whether the address is one of the gateway's pools that stands for no name in the network that asks.
    pub unleased: bool,
    /// Method of a request.
    pub method: Option<String>,
    /// Path of a request.
    pub path: Option<String>,
}

impl Question {
    /// A question about a destination, with nothing supposed.
    pub fn new(to: Host, port: u16, protocol: Protocol) -> Self {
        Self {
            to,
            port,
            protocol,
            sni: None,
            resolves_to: Vec::new(),
            aliases: Vec::new(),
            bound: Vec::new(),
            unleased: false,
            method: None,
            path: None,
        }
    }
}

/// What becomes of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It passes.
    Permit,
    /// It does not.
    Deny,
    /// A person is asked.
    Ask,
}

/// A file and a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// File as the author knows it; presets are `preset:NAME`, shipped sets `set:NAME`.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// The commit that the gateway read the file from; without it the file is unverified, or shipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = Place {
            file: self.file.as_str().into(),
            line: self.line,
            column: 1,
            commit: self.commit.as_deref().map(Into::into),
        };
        f.write_str(&place.line())
    }
}

impl From<&Place> for Line {
    fn from(at: &Place) -> Self {
        Self {
            file: at.file.to_string(),
            line: at.line,
            commit: at.commit.as_deref().map(str::to_owned),
        }
    }
}

/// The answer to a [`Question`]. Every key is always there; `null` where nothing is to be said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// Permit, deny or ask.
    pub decision: Decision,
    /// Reason code of a denial, or `ask_pending`.
    pub reason: Option<Reason>,
    /// Class of the address that decided, if one is known.
    pub class: Option<Class>,
    /// The line that decided.
    pub rule: Option<Line>,
    /// Name of the policy that decided.
    pub policy: Option<String>,
    /// Its layer.
    pub layer: Option<LayerKind>,
    /// Whether the gateway reads the requests inside.
    pub inspect: bool,
    /// What happens and why, in sentences.
    pub summary: String,
    /// What would change it.
    pub change: Option<String>,
}

/// Explains what would become of a destination.
pub fn explain(s: &Snapshot, question: &Question, now: UnixSeconds) -> Explanation {
    let outcome = outcome::of(s, question, now);
    let inspect = outcome::inspects(s, question, &outcome, now);
    let summary = words::summary(s, question, &outcome, inspect);
    let change = change::of(s, question, &outcome);
    let (decision, reason, class) = match &outcome {
        Outcome::Permit(ground) => (Decision::Permit, None, ground.class()),
        Outcome::Deny(denial) => (Decision::Deny, Some(denial.reason), denial.class),
        Outcome::Ask(denial) => (Decision::Ask, Some(Reason::AskPending), denial.class),
    };
    let (layer, policy, rule) = match outcome {
        Outcome::Permit(ground) => match ground.rules().last() {
            Some((layer, policy, at)) => (Some(*layer), Some(policy.clone()), Some(Line::from(at))),
            None => (None, None, None),
        },
        Outcome::Deny(denial) | Outcome::Ask(denial) => (
            denial.layer,
            denial.policy,
            denial.rule.as_ref().map(Line::from),
        ),
    };
    Explanation {
        decision,
        reason,
        class,
        rule,
        policy,
        layer,
        inspect,
        summary,
        change,
    }
}

/// One line of `tests:` and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tested {
    /// The line.
    pub test: Expectation,
    /// Its policy's layer.
    pub layer: LayerKind,
    /// What the policies say.
    pub found: Explanation,
    /// Whether that is what was expected.
    pub passed: bool,
}

/// Runs the `tests:` of every layer's policy against the layers together.
pub fn run_tests(s: &Snapshot, now: UnixSeconds) -> Vec<Tested> {
    let tests = s
        .layers()
        .iter()
        .flat_map(|layer| layer.policy().tests.iter().map(|test| (layer.kind(), test)));
    tests
        .filter_map(|(layer, test)| run_test(s, layer, test, now))
        .collect()
}

fn run_test(
    s: &Snapshot,
    layer: LayerKind,
    test: &Expectation,
    now: UnixSeconds,
) -> Option<Tested> {
    // a destination without a port that needs one was refused when the document was read
    let port = test.to.port.or((!test.protocol.has_ports()).then_some(0))?;
    let question = Question {
        resolves_to: test.resolves_to.clone(),
        sni: test.sni.clone(),
        method: test.method.clone(),
        path: test.path.clone(),
        ..Question::new(test.to.host.clone(), port, test.protocol)
    };
    let found = explain(s, &question, now);
    let passed = match test.expect {
        Expected::Permit => found.decision == Decision::Permit,
        Expected::Ask => found.decision == Decision::Ask,
        Expected::Deny(reason) => {
            found.decision == Decision::Deny
                && reason.is_none_or(|reason| found.reason == Some(reason))
        }
    };
    Some(Tested {
        test: test.clone(),
        layer,
        found,
        passed,
    })
}
