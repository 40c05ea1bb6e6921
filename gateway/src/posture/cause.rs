//! Why a gateway is not enforcing, in words for people. Refuses to own: what is done about it.

/// Why the gateway is sealed, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// What is wrong.
    pub text: String,
    /// The command or change that fixes it.
    pub hint: String,
}

impl Cause {
    /// A cause.
    pub fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: hint.into(),
        }
    }

    /// What an operator has opened: no fault, and never quiet.
    pub fn opened() -> Self {
        Self::new(
            "private networks and this machine are open to internet sandboxes (`gateway.egress_filter: off`)",
            "remove `gateway.egress_filter: off` and start the gateway again",
        )
    }

    /// The clean end: nothing is wrong.
    pub fn stopping() -> Self {
        Self::new("the gateway is stopping", "start it again")
    }
}
