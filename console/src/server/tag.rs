//! `ETag` and `If-Match`: a change applies to what its author has seen.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

use super::problem::Problem;

/// The tag of a row at a version.
pub fn tag(version: i64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The version that `If-Match` names; `None`: whatever there is.
#[derive(Clone, Copy, Debug)]
pub struct IfMatch(pub Option<i64>);

impl IfMatch {
    /// Whether a row at this version is meant.
    pub fn check(self, version: i64) -> Result<(), Problem> {
        if self.0.is_none_or(|meant| meant == version) {
            Ok(())
        } else {
            Err(changed())
        }
    }
}

/// What was meant is not there any more.
pub fn changed() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "changed",
        "it has changed since it was read",
    )
    .help("read it again, look at what changed, then send the new ETag")
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else {
            return Ok(Self(None));
        };
        let text = value.to_str().unwrap_or_default();
        if text == "*" {
            return Ok(Self(None));
        }
        let version = text
            .strip_prefix('"')
            .and_then(|t| t.strip_suffix('"'))
            .and_then(|t| t.parse().ok());
        // a tag that is none of ours is no version of this
        version
            .map(|version| Self(Some(version)))
            .ok_or_else(changed)
    }
}
