//! The packet capture on the uplink's links: the lab's own eyes.
//!
//! AF_PACKET sees frames in the order in which the link carries them, so a marker that was seen proves that
//! everything before it was seen too: [`Capture::settle`] needs no waiting for time.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};

use crate::frame::Frame;
use crate::log::Log;
use crate::namespace::Namespace;
use crate::topology::{LINKS, PUBLIC4, ip};
use crate::wait::LIMIT;

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    frames: Log<Frame>,
    stop: Arc<AtomicBool>,
    namespace: Namespace,
    markers: AtomicU32,
}

/// The port that markers go to; nothing listens there.
const MARKER_PORT: u16 = 9;

fn link_socket(interface: &str) -> OwnedFd {
    let fd = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::EthAll,
    )
    .expect("packet socket");
    // one burst of a flooding test must not push a leak out of the ring
    let _ = setsockopt(&fd, sockopt::RcvBufForce, &(32 << 20));
    let index =
        nix::net::if_::if_nametoindex(interface).unwrap_or_else(|e| panic!("{interface}: {e}"));
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be(),
        sll_ifindex: i32::try_from(index).unwrap_or_default(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    bind(fd.as_raw_fd(), &link_addr(&address)).expect("bind to the link");
    fd
}

/// Wraps a `sockaddr_ll`; nix offers no constructor.
pub(crate) fn link_addr(address: &libc::sockaddr_ll) -> LinkAddr {
    use nix::sys::socket::SockaddrLike;
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).ok();
    // SAFETY: the pointer is to a whole sockaddr_ll of the family AF_PACKET, alive during the call, and its length is given
    unsafe { LinkAddr::from_raw(std::ptr::from_ref(address).cast(), length) }.expect("link address")
}

impl Capture {
    /// Starts capturing on links of a namespace; returns once every socket is bound.
    pub fn start(namespace: &Namespace, interfaces: &[&str]) -> Self {
        let sockets: Vec<OwnedFd> =
            namespace.run(|| interfaces.iter().map(|i| link_socket(i)).collect());
        let frames = Log::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (log, ended) = (frames.clone(), stop.clone());
        std::thread::spawn(move || read_all(&sockets, &log, &ended));
        Self {
            frames,
            stop,
            namespace: namespace.clone(),
            markers: AtomicU32::new(0),
        }
    }

    /// A position to look from.
    pub fn mark(&self) -> usize {
        self.frames.mark()
    }

    /// Waits until everything that was sent before this call has been seen.
    pub fn settle(&self) {
        let text = format!(
            "marker-{}-{}",
            std::process::id(),
            self.markers.fetch_add(1, Ordering::Relaxed)
        );
        let mark = self.mark();
        self.namespace.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("marker socket");
            let _ = socket.send_to(text.as_bytes(), (PUBLIC4, MARKER_PORT));
        });
        let seen = self.frames.wait(mark, LIMIT, |f| f.holds(text.as_bytes()));
        assert!(seen.is_some(), "the capture does not see its own marker");
    }

    /// Frames since a mark, settled; markers, the links' own upkeep and the gateway's own question left out.
    pub fn since(&self, mark: usize) -> Vec<Frame> {
        self.settle();
        let links: Vec<IpAddr> = LINKS.iter().map(|l| ip(l)).collect();
        self.frames
            .since(mark)
            .into_iter()
            .filter(|f| !is_marker(f) && !f.is_upkeep(&links) && !f.is_nat64_question())
            .collect()
    }

    /// Frames since a mark that touch an address.
    pub fn touching(&self, mark: usize, address: IpAddr) -> Vec<Frame> {
        self.since(mark)
            .into_iter()
            .filter(|f| f.touches(address))
            .collect()
    }

    /// Fails when a frame since the mark touches the address.
    pub fn none_to(&self, mark: usize, address: IpAddr) {
        let seen = self.touching(mark, address);
        assert!(
            seen.is_empty(),
            "{} frames of {address} on the uplink, first {:?}",
            seen.len(),
            seen.first()
        );
    }

    /// Whether a frame since the mark holds this text, in the clear.
    pub fn holds(&self, mark: usize, needle: &[u8]) -> bool {
        self.since(mark).iter().any(|f| f.holds(needle))
    }

    /// Waits for a frame that fits.
    pub fn wait(
        &self,
        mark: usize,
        limit: Duration,
        fits: impl Fn(&Frame) -> bool,
    ) -> Option<Frame> {
        self.frames.wait(mark, limit, fits)
    }
}

/// Markers and the port-unreachable answers that quote them.
fn is_marker(frame: &Frame) -> bool {
    frame.holds(b"marker-") && (frame.protocol == 17 || frame.protocol == 1)
}

fn read_all(sockets: &[OwnedFd], log: &Log<Frame>, stop: &AtomicBool) {
    use std::os::fd::AsFd;
    let mut buffer = vec![0; 70_000];
    while !stop.load(Ordering::Relaxed) {
        let mut waiting: Vec<PollFd> = sockets
            .iter()
            .map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN))
            .collect();
        if poll(&mut waiting, PollTimeout::from(100u8)).is_err() {
            continue;
        }
        for socket in sockets {
            while let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                log.push(Frame::read(&buffer[..length]));
            }
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
