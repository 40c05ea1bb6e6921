//! What a namespace holds: links, addresses, routes and rules, dumped and reduced to what is judged.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, Inet6DevConf, InetDevConf, LinkAttribute, LinkFlags,
    LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};

use super::error::{Act, KernelError, Mismatch};
use super::sysctl;

/// A link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSeen {
    /// Kernel index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Alias: the network's identifier on our own links.
    pub alias: Option<String>,
    /// The largest packet that it takes, in octets.
    pub mtu: Option<u32>,
    /// The first setting that is not what links of the gateway namespace must have.
    pub odd: Option<Mismatch>,
}

/// An address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressSeen {
    /// Index of its link.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
    /// Usable now: duplicate detection is neither running nor failed.
    pub usable: bool,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteSeen {
    /// Routing table.
    pub table: u32,
    /// Destination; `None` is the default route.
    pub to: Option<IpAddr>,
    /// Prefix length of the destination.
    pub prefix: u8,
    /// Index of the outgoing link.
    pub link: Option<u32>,
    /// Next hop.
    pub via: bool,
    /// Kind.
    pub kind: RouteType,
    /// Family.
    pub v4: bool,
}

/// A policy rule: priority, mark, table; anything else it matches on is in `odd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSeen {
    /// Priority.
    pub priority: u32,
    /// Mark it matches.
    pub mark: Option<u32>,
    /// Table it leads to.
    pub table: u32,
    /// Whether it has another selector or action.
    pub odd: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Links.
    pub links: Vec<LinkSeen>,
    /// Addresses.
    pub addresses: Vec<AddressSeen>,
    /// Routes of both families and all tables.
    pub routes: Vec<RouteSeen>,
    /// IPv4 rules.
    pub rules4: Vec<RuleSeen>,
    /// IPv6 rules.
    pub rules6: Vec<RuleSeen>,
}

impl Survey {
    /// Index of a link.
    pub fn index_of(&self, name: &str) -> Option<u32> {
        self.links
            .iter()
            .find(|link| link.name == name)
            .map(|link| link.index)
    }
}

/// Dumps the namespace that the handle belongs to.
pub async fn survey(handle: &Handle) -> Result<Survey, KernelError> {
    let (links, addresses) = links_and_addresses(handle).await?;
    let four = RouteMessageBuilder::<std::net::Ipv4Addr>::new().build();
    let six = RouteMessageBuilder::<std::net::Ipv6Addr>::new().build();
    let mut routes = Vec::new();
    for filter in [four, six] {
        let found: Vec<RouteMessage> = handle
            .route()
            .get(filter)
            .execute()
            .try_collect()
            .await
            .act("listing routes")?;
        // what a path told about itself (its packet size) is dumped as a route to the one address; nobody set that up, and
        // the address is no nearer for it
        let told = |message: &&RouteMessage| message.header.flags.contains(RouteFlags::Cloned);
        routes.extend(found.iter().filter(|m| !told(m)).map(route));
    }
    let rules = |version| async move {
        let found: Vec<RuleMessage> = handle
            .rule()
            .get(version)
            .execute()
            .try_collect()
            .await
            .act("listing policy rules")?;
        Ok::<_, KernelError>(found.iter().map(rule).collect())
    };
    Ok(Survey {
        links,
        addresses,
        routes,
        rules4: rules(IpVersion::V4).await?,
        rules6: rules(IpVersion::V6).await?,
    })
}

/// Links and addresses only: enough to judge a sandbox's namespace.
pub async fn links_and_addresses(
    handle: &Handle,
) -> Result<(Vec<LinkSeen>, Vec<AddressSeen>), KernelError> {
    let links = handle
        .link()
        .get()
        .execute()
        .map_ok(|message| link(&message))
        .try_collect()
        .await
        .act("listing links")?;
    let addresses: Vec<_> = handle
        .address()
        .get()
        .execute()
        .try_collect()
        .await
        .act("listing addresses")?;
    let addresses = addresses.iter().filter_map(address).collect();
    Ok((links, addresses))
}

pub(super) fn link(message: &LinkMessage) -> LinkSeen {
    let (mut name, mut alias, mut mtu, mut settings) = (String::new(), None, None, (None, None));
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name.clone_from(found),
            LinkAttribute::IfAlias(found) => alias = Some(found.clone()),
            LinkAttribute::Mtu(found) => mtu = Some(*found),
            LinkAttribute::AfSpecUnspec(families) => settings = device_settings(families),
            _ => {}
        }
    }
    let odd = match settings {
        (Some(four), Some(six)) => sysctl::judge_link(&four, &six),
        _ => Some(Mismatch::new(
            "settings of a link",
            "both families",
            "fewer",
        )),
    };
    let up = message.header.flags.contains(LinkFlags::Up);
    LinkSeen {
        index: message.header.index,
        name,
        up,
        alias,
        mtu,
        odd,
    }
}

fn device_settings(families: &[AfSpecUnspec]) -> (Option<InetDevConf>, Option<Inet6DevConf>) {
    let four = families.iter().find_map(|family| match family {
        AfSpecUnspec::Inet(parts) => parts.iter().find_map(|part| match part {
            AfSpecInet::DevConf(conf) => Some(*conf),
            _ => None,
        }),
        _ => None,
    });
    let six = families.iter().find_map(|family| match family {
        AfSpecUnspec::Inet6(parts) => parts.iter().find_map(|part| match part {
            AfSpecInet6::DevConf(conf) => Some(*conf),
            _ => None,
        }),
        _ => None,
    });
    (four, six)
}

pub(super) fn address(
    message: &netlink_packet_route::address::AddressMessage,
) -> Option<AddressSeen> {
    let pick = |local| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    let waiting = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    let tentative = message.attributes.iter().any(|a| {
        matches!(a, AddressAttribute::Flags(flags) if flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed))
    });
    Some(AddressSeen {
        link: message.header.index,
        // On a point-to-point link IFA_LOCAL is ours and IFA_ADDRESS the peer's.
        address: pick(true).or_else(|| pick(false))?,
        prefix: message.header.prefix_len,
        usable: !message.header.flags.intersects(waiting) && !tentative,
    })
}

pub(super) fn route(message: &RouteMessage) -> RouteSeen {
    let mut seen = RouteSeen {
        table: u32::from(message.header.table),
        to: None,
        prefix: message.header.destination_prefix_length,
        link: None,
        via: false,
        kind: message.header.kind,
        v4: message.header.address_family == AddressFamily::Inet,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                seen.to = Some(IpAddr::V4(*address));
            }
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                seen.to = Some(IpAddr::V6(*address));
            }
            RouteAttribute::Oif(index) => seen.link = Some(*index),
            RouteAttribute::Table(table) => seen.table = *table,
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::NhId(_) => seen.via = true,
            _ => {}
        }
    }
    seen
}

fn rule(message: &RuleMessage) -> RuleSeen {
    use netlink_packet_route::rule::RuleAction;
    let header = &message.header;
    let mut seen = RuleSeen {
        priority: 0,
        mark: None,
        table: u32::from(header.table),
        odd: false,
    };
    seen.odd = header.action != RuleAction::ToTable
        || header.src_len != 0
        || header.dst_len != 0
        || header.tos != 0;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => seen.priority = *priority,
            RuleAttribute::FwMark(mark) => seen.mark = Some(*mark),
            RuleAttribute::Table(table) => seen.table = *table,
            RuleAttribute::FwMask(u32::MAX)
            | RuleAttribute::Protocol(_)
            | RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            _ => seen.odd = true,
        }
    }
    seen
}
