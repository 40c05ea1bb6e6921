//! Whether an address leads to the machine itself, by the kernel's own route look-up, asked before each dial.
//!
//! The view of the uplink knows the addresses of interfaces; a local route has none. So the kernel is asked too, and its
//! "no" is remembered until anything about addresses or routes changes, and never for longer than [`REMEMBERED`].
//! Refuses to own: what follows from the answer. After each connect the socket's own ends are looked at as well, so an
//! answer that a notice has not yet overtaken lets no byte through.
//! Failure stance: a look-up that failed is an error and never a "no"; it is not remembered.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::follow::UplinkView;

/// Policy rules choose among routing tables and have no notice of their own.
const REMEMBERED: Duration = Duration::from_secs(1);
/// A sandbox that dials very many addresses gains nothing and costs no more than this.
const MOST: usize = 4096;

/// Counts notices about addresses and routes.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<AtomicU64>);

impl Notices {
    /// Something changed, or may have.
    pub fn noticed(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Addresses that are elsewhere, as of a number of notices.
#[derive(Debug)]
struct Elsewhere {
    notices: u64,
    since: Instant,
    addresses: HashSet<IpAddr>,
}

/// Knows what is the machine itself.
#[derive(Debug)]
pub struct Here {
    view: watch::Receiver<UplinkView>,
    notices: Notices,
    elsewhere: Mutex<Elsewhere>,
}

impl Here {
    /// By the view of a follower, and the notices that it counts.
    pub fn new(view: watch::Receiver<UplinkView>, notices: Notices) -> Self {
        let elsewhere = Mutex::new(Elsewhere {
            notices: 0,
            since: Instant::now(),
            addresses: HashSet::new(),
        });
        Self {
            view,
            notices,
            elsewhere,
        }
    }

    /// Whether the kernel calls an address its own: one that the view names, or one that it would send from itself.
    /// Fails when the kernel could not be asked.
    pub fn is(&self, address: IpAddr) -> io::Result<bool> {
        self.is_at(address, Instant::now(), leads_here)
    }

    fn is_at(
        &self,
        address: IpAddr,
        now: Instant,
        ask: impl FnOnce(IpAddr) -> io::Result<bool>,
    ) -> io::Result<bool> {
        if self.view.borrow().addresses.contains(&address) {
            return Ok(true);
        }
        // before asking: what is noticed meanwhile makes the answer old
        let notices = self.notices.so_far();
        if self.remembered(notices, now, |addresses| addresses.contains(&address)) {
            return Ok(false);
        }
        let here = ask(address)?;
        if !here {
            self.remembered(notices, now, |addresses| addresses.insert(address));
        }
        Ok(here)
    }

    fn remembered(
        &self,
        notices: u64,
        now: Instant,
        act: impl FnOnce(&mut HashSet<IpAddr>) -> bool,
    ) -> bool {
        let mut known = self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if notices < known.notices {
            // somebody else knows of a newer notice
            return false;
        }
        let old = now.saturating_duration_since(known.since) >= REMEMBERED;
        if notices != known.notices || old || known.addresses.len() >= MOST {
            known.addresses.clear();
            (known.notices, known.since) = (notices, now);
        }
        act(&mut known.addresses)
    }
}

/// Whether the machine itself answers for an address: the source that the kernel would choose is the destination, which
/// only a local route gives (`ip_route_output_key_hash_rcu`). A local route that names another source (`src`) is not told
/// from a gateway's by this: its addresses belong into `host_addresses`. Sends nothing. A destination without a route is
/// not local.
/// Fails when the kernel could not be asked, as when descriptors or ports are short.
pub fn leads_here(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = match UdpSocket::bind((any, 0)) {
        Ok(socket) => socket,
        // a machine without this family
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => return Ok(false),
        Err(error) => return Err(error),
    };
    // any port will do: a datagram socket only looks the route up
    match socket.connect((address, 9)) {
        Ok(()) => Ok(socket.local_addr()?.ip() == address),
        Err(error) if is_no_way(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the look-up itself says of a destination that nothing leads to: no route, or one that is `unreachable`,
/// `prohibit` (or a broadcast address), `blackhole`, or has no source address of ours (`fib_props`, ip-route(8)).
fn is_no_way(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EACCES
                | libc::EINVAL
                | libc::EADDRNOTAVAIL
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

    fn here() -> (Here, Notices) {
        let (_sender, view) = watch::channel(UplinkView::default());
        let notices = Notices::default();
        (Here::new(view, notices.clone()), notices)
    }

    #[test]
    fn what_the_kernel_would_send_from_itself_is_local_and_what_the_view_lacks_is_asked_for() {
        let (here, _) = here();
        assert!(here.is([127, 0, 0, 1].into()).unwrap());
        assert!(
            here.is([127, 0, 0, 1].into()).unwrap(),
            "a yes is asked for each time"
        );
        assert!(!here.is(PLACE).unwrap());
    }

    #[test]
    fn an_address_that_came_after_a_no_is_local_from_the_notice_on() {
        let (here, notices) = here();
        let now = Instant::now();
        assert!(!here.is_at(PLACE, now, |_| Ok(false)).unwrap());
        assert!(!here.is_at(PLACE, now, |_| panic!("known")).unwrap());
        notices.noticed();
        assert!(here.is_at(PLACE, now, |_| Ok(true)).unwrap());
    }

    #[test]
    fn a_no_that_a_notice_overtook_is_not_remembered() {
        let (here, notices) = here();
        let now = Instant::now();
        let overtaken = |_| {
            notices.noticed();
            Ok(false)
        };
        assert!(!here.is_at(PLACE, now, overtaken).unwrap());
        assert!(here.is_at(PLACE, now, |_| Ok(true)).unwrap());
    }

    #[test]
    fn a_no_is_old_after_a_second_without_any_notice() {
        let (here, _) = here();
        let now = Instant::now();
        assert!(!here.is_at(PLACE, now, |_| Ok(false)).unwrap());
        assert!(here.is_at(PLACE, now + REMEMBERED, |_| Ok(true)).unwrap());
    }

    #[test]
    fn a_look_up_that_failed_is_no_answer_and_is_not_remembered() {
        let (here, _) = here();
        let now = Instant::now();
        let short = |_| Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(
            here.is_at(PLACE, now, short).unwrap_err().raw_os_error(),
            Some(libc::EMFILE)
        );
        assert!(here.is_at(PLACE, now, |_| Ok(true)).unwrap());
    }

    #[test]
    fn only_what_the_look_up_itself_says_is_no_way() {
        let is = |code| is_no_way(&io::Error::from_raw_os_error(code));
        for code in [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::EACCES,
            libc::EINVAL,
        ] {
            assert!(is(code), "{code}");
        }
        for code in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EAGAIN,
            libc::EPERM,
        ] {
            assert!(!is(code), "{code}");
        }
    }

    #[test]
    fn dialling_very_many_addresses_is_bounded() {
        let (here, _) = here();
        let now = Instant::now();
        for n in 0..3 * u32::try_from(MOST).unwrap() {
            assert!(
                !here
                    .is_at(Ipv4Addr::from(n).into(), now, |_| Ok(false))
                    .unwrap()
            );
        }
        assert!(here.elsewhere.lock().unwrap().addresses.len() <= MOST);
    }
}
