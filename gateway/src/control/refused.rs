//! Who finds no place at the control socket: told so, as long as few are being told at once, and hung up on beyond that.
//!
//! One line a minute for each such user: a log is not theirs to fill. What they sent is read as far as a request's head;
//! no descriptor is taken from it, and nobody but the refused one waits.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::access::Peer;
use super::descriptor::Carrier;
use super::{problems, routes};
use crate::tasks::Tasks;

/// Between two lines about one user.
const APART: Duration = Duration::from_mins(1);
/// Users that are remembered at once.
const MOST: usize = 1024;
/// Who is refused has sent its request by now, or is not told why.
const TELLING: Duration = Duration::from_secs(1);

/// Who was refused since when, and how often it has not been said.
#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<u32, (Instant, u64)>);

impl Refusals {
    /// Counts one; how many there were since the last line, if it is time for one.
    pub(super) fn count(&mut self, uid: u32, now: Instant) -> Option<u64> {
        if self.0.len() >= MOST && !self.0.contains_key(&uid) {
            self.0
                .retain(|_, (said, _)| now.saturating_duration_since(*said) < APART);
            if self.0.len() >= MOST {
                return None;
            }
        }
        let Some((said, silent)) = self.0.get_mut(&uid) else {
            self.0.insert(uid, (now, 0));
            return Some(1);
        };
        *silent += 1;
        if now.saturating_duration_since(*said) < APART {
            return None;
        }
        *said = now;
        Some(std::mem::take(silent))
    }
}

/// Places of those who are told.
#[derive(Debug)]
pub(super) struct Teller(Arc<Semaphore>);

impl Teller {
    /// So many may be told at once.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Tells one, if it may still be told.
    pub(super) fn tell(&self, tasks: &Tasks, peer: Peer, carrier: Carrier) {
        let Ok(place) = self.0.clone().try_acquire_owned() else {
            return;
        };
        carrier.refuse_descriptors();
        tasks.spawn("control refusal", async move {
            let _place = place;
            // What becomes of it concerns the refused one alone.
            let _ = tokio::time::timeout(TELLING, say(carrier, peer)).await;
        });
    }
}

/// Answers one request, whatever it asks, with why there is no place.
async fn say(carrier: Carrier, peer: Peer) -> Result<(), hyper::Error> {
    let problem = problems::crowded(peer.uid);
    let service = service_fn(move |_: Request<Incoming>| {
        let response = routes::refusal(&problem);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TELLING)
        .keep_alive(false)
        .max_headers(64)
        .serve_connection(TokioIo::new(carrier), service)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_fills_one_line_a_minute_and_another_has_its_own() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(refusals.count(1000, at(0)), Some(1));
        let told = (1..60).filter_map(|second| refusals.count(1000, at(second)));
        assert_eq!(told.count(), 0);
        assert_eq!(refusals.count(1001, at(59)), Some(1));
        assert_eq!(refusals.count(1000, at(60)), Some(60));
        assert_eq!(refusals.count(1000, at(119)), None);
    }
}
