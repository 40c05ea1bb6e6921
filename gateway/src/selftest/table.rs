//! Rows of the namespace's table, as they come.

use super::Seen;
use super::report::{Check, Family, Outcome, Variant};

/// Rows as they come.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Check>,
}

impl Table {
    /// The rows so far.
    #[cfg(test)]
    pub fn rows(&self) -> &[Check] {
        &self.rows
    }

    fn add(
        &mut self,
        check: &str,
        family: Family,
        promise: &str,
        outcome: Outcome,
        detail: String,
    ) {
        self.rows.push(Check {
            check: check.to_owned(),
            family,
            variant: Variant::Namespace,
            outcome,
            promise: promise.to_owned(),
            detail,
        });
    }

    /// All rows.
    pub fn done(self) -> Vec<Check> {
        self.rows
    }

    /// What was seen, as promised or not.
    pub fn row(&mut self, check: &str, family: Family, promise: &str, seen: Seen) {
        match seen {
            Ok(detail) => self.add(check, family, promise, Outcome::Passed, detail),
            Err(detail) => self.add(check, family, promise, Outcome::Failed, detail),
        }
    }

    /// Nothing here to try it on.
    pub fn skip(&mut self, check: &str, family: Family, promise: &str, why: &str) {
        self.add(check, family, promise, Outcome::Skipped, why.to_owned());
    }
}
