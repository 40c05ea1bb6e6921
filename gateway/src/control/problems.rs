//! The one place that turns errors into problems.

use std::error::Error;

use netpolicy::ids::NetworkId;

use super::api::{PostureView, Problem};
use crate::kernel::{KernelError, NOT_OWN};
use crate::network::allot::AllotError;
use crate::network::registry::ChangeError;
use crate::policy::ComposeError;
use crate::source::shelf::ShelfError;

/// The gateway is ending.
pub fn stopping() -> Problem {
    Problem::new(503, "sealed", "the gateway is stopping")
}

/// The gateway is sealed.
pub fn sealed(posture: &PostureView) -> Problem {
    let cause = posture.cause.as_deref().unwrap_or("unknown cause");
    let problem = Problem::new(503, "sealed", format!("the gateway is sealed: {cause}"));
    match &posture.hint {
        Some(hint) => problem.hint(hint.clone()),
        None => problem,
    }
}

/// The control socket has no place for one more connection of this user.
pub fn crowded(uid: u32) -> Problem {
    let text = format!("the control socket has no place for one more connection of user {uid}");
    Problem::new(503, "full", text)
        .hint("end followers of flows, records or captures, or ask again in a moment")
}

/// There is no such network.
pub fn unknown(id: &NetworkId) -> Problem {
    Problem::new(404, "not_found", format!("there is no network {id}"))
        .hint("`sallyport net ls` lists them")
}

/// It is another user's.
pub fn not_yours(id: &NetworkId) -> Problem {
    Problem::new(403, "not_allowed", format!("the network {id} is not yours"))
        .hint("who attached it may change it, and root")
}

/// A kernel act failed.
pub fn kernel(error: &KernelError) -> Problem {
    match error {
        KernelError::ForbiddenNamespace { what, .. } => {
            let hint = if *what == NOT_OWN {
                "offer one that you made yourself, with `unshare -Urn` for instance: who is not root may attach no other"
            } else {
                "offer a namespace made for one sandbox"
            };
            Problem::new(403, "namespace_refused", error.to_string()).hint(hint)
        }
        KernelError::TakenNamespace { .. } => {
            Problem::new(409, "namespace_refused", error.to_string())
                .hint("detach its network first, or offer another namespace")
        }
        KernelError::OccupiedNamespace { .. } => {
            Problem::new(409, "namespace_refused", error.to_string())
                .hint("offer a namespace that has only `lo`")
        }
        KernelError::NoFirewall(_) => Problem::new(503, "not_enforced", error.to_string())
            .hint("`sallyport doctor` says what is missing; `gateway.egress_filter: auto` lets runs go on through a socket to the proxy alone"),
        KernelError::Lacking(_) => Problem::new(503, "not_enforced", error.to_string()),
        KernelError::NeedsNftables => Problem::new(501, "not_enforced", error.to_string())
            .hint("attach without a group, or set `gateway.enforcement: nftables` on a kernel that has it"),
        KernelError::Unusable(_) => Problem::new(400, "namespace_refused", error.to_string()),
        KernelError::Io { .. } | KernelError::Mismatch(_) => {
            Problem::new(500, "kernel", chain(error)).hint("sallyport doctor")
        }
    }
}

/// A change to the networks was refused.
pub fn change(error: &ChangeError) -> Problem {
    match error {
        ChangeError::Unknown(id) => unknown(id),
        ChangeError::Wiring(_) => {
            Problem::new(409, "conflict", error.to_string()).hint("ask again")
        }
        ChangeError::Allot(AllotError::InUse(_)) => {
            Problem::new(409, "conflict", error.to_string())
                .hint("choose another name, or detach it")
        }
        ChangeError::Name(_) => Problem::new(409, "conflict", error.to_string())
            .hint("wish another name, or none: then the gateway draws one"),
        ChangeError::Allot(AllotError::Full(_)) => Problem::new(503, "full", error.to_string())
            .hint("detach networks, or widen `gateway.pools.sandboxes`"),
        ChangeError::Allot(AllotError::Crowded(_)) => {
            Problem::new(503, "full", error.to_string())
                .hint("detach networks, or raise the gateway's limit of open files (`LimitNOFILE=`, `ulimit -Hn`)")
        }
        ChangeError::Join(_) => Problem::new(409, "conflict", error.to_string())
            .hint("choose another group or service, or detach that network"),
        ChangeError::Compose(error) => compose(error),
        ChangeError::Kernel(error) => kernel(error),
        ChangeError::Record(_) => {
            Problem::new(503, "journal", chain(error)).hint("free space for the journal")
        }
        ChangeError::Allot(AllotError::Random) | ChangeError::State(_) | ChangeError::Leases(_) => {
            Problem::new(500, "internal", chain(error)).hint("sallyport doctor")
        }
    }
}

fn compose(error: &ComposeError) -> Problem {
    let problem = |code| Problem::new(422, code, error.to_string());
    match error {
        ComposeError::Invalid(mistakes) => problem("policy_invalid")
            .mistakes(mistakes.iter().map(ToString::to_string))
            .hint("sallyport policy check FILE"),
        ComposeError::UnknownPreset(_) => {
            problem("policy_invalid").hint("`sallyport policy presets` lists them")
        }
        ComposeError::NotEnforcedYet(_) => problem("not_enforced_yet")
            .hint("remove the key; running without what it asks for would be a lie"),
        ComposeError::NeedsPackages(_) => problem("policy_invalid").hint(
            "only `sallyport run` has an image to read them from; here, name the hosts under `allow`",
        ),
        ComposeError::Source(error) => shelf(error),
        ComposeError::Changed(_) => Problem::new(409, "conflict", error.to_string()).hint("ask again"),
        ComposeError::ReservedFile(_) => problem("policy_invalid").hint("rename the file"),
        ComposeError::WorkspaceName => Problem::new(400, "bad_request", error.to_string()),
        ComposeError::NoFloors => Problem::new(503, "sealed", error.to_string())
            .hint("`sallyport doctor` names the floor"),
    }
}

/// A policy of a source was not found.
pub fn shelf(error: &ShelfError) -> Problem {
    let hint = "`sallyport policy source` lists sources and their policies";
    match error {
        ShelfError::NothingLoaded(_) => Problem::new(503, "source_empty", error.to_string())
            .hint("`sallyport policy source` says why"),
        ShelfError::NoSource(_) | ShelfError::NoPolicy(_) | ShelfError::Ambiguous(_) => {
            Problem::new(422, "policy_invalid", error.to_string()).hint(hint)
        }
    }
}

/// An error with all its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
