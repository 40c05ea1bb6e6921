//! Host names that a reader takes for others: letters of several scripts in one label, or letters that all look like
//! ASCII ones.
//!
//! What is enforced is the name in A-labels; what somebody approves is what an editor shows. Both kinds of list are looked
//! at under every `network`: a `deny` of a name that only looks like the one that is meant denies nothing. Letters of one
//! script that ASCII does not look like (`bücher.example`, `почта.example`) are ordinary names.

use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;
use unicode_security::mixed_script::AugmentedScriptSet;

use super::{Catalogue, Code, Lint, is_own};
use crate::name::{Name, Pattern};
use crate::policy::{Place, Policy, Selector};

/// A host that stands in a policy in letters that are not ASCII's, or would be shown in them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The entry.
    pub at: Place,
    /// What is enforced: A-labels.
    pub host: Pattern,
    /// What people read.
    pub shown: String,
}

/// Every host of the policy's own entries that reads differently from what is enforced.
pub fn readings(policy: &Policy) -> Vec<Reading> {
    let own = policy.allow.iter().chain(&policy.deny);
    own.filter(|rule| is_own(rule, policy))
        .filter_map(|rule| match &rule.to {
            Selector::Host(host) => Some(Reading {
                at: rule.at.clone(),
                host: host.clone(),
                shown: shown(host)?,
            }),
            Selector::Cidr(_) => None,
        })
        .collect()
}

/// A pattern in the letters that its A-labels stand for.
fn shown(pattern: &Pattern) -> Option<String> {
    let name = in_letters(pattern.name())?;
    Some(match pattern {
        Pattern::Exact(_) => name,
        Pattern::Below(_) => format!("*.{name}"),
    })
}

fn in_letters(name: &Name) -> Option<String> {
    let (text, _) = idna::domain_to_unicode(name.as_str());
    (text != name.as_str()).then_some(text)
}

/// Warnings about names that nobody accepted.
pub(super) fn check(policy: &Policy, catalogue: &Catalogue) -> Vec<Lint> {
    let read = readings(policy).into_iter();
    read.filter_map(|Reading { at, host, shown }| {
        let why = shown.split('.').find_map(lookalike)?;
        let lint = Lint {
            code: Code::Lookalike,
            at,
            message: format!("`{host}` spells `{}`, {why}", spelled(&shown)),
            hint: "name the host that is meant; or accept the warning in a lints file".to_owned(),
        };
        (!catalogue.accepts(&lint, Some(&host))).then_some(lint)
    })
    .collect()
}

/// With the letters in question by their numbers: what looks like another letter in an editor does so in a warning too.
fn spelled(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            spelled.push(c);
        } else {
            spelled.extend(c.escape_unicode());
        }
    }
    spelled
}

/// Why a label is taken for another one, if it is.
fn lookalike(label: &str) -> Option<&'static str> {
    if label.is_ascii() {
        return None;
    }
    if skeleton(label).all(|c| c.is_ascii()) {
        return Some("whose letters look like ASCII ones and are others");
    }
    let beyond_ascii: String = label.chars().filter(|c| !c.is_ascii()).collect();
    let rest = AugmentedScriptSet::for_str(&beyond_ascii);
    // Chinese, Japanese and Korean are written with Latin letters among their own
    let written_so = rest.jpan || rest.hanb || rest.kore;
    (!label.is_single_script() && !written_so)
        .then_some("which mixes letters of scripts that no language writes together")
}
