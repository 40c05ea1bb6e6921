//! Deciding a live flow again: under another policy, or under other address classes.
//!
//! Nothing is looked up and nothing is assumed: a flow stays only if the decision that let it in comes out the same way
//! from what was known then (its intent with the answers, and what its bytes said), for exactly the address that it is
//! connected to. A flow that only further questions could save is cut; its program may connect again and be decided
//! afresh. Costs microseconds a flow.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use netpolicy::decide::{
    Connect, Direction, Evidence, Snapshot, decide_bytes, decide_connect, judges_each_request,
};
use netpolicy::ids::UnixSeconds;
use netpolicy::reason::Reason;

use super::Network;
use super::ended::Ending;
use super::flows::Flow;

/// Whether a flow would be permitted as it is now.
pub fn still_permitted(snapshot: &Snapshot, flow: &Flow, now: UnixSeconds) -> bool {
    let Connect::Dial(permit) = decide_connect(snapshot, &flow.intent, now) else {
        return false;
    };
    let same_address = permit
        .addresses()
        .iter()
        .any(|a| a.to_canonical() == flow.upstream.ip().to_canonical());
    if !same_address && flow.intent.direction == Direction::Egress {
        return false;
    }
    let evidence = flow.evidence.lock().unwrap_or_else(PoisonError::into_inner);
    evidence.iter().all(|said| match said {
        // only its first request was read, and now a later one could say what is denied
        Evidence::Http { .. }
            if !flow.reads_requests.load(Ordering::Relaxed)
                && judges_each_request(snapshot, permit.ground(), now) =>
        {
            false
        }
        said => decide_bytes(snapshot, permit.ground(), said, now).is_ok(),
    })
}

/// Cuts the flows of a network that its policy no longer permits; returns how many.
///
/// A connection's server is known as cut before its session ends: nothing of it may begin another one between the two.
pub fn cut_forbidden(network: &Network, now: UnixSeconds) -> usize {
    let live = network.live.load();
    let forbidden = |flow: &&std::sync::Arc<Flow>| {
        !flow.cut.is_cancelled() && !still_permitted(&live.snapshot, flow, now)
    };
    let cut = |flow: &std::sync::Arc<Flow>| {
        if flow.is_quic() {
            let ended = &network.connections;
            ended.add(Ending::Cut, flow.server(), Instant::now());
        }
        flow.end(Reason::PolicySuperseded);
    };
    let all = network.flows.all();
    all.iter().filter(forbidden).map(cut).count()
}
