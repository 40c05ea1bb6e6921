//! What is counted while it happens. Every counter is an atomic that exists before its first event.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use netpolicy::reason::Reason;

use crate::network::flows::Door;
use crate::record::Entry;

/// Seconds: invariant 7 asks for a change within 50 ms and its cuts within two seconds.
const CHANGE_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.0];

/// A reason code.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct ByReason {
    reason: &'static str,
}

/// A door.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct ByDoor {
    door: &'static str,
}

/// A DNS response code.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct ByCode {
    code: &'static str,
}

/// The codes that the DNS door answers with, and the rest.
const CODES: [&str; 7] = [
    "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "other",
];

/// Everything that is counted as it happens; cheap to touch, shared by every door through the journal.
#[derive(Debug)]
pub struct Meters {
    /// Flows that were permitted and dialled.
    flows_permitted: Family<ByDoor, Counter>,
    /// Flows that ended.
    flows_closed: Counter,
    /// Denials, those that the record folds included.
    denials: Family<ByReason, Counter>,
    /// Permitted destinations that failed.
    failures: Family<ByReason, Counter>,
    /// Denials because a budget or rate was used up.
    limits_reached: Family<ByReason, Counter>,
    /// Bytes of ended flows: from sandboxes, to sandboxes. What is shown adds those of live flows.
    closed_bytes: [Counter; 2],
    /// Answers of the DNS door, in the order of [`CODES`].
    dns_answers: Family<ByCode, Counter>,
    dns_fast: [Counter; CODES.len()],
    /// Echo requests that nobody may send: damaged, of another code, too long.
    echoes_refused: Counter,
    /// Seconds from the request to the acknowledgement of a replaced policy.
    policy_change_seconds: Histogram,
    /// Anchors that syslog did not take.
    anchors_lost: Counter,
    /// Records that a collector of telemetry did not take.
    telemetry_lost: Counter,
}

impl Default for Meters {
    fn default() -> Self {
        let dns_answers = Family::<ByCode, Counter>::default();
        let dns_fast = CODES.map(|code| dns_answers.get_or_create_owned(&ByCode { code }));
        let meters = Self {
            flows_permitted: Family::default(),
            flows_closed: Counter::default(),
            denials: Family::default(),
            failures: Family::default(),
            limits_reached: Family::default(),
            closed_bytes: Default::default(),
            dns_answers,
            dns_fast,
            echoes_refused: Counter::default(),
            policy_change_seconds: Histogram::new(CHANGE_BUCKETS),
            anchors_lost: Counter::default(),
            telemetry_lost: Counter::default(),
        };
        // A collector that sees a zero first can tell a rise from a beginning.
        for door in Door::ALL {
            drop(meters.flows_permitted.get_or_create(&door.into()));
        }
        for reason in Reason::ALL.iter().copied() {
            if is_limit(reason) {
                drop(meters.limits_reached.get_or_create(&reason.into()));
            }
            if is_failure(reason) {
                drop(meters.failures.get_or_create(&reason.into()));
            } else {
                drop(meters.denials.get_or_create(&reason.into()));
            }
        }
        meters
    }
}

impl From<Reason> for ByReason {
    fn from(reason: Reason) -> Self {
        Self {
            reason: reason.code(),
        }
    }
}

impl From<Door> for ByDoor {
    fn from(door: Door) -> Self {
        let door = match door {
            Door::Tcp => "tcp",
            Door::Udp => "udp",
            Door::Icmp => "icmp",
            Door::Dns => "dns",
            Door::Proxy => "proxy",
            Door::Ingress => "ingress",
        };
        Self { door }
    }
}

fn is_limit(reason: Reason) -> bool {
    reason.code().starts_with("limit_")
}

fn is_failure(reason: Reason) -> bool {
    reason.code().starts_with("upstream_")
}

impl Meters {
    /// Counts an entry of the record, written or folded.
    pub fn record(&self, entry: &Entry) {
        match entry {
            Entry::Open(open) => {
                let door = open.subject.door.into();
                self.flows_permitted.get_or_create(&door).inc();
            }
            Entry::Close(close) => {
                self.flows_closed.inc();
                let [up, down] = &self.closed_bytes;
                up.inc_by(close.up);
                down.inc_by(close.down);
            }
            Entry::Denial(denied) => {
                let reason = denied.reason.into();
                self.denials.get_or_create(&reason).inc();
                if is_limit(denied.reason) {
                    self.limits_reached.get_or_create(&reason).inc();
                }
            }
            Entry::Failure(denied) => {
                self.failures.get_or_create(&denied.reason.into()).inc();
            }
            // A folded entry's denials were counted one by one.
            Entry::Folded { .. }
            | Entry::Network(_)
            | Entry::Source(_)
            | Entry::Selftest(_)
            | Entry::Posture { .. }
            | Entry::Gap { .. } => {}
        }
    }

    /// Counts an answer of the DNS door by its response code.
    pub fn answered(&self, code: u16) {
        let at = usize::from(code).min(CODES.len() - 1);
        if let Some(counter) = self.dns_fast.get(at) {
            counter.inc();
        }
    }

    /// Counts an echo request that nobody may send.
    pub fn echo_refused(&self) {
        self.echoes_refused.inc();
    }

    /// Counts a replaced policy.
    pub fn policy_changed(&self, took: std::time::Duration) {
        self.policy_change_seconds.observe(took.as_secs_f64());
    }

    /// Counts an anchor that syslog did not take.
    pub fn anchor_lost(&self) {
        self.anchors_lost.inc();
    }

    /// Counts records that a collector of telemetry did not take.
    pub fn telemetry_lost(&self, records: u64) {
        self.telemetry_lost.inc_by(records);
    }

    /// How many those are.
    #[cfg(test)]
    pub fn telemetry_lost_so_far(&self) -> u64 {
        self.telemetry_lost.get()
    }

    /// Bytes of ended flows, from sandboxes and to them.
    pub fn closed_bytes(&self) -> [u64; 2] {
        self.closed_bytes.each_ref().map(Counter::get)
    }

    /// Adds all of them to a registry.
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "flows_permitted",
            "Flows that were permitted and dialled",
            self.flows_permitted.clone(),
        );
        to.register(
            "flows_closed",
            "Flows that ended",
            self.flows_closed.clone(),
        );
        to.register(
            "denials",
            "Flows, requests and questions that were denied",
            self.denials.clone(),
        );
        to.register(
            "failures",
            "Permitted destinations that could not be reached",
            self.failures.clone(),
        );
        to.register(
            "limits_reached",
            "Denials because a budget or rate was used up",
            self.limits_reached.clone(),
        );
        to.register(
            "dns_answers",
            "Answers of the DNS door by response code",
            self.dns_answers.clone(),
        );
        to.register(
            "echoes_refused",
            "Echo requests that were damaged, of another code or too long",
            self.echoes_refused.clone(),
        );
        to.register(
            "policy_change_seconds",
            "From the request to the acknowledgement of a replaced policy",
            self.policy_change_seconds.clone(),
        );
        to.register(
            "anchors_lost",
            "Signed heads that syslog did not take",
            self.anchors_lost.clone(),
        );
        to.register(
            "telemetry_lost",
            "Records that the collector of telemetry did not take",
            self.telemetry_lost.clone(),
        );
    }
}
