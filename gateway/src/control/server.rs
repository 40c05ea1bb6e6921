//! The server: accepts, learns who asks, reads one request at a time, answers.
//!
//! Bounded in every direction: connections in all and by user, time for a head and a body, bytes of a body. A part of the
//! places is root's and the gateway's own user's alone, and nobody is made to wait for a place: who cannot have one is
//! told so or hung up on, so that the queue of the socket stays short for the next. Each connection is a task of its own;
//! a panic in one ends that connection only.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixListener;

use super::access::{Group, Peer, is_ours, may};
use super::descriptor::{Carrier, Descriptor};
use super::refused::{Refusals, Teller};
use super::routes;
use super::verbs::Verbs;

/// The part of all places that is root's and the gateway's own user's alone: whatever the others do, the machine's owner
/// gets in.
const RESERVE: usize = 8;
/// The part that one other user may have: followers of a curious user must not keep a runner out.
const OF_USER: usize = 8;
/// A request head is due within this time.
const HEAD: Duration = Duration::from_secs(10);
/// After a failed accept.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A reply's body.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Binds the control socket. A stale one is replaced; a live one means that another gateway runs.
///
/// Only root can connect unless other users are configured; then everybody can, and each verb asks for the uid.
pub fn bind(path: &Path, others: bool) -> io::Result<net::UnixListener> {
    match net::UnixStream::connect(path) {
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another gateway answers on the control socket",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let listener = net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let mode = if others { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// How many connections there are.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// Those of users that are not root.
    others: usize,
    by_user: HashMap<u32, usize>,
}

/// Who has how many connections.
#[derive(Clone, Debug)]
struct Users {
    /// In all.
    most: usize,
    counts: Arc<Mutex<Counts>>,
}

/// One connection's place among its user's; given back on drop.
#[derive(Debug)]
struct Seat {
    users: Users,
    uid: u32,
}

impl Users {
    fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self, peer: Peer) -> Option<Seat> {
        let mut counts = self.counts();
        let other = !is_ours(peer.uid);
        let of_user = counts.by_user.get(&peer.uid).copied().unwrap_or_default();
        let of_others = self.most - self.most / RESERVE;
        let crowded = other && (of_user >= self.most / OF_USER || counts.others >= of_others);
        if crowded || counts.all >= self.most {
            return None;
        }
        counts.all += 1;
        counts.others += usize::from(other);
        counts.by_user.insert(peer.uid, of_user + 1);
        Some(Seat {
            users: self.clone(),
            uid: peer.uid,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.users.counts();
        counts.all -= 1;
        counts.others -= usize::from(!is_ours(self.uid));
        if let Some(count) = counts.by_user.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.by_user.remove(&self.uid);
            }
        }
    }
}

/// Serves until the gateway stops.
pub async fn serve(verbs: Arc<Verbs>, listener: UnixListener) {
    let places = *verbs.ctx.ceilings.descriptors();
    let users = Users::new(places.control);
    let (mut refusals, teller) = (Refusals::default(), Teller::new(places.refusals));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting a control connection");
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        let peer = match stream.peer_cred() {
            Ok(credentials) => Peer {
                uid: credentials.uid(),
            },
            Err(error) => {
                tracing::warn!(%error, "a control connection from nobody");
                continue;
            }
        };
        // From here on descriptors that nobody awaits are refused, and those that lie there already go to their own thread.
        let (carrier, descriptor) = Carrier::receiving(stream);
        if !may(verbs.users(), peer, Group::Attach) {
            carrier.refuse_descriptors();
        }
        let Some(seat) = users.seat(peer) else {
            if let Some(times) = refusals.count(peer.uid, Instant::now()) {
                tracing::warn!(
                    peer.uid,
                    times,
                    "no place for one more control connection of this user"
                );
            }
            teller.tell(verbs.tasks(), peer, carrier);
            continue;
        };
        let connection = verbs.clone();
        verbs.tasks().spawn("control connection", async move {
            let _held = seat;
            if let Err(error) = converse(connection, peer, (carrier, descriptor)).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a control connection ended"
                );
            }
        });
    }
}

async fn converse(
    verbs: Arc<Verbs>,
    peer: Peer,
    (carrier, descriptor): (Carrier, Descriptor),
) -> Result<(), hyper::Error> {
    let service =
        service_fn(move |request| answer(verbs.clone(), peer, descriptor.clone(), request));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(64)
        .serve_connection(TokioIo::new(carrier), service)
        .with_upgrades()
        .await
}

async fn answer(
    verbs: Arc<Verbs>,
    peer: Peer,
    descriptor: Descriptor,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    // Whatever came along belongs to this request and to no later one of the connection.
    let received = descriptor.take();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = routes::route(&verbs, peer, received, request).await.unwrap_or_else(|problem| {
        tracing::debug!(%method, path, code = %problem.code, problem = %problem, "a control request was refused");
        routes::refusal(&problem)
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1024;

    fn all_of(users: &Users, uid: u32) -> Vec<Seat> {
        std::iter::from_fn(|| users.seat(Peer { uid })).collect()
    }

    #[test]
    fn one_user_cannot_take_every_connection_and_gets_its_own_back() {
        let users = Users::new(MOST);
        let held = all_of(&users, 1000);
        assert_eq!(held.len(), MOST / OF_USER);
        assert!(users.seat(Peer { uid: 1001 }).is_some());
        drop(held);
        assert!(users.seat(Peer { uid: 1000 }).is_some());
    }

    #[test]
    fn all_other_users_together_cannot_keep_root_out() {
        let users = Users::new(MOST);
        let held: Vec<_> = (1000..1100).flat_map(|uid| all_of(&users, uid)).collect();
        assert_eq!(held.len(), MOST - MOST / RESERVE);
        assert!(users.seat(Peer { uid: 2000 }).is_none());
        let root = all_of(&users, 0);
        assert_eq!(root.len(), MOST / RESERVE);
        drop(root);
        assert!(users.seat(Peer { uid: 2000 }).is_none());
        drop(held);
        assert_eq!(all_of(&users, 0).len(), MOST);
        assert_eq!(users.counts().all, 0);
    }
}
