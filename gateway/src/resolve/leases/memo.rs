//! Verdicts that were reached a moment ago, under the very same inputs.
//!
//! A verdict is a pure function of snapshot, second and answers. Where all three are the same objects, so is the
//! verdict: this remembers permissions (never denials, which are recorded each) for at most a second. A replaced
//! policy is another snapshot and finds nothing here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use netpolicy::decide::Snapshot;
use netpolicy::ids::UnixSeconds;
use netpolicy::name::Name;

use crate::resolve::Addresses;

/// Names kept; more begin anew.
const MOST: usize = 1024;

/// Permitted answers of one network.
#[derive(Debug, Default)]
pub struct Memo(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Held, so that its address is nobody else's.
    under: Option<(Arc<Snapshot>, UnixSeconds)>,
    permitted: HashMap<Name, Arc<Addresses>>,
}

impl State {
    fn is_under(&self, snapshot: &Arc<Snapshot>, now: UnixSeconds) -> bool {
        self.under
            .as_ref()
            .is_some_and(|(own, at)| Arc::ptr_eq(own, snapshot) && *at == now)
    }
}

impl Memo {
    /// Whether these very answers of the name were permitted under this very snapshot in this second.
    pub fn permits(
        &self,
        snapshot: &Arc<Snapshot>,
        now: UnixSeconds,
        name: &Name,
        found: &Arc<Addresses>,
    ) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_under(snapshot, now)
            && state
                .permitted
                .get(name)
                .is_some_and(|own| Arc::ptr_eq(own, found))
    }

    /// They were.
    pub fn permitted(
        &self,
        snapshot: &Arc<Snapshot>,
        now: UnixSeconds,
        name: &Name,
        found: &Arc<Addresses>,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_under(snapshot, now) || state.permitted.len() >= MOST {
            state.permitted.clear();
            state.under = Some((snapshot.clone(), now));
        }
        state.permitted.insert(name.clone(), found.clone());
    }
}
