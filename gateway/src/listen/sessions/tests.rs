//! How long a session may be silent.

use std::time::Duration;

use netpolicy::policy::Limits;

use super::Place;
use crate::limits::{Ceilings, Ledger, Used};

#[test]
fn what_is_left_of_a_silence_shrinks_with_the_clock_and_is_whole_again_when_something_moves() {
    let ledger = Ledger::new(&Limits::default(), Used::default());
    let slot = ledger.admit(&Ceilings::from_descriptors(100_000)).unwrap();
    let place = Place::new(slot, 1_000);
    let limit = Duration::from_mins(2);
    assert_eq!(place.idle_left(120_000, limit), Duration::from_secs(1));
    place.touch(120_000);
    assert_eq!(place.idle_left(120_000, limit), limit);
    assert_eq!(place.idle_left(240_001, limit), Duration::ZERO);
}
