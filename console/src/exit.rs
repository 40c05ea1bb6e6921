//! How a verb ends. The numbers are stable; `sallyport --help` lists them.

use std::fmt;
use std::process::ExitCode;

/// What a verb came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done, or the answer is yes (0).
    Good,
    /// Done, and the answer is no: a policy has mistakes, a record was tampered with, a selftest failed (1).
    Negative,
    /// The code of a command that was run, or the shell's codes for what became of it (124-127).
    Code(u8),
}

/// Could not be done: nobody answers, a file cannot be read, the gateway refused (3).
pub const FAILED: u8 = 3;
/// Sallyport could not run it.
pub const NOT_RUN: u8 = 125;

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Good => Self::SUCCESS,
            Outcome::Negative => Self::from(1),
            Outcome::Code(code) => Self::from(code),
        }
    }
}

/// Why a verb could not be done: one line, what to do about it, details.
#[derive(Debug, Default)]
pub struct Failure {
    /// What went wrong, lower case, causes joined with colons.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Single mistakes, one a line.
    pub details: Vec<String>,
    /// Another exit code than [`FAILED`].
    pub code: Option<u8>,
}

impl Failure {
    /// A failure that speaks for itself.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Ends with this code.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = Some(code);
        self
    }

    /// The process's exit code.
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(self.code.unwrap_or(FAILED))
    }

    /// An error with its causes.
    pub fn from_error(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self::new(message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<gateway::control::ClientError> for Failure {
    fn from(error: gateway::control::ClientError) -> Self {
        let mut failure = Self::from_error(&error);
        failure.hint = error.hint();
        failure.details = error
            .problem()
            .map(|p| p.mistakes.clone())
            .unwrap_or_default();
        failure
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::from_error(&error)
    }
}

/// What verbs return.
pub type Verdict = Result<Outcome, Failure>;
