//! The steps of one look at the kernel: what makes a sealed gateway enforce, and what an error of a step means.
//!
//! Invariant: nothing opens before all of [`enforce`] held. Refuses to own: the state ([`super::Posture`]).

use std::sync::Arc;

use super::Cause;
use crate::kernel::{Enforcer, KernelError, Mismatch, is_our_link};
use crate::network::registry::Registry;

/// Whether an act failed because the process or the machine has no descriptor left.
pub fn out_of_descriptors(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let code = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error);
        if matches!(code, Some(libc::EMFILE | libc::ENFILE)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether all that differs is links that are gone; their networks are gone then too.
pub(super) fn only_lost(registry: &Arc<Registry>, enforcer: &Enforcer) -> bool {
    let dropped = registry.drop_lost().is_ok_and(|lost| !lost.is_empty());
    dropped && matches!(enforcer.verify(), Ok(Ok(())))
}

/// From sealed to enforcing: nothing opens before all of it held.
pub(super) fn enforce(
    enforcer: &Enforcer,
    registry: &Arc<Registry>,
    probe: &dyn Fn() -> Result<(), Cause>,
) -> Result<(), Cause> {
    let broken = |error: KernelError| broken(&error);
    enforcer
        .apply(crate::kernel::Posture::Sealed)
        .map_err(broken)?;
    enforcer.repair().map_err(broken)?;
    let left = enforcer.clear_leftovers().map_err(broken)?;
    if !left.is_empty() {
        tracing::warn!(links = ?left, "links that a gateway left half-made were removed");
    }
    let lost = registry
        .drop_lost()
        .map_err(|e| Cause::new(e.to_string(), "restart the gateway"))?;
    if !lost.is_empty() {
        tracing::error!(networks = ?lost, "links were deleted by somebody else; their networks are gone");
    }
    enforcer
        .apply(crate::kernel::Posture::Enforcing)
        .map_err(broken)?;
    match enforcer.verify().map_err(broken)? {
        Ok(()) => probe(),
        Err(mismatch) => Err(Cause::new(mismatch.to_string(), lasting(&mismatch))),
    }
}

pub(super) fn broken(error: &KernelError) -> Cause {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    Cause::new(text, "sallyport doctor")
}

/// What to do about a difference that a repair did not end.
fn lasting(mismatch: &Mismatch) -> String {
    if is_our_link(&mismatch.found) {
        let link = &mismatch.found;
        return format!(
            "a gateway left {link} half-made and it cannot be deleted: end the sandbox that it leads to"
        );
    }
    "find out who keeps changing it: `sallyport gateway rules`".to_owned()
}
