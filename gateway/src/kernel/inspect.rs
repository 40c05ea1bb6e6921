//! Judges a survey of the gateway namespace: links, addresses, routes and policy rules, nothing missing and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::RouteType;
use netpolicy::ruleset::InterfaceName;

use super::error::Mismatch;
use super::policy_routing;
use super::survey::{AddressSeen, LinkSeen, RouteSeen, RuleSeen, Survey};

/// `RT_TABLE_LOCAL`, `RT_TABLE_MAIN`, `RT_TABLE_DEFAULT`
pub(super) const LOCAL: u32 = 255;
pub(super) const MAIN: u32 = 254;
const DEFAULT: u32 = 253;

/// Addresses of a member.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

/// What should be there.
pub(super) struct Expected {
    pub(super) service4: Ipv4Addr,
    pub(super) service6: Ipv6Addr,
    pub(super) members: BTreeMap<InterfaceName, Wanted>,
    /// Links in the making or going; not judged.
    pub(super) moving: BTreeSet<InterfaceName>,
    /// Marks that make a packet local.
    pub(super) marks: &'static [u32],
}

/// The first difference.
pub(super) fn inspect(expected: &Expected, seen: &Survey) -> Result<(), Mismatch> {
    let lo = seen.links.iter().find(|link| link.name == "lo" && link.up);
    let Some(lo) = lo else {
        return Err(Mismatch::new("link lo", "up", "down or missing"));
    };
    for name in expected.members.keys() {
        if !seen
            .links
            .iter()
            .any(|link| link.name == name.as_str() && link.up)
        {
            return Err(Mismatch::new(
                format!("link {name}"),
                "up",
                "down or missing",
            ));
        }
    }
    let by_index: BTreeMap<u32, &LinkSeen> =
        seen.links.iter().map(|link| (link.index, link)).collect();
    let judged = |index| {
        by_index
            .get(&index)
            .is_some_and(|link| !is_moving(expected, link))
    };
    inspect_links(expected, seen)?;
    for link in seen.links.iter().filter(|link| !is_moving(expected, link)) {
        if let Some(odd) = &link.odd {
            return Err(Mismatch {
                what: format!("{} ({})", odd.what, link.name),
                ..odd.clone()
            });
        }
    }
    let addresses: Vec<_> = seen.addresses.iter().filter(|a| judged(a.link)).collect();
    inspect_addresses(expected, lo.index, &by_index, &addresses)?;
    let routes: Vec<_> = seen
        .routes
        .iter()
        .filter(|r| r.link.is_none_or(judged))
        .collect();
    inspect_routes(expected, lo.index, &by_index, &routes)?;
    let marks = expected.marks;
    inspect_rules("IPv4 policy rules", &seen.rules4, marks, &[DEFAULT])?;
    inspect_rules("IPv6 policy rules", &seen.rules6, marks, &[])
}

fn is_moving(expected: &Expected, link: &LinkSeen) -> bool {
    link.name
        .parse()
        .is_ok_and(|name| expected.moving.contains(&name))
}

/// A link that an earlier gateway left (it bears an alias) carries nothing without elements; any other that is up is
/// strange.
fn inspect_links(expected: &Expected, seen: &Survey) -> Result<(), Mismatch> {
    let strange = seen.links.iter().find(|link| {
        let ours = link
            .name
            .parse()
            .is_ok_and(|name: InterfaceName| expected.members.contains_key(&name));
        link.up && link.name != "lo" && !ours && link.alias.is_none() && !is_moving(expected, link)
    });
    match strange {
        Some(link) => Err(Mismatch::new(
            "links",
            "only those of attached networks",
            &link.name,
        )),
        None => Ok(()),
    }
}

fn inspect_addresses(
    expected: &Expected,
    lo: u32,
    by_index: &BTreeMap<u32, &LinkSeen>,
    addresses: &[&AddressSeen],
) -> Result<(), Mismatch> {
    let service = |a: &AddressSeen| match a.address {
        IpAddr::V4(v4) => v4 == expected.service4 && a.prefix == 32,
        IpAddr::V6(v6) => v6 == expected.service6 && a.prefix == 128,
    };
    for address in addresses {
        let fits = if address.link == lo {
            address.address.is_loopback()
        } else {
            service(address)
        };
        if !fits {
            return Err(Mismatch::new(
                "addresses",
                "only the service addresses",
                address.address,
            ));
        }
    }
    let served: BTreeSet<(u32, bool)> = addresses
        .iter()
        .filter(|a| a.usable)
        .map(|a| (a.link, a.address.is_ipv4()))
        .collect();
    for (index, link) in by_index {
        let member = link
            .name
            .parse()
            .is_ok_and(|name: InterfaceName| expected.members.contains_key(&name));
        if member && !(served.contains(&(*index, true)) && served.contains(&(*index, false))) {
            return Err(Mismatch::new(
                format!("addresses of {}", link.name),
                "both service addresses",
                "fewer",
            ));
        }
    }
    Ok(())
}

fn inspect_routes(
    expected: &Expected,
    lo: u32,
    by_index: &BTreeMap<u32, &LinkSeen>,
    routes: &[&RouteSeen],
) -> Result<(), Mismatch> {
    let mut detours = BTreeSet::new();
    let mut reached = BTreeSet::new();
    for route in routes {
        let strange = |found| Err(Mismatch::new("routes", "only to members", found));
        match route.table {
            // The kernel's own: local addresses, their broadcasts, multicast on each link.
            LOCAL if !route.via => {}
            policy_routing::TABLE if is_detour(route, lo) => {
                detours.insert(route.v4);
            }
            MAIN if route.link == Some(lo) && route.to.is_some_and(|to| to.is_loopback()) => {}
            MAIN if !route.via && route.to.is_some() => {
                let name = route
                    .link
                    .and_then(|index| by_index.get(&index))
                    .map(|link| link.name.as_str());
                let member = name
                    .and_then(|name| name.parse().ok())
                    .and_then(|name| expected.members.get(&name));
                let service = route.to == Some(expected.service6.into());
                let own = member
                    .is_none_or(|m| route.to == Some(m.v4.into()) || route.to == Some(m.v6.into()));
                let whole = route.prefix == if route.v4 { 32 } else { 128 };
                if !whole || !(own || service) {
                    return strange(format!("{route:?}"));
                }
                if let (Some(name), Some(to)) = (name, route.to) {
                    reached.insert((name, to));
                }
            }
            _ => return strange(format!("{route:?}")),
        }
    }
    if detours.len() != 2 {
        return Err(Mismatch::new("routes for marked packets", 2, detours.len()));
    }
    for (name, member) in &expected.members {
        for to in [IpAddr::V4(member.v4), IpAddr::V6(member.v6)] {
            if !reached.contains(&(name.as_str(), to)) {
                return Err(Mismatch::new(
                    "routes",
                    format!("{to} over {name}"),
                    "nothing",
                ));
            }
        }
    }
    Ok(())
}

fn is_detour(route: &RouteSeen, lo: u32) -> bool {
    route.kind == RouteType::Local && route.to.is_none() && route.link == Some(lo) && !route.via
}

/// The kernel's own rules and ours, in order, with no other selector.
fn inspect_rules(
    what: &str,
    rules: &[RuleSeen],
    marks: &[u32],
    after_main: &[u32],
) -> Result<(), Mismatch> {
    let rule = |priority, mark, table| RuleSeen {
        priority,
        mark,
        table,
        odd: false,
    };
    let mut wanted = vec![rule(0, None, LOCAL)];
    wanted.extend((0..).zip(marks).map(|(place, mark)| {
        let priority = policy_routing::priority(place);
        rule(priority, Some(*mark), policy_routing::TABLE)
    }));
    wanted.push(rule(32_766, None, MAIN));
    wanted.extend(after_main.iter().map(|table| rule(32_767, None, *table)));
    let mut found = rules.to_vec();
    found.sort_by_key(|rule| rule.priority);
    if found == wanted {
        return Ok(());
    }
    Err(Mismatch::new(
        what,
        format!("{wanted:?}"),
        format!("{found:?}"),
    ))
}
