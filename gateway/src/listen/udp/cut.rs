//! What a connection that came before forbids.
//!
//! Where bytes show nothing (RFC 9287 lets even the bit be cleared that tells QUIC apart), only who sends them where can
//! tell. Where a newer policy ended a connection, nothing but a hello goes to its server until the client has given up.
//! Which these are is the network's ([`crate::network::ended`]).

use std::time::Instant;

use crate::detect::quic::Look;
use crate::network::ended::KEPT;

/// What is known of the connections that came before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Past {
    /// None that could go on.
    Clean,
    /// One may have been, whose name nobody knows any more: a short header may be of it.
    Unknown,
    /// A newer policy ended one with this server: whatever shows no hello may be of it.
    Cut,
}

impl Past {
    /// Whether a datagram may carry on what must not go on.
    pub fn forbids(self, look: &Look) -> bool {
        match self {
            Self::Clean => false,
            Self::Unknown => matches!(look, Look::Middle),
            Self::Cut => matches!(look, Look::Pass | Look::Middle | Look::NotQuic),
        }
    }
}

/// Whether connections of before a restart could go on still.
pub(super) fn is_young(adopted: Option<Instant>, now: Instant) -> bool {
    adopted.is_some_and(|at| now.saturating_duration_since(at) < KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adopted_network_is_doubted_for_minutes_and_a_fresh_one_never() {
        let now = Instant::now();
        assert!(!is_young(None, now));
        assert!(is_young(Some(now), now + KEPT / 2) && !is_young(Some(now), now + KEPT));
    }

    #[test]
    fn what_may_go_on_depends_on_what_came_before() {
        let looks = [Look::Middle, Look::NotQuic, Look::Pass, Look::Need];
        let forbidden = |past: Past| looks.each_ref().map(|look| past.forbids(look));
        assert_eq!(forbidden(Past::Clean), [false; 4]);
        assert_eq!(forbidden(Past::Unknown), [true, false, false, false]);
        assert_eq!(forbidden(Past::Cut), [true, true, true, false]);
    }
}
