//! What both directions of one flow share: its counters, its network's budgets, its limits of time, and its end.

use std::time::Duration;

use netpolicy::decide::{
    Denial, Evidence, Ground, RelayPermit, decide_bytes, judges_each_request, judges_names,
};
use netpolicy::reason::Reason;

use crate::context::{Context, now};
use crate::detect::{Hello, Language};
use crate::network::Network;
use crate::network::flows::Flow;

/// Limits of time; a value so that tests need not wait for minutes.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// A ClientHello or request head is due within this time.
    pub head: Duration,
    /// A flow on which no byte ever moved is ended after this time.
    pub silent: Duration,
    /// A flow to a bare address on which a name could matter is judged without one after this much silence: server-first
    /// protocols work, and a client that is slower than this is still judged on its bytes afterwards.
    pub hear: Duration,
    /// What a dead peer still sent is delivered for at most this long before the reset.
    pub drain: Duration,
    /// What a server says without being asked is passed on for at most this long before the connection is closed.
    pub unasked: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            silent: silent(),
            hear: Duration::from_millis(250),
            drain: Duration::from_secs(5),
            unasked: Duration::from_millis(200),
        }
    }
}

fn silent() -> Duration {
    #[cfg(test)]
    if let Some(set) = tests::SILENT.get() {
        return *set;
    }
    Duration::from_mins(10)
}

#[cfg(test)]
pub mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    /// What a test of a whole gateway has set instead of ten minutes, for its process.
    pub static SILENT: OnceLock<Duration> = OnceLock::new();
}

/// How a flow ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The sandbox closed first, both directions are done.
    ClientClosed,
    /// The far end closed first, both directions are done.
    ServerClosed,
    /// One side reset or died: both are reset.
    Reset,
    /// No byte ever moved.
    Idle,
    /// The bytes were denied: said in their own language.
    Denied(Box<Refusal>),
    /// Ended from outside or by a budget.
    Cause(Reason),
}

/// A denial together with how to say it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What was decided.
    pub denial: Denial,
    /// How the client hears it.
    pub language: Language,
    /// HTTP status.
    pub status: u16,
    /// Whether the answer may carry a body (not for HEAD).
    pub body: bool,
    /// Server name or Host that the client said.
    pub heard: Option<String>,
}

impl Refusal {
    /// With the usual status.
    pub fn new(denial: Denial, language: Language, evidence: &Evidence) -> Self {
        let body = !matches!(evidence, Evidence::Http { method, .. } if method == "HEAD");
        Self {
            denial,
            language,
            status: 403,
            body,
            heard: heard(evidence),
        }
    }
}

/// The name that bytes carry, as text for the record.
pub fn heard(evidence: &Evidence) -> Option<String> {
    match evidence {
        Evidence::Tls { name } => name.as_ref().map(ToString::to_string),
        Evidence::Http {
            host: Some(netpolicy::name::Host::Name(name)),
            ..
        } => Some(name.to_string()),
        Evidence::Http {
            host: Some(netpolicy::name::Host::Address(address)),
            ..
        } => Some(address.to_string()),
        Evidence::Http { host: None, .. }
        | Evidence::TlsMalformed
        | Evidence::HttpMalformed
        | Evidence::Opaque => None,
    }
}

/// A denial that a door makes without a policy's line: shapes that no rule can permit.
pub fn plain_denial(reason: Reason) -> Denial {
    Denial {
        reason,
        layer: None,
        policy: None,
        rule: None,
        class: None,
        note: None,
    }
}

impl End {
    /// As the record says it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::ClientClosed => "client_closed",
            Self::ServerClosed => "server_closed",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::Denied(refusal) => refusal.denial.reason.code(),
            Self::Cause(reason) => reason.code(),
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the sandbox.
    Up,
    /// To the sandbox.
    Down,
}

/// One flow and what it counts against.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// Shared handles.
    pub ctx: &'a Context,
    /// Whose flow.
    pub network: &'a Network,
    /// The flow.
    pub flow: &'a Flow,
    /// Limits of time.
    pub waits: Waits,
}

impl Lane<'_> {
    /// Counts bytes before they are forwarded and says how long to wait after that; `Err` ends the flow.
    pub(crate) fn count(&self, way: Way, bytes: usize) -> Result<Duration, End> {
        use std::sync::atomic::Ordering::Relaxed;
        let (bytes, ledger) = (bytes as u64, &self.network.ledger);
        match way {
            Way::Up => {
                ledger.upload(bytes).map_err(End::Cause)?;
                self.flow.up.fetch_add(bytes, Relaxed);
                Ok(ledger.pace_up(bytes))
            }
            Way::Down => {
                ledger.download(bytes).map_err(End::Cause)?;
                self.flow.down.fetch_add(bytes, Relaxed);
                Ok(ledger.pace_down(bytes))
            }
        }
    }

    /// Decides bytes under the policy of now and keeps the evidence for later policies.
    pub(crate) fn decide(&self, evidence: &Evidence) -> Result<RelayPermit, Denial> {
        let decided = self.permits(evidence);
        if decided.is_ok() {
            self.keep(vec![evidence.clone()]);
        }
        decided
    }

    /// The same, and nothing is kept.
    pub(crate) fn permits(&self, evidence: &Evidence) -> Result<RelayPermit, Denial> {
        self.decide_with(&self.flow.ground, evidence)
    }

    /// Keeps what the flow says now for later policies, all of which must be permitted.
    pub(crate) fn keep(&self, evidence: Vec<Evidence>) {
        *self
            .flow
            .evidence
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = evidence;
    }

    /// Decides that the far end may speak although the client has not: nothing is kept as evidence.
    pub(crate) fn decide_opaque(&self) -> Result<RelayPermit, Denial> {
        self.decide_with(&self.flow.ground, &Evidence::Opaque)
    }

    /// Whether a name that only a later request says could be denied on this flow.
    pub(crate) fn judges_each_request(&self) -> bool {
        judges_each_request(&self.network.live.load().snapshot, &self.flow.ground, now())
    }

    /// Whether, over UDP, a name could be denied here.
    pub(crate) fn judges_names(&self) -> bool {
        judges_names(&self.network.live.load().snapshot, &self.flow.ground, now())
    }

    fn decide_with(&self, ground: &Ground, evidence: &Evidence) -> Result<RelayPermit, Denial> {
        decide_bytes(&self.network.live.load().snapshot, ground, evidence, now())
    }
}

/// What the close record says about the bytes.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Server name.
    pub sni: Option<String>,
    /// Protocol offers.
    pub alpn: Vec<String>,
    /// Last request: method, path without query.
    pub http: Option<(String, String)>,
    /// Datagrams up and down, of a session over UDP.
    pub datagrams: Option<(u64, u64)>,
}

impl Notes {
    pub(crate) fn hello(&mut self, hello: Option<&Hello>) {
        if let Some(hello) = hello {
            self.sni = hello.name.as_ref().map(ToString::to_string);
            self.alpn.clone_from(&hello.alpn);
        }
    }
}
