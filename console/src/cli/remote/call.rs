//! What is asked of a console, what it answers, and why it does not.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;

use super::text;
use crate::exit::Failure;

/// What is shown of a console's own words.
const SHOWN: usize = 2000;

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// Nobody answers; it may be there again soon.
    Away(Failure),
    /// It answered with a problem.
    Refused {
        /// The status.
        status: StatusCode,
        /// What is wrong, as a word for programs.
        code: String,
        /// For people.
        failure: Failure,
        /// After how long it asks to be asked again.
        after: Option<Duration>,
    },
    /// What answers is no console.
    Odd(Failure),
}

impl CallError {
    /// Whether it may be otherwise soon: nobody is there, or has no time.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Odd(_) => false,
            Self::Refused { status, .. } => status.is_server_error() || status.as_u16() == 429,
        }
    }

    /// After how long a console that has no time for this caller now wants to be asked again; `None`: it has said no such
    /// thing.
    pub fn again_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { status, after, .. } if matches!(status.as_u16(), 429 | 503) => *after,
            _ => None,
        }
    }

    /// The status of a console's own refusal.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Away(_) | Self::Odd(_) => None,
        }
    }

    /// The word for programs of a console's own refusal; empty: there is none.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::Away(_) | Self::Odd(_) => "",
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Away(failure)
            | CallError::Odd(failure)
            | CallError::Refused { failure, .. } => failure,
        }
    }
}

/// What is asked.
#[derive(Debug)]
pub struct Call<'a> {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// JSON to send.
    pub body: Option<&'a Value>,
    /// The version that a change is meant for.
    pub version: Option<i64>,
}

impl<'a> Call<'a> {
    /// A call without more.
    pub const fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            body: None,
            version: None,
        }
    }

    /// With a body.
    #[must_use]
    pub const fn with(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Meant for this version.
    #[must_use]
    pub const fn at(mut self, version: i64) -> Self {
        self.version = Some(version);
        self
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its JSON; `null` if it has none.
    pub body: Value,
    /// How long it was.
    pub bytes: usize,
}

/// A problem for people. Its words are another machine's: bounded here, cleaned where they are shown.
pub fn told(problem: &Value) -> Failure {
    let cut = |text: String| -> String { text.chars().take(SHOWN).collect() };
    let mut failure = Failure::new(cut(text(problem, "detail")));
    if let Some(Value::Array(fields)) = problem.get("fields") {
        let detail = |field: &Value| {
            cut(format!(
                "{}: {}",
                text(field, "field"),
                text(field, "message")
            ))
        };
        failure.details = fields.iter().take(100).map(detail).collect();
    }
    let help = cut(text(problem, "help"));
    failure.hint = match text(problem, "code").as_str() {
        "bad_token" | "signed_out" => Some("`sallyport auth login` signs in again".to_owned()),
        _ => (!help.is_empty()).then_some(help),
    };
    failure
}
