//! The grammar of policy files: text to spanned tree to checked policy, every mistake at once.

use crate::policy::{Place, Policy};

/// One mistake: place, what is wrong, and a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake { /// Where.
    pub at: Place, /// What is wrong, lower case.
    pub message: String, /// What to write instead.
    pub hint: Option<String> }
impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.at.file, self.at.line, self.at.column, self.message)?;
        if let Some(hint) = &self.hint { write!(f, " (hint: {hint})")?; }
        Ok(())
    }
}

/// Reads one policy document. `file` is what mistakes name. `packages` resolves the set `packages` (hosts read from the image), if known.
pub fn parse(_file: &str, _text: &str, _packages: Option<&[String]>) -> Result<Policy, Vec<Mistake>> { todo!() }
/// A preset by name: `none domains domains-private internet internet-private app build own-calls`.
pub fn preset(_name: &str) -> Option<Policy> { todo!() }
/// Names of the presets in listing order, with their one-line meaning.
pub const PRESETS: &[(&str, &str)] = &[];
/// JSON Schema (2020-12) of the document.
pub fn schema() -> serde_json::Value { todo!() }
