//! Routes: method and path to verb, at a glance. Who may, then what exactly was asked, then the verb.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use netpolicy::ids::NetworkId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{Group, Peer, may, may_any};
use super::api::Problem;
use super::descriptor::Received;
use super::disposal::Offered;
use super::server::Body;
use super::verbs::{Verbs, blocking};
use super::{ingress, statements, streams};

/// A policy of the largest size that the parser takes, escaped as JSON, and some room.
const MOST_BYTES: usize = 6 << 20;
/// A longer body is parsed off the runtime's threads.
const MOST_AT_ONCE: usize = 64 << 10;
/// A body is due within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers one request.
pub async fn route(
    verbs: &Arc<Verbs>,
    peer: Peer,
    received: Received,
    request: Request<Incoming>,
) -> Result<Response<Body>, Problem> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let allow = |group: Group| {
        if may(verbs.users(), peer, group) {
            Ok(())
        } else {
            Err(not_allowed(group))
        }
    };
    let own = |id: &str| network(id).and_then(|id| verbs.owned(&id, peer).map(|()| id));
    if !matches!(
        (request.method(), segments.as_slice(), &received),
        (_, _, Received::Nothing) | (&Method::POST, ["v1", "networks"], _)
    ) {
        return Err(Problem::new(
            400,
            "bad_request",
            "a descriptor came with a request that takes none",
        ));
    }
    let method = request.method().clone();
    match (method.as_str(), segments.as_slice()) {
        ("POST", ["v1", "networks"]) => {
            allow(Group::Attach)?;
            let namespace = one(received)?;
            // before the body is read: what a user has under way bounds what it makes the gateway hold
            let place = verbs.changes.take(peer).await?;
            let wanted = read(request).await?;
            json(&verbs.attach(wanted, namespace, peer, place).await?)
        }
        ("DELETE", ["v1", "networks", id]) => {
            allow(Group::Attach)?;
            json(&verbs.detach(own(id)?).await?)
        }
        ("PUT", ["v1", "networks", id, "policy"]) => {
            allow(Group::Attach)?;
            let id = own(id)?;
            let place = verbs.changes.take(peer).await?;
            json(&verbs.replace(id, read(request).await?, place).await?)
        }
        ("POST", ["v1", "networks", id, "ingress"]) => {
            allow(Group::Attach)?;
            ingress::open(verbs, &own(id)?, request).await
        }
        ("POST", ["v1", "networks", id, "capture"]) => {
            // Contents, not only facts: nobody who may merely look.
            allow(Group::Operate)?;
            let id = network(id)?;
            streams::capture(verbs, &id, &read(request).await?, peer).await
        }
        ("POST", ["v1", "networks", id, "explain"]) => {
            allow(Group::Observe)?;
            let id = network(id)?;
            json(&verbs.explain(&id, &read(request).await?)?)
        }
        ("POST", ["v1", "own"]) => {
            allow(Group::Observe)?;
            json(&verbs.owner(&read(request).await?))
        }
        ("POST", ["v1", "sources", name, act @ ("sync" | "proposals")]) => {
            allow(Group::Operate)?;
            source(verbs, name, act, request, peer).await
        }
        ("POST", ["v1", "resolve"]) => {
            allow(Group::Attach)?;
            json(&verbs.resolve(&read(request).await?, peer).await?)
        }
        (method, ["v1", "selftest", of @ ..]) => tried(verbs, (method, of), peer, request).await,
        ("GET", segments) => {
            allow(Group::Observe)?;
            look(verbs, segments, request.uri(), peer).await
        }
        _ => Err(Problem::new(
            404,
            "not_found",
            format!("there is no {} {path:?}", request.method()),
        )),
    }
}

/// The gateway's own selftest, and what a runner tried in containers.
async fn tried(
    verbs: &Verbs,
    asked: (&str, &[&str]),
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Body>, Problem> {
    let operates = || {
        if may(verbs.users(), peer, Group::Operate) {
            Ok(())
        } else {
            Err(not_allowed(Group::Operate))
        }
    };
    match asked {
        ("POST", []) => {
            operates()?;
            json(&verbs.selftest().await?)
        }
        ("POST", ["containers"]) => {
            // rows seal: whoever may put any namespace behind the gateway is trusted with that, and nobody else
            if !may_any(verbs.users(), peer) {
                let problem = Problem::new(403, "not_allowed", "this user may not report rows");
                return Err(
                    problem.hint("`gateway.control_users.attach_any` names the runner's user")
                );
            }
            let place = verbs.changes.take(peer).await?;
            json(&verbs.contained(read(request).await?, place).await?)
        }
        ("DELETE", ["containers"]) => {
            operates()?;
            json(&verbs.try_containers_again().await?)
        }
        (method, _) => Err(Problem::new(
            404,
            "not_found",
            format!("there is no {method} of this selftest"),
        )),
    }
}

/// Acts on one policy source.
async fn source(
    verbs: &Verbs,
    name: &str,
    act: &str,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    if act == "sync" {
        json(&verbs.sync(name, &read(request).await?).await?)
    } else {
        json(&verbs.propose(name, &read(request).await?, peer).await?)
    }
}

async fn look(
    verbs: &Arc<Verbs>,
    segments: &[&str],
    uri: &hyper::Uri,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let query = uri.query().unwrap_or_default();
    match segments {
        ["v1", "health"] => json(&verbs.health()),
        ["v1", "posture"] => json(&verbs.posture()),
        ["v1", "networks"] => json(&verbs.networks().await?),
        ["v1", "networks", id] => json(&verbs.network(&network(id)?).await?),
        ["v1", "networks", id, "flows"] => {
            streams::flows(verbs, Some(&network(id)?), query, peer).await
        }
        ["v1", "flows"] => streams::flows(verbs, None, query, peer).await,
        ["v1", "records"] => streams::records(verbs, query, peer).await,
        ["v1", "statements"] => statements::statements(verbs, peer).await,
        ["v1", "sources"] => json(&verbs.sources()),
        ["v1", "rules"] => Ok(text(verbs.rules().await?)),
        ["v1", "counters"] => json(&verbs.counters().await?),
        _ => Err(Problem::new(
            404,
            "not_found",
            format!("there is no /{}", segments.join("/").escape_debug()),
        )),
    }
}

fn network(id: &str) -> Result<NetworkId, Problem> {
    id.parse().map_err(|e: netpolicy::ids::NetworkIdError| {
        Problem::new(400, "bad_request", e.to_string())
    })
}

fn one(received: Received) -> Result<Offered, Problem> {
    match received {
        Received::One(descriptor) => Ok(descriptor),
        Received::Nothing => Err(Problem::new(
            400,
            "bad_request",
            "no namespace descriptor came with the first byte of the request",
        )
        .hint("send it as SCM_RIGHTS together with the first byte, on a connection of its own")),
        Received::TooMany => Err(Problem::new(
            400,
            "bad_request",
            "more than one descriptor came with the request; all were closed",
        )),
    }
}

fn not_allowed(group: Group) -> Problem {
    let word = group.word();
    Problem::new(403, "not_allowed", format!("this user may not {word}")).hint(format!(
        "ask root, or add the user under `gateway.control_users.{word}`"
    ))
}

/// Reads a body whole and exactly.
pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
    request: Request<Incoming>,
) -> Result<T, Problem> {
    let whole = tokio::time::timeout(
        PATIENCE,
        Limited::new(request.into_body(), MOST_BYTES).collect(),
    )
    .await;
    let bytes: Bytes = match whole {
        Err(_) => {
            return Err(Problem::new(
                408,
                "bad_request",
                "the body did not come in time",
            ));
        }
        Ok(Err(_)) => {
            return Err(Problem::new(
                413,
                "bad_request",
                format!("the body is broken off, or longer than {MOST_BYTES} bytes"),
            ));
        }
        Ok(Ok(whole)) => whole.to_bytes(),
    };
    let large = bytes.len() > MOST_AT_ONCE;
    let parse = move || {
        serde_json::from_slice(&bytes).map_err(|e| {
            Problem::new(
                400,
                "bad_request",
                format!("the body is not what this verb takes: {e}"),
            )
        })
    };
    if large {
        blocking(parse).await?
    } else {
        parse()
    }
}

/// A JSON reply.
pub(super) fn json(value: &impl Serialize) -> Result<Response<Body>, Problem> {
    let bytes =
        serde_json::to_vec(value).map_err(|e| Problem::new(500, "internal", e.to_string()))?;
    Ok(reply(StatusCode::OK, "application/json", bytes.into()))
}

fn text(text: String) -> Response<Body> {
    reply(StatusCode::OK, "text/plain; charset=utf-8", text.into())
}

/// A refusal's reply.
pub(super) fn refusal(problem: &Problem) -> Response<Body> {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = serde_json::to_vec(problem).unwrap_or_default();
    reply(status, "application/problem+json", bytes.into())
}

fn reply(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
