//! What a sandbox made of its namespace since it was wired: other interfaces, a smaller link.
//!
//! Owns: looking inside, also where a gateway adopted the network and holds no descriptor of the namespace; and that what
//! is sent to a sandbox fits its end of the link. Refuses to own: what is done about a second interface, when to look.
//!
//! A veth end drops silently what is larger than its own packet size, and the far end cannot know. A router has the size
//! of its next link and cuts what may be cut, so the gateway's routes to a sandbox are given the size of the inner end:
//! from then on its kernel cuts datagrams for it, and streams send smaller segments. Nobody upstream can be told: what a
//! server sent has arrived whole at the gateway's own socket, and is the gateway's to deliver.

use futures_util::TryStreamExt;
use netlink_packet_route::link::LinkAttribute;
use netpolicy::ruleset::InterfaceName;
use rtnetlink::Handle;

use super::enforcer::Enforcer;
use super::error::{Act, KernelError, Mismatch};
use super::links::{self, INNER};
use super::netns::Ns;
use super::survey::{self, LinkSeen, links_and_addresses};

/// RFC 791: every host takes datagrams of this size. Below it a sandbox would have one answer sent as hundreds of packets.
const LEAST4: u32 = 576;
/// RFC 8200: every link of IPv6 carries packets of this size.
const LEAST6: u32 = 1280;

/// What there is in an attached sandbox's namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inside {
    /// The first interface that could be another way out.
    pub stranger: Option<String>,
    /// The packet size of our link's inner end.
    pub mtu: Option<u32>,
}

impl Enforcer {
    /// Looks into an attached sandbox's namespace for interfaces that are not ours: without one there is no other way
    /// out, because every route leads over an interface. `None` when it is attached no more.
    ///
    /// A gateway that adopted the network holds no descriptor of the namespace; it looks through the link.
    pub fn look_inside(&self, link: &InterfaceName) -> Result<Option<Inside>, KernelError> {
        let found = self
            .state()
            .members
            .get(link)
            .map(|m| (m.index, m.sandbox.as_ref().map(Ns::duplicate)));
        let inside = match found {
            Some((_, Some(sandbox))) => {
                sandbox?.route(|handle| async move { inside(&handle).await })?
            }
            Some((index, None)) => self
                .inner
                .ns
                .route(move |handle| async move { behind(&handle, index).await })?,
            None => return Ok(None),
        };
        Ok(Some(inside))
    }

    /// Has what is sent to a sandbox cut to its end of the link.
    pub fn fit(&self, link: &InterfaceName, inner: u32) -> Result<(), KernelError> {
        let whole = self.inner.config.mtu;
        let fitting = inner.clamp(LEAST4.min(whole), whole);
        let found = {
            let state = self.state();
            let member = state
                .members
                .get(link)
                .filter(|m| m.fitted != Some(fitting));
            member.map(|m| (m.index, self.pair(m.v4, m.v6)))
        };
        let Some((index, pair)) = found else {
            return Ok(());
        };
        let smaller = |mtu: u32| (mtu < whole).then_some(mtu);
        let sizes = (smaller(fitting), smaller(fitting.max(LEAST6)));
        self.inner
            .ns
            .route(move |handle| async move { links::fit(&handle, index, &pair, sizes).await })?;
        let mut state = self.state();
        if let Some(member) = state.members.get_mut(link).filter(|m| m.index == index) {
            member.fitted = Some(fitting);
        }
        Ok(())
    }
}

/// The first configured interface of a namespace that is to be wired, other than `lo`: one that is up or has an address.
/// Unconfigured fallback tunnels (`tunl0`, `sit0`) exist in every namespace and do not count.
pub(super) async fn occupant(handle: &Handle) -> Result<Option<String>, KernelError> {
    let (links, addresses) = links_and_addresses(handle).await?;
    let has_address = |link: &LinkSeen| addresses.iter().any(|a| a.link == link.index);
    // an unconfigured `eth0` is in the way too: the name is ours
    let in_the_way = |link: &LinkSeen| link.up || link.name == INNER || has_address(link);
    let mut links = links.into_iter().filter(|link| link.name != "lo");
    Ok(links.find(in_the_way).map(|link| link.name))
}

/// In the sandbox's own namespace.
async fn inside(handle: &Handle) -> Result<Inside, KernelError> {
    let (links, addresses) = links_and_addresses(handle).await?;
    let has_address = |link: &LinkSeen| addresses.iter().any(|a| a.link == link.index);
    Ok(judged(links, |link| link.up || has_address(link)))
}

/// Through the link.
///
/// The kernel numbers the namespace at the other end as seen from this one (`IFLA_LINK_NETNSID`) and lists its links on
/// request (`IFLA_TARGET_NETNSID`); addresses it would list for stricter requests only, and without being up an interface
/// carries nothing.
async fn behind(handle: &Handle, index: u32) -> Result<Inside, KernelError> {
    let mut found = handle.link().get().match_index(index).execute();
    let outer = found.try_next().await.act("looking up a link")?;
    let number =
        outer
            .iter()
            .flat_map(|link| &link.attributes)
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkNetNsId(number) => Some(*number),
                _ => None,
            });
    let Some(number) = number else {
        return Err(Mismatch::new("the other end of a link", "in a sandbox", "gone").into());
    };
    let mut request = handle.link().get();
    let attributes = &mut request.message_mut().attributes;
    attributes.push(LinkAttribute::IfNetnsId(number));
    let seen: Vec<_> = request
        .execute()
        .map_ok(|message| survey::link(&message))
        .try_collect()
        .await
        .act("listing the links of a sandbox")?;
    if !seen.iter().any(|link| link.name == INNER) {
        return Err(Mismatch::new("the links of a sandbox", INNER, "others only").into());
    }
    Ok(judged(seen, |link| link.up))
}

fn judged(links: Vec<LinkSeen>, is_way_out: impl Fn(&LinkSeen) -> bool) -> Inside {
    let own = links.iter().find(|link| link.name == INNER);
    let mtu = own.and_then(|link| link.mtu);
    let mut others = links
        .into_iter()
        .filter(|link| link.name != "lo" && link.name != INNER);
    Inside {
        stranger: others.find(is_way_out).map(|link| link.name),
        mtu,
    }
}
