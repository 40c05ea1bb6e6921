//! Answers that were given a moment ago, under the very same inputs.
//!
//! What is said to a question is a pure function of snapshot, second, servers and what those said. Where all of them are
//! the same, so is the answer: this remembers permitted answers (never denials, which are recorded each) by the octets of
//! the question, for at most a second. A replaced policy is another snapshot and finds nothing here. It is what makes
//! a busy name cheap: no name is built, no rule is looked at, nothing is allocated.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use netpolicy::decide::Snapshot;
use netpolicy::ids::UnixSeconds;

use crate::resolve::Addresses;

/// Questions kept; more begin anew.
const MOST: usize = 1024;
/// Longer questions (a name of 251 octets) are not worth a copy.
const LONGEST: usize = 256;

/// Permitted answers of one network.
#[derive(Debug, Default)]
pub struct Memo(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The snapshot is held, so that its address is nobody else's.
    under: Option<(Arc<Snapshot>, Moment)>,
    given: HashMap<Box<[u8]>, Given>,
}

/// What an answer depends on besides the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Rules end on full seconds.
    pub second: UnixSeconds,
    /// Which servers were asked.
    pub epoch: u64,
}

/// A permitted answer.
#[derive(Clone, Debug)]
pub struct Given {
    /// What it was made of.
    pub found: Arc<Addresses>,
    /// The synthetic address that was said for it; none for `names: real` and for "nothing".
    pub leased: Option<IpAddr>,
}

impl Memo {
    /// What was answered to this question under this very snapshot in this moment, if it still holds. The spelling of
    /// the question does not matter.
    pub fn recall(
        &self,
        snapshot: &Arc<Snapshot>,
        moment: Moment,
        question: &[u8],
        now: Instant,
    ) -> Option<Given> {
        let mut buffer = [0; LONGEST];
        let key = spelt(question, &mut buffer)?;
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (under, at) = state.under.as_ref()?;
        if !Arc::ptr_eq(under, snapshot) || *at != moment {
            return None;
        }
        let given = state.given.get(key)?;
        (given.found.until > now && !given.found.is_to_be_refreshed(now)).then(|| given.clone())
    }

    /// This was answered.
    pub fn gave(&self, snapshot: &Arc<Snapshot>, moment: Moment, question: &[u8], given: Given) {
        let mut buffer = [0; LONGEST];
        let Some(key) = spelt(question, &mut buffer) else {
            return;
        };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = state
            .under
            .as_ref()
            .is_some_and(|(own, at)| Arc::ptr_eq(own, snapshot) && *at == moment);
        if !same || state.given.len() >= MOST {
            state.given.clear();
            state.under = Some((snapshot.clone(), moment));
        }
        state.given.insert(key.into(), given);
    }
}

/// The question in lower case. Octets of lengths, type (A or AAAA) and class are none of the letters.
fn spelt<'a>(question: &[u8], buffer: &'a mut [u8; LONGEST]) -> Option<&'a [u8]> {
    let key = buffer.get_mut(..question.len())?;
    key.copy_from_slice(question);
    key.make_ascii_lowercase();
    Some(key)
}
