//! Why a request was refused, as every error reply says it.

use serde::{Deserialize, Serialize};

/// Every error reply (`application/problem+json`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// Stable word for programs: `bad_request`, `not_allowed`, `not_found`, `conflict`, `policy_invalid`,
    /// `not_enforced`, `not_enforced_yet`, `source_empty`, `source_refused`, `namespace_refused`, `sealed`, `journal`, `full`,
    /// `denied`, `kernel`, `internal`.
    pub code: String,
    /// What is wrong, lower case.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Mistakes of a policy text, `file:line:column: message`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            hint: None,
            mistakes: Vec::new(),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the mistakes of a policy text.
    #[must_use]
    pub fn mistakes(mut self, mistakes: impl IntoIterator<Item = String>) -> Self {
        self.mistakes.extend(mistakes);
        self
    }
}
