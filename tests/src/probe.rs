//! Denial tests as probes that run twice: against the gateway nothing may leak, against a plain forwarder it must.

use std::fmt::Debug;

use crate::{Lab, Mode, Sandbox};

/// What an attack achieved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leak {
    /// Something arrived: what, and where it was seen.
    Seen(String),
    /// Nothing did.
    Nothing,
}

impl Leak {
    /// `Seen` where there is anything in the list.
    pub fn of<T: Debug>(seen: &[T]) -> Self {
        seen.first().map_or(Self::Nothing, |first| {
            Self::Seen(format!("{} times, first {first:?}", seen.len()))
        })
    }

    /// `Seen` where it is true.
    pub fn when(seen: bool, what: &str) -> Self {
        if seen {
            Self::Seen(what.to_owned())
        } else {
            Self::Nothing
        }
    }

    /// The first leak of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Nothing { other } else { self }
    }
}

/// Proves a denial: nothing leaks through the gateway under this policy, or, with `LAB_PLAIN=1`, it does leak.
pub fn denied(policy: &str, probe: impl Fn(&Lab, &Sandbox) -> Leak) {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policy);
    judge(&lab, "", &probe(&lab, &sandbox));
}

/// Fails where the outcome does not fit the lab's mode.
pub fn judge(lab: &Lab, what: &str, leak: &Leak) {
    match (lab.mode(), leak) {
        (Mode::Gateway, Leak::Seen(seen)) => panic!("leaked through the gateway: {what} {seen}"),
        (Mode::Plain, Leak::Nothing) => {
            panic!("nothing leaked through a plain forwarder: this test proves nothing ({what})")
        }
        (Mode::Gateway, Leak::Nothing) | (Mode::Plain, Leak::Seen(_)) => {}
    }
}
