//! The detour that TPROXY needs: packets with the delivery mark are local, whatever their destination.
//!
//! Owns one rule and one route for each family. Without them a marked packet has no route and is dropped.

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteScope, RouteType};
use netlink_packet_route::rule::RuleAction;
use netpolicy::ruleset::FlowMark;
use rtnetlink::{Handle, RouteMessageBuilder};

use super::error::{Act, KernelError};

/// Number of the routing table, and priority of the rule that leads to it.
pub const TABLE: u32 = 100;

/// The delivery mark as the rule compares it.
pub const MARK: u32 = FlowMark::Deliver as u32;

/// Makes rule and route for both families; fine when they are there. `lo` is the index of the loopback interface.
pub async fn install(handle: &Handle, lo: u32) -> Result<(), KernelError> {
    let rule = || {
        handle
            .rule()
            .add()
            .fw_mark(MARK)
            .table_id(TABLE)
            .priority(TABLE)
            .action(RuleAction::ToTable)
    };
    present(rule().v4().execute().await).act("adding the IPv4 rule for marked packets")?;
    present(rule().v6().execute().await).act("adding the IPv6 rule for marked packets")?;
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
