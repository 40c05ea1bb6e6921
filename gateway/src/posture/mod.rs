//! Posture: whether anything may pass at all.
//!
//! | state | doors | kernel rules | label |
//! |---|---|---|---|
//! | sealed (cause) | deny everything with `gateway_sealed` | sealed: broker and DNS denials only | Not enforced |
//! | enforcing (n) | decide | enforcing | Private networks blocked |
//! | without (cause) | decide, for sockets to the proxy only | none | Not enforced |
//! | enforcing (n), `egress_filter: off` | decide | enforcing | Turned off |
//!
//! Entering a state applies its ruleset; failing to apply is itself a cause to be sealed. Doors close first and open
//! last: sealing publishes `false` before it touches the kernel, enforcing publishes `true` after the kernel was read
//! back and the probe came out right. What differs from what was asked seals; then the sealed rules are verified, the
//! difference repaired, the rules in force applied again, read back, and the next generation begins.
//! A process that is out of descriptors cannot look; that says nothing about the rules, which nobody but root can change,
//! so it may be blind for some seconds before it seals. Owns no schedule of its own beyond [`Posture::keep`]. Failure
//! stance: sealed.

mod cause;
mod steps;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::appliance::notes;
use crate::config::EgressFilter;
use crate::context::now_ms;
use crate::control::api::PostureView;
use crate::control::api::Via;
use crate::kernel::{Backend, Enforcer, Firewall, KernelError};
use crate::network::registry::Registry;
use crate::record::{Entry, Journal};
pub use cause::Cause;
pub use steps::out_of_descriptors;
use steps::{broken, enforce, only_lost};

/// How often the kernel is compared with what was asked, beside whenever it says that something changed.
const LOOK: Duration = Duration::from_secs(2);
/// The same where nobody says that rules were changed: for so long a foreign change can last.
const LOOK_UNTOLD: Duration = Duration::from_secs(1);
/// How soon a repair that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// For so long an enforcing gateway may be unable to look for want of descriptors.
const BLIND: Duration = Duration::from_secs(10);

/// Label of an enforcing gateway.
pub const BLOCKED: &str = "Private networks blocked";
/// Label of one whose operator has opened private networks.
pub const TURNED_OFF: &str = "Turned off";
/// Label of a sealed one.
pub const NOT_ENFORCED: &str = "Not enforced";

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Sealed(Cause),
    Enforcing,
    /// There is no kernel part: sandboxes have a socket to the proxy and no link.
    Without(Cause),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Sealed(_) => "sealed",
            Self::Enforcing => "enforcing",
            Self::Without(_) => "without_enforcement",
        }
    }
}

#[derive(Debug)]
struct Now {
    state: State,
    generation: u64,
    since_ms: i64,
    /// Since when looks fail for want of descriptors.
    blind: Option<Instant>,
    /// Causes that stay until whoever set them takes them back (a broken floor, a foreign namespace).
    standing: BTreeMap<&'static str, Cause>,
}

/// The state machine. One for each gateway.
#[derive(Debug)]
pub struct Posture {
    firewall: Firewall,
    journal: Arc<Journal>,
    open: watch::Sender<bool>,
    now: Mutex<Now>,
    /// Held while the kernel is being changed, so that a repair and a look never meet.
    acting: Mutex<()>,
    wake: Notify,
    filter: EgressFilter,
}

impl Posture {
    /// Begins sealed; opening the enforcer has applied the sealed rules already.
    pub fn new(firewall: Firewall, journal: Arc<Journal>, open: watch::Sender<bool>) -> Self {
        let state = State::Sealed(Cause::new("the gateway is starting", "wait a moment"));
        let now = Mutex::new(Now {
            state,
            generation: 0,
            since_ms: now_ms(),
            blind: None,
            standing: BTreeMap::new(),
        });
        Self {
            firewall,
            journal,
            open,
            now,
            acting: Mutex::default(),
            wake: Notify::new(),
            filter: EgressFilter::default(),
        }
    }

    /// Under what the operator said of the egress filter.
    #[must_use]
    pub fn with_filter(mut self, filter: EgressFilter) -> Self {
        self.filter = filter;
        self
    }

    /// As people and programs see it.
    pub fn view(&self) -> PostureView {
        let now = self.now();
        let opened = Cause::opened();
        let (state, label, cause) = match &now.state {
            State::Enforcing | State::Without(_) if self.filter == EgressFilter::Off => {
                (now.state.word(), TURNED_OFF, Some(&opened))
            }
            State::Sealed(cause) | State::Without(cause) => {
                (now.state.word(), NOT_ENFORCED, Some(cause))
            }
            State::Enforcing => (now.state.word(), BLOCKED, None),
        };
        PostureView {
            state: state.to_owned(),
            label: label.to_owned(),
            cause: cause.map(|c| c.text.clone()),
            hint: cause.map(|c| c.hint.clone()),
            generation: now.generation,
            since_ms: now.since_ms,
            notes: self.firewall.get().map(notes).unwrap_or_default(),
            via: self.via(),
            enforcement: self
                .firewall
                .get()
                .map_or("", |e| e.backend().as_str())
                .to_owned(),
            selftest: None,
        }
    }

    /// Which enforcement generation is in force, if one is.
    pub fn enforced(&self) -> Option<u64> {
        let now = self.now();
        (now.state == State::Enforcing).then_some(now.generation)
    }

    /// Seals for a check that failed under a generation, if that is still in force; the next look tries again.
    pub fn fail(&self, enforced: Option<u64>, cause: &Cause) {
        {
            let _acting = self.act();
            if enforced.is_none() || self.enforced() != enforced {
                return;
            }
            self.seal(cause);
        }
        self.wake();
    }

    /// Something may have changed: look now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Seals until [`Posture::release`]: for causes that no repair of the kernel removes.
    pub fn hold(&self, holder: &'static str, cause: &Cause) {
        self.now().standing.insert(holder, cause.clone());
        let _acting = self.act();
        self.seal(cause);
    }

    /// Takes a standing cause back; the next look enforces again.
    pub fn release(&self, holder: &'static str) {
        if self.now().standing.remove(holder).is_some() {
            self.wake();
        }
    }

    /// Compares, seals, repairs and enforces, as far as needed. Blocks for milliseconds.
    pub fn look(&self, registry: &Arc<Registry>, probe: &dyn Fn() -> Result<(), Cause>) {
        let _acting = self.act();
        if let Some(cause) = self.standing() {
            return self.seal(&cause);
        }
        let Some(enforcer) = self.firewall.get() else {
            return self.go_without();
        };
        let enforcing = self.now().state == State::Enforcing;
        let differed = registry.reconcile();
        if !differed.is_empty() {
            let text = format!("links and networks did not agree: {}", differed.join(", "));
            self.seal(&Cause::new(text, "Sallyport repairs this by itself"));
        }
        let enforcing = enforcing && differed.is_empty();
        let verified = enforcer.verify();
        if let Err(error) = &verified
            && enforcing
            && self.may_miss(error)
        {
            tracing::error!("no descriptor is free to look at the rules with");
            return;
        }
        self.now().blind = None;
        match verified {
            Ok(Ok(())) if enforcing => return,
            Ok(Ok(())) => {}
            // A link that went with its sandbox is less network, not more: nobody else is sealed for it.
            Ok(Err(_)) if enforcing && only_lost(registry, enforcer) => return,
            Ok(Err(mismatch)) => self.seal(&Cause::new(
                mismatch.to_string(),
                "Sallyport repairs this by itself; find out who changed it",
            )),
            Err(error) => return self.seal(&broken(&error)),
        }
        match enforce(enforcer, registry, probe) {
            // what came while the suite ran waits for this look to end: nothing opens for a moment first
            Ok(()) => match self.standing() {
                None => self.opened(),
                Some(cause) => self.seal(&cause),
            },
            Err(cause) => self.seal(&cause),
        }
    }

    fn standing(&self) -> Option<Cause> {
        self.now().standing.values().next().cloned()
    }

    fn may_miss(&self, error: &KernelError) -> bool {
        if !out_of_descriptors(error) {
            return false;
        }
        let since = *self.now().blind.get_or_insert_with(Instant::now);
        since.elapsed() < BLIND
    }

    /// Whether the last look was missed.
    #[cfg(test)]
    pub fn is_blind(&self) -> bool {
        self.now().blind.is_some()
    }

    /// Without a kernel part nothing has a link; what has a socket is decided flow by flow.
    fn go_without(&self) {
        let cause = Cause::new(
            format!(
                "the egress firewall is required but not installed: {} (sandboxes have a socket to the proxy and no network)",
                self.firewall.why()
            ),
            "load nf_tables, nft_tproxy and nfnetlink_queue, or boot a kernel that has them, or install iptables with its legacy programs; `sallyport doctor` says what is missing",
        );
        let news = {
            let mut now = self.now();
            let state = State::Without(cause.clone());
            let news = now.state != state;
            if news {
                now.state = state;
                now.since_ms = now_ms();
            }
            news
        };
        if news {
            tracing::error!(cause = %cause.text, "without enforcement");
            let label = if self.filter == EgressFilter::Off {
                TURNED_OFF
            } else {
                NOT_ENFORCED
            };
            self.record(label, &cause.text, self.now().generation);
        }
        self.open.send_replace(true);
    }

    /// How sandboxes are attached now.
    pub fn via(&self) -> Via {
        if self.firewall.get().is_some() {
            Via::Link
        } else {
            Via::Socket
        }
    }

    fn opened(&self) {
        let generation = {
            let mut now = self.now();
            now.state = State::Enforcing;
            now.generation += 1;
            now.since_ms = now_ms();
            now.generation
        };
        if self.filter == EgressFilter::Off {
            let cause = Cause::opened().text;
            tracing::error!(generation, cause, "enforcing, turned off");
            self.record(TURNED_OFF, &cause, generation);
        } else {
            tracing::info!(generation, "enforcing");
            self.record(BLOCKED, "", generation);
        }
        self.open.send_replace(true);
    }

    /// Doors first, then the kernel. Idempotent.
    fn seal(&self, cause: &Cause) {
        self.open.send_replace(false);
        let (news, generation) = {
            let mut now = self.now();
            let news = now.state != State::Sealed(cause.clone());
            if news {
                now.state = State::Sealed(cause.clone());
                now.since_ms = now_ms();
            }
            (news, now.generation)
        };
        if let Some(Err(error)) = self
            .firewall
            .get()
            .map(|enforcer| enforcer.apply(crate::kernel::Posture::Sealed))
        {
            // Nothing is open anyway: without rules the namespace forwards nothing, and the doors deny.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the sealed rules could not be applied"
            );
        }
        if news {
            if *cause == Cause::stopping() {
                tracing::info!(cause = %cause.text, "sealed");
            } else {
                tracing::error!(cause = %cause.text, "sealed");
            }
            self.record(NOT_ENFORCED, &cause.text, generation);
        }
    }

    /// Closes the doors and forgets that the rules were found right; the next look begins from nothing.
    fn distrust(&self) {
        self.open.send_replace(false);
        let mut now = self.now();
        now.state = State::Sealed(Cause::new(
            "the rules could not be looked at",
            "see the gateway's log",
        ));
        now.since_ms = now_ms();
    }

    fn record(&self, label: &str, cause: &str, generation: u64) {
        let entry = Entry::Posture {
            state: label.to_owned(),
            cause: cause.to_owned(),
            generation,
        };
        if let Err(error) = self.journal.append(entry) {
            tracing::error!(%error, "a change of posture was not recorded");
        }
    }

    /// Looks on a schedule and whenever woken, until cancelled.
    pub async fn keep(
        self: Arc<Self>,
        registry: Arc<Registry>,
        probe: Arc<dyn Fn() -> Result<(), Cause> + Send + Sync>,
    ) {
        loop {
            let (posture, registry, probe) = (self.clone(), registry.clone(), probe.clone());
            let looked =
                tokio::task::spawn_blocking(move || posture.look(&registry, &*probe)).await;
            if looked.is_err() {
                // The runtime is ending, or the look panicked: either way nothing vouches for the rules.
                self.distrust();
            }
            let pause = match self.firewall.get().map(Enforcer::backend) {
                _ if !*self.open.borrow() => RETRY,
                Some(Backend::Iptables) => LOOK_UNTOLD,
                Some(Backend::Nftables) | None => LOOK,
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(&self) -> std::sync::MutexGuard<'_, ()> {
        self.acting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
