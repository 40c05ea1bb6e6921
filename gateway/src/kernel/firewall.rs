//! The kernel part where it may be missing: whoever needs it asks for it here and is told why it is not there.
//!
//! On a host that cannot hold it (a kernel without nf_tables, a user without namespaces) a gateway runs without and goes
//! on looking; from the moment that it is installed it stays. Refuses to own: what may run without it (posture and
//! registry, as `gateway.egress_filter` says).

use std::sync::{Arc, OnceLock};

use super::enforcer::Enforcer;
use super::error::KernelError;

/// The kernel part, once there is one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Firewall {
    enforcer: Arc<OnceLock<Enforcer>>,
    why: Arc<str>,
}

impl Firewall {
    /// One that is there.
    pub fn of(enforcer: Enforcer) -> Self {
        let this = Self::absent("");
        this.install(enforcer);
        this
    }

    /// One that is not there, and why.
    pub fn absent(why: &str) -> Self {
        Self {
            enforcer: Arc::default(),
            why: why.into(),
        }
    }

    /// It is there from now on; a second one is of no use and dropped.
    pub fn install(&self, enforcer: Enforcer) {
        let _ = self.enforcer.set(enforcer);
    }

    /// It, if it is there.
    pub fn get(&self) -> Option<&Enforcer> {
        self.enforcer.get()
    }

    /// Why it was not there when the gateway started.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// It, or the words that operators know.
    pub fn require(&self) -> Result<&Enforcer, KernelError> {
        self.get().ok_or_else(|| {
            KernelError::NoFirewall(Box::new(KernelError::Lacking(self.why.to_string())))
        })
    }
}
