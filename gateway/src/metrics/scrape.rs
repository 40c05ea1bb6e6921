//! One look at what is a state: live flows, networks, posture, journal, descriptors, queue.
//!
//! Everything is read when it is asked for; nothing is kept up to date for nobody. Blocks for milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::context::Context;
use crate::kernel::{Enforcer, Firewall};
use crate::posture::Posture;

/// What a look needs.
#[derive(Debug)]
pub struct Scrape {
    ctx: Context,
    posture: Arc<Posture>,
    firewall: Firewall,
    /// Bytes shown last, by direction: what flows move and what they had moved when they ended are read one after the
    /// other, and a counter that once went back would look like a restart.
    shown: [AtomicU64; 2],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByDirection {
    direction: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// A kernel counter; its names are those of our own rules.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ByRule {
    rule: String,
}

impl Scrape {
    /// A look at this gateway.
    pub fn new(ctx: Context, posture: Arc<Posture>, firewall: Firewall) -> Self {
        Self {
            ctx,
            posture,
            firewall,
            shown: Default::default(),
        }
    }

    /// Everything as text.
    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("sallyport");
        self.ctx.journal.meters().register(&mut registry);
        self.flows(&mut registry);
        self.networks(&mut registry);
        self.posture(&mut registry);
        self.journal(&mut registry);
        self.machine(&mut registry);
        let mut text = String::new();
        if encode(&mut text, &registry).is_err() {
            // Writing to a String cannot fail.
            text.clear();
        }
        text
    }

    fn flows(&self, to: &mut Registry) {
        let (mut flows, mut live) = (0_u64, [0_u64; 2]);
        for network in self.ctx.networks.all() {
            for flow in network.flows.all() {
                flows += 1;
                let [up, down] = &mut live;
                *up = up.saturating_add(flow.up.load(Ordering::Relaxed));
                *down = down.saturating_add(flow.down.load(Ordering::Relaxed));
            }
        }
        gauge(to, "flows_open", "Live flows", flows);
        let bytes = Family::<ByDirection, prometheus_client::metrics::counter::Counter>::default();
        let closed = self.ctx.journal.meters().closed_bytes();
        let both = ["up", "down"].into_iter().zip(&self.shown);
        for ((direction, shown), (closed, live)) in both.zip(closed.into_iter().zip(live)) {
            let now = closed.saturating_add(live);
            let before = shown.fetch_max(now, Ordering::Relaxed);
            let counter = bytes.get_or_create_owned(&ByDirection { direction });
            counter.inc_by(before.max(now));
        }
        to.register(
            "bytes",
            "Bytes of flows: up from sandboxes, down to them",
            bytes,
        );
        let (used, most) = self.ctx.ceilings.flows();
        gauge(
            to,
            "flow_slots_used",
            "Places of flows that are taken",
            count(used),
        );
        gauge(
            to,
            "flow_slots",
            "Places of flows that there are",
            count(most),
        );
    }

    fn networks(&self, to: &mut Registry) {
        let networks = self.ctx.networks.all();
        gauge(to, "networks", "Attached networks", count(networks.len()));
        let leases = networks.iter().map(|n| n.leases.len()).sum::<usize>();
        gauge(
            to,
            "leases",
            "Names that networks hold an address for",
            count(leases),
        );
    }

    fn posture(&self, to: &mut Registry) {
        let view = self.posture.view();
        let states = Family::<ByState, Gauge>::default();
        for state in ["enforcing", "sealed", "without_enforcement"] {
            let is = states.get_or_create_owned(&ByState { state });
            is.set(i64::from(view.state == state));
        }
        to.register("posture", "1 for the state that the gateway is in", states);
        gauge(
            to,
            "posture_generation",
            "How often the gateway began to enforce",
            view.generation,
        );
    }

    fn journal(&self, to: &mut Registry) {
        let state = self.ctx.journal.state();
        counter(to, "records", "Number of the last record", state.last);
        gauge(
            to,
            "journal_unsigned",
            "Records that are not yet signed and on disk",
            state.unsigned,
        );
        gauge(to, "journal_bytes", "Length of all segments", state.bytes);
        gauge(
            to,
            "journal_writable",
            "1 if new flows can be recorded",
            u64::from(self.ctx.journal.writable()),
        );
    }

    fn machine(&self, to: &mut Registry) {
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        to.register("build", "The gateway itself", Info::new(build));
        counter(
            to,
            "task_panics",
            "Tasks that ended by a panic",
            self.ctx.tasks.panics(),
        );
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            gauge(to, "descriptors", "Open descriptors", count(open.count()));
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(u64::MAX);
        gauge(
            to,
            "descriptors_most",
            "Descriptors that there may be",
            limit,
        );
        if let Some(enforcer) = self.firewall.get() {
            kernel(to, enforcer);
        }
    }
}

/// What the kernel part counts.
fn kernel(to: &mut Registry, enforcer: &Enforcer) {
    match enforcer.queue_drops() {
        Ok(drops) => counter(
            to,
            "queue_dropped",
            "First packets that the kernel's queue had no room for",
            drops,
        ),
        Err(error) => tracing::debug!(%error, "the queue's drops cannot be read"),
    }
    match enforcer.counters() {
        Ok(counters) => {
            let rules = Family::<ByRule, prometheus_client::metrics::counter::Counter>::default();
            for (rule, counted) in counters {
                rules
                    .get_or_create_owned(&ByRule { rule })
                    .inc_by(counted.packets);
            }
            to.register("kernel_packets", "Packets that kernel rules refused", rules);
        }
        Err(error) => tracing::debug!(%error, "the kernel's counters cannot be read"),
    }
}

fn gauge(to: &mut Registry, name: &str, help: &str, value: u64) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    to.register(name, help, ConstGauge::new(value));
}

fn counter(to: &mut Registry, name: &str, help: &str, value: u64) {
    to.register(name, help, ConstCounter::new(value));
}

fn count(things: usize) -> u64 {
    u64::try_from(things).unwrap_or(u64::MAX)
}
