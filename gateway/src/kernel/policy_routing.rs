//! The detour that TPROXY needs: packets with the delivery mark are local, whatever their destination.
//!
//! Where iptables holds the rules, so are packets that are answered with a reset: its target works only on the way to a
//! local socket. Owns one rule for each mark and one route, for each family. Without them a marked packet has no route and is dropped.

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteScope, RouteType};
use netlink_packet_route::rule::RuleAction;
use netpolicy::ruleset::FlowMark;
use rtnetlink::{Handle, RouteMessageBuilder};

use super::backend::Backend;
use super::error::{Act, KernelError};

/// Number of the routing table, and priority of the rule that leads to it.
pub const TABLE: u32 = 100;

/// The delivery mark as the rule compares it.
pub const MARK: u32 = FlowMark::Deliver as u32;

/// Marks that make a packet local, in the order of their rules.
pub const fn marks(backend: Backend) -> &'static [u32] {
    match backend {
        Backend::Nftables => &[MARK],
        Backend::Iptables => &[MARK, FlowMark::Reset as u32],
    }
}

/// Priority of the rule of the mark at this place.
pub(super) const fn priority(place: u32) -> u32 {
    TABLE + place
}

/// Makes rules and route for both families; fine when they are there. Rules of marks that a gateway of the other kind had
/// go. `lo` is the index of the loopback interface.
pub async fn install(handle: &Handle, lo: u32, wanted: &[u32]) -> Result<(), KernelError> {
    let rule = |mark, place| {
        handle
            .rule()
            .add()
            .fw_mark(mark)
            .table_id(TABLE)
            .priority(priority(place))
            .action(RuleAction::ToTable)
    };
    for (place, mark) in (0..).zip(marks(Backend::Iptables)) {
        if !wanted.contains(mark) {
            let (mut four, mut six) = (rule(*mark, place).v4(), rule(*mark, place).v6());
            for message in [four.message_mut().clone(), six.message_mut().clone()] {
                absent(handle.rule().del(message).execute().await)
                    .act("deleting a rule for marked packets")?;
            }
        }
    }
    for (place, mark) in (0..).zip(wanted) {
        present(rule(*mark, place).v4().execute().await)
            .act("adding the IPv4 rule for marked packets")?;
        present(rule(*mark, place).v6().execute().await)
            .act("adding the IPv6 rule for marked packets")?;
    }
    let four = RouteMessageBuilder::<Ipv4Addr>::new()
        .output_interface(lo)
        .table_id(TABLE)
        .kind(RouteType::Local)
        .scope(RouteScope::Host)
        .build();
    present(handle.route().add(four).execute().await)
        .act("adding the IPv4 route for marked packets")?;
    let six = RouteMessageBuilder::<Ipv6Addr>::new()
        .output_interface(lo)
        .table_id(TABLE)
        .kind(RouteType::Local)
        .scope(RouteScope::Host)
        .build();
    present(handle.route().add(six).execute().await).act("adding the IPv6 route for marked packets")
}

/// What is there already is what was asked for: verification looks at the whole.
pub(super) fn present(result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    match result {
        Err(rtnetlink::Error::NetlinkError(message)) if message.raw_code() == -libc::EEXIST => {
            Ok(())
        }
        other => other,
    }
}

/// What is not there need not be taken away.
fn absent(result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    match result {
        Err(rtnetlink::Error::NetlinkError(message)) if message.raw_code() == -libc::ENOENT => {
            Ok(())
        }
        other => other,
    }
}
