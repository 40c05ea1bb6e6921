//! What a request that was not answered gets: problem+json (RFC 9457) with a stable `code`, `fields` and `help`.
//!
//! The one place that maps errors to HTTP. Failure stance: what went wrong inside is logged once, here, with the
//! request's id; the caller learns that it happened and nothing about how.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::store::StoreError;

/// Why a request was not answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// The HTTP status again.
    pub status: u16,
    /// The status in words.
    pub title: &'static str,
    /// What is wrong, by a word that does not change.
    pub code: &'static str,
    /// What is wrong, for people.
    pub detail: String,
    /// Which fields of the request are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Wrong>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Seconds after which it may go.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// One wrong field.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Wrong {
    /// Its name in the request.
    pub field: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl Wrong {
    /// A field and what is wrong with it.
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            field,
            message: message.into(),
        }
    }
}

impl Problem {
    /// A problem.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error"),
            code,
            detail: detail.into(),
            fields: Vec::new(),
            help: None,
            retry_after: None,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// There is no such thing, or it is none of the caller's business: the answer is the same.
    pub fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such thing here",
        )
    }

    /// Nobody is signed in.
    pub fn signed_out() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "signed_out",
            "nobody is signed in",
        )
        .help(
            "sign in with POST /api/v1/session, or send an API token as `Authorization: Bearer …`",
        )
    }

    /// Signed in, but not allowed.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Well-formed, but it does not go together with what is there.
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// Fields that are wrong; `Ok` if none is.
    pub fn unless_empty(fields: Vec<Wrong>) -> Result<(), Self> {
        if fields.is_empty() {
            return Ok(());
        }
        let mut problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid",
            "some fields are wrong",
        );
        problem.fields = fields;
        Err(problem)
    }

    /// One wrong field.
    pub fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            fields: vec![Wrong::new(field, message)],
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid",
                "some fields are wrong",
            )
        }
    }

    /// Too much at once.
    pub fn slow_down(code: &'static str, detail: impl Into<String>, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, code, detail)
        }
    }

    /// The audit log could not be written; whether there was anything to undo is said.
    pub fn untold(status: StatusCode) -> Self {
        let detail = if status.is_success() {
            "this was done, and could not be written into the audit log"
        } else {
            "this was refused, and that could not be written into the audit log"
        };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "untold", detail).help(
            "the console's log has what was to be written, beside what keeps it from being written",
        )
    }

    /// Not now.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self {
            retry_after: Some(2),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
        }
    }

    /// Something inside failed; who calls this has logged it.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "something inside Sallyport failed",
        )
        .help("its log has the cause beside the id in the X-Request-Id header of this answer")
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::SignedOut => return Self::signed_out(),
            StoreError::NotAllowed => return Self::forbidden("this may not be done any more"),
            _ => {}
        }
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        Self::internal()
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after;
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
