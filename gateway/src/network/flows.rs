//! Live flows of one network: counted, listed, re-decided on policy change, ended with a cause.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use netpolicy::decide::{Evidence, Ground, Intent};
use netpolicy::reason::Reason;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::ended::Server;

/// Which door a flow came through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// Transparent TCP.
    Tcp,
    /// Transparent UDP.
    Udp,
    /// ICMP echo.
    Icmp,
    /// DNS.
    Dns,
    /// Explicit proxy.
    Proxy,
    /// The way in.
    Ingress,
}

impl Door {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Tcp,
        Self::Udp,
        Self::Icmp,
        Self::Dns,
        Self::Proxy,
        Self::Ingress,
    ];
}

/// One live flow.
#[derive(Debug)]
pub struct Flow {
    /// Unique in this gateway's life and in the record.
    pub id: u64,
    /// Which door.
    pub door: Door,
    /// Sandbox side.
    pub source: SocketAddr,
    /// What the sandbox addressed (lease or real address).
    pub destination: SocketAddr,
    /// What was dialled.
    pub upstream: SocketAddr,
    /// Local end of the upstream socket, once it is known.
    pub local: OnceLock<SocketAddr>,
    /// The intent, with answers and what was heard, to decide again under another policy.
    pub intent: Intent,
    /// Evidence of the first bytes, once there was any: of the latest request on kept-alive HTTP, of each live one in
    /// HTTP/2.
    pub evidence: Mutex<Vec<Evidence>>,
    /// Whether every request of it is read, not only its first bytes.
    pub reads_requests: AtomicBool,
    /// Why it was permitted.
    pub ground: Ground,
    /// Milliseconds since the epoch at which it was opened.
    pub opened_ms: i64,
    /// Bytes from the sandbox.
    pub up: AtomicU64,
    /// Bytes to the sandbox.
    pub down: AtomicU64,
    /// Fires when the flow must end now (reset both legs).
    pub cut: CancellationToken,
    cause: OnceLock<Reason>,
}

impl Flow {
    /// Ends the flow with a cause; the first cause stays.
    pub fn end(&self, cause: Reason) {
        let _ = self.cause.set(cause);
        self.cut.cancel();
    }

    /// Where it leads, as the sandbox says and as it was dialled.
    pub fn server(&self) -> Server {
        [self.destination, self.upstream]
    }

    /// Whether it is a session that said a hello of QUIC.
    pub fn is_quic(&self) -> bool {
        let evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        let is_hello = |said: &Evidence| matches!(said, Evidence::Tls { .. });
        self.door == Door::Udp && evidence.iter().any(is_hello)
    }

    /// Why it was ended from outside, if it was.
    pub fn cause(&self) -> Option<Reason> {
        self.cause.get().copied()
    }
}

/// What a door knows when it registers a flow.
#[derive(Debug)]
pub struct FlowFacts {
    /// See [`Flow`].
    pub door: Door,
    /// See [`Flow`].
    pub source: SocketAddr,
    /// See [`Flow`].
    pub destination: SocketAddr,
    /// See [`Flow`].
    pub upstream: SocketAddr,
    /// See [`Flow`].
    pub intent: Intent,
    /// See [`Flow`].
    pub ground: Ground,
    /// See [`Flow`].
    pub opened_ms: i64,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Live flows of one network. Shared with the guards that remove their flow on drop.
#[derive(Clone, Debug, Default)]
pub struct FlowTable(Arc<Mutex<HashMap<u64, Arc<Flow>>>>);

/// Removes its flow from the table when the relay is over.
#[derive(Debug)]
pub struct FlowGuard {
    table: FlowTable,
    /// The flow.
    pub flow: Arc<Flow>,
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.table
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.flow.id);
    }
}

impl FlowTable {
    /// Flow ids go on after a restart: called once with a number above every recorded id.
    pub fn start_ids_at(first: u64) {
        NEXT.fetch_max(first, Ordering::Relaxed);
    }

    /// Registers a flow.
    pub fn open(&self, facts: FlowFacts) -> FlowGuard {
        let flow = Arc::new(Flow {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            door: facts.door,
            source: facts.source,
            destination: facts.destination,
            upstream: facts.upstream,
            local: OnceLock::new(),
            intent: facts.intent,
            evidence: Mutex::new(Vec::new()),
            reads_requests: AtomicBool::new(false),
            ground: facts.ground,
            opened_ms: facts.opened_ms,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            cut: CancellationToken::new(),
            cause: OnceLock::new(),
        });
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(flow.id, flow.clone());
        FlowGuard {
            table: self.clone(),
            flow,
        }
    }

    /// All live flows, oldest first.
    pub fn all(&self) -> Vec<Arc<Flow>> {
        let mut all: Vec<_> = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        all.sort_by_key(|f| f.id);
        all
    }

    /// Ends every flow.
    pub fn end_all(&self, cause: Reason) {
        for flow in self.all() {
            flow.end(cause);
        }
    }
}
