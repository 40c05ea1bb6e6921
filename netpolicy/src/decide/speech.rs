//! How the bytes of a flow shall be judged, as rules say it and as layers combine it.

use crate::policy::{Protocol, Rule, Speaks};

/// One layer's word on the bytes of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Speech {
    /// No rule matched; the mode alone permits.
    Unsaid,
    /// A rule without `speaks`: the port's default.
    Default(Speaks),
    /// A rule with `speaks`.
    Written(Speaks),
}

impl Speech {
    pub(super) fn of(rule: &Rule, port: u16, protocol: Protocol) -> Self {
        match rule.speaks {
            Some(speaks) => Self::Written(speaks),
            None => Self::Default(Speaks::default_for(port, protocol)),
        }
    }

    /// Two matching rules of one policy: what is written beats a default, then the stricter one counts.
    pub(super) fn within_layer(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unsaid, one) | (one, Self::Unsaid) => one,
            (Self::Written(a), Self::Written(b)) => Self::Written(stricter(a, b)),
            (Self::Written(a), Self::Default(_)) | (Self::Default(_), Self::Written(a)) => {
                Self::Written(a)
            }
            (Self::Default(a), Self::Default(b)) => Self::Default(stricter(a, b)),
        }
    }

    pub(super) fn speaks(self) -> Option<Speaks> {
        match self {
            Self::Unsaid => None,
            Self::Default(speaks) | Self::Written(speaks) => Some(speaks),
        }
    }
}

/// TLS before HTTP before anything.
fn stricter(a: Speaks, b: Speaks) -> Speaks {
    match (a, b) {
        (Speaks::Tls, _) | (_, Speaks::Tls) => Speaks::Tls,
        (Speaks::Http, _) | (_, Speaks::Http) => Speaks::Http,
        (Speaks::Any, Speaks::Any) => Speaks::Any,
    }
}

/// Two layers: both must be content, so one that wants TLS and one that wants HTTP leave nothing (`None`).
pub(super) fn both(a: Speaks, b: Speaks) -> Option<Speaks> {
    match (a, b) {
        (Speaks::Any, one) | (one, Speaks::Any) => Some(one),
        (a, b) => (a == b).then_some(a),
    }
}
