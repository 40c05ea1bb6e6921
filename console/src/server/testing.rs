//! A whole console in a test, on either engine, asked as a client would ask it.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use gateway::tasks::Tasks;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::address::Peer;
use super::app::App;
use crate::accounts::secret::{Opens, Secret};
use crate::settings::ConsoleConfig;
use crate::store::Store;
use crate::store::sessions::NewSession;
use crate::store::testing::Postgres;
use crate::store::users::{Home, NewUser};

/// A console without listeners.
#[derive(Clone, Debug)]
pub struct Console {
    /// What handlers share.
    pub app: App,
    router: Router,
    /// Whom its requests come from.
    pub peer: SocketAddr,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The head.
    pub headers: HeaderMap,
    /// The body, if it is JSON.
    pub json: Value,
    /// The body.
    pub text: String,
    /// Whether a handler gave it.
    pub admitted: bool,
}

impl Console {
    /// With the default settings.
    pub fn on(store: Store) -> Self {
        Self::with(store, ConsoleConfig::default())
    }

    /// With these settings.
    pub fn with(store: Store, mut config: ConsoleConfig) -> Self {
        if config.key_file == ConsoleConfig::default().key_file {
            config.key_file = Postgres::shared().scratch().join("instance.key");
        }
        let app = App::new(config, store, Tasks::default(), CancellationToken::new()).unwrap();
        let router = super::router(&app);
        Self {
            app,
            router,
            peer: "203.0.113.7:4711".parse().unwrap(),
        }
    }

    /// A request without a body.
    pub async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(method, path, headers, Body::empty()).await
    }

    /// A request with a JSON body.
    pub async fn tell(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let headers = [&[("content-type", "application/json")][..], headers].concat();
        self.send(method, path, &headers, Body::from(body.to_string()))
            .await
    }

    /// A request with any body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Answer {
        let response = self.open(method, path, headers, body).await;
        let (parts, mut body) = response.into_parts();
        let streamed = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "text/event-stream");
        let bytes = if streamed {
            // what is said first; more may never come
            body.frame().await.unwrap().unwrap().into_data().unwrap()
        } else {
            body.collect().await.unwrap().to_bytes()
        };
        Answer {
            admitted: parts.extensions.get::<super::guard::Admitted>().is_some(),
            status: parts.status,
            headers: parts.headers,
            json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// A request whose answer is read as it comes.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .extension(Peer(self.peer));
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "localhost:8420");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.router
            .clone()
            .oneshot(request.body(body).unwrap())
            .await
            .unwrap()
    }
}

/// A user who is signed in: its id and its cookie.
pub async fn signed_in(store: &Store, name: &str, admin: bool) -> (String, String) {
    let new = NewUser {
        email: format!("{name}@example.com"),
        name: name.into(),
        password: None,
        instance_admin: admin,
    };
    let user = store.add_user(&new, Home::Personal, 1).await.unwrap();
    let secret = Secret::fresh(Opens::Session).unwrap();
    let now = crate::clock::now();
    let session = NewSession {
        user: &user,
        proven: None,
        digest: &secret.digest,
        address: "203.0.113.7",
        agent: "",
        ends: now + 1_000_000,
    };
    store.add_session(session, now).await.unwrap();
    let cookie = format!("sallyport_session={}", secret.text);
    (user, cookie)
}
