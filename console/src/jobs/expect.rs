//! The lines of a policy's `tests:` in words: where to, what was expected, what was found.

use netpolicy::explain::{Decision, Tested};
use netpolicy::policy::{Expected, Protocol};

/// Where a test goes, with what it sends.
pub fn destination(tested: &Tested) -> String {
    let test = &tested.test;
    let mut text = test.to.to_string();
    if test.protocol != Protocol::Tcp {
        text.push(' ');
        text.push_str(test.protocol.word());
    }
    if let Some(sni) = &test.sni {
        text = format!("{text} sni={sni}");
    }
    if let Some(method) = &test.method {
        text = format!("{text} {method}");
    }
    if let Some(path) = &test.path {
        text = format!("{text} {path}");
    }
    text
}

/// What its line says.
pub fn expected(tested: &Tested) -> String {
    match tested.test.expect {
        Expected::Permit => "permit".to_owned(),
        Expected::Ask => "ask".to_owned(),
        Expected::Deny(None) => "deny".to_owned(),
        Expected::Deny(Some(reason)) => format!("deny {reason}"),
    }
}

/// What the policies say.
pub fn found(tested: &Tested) -> String {
    match (tested.found.decision, tested.found.reason) {
        (Decision::Permit, _) => "permit".to_owned(),
        (Decision::Ask, _) => "ask".to_owned(),
        (Decision::Deny, None) => "deny".to_owned(),
        (Decision::Deny, Some(reason)) => format!("deny {reason}"),
    }
}
