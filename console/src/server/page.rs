//! Lists a page at a time: `cursor` is what the page before said, `limit` how many.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::Problem;

/// Unless the caller says otherwise.
const USUAL: i64 = 50;
/// More is not given at once.
const MOST: i64 = 200;

/// What a list is asked with.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// `next` of the page before.
    #[serde(default)]
    cursor: String,
    /// How many, 1 to 200.
    limit: Option<i64>,
    /// Only what holds this text.
    #[serde(default)]
    pub q: String,
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T: ToSchema> {
    /// What is on it.
    pub items: Vec<T>,
    /// The `cursor` of the next page, if there may be one.
    pub next: Option<String>,
}

impl Paging {
    /// Of a list that has filters of its own.
    pub const fn new(cursor: String, limit: Option<i64>) -> Self {
        Self {
            cursor,
            limit,
            q: String::new(),
        }
    }

    /// The id after which the page begins, and how many are on it.
    pub fn bounds(&self) -> Result<(&str, i64), Problem> {
        let limit = self.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::invalid("limit", format!("1 to {MOST}")));
        }
        // ids are the only cursors: whatever else is written finds what comes after it in their order
        if self.cursor.len() > 64
            || self.cursor.contains('\0')
            || self.q.len() > 200
            || self.q.contains('\0')
        {
            return Err(Problem::invalid("cursor", "what the page before said"));
        }
        Ok((&self.cursor, limit))
    }
}

impl<T: ToSchema> Page<T> {
    /// A full page has a next one.
    pub fn of<R>(
        rows: Vec<R>,
        limit: i64,
        key: impl Fn(&R) -> &str,
        view: impl Fn(R) -> T,
    ) -> Self {
        let full = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
        let next = rows.last().filter(|_| full).map(|row| key(row).to_owned());
        Self {
            items: rows.into_iter().map(view).collect(),
            next,
        }
    }
}
