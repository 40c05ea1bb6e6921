//! Who may ask for what: the peer's uid, as the kernel vouches for it, against the group that a verb belongs to.

use crate::config::ControlUsers;

/// What a verb needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Looking.
    Observe,
    /// Changing networks.
    Attach,
    /// Running the selftest, capturing packets.
    Operate,
}

impl Group {
    /// As configuration calls it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Attach => "attach",
            Self::Operate => "operate",
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// `SO_PEERCRED`: whoever connected, whatever it became since.
    pub uid: u32,
}

/// Root, or the user that the gateway runs as: may do everything anyway.
pub fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a peer may attach a namespace that is not its own.
pub fn may_any(users: &ControlUsers, peer: Peer) -> bool {
    is_ours(peer.uid) || users.attach_any.contains(&peer.uid)
}

/// Whether a peer may attach in a workspace: its floors and policies are then the peer's.
pub fn may_in(users: &ControlUsers, peer: Peer, workspace: &str) -> bool {
    let bound = users.workspaces.get(&peer.uid);
    is_ours(peer.uid) || bound.is_none_or(|names| names.contains(workspace))
}

/// Whether a peer may use a verb. Root and the gateway's own user may do everything.
pub fn may(users: &ControlUsers, peer: Peer, group: Group) -> bool {
    let listed = match group {
        Group::Observe => &users.observe,
        Group::Attach => &users.attach,
        Group::Operate => &users.operate,
    };
    is_ours(peer.uid) || listed.contains(&peer.uid)
}
