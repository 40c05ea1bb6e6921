//! What handlers take from a request: path, query and JSON body, each with a [`Problem`] when it does not fit.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::request::Parts;
use http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Segments of the path.
#[derive(Clone, Debug)]
pub struct At<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // what cannot be a name of anything is the name of nothing
        let Path(found) = Path::<T>::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::not_found())?;
        Ok(Self(found))
    }
}

/// The query.
#[derive(Clone, Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "bad_query",
                short(&error.body_text()),
            )
        })
    }
}

/// A JSON body. Nothing else is taken: a form of another site cannot make one.
#[derive(Clone, Debug)]
pub struct Input<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Input<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "the body must be JSON",
            )
            .help("send it with `Content-Type: application/json`"));
        }
        let body = whole(request.into_body()).await?;
        serde_json::from_slice(&body).map(Self).map_err(|error| {
            let status = if error.is_data() {
                StatusCode::UNPROCESSABLE_ENTITY
            } else {
                StatusCode::BAD_REQUEST
            };
            Problem::new(status, "bad_body", short(&error.to_string()))
        })
    }
}

/// A body that ends in an error when it is longer.
pub fn at_most(most: usize, body: Body) -> Body {
    Body::new(http_body_util::Limited::new(body, most))
}

/// A body to its end; the stack limits its size and time.
pub async fn whole(body: Body) -> Result<Bytes, Problem> {
    let read = Bytes::from_request(Request::new(body), &()).await;
    read.map_err(|error| {
        let status = error.status();
        let code = if status == StatusCode::PAYLOAD_TOO_LARGE {
            "too_large"
        } else {
            "bad_body"
        };
        Problem::new(status, code, "the body cannot be read to its end")
    })
}

/// An error's text repeats what was sent; enough of it to find the place.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
