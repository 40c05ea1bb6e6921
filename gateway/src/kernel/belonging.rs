//! Whose a network namespace is: what the kernel says of its user namespace, and whether a gateway lives in it.
//!
//! Whoever holds a descriptor of a namespace need not have any power over it: `/run/netns` is open to everybody. A
//! namespace is its user's when the kernel would give that user every capability over it: when the user made the user
//! namespace that owns it, or one above that (user_namespaces(7)). Refuses to own: who is asked about, and what follows.
//! Failure stance: what cannot be looked at belongs to nobody who asks.
//!
//! JUSTIFICATION for unsafe: the questions of ioctl_nsfs(2) have no wrapper in the crates in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use netpolicy::ruleset::TABLE;

use super::error::{Act, KernelError};
use super::netns::Ns;
use super::nft::read;
use super::{wire, xt};

/// User namespaces nest this deep at most (`kernel/user_namespace.c`).
const DEEPEST: usize = 33;
/// What the kernel says of a user who has no number here: no name for anybody in particular (`overflowuid`).
const NOBODY_HERE: u32 = 65_534;

/// What is wrong with a namespace that an ordinary user offers and did not make.
pub const NOT_OWN: &str = "not the caller's own";

impl Ns {
    /// Refuses a namespace that is not a user's own.
    pub fn refuse_foreign(&self, uid: u32) -> Result<(), KernelError> {
        if owners(self.fd()).any(|owner| owner == uid && owner != NOBODY_HERE) {
            return Ok(());
        }
        Err(KernelError::ForbiddenNamespace {
            id: self.id(),
            what: NOT_OWN,
        })
    }

    /// Refuses a namespace that a gateway works in, whatever its name: it is sealed by the first link that it does not know.
    ///
    /// Its rules tell, also when it is stopped. A lock would not: everybody may lock what everybody may open.
    pub fn refuse_gateways(&self) -> Result<(), KernelError> {
        let nft = self.tables()?;
        let nft = nft.iter().any(|name| name.starts_with(TABLE));
        if nft || xt::are_a_gateways(self)? {
            return Err(KernelError::ForbiddenNamespace {
                id: self.id(),
                what: "a gateway's own",
            });
        }
        Ok(())
    }

    /// The tables of nf_tables in it, by name.
    pub(super) fn tables(&self) -> Result<Vec<String>, KernelError> {
        self.run(|| match wire::netfilter_socket() {
            Err(error) if lacks_nftables(&error) => Ok(Vec::new()),
            Err(error) => Err(error).act("opening a rule socket in a namespace"),
            Ok(socket) => match read::tables(&socket) {
                Err(error) if lacks_nftables(&error) => Ok(Vec::new()),
                found => found
                    .map(|tables| tables.into_iter().map(|(_, name)| name).collect())
                    .act("listing the rule tables of a namespace"),
            },
        })
    }
}

/// Whether a refusal means that the kernel has no nf_tables (no netfilter sockets, or nobody behind them that lists
/// tables): then no table of theirs is anywhere.
pub(super) fn lacks_nftables(error: &io::Error) -> bool {
    let lacking = [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::EINVAL];
    error.raw_os_error().is_some_and(|e| lacking.contains(&e))
}

/// The users who made the user namespace of a network namespace, and those above it, as far as they can be seen.
fn owners(ns: BorrowedFd<'_>) -> impl Iterator<Item = u32> {
    let first = related(ns, libc::NS_GET_USERNS).ok();
    std::iter::successors(first, |user| {
        related(user.as_fd(), libc::NS_GET_PARENT).ok()
    })
    .take(DEEPEST)
    .map_while(|user| owner(user.as_fd()).ok())
}

/// Another namespace that one namespace leads to.
fn related(ns: BorrowedFd<'_>, question: libc::Ioctl) -> io::Result<OwnedFd> {
    // SAFETY: both questions take no argument; the descriptor is open as long as it is borrowed.
    let fd = unsafe { libc::ioctl(ns.as_raw_fd(), question) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us just now; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Who made a user namespace, as a number of the gateway's own.
fn owner(user: BorrowedFd<'_>) -> io::Result<u32> {
    let mut uid: libc::uid_t = NOBODY_HERE;
    // SAFETY: the question takes a pointer to a `uid_t`, which lives as long as the call.
    let answered = unsafe { libc::ioctl(user.as_raw_fd(), libc::NS_GET_OWNER_UID, &raw mut uid) };
    if answered < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(uid)
}
