//! Answers to held SYNs that the rules of iptables cannot give: ICMP errors, said by the gateway itself.
//!
//! Owns what is known of each held packet until its verdict. Bounded by the queue's length: what is held beyond that is
//! dropped without a word, as any lost packet. Refuses to own the verdict.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use netpolicy::ruleset::FlowMark;

use super::icmp::{Errors, Trouble};
use super::icmp_syn::Refused;
use super::queue::{Held, Syn, Verdict};

/// As many as the kernel's queue holds.
const MOST: usize = 65_536;

/// Says ICMP errors about held SYNs.
#[derive(Debug)]
pub(super) struct Answers {
    errors: Errors,
    held: Mutex<HashMap<Held, Refused>>,
}

impl Answers {
    /// With the sockets that say them.
    pub(super) fn new(errors: Errors) -> Self {
        Self {
            errors,
            held: Mutex::default(),
        }
    }

    /// A SYN is held from now on.
    pub(super) fn remember(&self, syn: &Syn) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() < MOST {
            let refused = Refused {
                from: syn.from,
                to: syn.to,
                isn: syn.isn,
            };
            held.insert(syn.held, refused);
        }
    }

    /// Says what the verdict means, where the kernel would not, and gives the one that the kernel understands.
    pub(super) fn give(&self, packet: Held, verdict: Verdict) -> Verdict {
        let refused = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.remove(&packet)
        };
        let Some(trouble) = trouble(verdict) else {
            return verdict;
        };
        if let Some(refused) = refused {
            self.errors.refuse(refused, trouble);
        }
        Verdict::Drop
    }
}

/// The error that a verdict means; none for those that the rules carry out.
const fn trouble(verdict: Verdict) -> Option<Trouble> {
    match verdict {
        Verdict::Mark(FlowMark::HostUnreachable) => Some(Trouble::HostUnreachable),
        Verdict::Mark(FlowMark::NoRoute) => Some(Trouble::NoRoute),
        Verdict::Mark(FlowMark::Prohibited) => Some(Trouble::Prohibited),
        Verdict::Mark(FlowMark::Deliver | FlowMark::Reset) | Verdict::Drop => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_way_are_said_here() {
        for (mark, said) in [
            (FlowMark::Deliver, None),
            (FlowMark::Reset, None),
            (FlowMark::HostUnreachable, Some(Trouble::HostUnreachable)),
            (FlowMark::NoRoute, Some(Trouble::NoRoute)),
            (FlowMark::Prohibited, Some(Trouble::Prohibited)),
        ] {
            assert_eq!(trouble(Verdict::Mark(mark)), said);
        }
        assert_eq!(trouble(Verdict::Drop), None);
    }
}
