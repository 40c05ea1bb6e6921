//! First SYNs, held by the kernel until the gateway has decided and dialled (nfnetlink_queue).
//!
//! Owns: the queue socket, parsing what it delivers, sending verdicts. Refuses to own: deciding, dialling, timeouts.
//! Invariants: there is no bypass and no fail-open flag; a packet that cannot be parsed is dropped; a packet without a
//! verdict never leaves the kernel. Verdicts need CAP_NET_ADMIN in the namespace at every send, not only at open.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::{Socket, SocketAddr as NetlinkAddress};
use netpolicy::ruleset::FlowMark;

use super::answers::Answers;
use super::buffers;
use super::error::{Act, KernelError};
use super::icmp::Errors;
use super::netns::Ns;
use super::sessions::{BATCH, empty_heads, no_parts, receive_many};
use super::wire::{self, Attr, Message, Received};

/// `NFNL_SUBSYS_QUEUE << 8` with `NFQNL_MSG_*`
const PACKET: u16 = 0x300;
const VERDICT: u16 = 0x301;
const CONFIG: u16 = 0x302;
const NLM_F_ACK: u16 = 4;

/// Headers only: 40 of IPv6 and 20 of TCP, with room for options nobody reads.
const COPY_BYTES: u32 = 128;
/// Room for one packet with all that the kernel says about it.
const MESSAGE: usize = 1024;
/// More datagrams than the sum of all held SYNs; overflow drops packets, never lets one pass.
const BUFFER: usize = 8 << 20;
/// `NFQA_CFG_F_GSO`: no software checksum of packets that never left the machine. `F_FAIL_OPEN` (1) stays off.
const FLAG_GSO: u32 = 4;

/// A held packet's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Held(u32);

impl Held {
    /// The kernel's number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The held packet with this number.
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// A first SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syn {
    /// What a verdict names.
    pub held: Held,
    /// The sandbox's end.
    pub from: SocketAddr,
    /// The place asked for.
    pub to: SocketAddr,
    /// Initial sequence number: tells a repeat from a new attempt on the same ports.
    pub isn: u32,
    /// How far it may still go: its time to live or hop limit.
    pub hops: u8,
    /// Index of the interface in the gateway namespace.
    pub interface: u32,
}

/// What becomes of a held packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Goes on with this mark: delivered to the door, or answered.
    Mark(FlowMark),
    /// Vanishes; the sandbox sends again.
    Drop,
}

impl Verdict {
    /// The honest answer for a failed dial. Silence for time-outs and for trouble of our own.
    pub fn of_dial_error(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::ECONNRESET) => Self::Mark(FlowMark::Reset),
            Some(libc::EHOSTUNREACH | libc::EHOSTDOWN) => Self::Mark(FlowMark::HostUnreachable),
            Some(libc::ENETUNREACH) => Self::Mark(FlowMark::NoRoute),
            Some(libc::EACCES | libc::EPERM) => Self::Mark(FlowMark::Prohibited),
            _ => Self::Drop,
        }
    }
}

/// Dropped packets of one queue: by the kernel because it was full, and because no datagram went out. A line of
/// `nfnetlink_queue` is number, port, waiting, mode, range, dropped, not sent, last id, 1.
pub(super) fn drops(text: &str, number: u16) -> u64 {
    let number = number.to_string();
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&number.as_str()))
        .map_or(0, |fields| {
            let field = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok());
            field(5).unwrap_or(0) + field(6).unwrap_or(0)
        })
}

/// Room for what a queue delivers at once.
#[derive(Debug)]
pub struct Room(Vec<u8>);

impl Default for Room {
    fn default() -> Self {
        Self(vec![0; BATCH * MESSAGE])
    }
}

/// The queue. For readiness see [`watch`](super::watch).
#[derive(Debug)]
pub struct Queue {
    socket: Socket,
    number: u16,
    /// Says what the rules cannot say.
    answers: Option<Answers>,
}

impl Queue {
    /// Opens queue `number` of the namespace; `length` is above what user space will hold, so that user space decides
    /// which packet is dropped. EPERM also means that another process reads it.
    pub fn open(ns: &Ns, number: u16, length: u32) -> Result<Self, KernelError> {
        let socket = ns.run(|| wire::netfilter_socket().act("opening the queue socket"))?;
        buffers::receive(&socket, BUFFER).act("enlarging the queue socket's buffer")?;
        socket
            .set_no_enobufs(true)
            .act("configuring the queue socket")?;
        let queue = Self {
            socket,
            number,
            answers: None,
        };
        let configure = |message: Message, act: &str| queue.configure(message).act(act);
        // struct nfqnl_msg_config_cmd { u8 command = BIND, u8 pad, be16 pf }
        configure(queue.config().attr(1, &[1, 0, 0, 0]), "binding the queue")?;
        let [a, b, c, d] = COPY_BYTES.to_be_bytes();
        // struct nfqnl_msg_config_params { be32 range, u8 mode = COPY_PACKET }
        configure(
            queue.config().attr(2, &[a, b, c, d, 2]),
            "asking for packet headers",
        )?;
        configure(
            queue.config().attr(3, &length.to_be_bytes()),
            "setting the queue's length",
        )?;
        let flags = queue
            .config()
            .attr(4, &FLAG_GSO.to_be_bytes())
            .attr(5, &FLAG_GSO.to_be_bytes());
        configure(flags, "setting the queue's flags")?;
        queue
            .socket
            .set_non_blocking(true)
            .act("configuring the queue socket")?;
        Ok(queue)
    }

    /// The same queue, for rules that cannot say ICMP errors (those of iptables): it says them with these sockets.
    #[must_use]
    pub fn answering(mut self, errors: Errors) -> Self {
        self.answers = Some(Answers::new(errors));
        self
    }

    /// Receives packets, at most a batch, and hands each SYN to `each`; drops what is no first SYN. Says whether there may
    /// be more; `WouldBlock` when there was none. `room` is reused by the caller.
    pub fn receive(&self, room: &mut Room, mut each: impl FnMut(Syn)) -> io::Result<bool> {
        let mut parts = no_parts();
        let mut heads = empty_heads();
        let slots = room.0.chunks_exact_mut(MESSAGE);
        for ((slot, part), head) in slots.zip(&mut parts).zip(&mut heads) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
        }
        let count = receive_many(self.as_fd(), &mut heads)?;
        for (slot, head) in room.0.chunks_exact(MESSAGE).zip(&heads).take(count) {
            let received = slot.get(..head.msg_len as usize).unwrap_or_default();
            for message in wire::messages(received) {
                match packet(message) {
                    Some((_, Some(syn))) => {
                        if let Some(answers) = &self.answers {
                            answers.remember(&syn);
                        }
                        each(syn);
                    }
                    Some((held, None)) => self.decide(held, Verdict::Drop)?,
                    // Errors of verdicts: the packet was gone already, or the capability is.
                    None => {}
                }
            }
        }
        Ok(count == BATCH)
    }

    /// Sends a verdict. Does not wait: a packet that is gone (its chain was replaced) is no error.
    pub fn decide(&self, held: Held, verdict: Verdict) -> io::Result<()> {
        let verdict = match &self.answers {
            Some(answers) => answers.give(held, verdict),
            None => verdict,
        };
        let code: u32 = match verdict {
            Verdict::Drop => 0,
            Verdict::Mark(_) => 1,
        };
        let mut header = code.to_be_bytes().to_vec();
        header.extend(held.0.to_be_bytes());
        let mut message = Message::new(VERDICT, 0, 0, self.number).attr(2, &header);
        if let Verdict::Mark(mark) = verdict {
            message = message.attr(3, &(mark as u32).to_be_bytes());
        }
        self.socket
            .send_to(&message.finish(), &NetlinkAddress::new(0, 0), 0)?;
        Ok(())
    }

    fn config(&self) -> Message {
        Message::new(CONFIG, NLM_F_ACK, 0, self.number)
    }

    fn configure(&self, message: Message) -> io::Result<()> {
        self.socket
            .send_to(&message.finish(), &NetlinkAddress::new(0, 0), 0)?;
        // The answer is queued when the send returns; packets may already stand before it once the queue is bound.
        loop {
            let mut buffer = Vec::with_capacity(1 << 16);
            self.socket.recv(&mut buffer, libc::MSG_DONTWAIT)?;
            for message in wire::messages(&buffer) {
                match (message.error(), packet(message)) {
                    (Some(0), _) => return Ok(()),
                    (Some(errno), _) => return Err(io::Error::from_raw_os_error(errno)),
                    (None, Some((held, _))) => self.decide(held, Verdict::Drop)?,
                    (None, None) => {}
                }
            }
        }
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A held packet's number, and the SYN if it is one.
fn packet(message: Received<'_>) -> Option<(Held, Option<Syn>)> {
    if message.kind != PACKET {
        return None;
    }
    let attrs = message.attrs();
    // struct nfqnl_msg_packet_hdr begins with the be32 number.
    let held = attrs
        .find(1)?
        .value
        .first_chunk::<4>()
        .map(|bytes| Held(u32::from_be_bytes(*bytes)))?;
    let interface = attrs.find(5).and_then(Attr::be32).unwrap_or(0);
    let payload = attrs.find(10).map_or(&[][..], |attr| attr.value);
    Some((held, syn(held, interface, payload)))
}

/// `None` for anything but a whole TCP header with SYN and neither FIN, RST nor ACK, straight behind a plain IP header.
fn syn(held: Held, interface: u32, bytes: &[u8]) -> Option<Syn> {
    let (from, to, hops, segment) = match bytes.first()? >> 4 {
        4 => ipv4(bytes)?,
        6 => ipv6(bytes)?,
        _ => return None,
    };
    let [s0, s1, d0, d1, n0, n1, n2, n3, _, _, _, _, _, flags, ..] =
        *segment.first_chunk::<20>()?;
    if flags & 0x17 != 0x02 {
        return None;
    }
    Some(Syn {
        held,
        from: (from, u16::from_be_bytes([s0, s1])).into(),
        to: (to, u16::from_be_bytes([d0, d1])).into(),
        isn: u32::from_be_bytes([n0, n1, n2, n3]),
        hops,
        interface,
    })
}

/// Source, destination, hops and what follows the header.
type Parsed<'a> = (IpAddr, IpAddr, u8, &'a [u8]);

fn ipv4(bytes: &[u8]) -> Option<Parsed<'_>> {
    let header = bytes.first_chunk::<20>()?;
    let [first, _, _, _, _, _, f0, f1, hops, protocol, ..] = *header;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    if protocol != 6 || fragment || first & 0x0f != 5 {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(octets)))
    };
    Some((address(12)?, address(16)?, hops, bytes.get(20..)?))
}

fn ipv6(bytes: &[u8]) -> Option<Parsed<'_>> {
    let header = bytes.first_chunk::<40>()?;
    if header.get(6) != Some(&6) {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    let hops = *header.get(7)?;
    Some((address(8)?, address(24)?, hops, bytes.get(40..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(flags: u8) -> Vec<u8> {
        let mut bytes = vec![
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 2, 192, 0, 2, 1,
        ];
        bytes.extend([
            0x30, 0x39, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0,
        ]);
        bytes
    }

    #[test]
    fn only_whole_first_syns_are_taken() {
        let good = syn(Held(1), 7, &tcp(2)).unwrap();
        assert_eq!(good.to, "192.0.2.1:80".parse().unwrap());
        assert_eq!((good.from.port(), good.isn), (12_345, 0x0102_0304));
        assert_eq!(good.hops, 64);
        for flags in [0, 0x01, 0x04, 0x10, 0x12, 0x03, 0x06, 0x3f] {
            assert_eq!(syn(Held(1), 7, &tcp(flags)), None, "flags {flags:#x}");
        }
        for cut in 0..40 {
            assert_eq!(syn(Held(1), 7, &tcp(2)[..cut]), None, "cut at {cut}");
        }
        let mut fragment = tcp(2);
        fragment[6] = 0x20;
        assert_eq!(syn(Held(1), 7, &fragment), None);
        let mut options = tcp(2);
        options[0] = 0x46;
        assert_eq!(syn(Held(1), 7, &options), None);
        let mut udp = tcp(2);
        udp[9] = 17;
        assert_eq!(syn(Held(1), 7, &udp), None);
    }

    #[test]
    fn dial_errors_become_the_answer_a_router_would_give() {
        let of = |errno| Verdict::of_dial_error(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ECONNREFUSED), Verdict::Mark(FlowMark::Reset));
        assert_eq!(
            of(libc::EHOSTUNREACH),
            Verdict::Mark(FlowMark::HostUnreachable)
        );
        assert_eq!(of(libc::ENETUNREACH), Verdict::Mark(FlowMark::NoRoute));
        assert_eq!(of(libc::EACCES), Verdict::Mark(FlowMark::Prohibited));
        assert_eq!(of(libc::ETIMEDOUT), Verdict::Drop);
        assert_eq!(of(libc::EMFILE), Verdict::Drop);
    }

    #[test]
    fn drops_are_those_of_the_queue_that_is_asked_about() {
        let text = "    1  29113     0 2   128     7     2    99  1\n   17  29113     3 2   128     5     0     1  1\n";
        assert_eq!([drops(text, 1), drops(text, 17), drops(text, 7)], [9, 5, 0]);
        assert_eq!(drops("garbage", 1), 0);
    }
}
