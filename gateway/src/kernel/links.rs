//! A sandbox's link: a veth pair whose outer end stays in the gateway namespace.
//!
//! Owns: making the pair, addresses, routes and permanent neighbours on both ends, reading them back, deleting it.
//! Refuses to own: the source sets (a link without an element carries nothing).
//! Both ends get fixed hardware addresses, so that neighbour entries need no look-up and survive a restart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, State};
use netlink_packet_route::route::{RouteAttribute, RouteMetric, RouteScope};
use netpolicy::ruleset::InterfaceName;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::error::{Act, KernelError, Mismatch};
use super::policy_routing::present;
use super::survey::links_and_addresses;

/// Name of the link inside the sandbox.
pub const INNER: &str = "eth0";

/// Whether an outer link bears a name of ours: `sp` and 12 hex digits, given in the request that makes it.
pub fn is_ours(name: &str) -> bool {
    name.strip_prefix("sp").is_some_and(|digits| {
        digits.len() == 12
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Hardware address of every outer end: locally administered, never on the same segment as another.
pub const OUTER_MAC: [u8; 6] = [0x02, 0x53, 0x50, 0, 0, 1];

/// Both ends' addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The gateway's, on every outer link.
    pub service4: Ipv4Addr,
    /// Its IPv6 twin.
    pub service6: Ipv6Addr,
    /// The sandbox's.
    pub v4: Ipv4Addr,
    /// Its IPv6 twin.
    pub v6: Ipv6Addr,
}

impl Pair {
    /// Hardware address of the inner end: locally administered, from the IPv4 address.
    fn inner_mac(&self) -> [u8; 6] {
        inner_mac(self.v4)
    }
}

/// Hardware address of the inner end of the sandbox with this address.
pub(super) fn inner_mac(v4: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = v4.octets();
    [0x02, 0x00, a, b, c, d]
}

/// Makes the pair and returns the index of the outer end. Inside the gateway namespace; `sandbox` receives the inner end.
pub async fn create(
    handle: &Handle,
    name: &InterfaceName,
    pair: &Pair,
    mtu: u32,
    sandbox: BorrowedFd<'_>,
) -> Result<u32, KernelError> {
    // The inner end cannot be up before its other end exists.
    let mut inner = LinkUnspec::new_with_name(INNER)
        .mtu(mtu)
        .address(pair.inner_mac().into())
        .build();
    inner
        .attributes
        .push(LinkAttribute::NetNsFd(sandbox.as_raw_fd()));
    let outer = LinkVeth::new(name.as_str(), INNER)
        .mtu(mtu)
        .address(OUTER_MAC.into())
        .up()
        .set_info_data(InfoData::Veth(InfoVeth::Peer(inner)))
        .build();
    handle
        .link()
        .add(outer)
        .execute()
        .await
        .act(format!("creating link {name}"))?;
    index_of(handle, name.as_str()).await
}

/// Writes down whose link it is, for a gateway that comes after us. Inside the gateway namespace.
pub async fn label(handle: &Handle, index: u32, alias: &str) -> Result<(), KernelError> {
    let alias = LinkUnspec::new_with_index(index).alias(alias).build();
    handle
        .link()
        .set(alias)
        .execute()
        .await
        .act("naming the network of a link")
}

/// Brings a link up, in the handle's namespace; a failure says what this was for.
pub async fn bring_up(handle: &Handle, index: u32, act: &'static str) -> Result<(), KernelError> {
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.act(act)
}

/// Sets up the outer end; what is there already stays. Inside the gateway namespace.
pub async fn furnish_outer(handle: &Handle, index: u32, pair: &Pair) -> Result<(), KernelError> {
    bring_up(handle, index, "bringing the outer end of a link up").await?;
    address(handle, index, pair.service4.into()).await?;
    address(handle, index, pair.service6.into()).await?;
    let to_sandbox4 = on_link4(index, pair.v4).pref_source(pair.service4).build();
    present(handle.route().add(to_sandbox4).execute().await)
        .act(format!("adding the route to {}", pair.v4))?;
    let to_sandbox6 = on_link6(index, pair.v6).build();
    present(handle.route().add(to_sandbox6).execute().await)
        .act(format!("adding the route to {}", pair.v6))?;
    neighbour(handle, index, pair.v4.into(), &pair.inner_mac()).await?;
    neighbour(handle, index, pair.v6.into(), &pair.inner_mac()).await
}

/// Has the kernel cut what it sends to the sandbox to packets of this size (`ip route replace ADDRESS dev LINK mtu SIZE`);
/// `None` is the link's own. Inside the gateway namespace.
pub async fn fit(
    handle: &Handle,
    index: u32,
    pair: &Pair,
    (four, six): (Option<u32>, Option<u32>),
) -> Result<(), KernelError> {
    let metrics =
        |mtu: Option<u32>| mtu.map(|m| RouteAttribute::Metrics(vec![RouteMetric::Mtu(m)]));
    let mut to4 = on_link4(index, pair.v4).pref_source(pair.service4).build();
    to4.attributes.extend(metrics(four));
    let mut to6 = on_link6(index, pair.v6).build();
    to6.attributes.extend(metrics(six));
    for (route, to) in [(to4, IpAddr::V4(pair.v4)), (to6, IpAddr::V6(pair.v6))] {
        let replaced = handle.route().add(route).replace().execute().await;
        replaced.act(format!("fitting the route to {to}"))?;
    }
    Ok(())
}

/// Brings the loopback of a namespace up.
pub async fn raise_loopback(handle: &Handle) -> Result<(), KernelError> {
    let lo = index_of(handle, "lo").await?;
    bring_up(handle, lo, "bringing a loopback up").await
}

/// Sets up the inner end and reads it back. Inside the sandbox's namespace.
pub async fn furnish(handle: &Handle, pair: &Pair) -> Result<(), KernelError> {
    let lo = index_of(handle, "lo").await?;
    bring_up(handle, lo, "bringing lo of the sandbox up").await?;
    let index = index_of(handle, INNER).await?;
    bring_up(handle, index, "bringing the sandbox's link up").await?;
    address(handle, index, pair.v4.into()).await?;
    address(handle, index, pair.v6.into()).await?;
    neighbour(handle, index, pair.service4.into(), &OUTER_MAC).await?;
    neighbour(handle, index, pair.service6.into(), &OUTER_MAC).await?;
    // A bare `default dev eth0` would ask for strangers' hardware addresses, and nobody answers.
    let routes4 = [
        on_link4(index, pair.service4).build(),
        RouteMessageBuilder::<Ipv4Addr>::new()
            .output_interface(index)
            .gateway(pair.service4)
            .onlink()
            .build(),
    ];
    for route in routes4 {
        handle
            .route()
            .add(route)
            .execute()
            .await
            .act("adding the sandbox's IPv4 routes")?;
    }
    let routes6 = [
        on_link6(index, pair.service6).build(),
        RouteMessageBuilder::<Ipv6Addr>::new()
            .output_interface(index)
            .gateway(pair.service6)
            .onlink()
            .build(),
    ];
    for route in routes6 {
        handle
            .route()
            .add(route)
            .execute()
            .await
            .act("adding the sandbox's IPv6 routes")?;
    }
    read_back(handle, pair).await
}

/// Waits until the outer end can send. Its carrier came with the inner end going up, which the kernel acts on later:
/// until then an answer is dropped and comes a second late. Since Linux 6.8 asking is enough.
pub async fn settle(handle: &Handle, index: u32) -> Result<(), KernelError> {
    let start = tokio::time::Instant::now();
    let mut pause = tokio::time::interval(SETTLE_PAUSE);
    loop {
        pause.tick().await;
        let found = handle
            .link()
            .get()
            .match_index(index)
            .execute()
            .try_next()
            .await;
        let attributes = found
            .act("waiting for a link")?
            .map(|message| message.attributes)
            .unwrap_or_default();
        if attributes
            .iter()
            .any(|a| matches!(a, LinkAttribute::OperState(State::Up)))
        {
            return Ok(());
        }
        if start.elapsed() > SETTLE_LIMIT {
            return Err(Mismatch::new(
                "the outer end of a link",
                "ready",
                "waiting for its carrier",
            )
            .into());
        }
    }
}

/// The kernel looks at carriers at least once a second.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

/// Both families must have their address, usable, on a link that is up: half a network is worse than none.
async fn read_back(handle: &Handle, pair: &Pair) -> Result<(), KernelError> {
    let (links, addresses) = links_and_addresses(handle).await?;
    let link = links.iter().find(|link| link.name == INNER && link.up);
    let Some(link) = link else {
        return Err(Mismatch::new("the sandbox's link", "up", "down or missing").into());
    };
    for wanted in [IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)] {
        if !addresses
            .iter()
            .any(|a| a.link == link.index && a.address == wanted && a.usable)
        {
            return Err(
                Mismatch::new("an address of the sandbox", wanted, "nothing usable").into(),
            );
        }
    }
    Ok(())
}

/// Deletes a link and with it the inner end; fine when it is gone. Costs 20 to 30 ms.
pub async fn delete(handle: &Handle, name: &str) -> Result<(), KernelError> {
    let message = LinkUnspec::new_with_name(name).build();
    match handle.link().del_with_message(message).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::ENODEV => Ok(()),
        result => result.act(format!("deleting link {name}")),
    }
}

/// Deletes a link by number: whoever bears its name by now is spared.
pub async fn delete_numbered(handle: &Handle, index: u32) -> Result<(), KernelError> {
    match handle.link().del(index).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::ENODEV => Ok(()),
        result => result.act(format!("deleting link number {index}")),
    }
}

/// Index of a link by name.
pub async fn index_of(handle: &Handle, name: &str) -> Result<u32, KernelError> {
    let found = handle
        .link()
        .get()
        .match_name(name)
        .execute()
        .try_next()
        .await;
    match found.act(format!("looking up link {name}"))? {
        Some(message) => Ok(message.header.index),
        None => Err(Mismatch::new(format!("link {name}"), "present", "missing").into()),
    }
}

async fn address(handle: &Handle, index: u32, address: IpAddr) -> Result<(), KernelError> {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let mut request = handle.address().add(index, address, prefix);
    if address.is_ipv6() {
        // The segment has two ends and both are ours: nothing to detect, and no second to wait for it.
        request
            .message_mut()
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    present(request.execute().await).act(format!("adding address {address}"))
}

async fn neighbour(handle: &Handle, index: u32, of: IpAddr, mac: &[u8]) -> Result<(), KernelError> {
    let request = handle.neighbours().add(index, of).link_layer_address(mac);
    request
        .replace()
        .execute()
        .await
        .act(format!("fixing the neighbour entry of {of}"))
}

fn on_link4(index: u32, to: Ipv4Addr) -> RouteMessageBuilder<Ipv4Addr> {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .output_interface(index)
        .destination_prefix(to, 32)
        .scope(RouteScope::Link)
}

fn on_link6(index: u32, to: Ipv6Addr) -> RouteMessageBuilder<Ipv6Addr> {
    RouteMessageBuilder::<Ipv6Addr>::new()
        .output_interface(index)
        .destination_prefix(to, 128)
}
