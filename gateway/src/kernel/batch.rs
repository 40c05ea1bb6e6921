//! Datagrams between two connected sockets: one system call for many, and one pass through the kernel for a run of equal ones.
//!
//! What the kernel gives (`UDP_GRO`) or takes (`UDP_SEGMENT`) as one is counted, looked at and limited as the datagrams that
//! it stands for, each whole and in order. Where a run is refused, its datagrams are sent singly, so that an error is about
//! one of them.
//!
//! JUSTIFICATION for unsafe: `sendmmsg` has no wrapper that takes control messages of its own for each datagram.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::sessions::{BATCH, each_control, empty_heads, no_parts, receive_many};

/// The longest datagram there is, and the longest run.
const LONGEST: usize = 65_536;
/// Octets of the control message that names the length of a run's datagrams; as words, for its alignment.
const LENGTH_CONTROL: usize = 24;
/// What every kernel with `UDP_SEGMENT` takes at once (`UDP_MAX_SEGMENTS`).
const RUN: usize = 64;
/// A run's octets, with room for its headers in the longest packet there is.
const RUN_OCTETS: usize = 65_000;

/// How datagrams are given to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Giving {
    /// Runs of equal length as one.
    Runs,
    /// One by one.
    Singly,
}

/// Room for datagrams; memory is touched only as far as they are long.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where each datagram lies, oldest first.
    places: Vec<Range<usize>>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * LONGEST],
            places: Vec::with_capacity(BATCH),
        }
    }
}

impl Batch {
    /// Reads what a connected socket has, at most a batch. `WouldBlock` means nothing; other errors are the socket's own.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.places.clear();
        let mut parts = no_parts();
        let mut heads = empty_heads();
        let mut controls = [[0_u64; LENGTH_CONTROL / 8]; BATCH];
        let slots = self.bytes.chunks_exact_mut(LONGEST);
        let rooms = slots.zip(&mut parts).zip(&mut controls);
        for (((slot, part), control), head) in rooms.zip(&mut heads) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = control.as_mut_ptr().cast();
            head.msg_hdr.msg_controllen = LENGTH_CONTROL;
        }
        let count = receive_many(socket, &mut heads)?;
        for (slot, head) in heads.iter().take(count).enumerate() {
            let whole = slot * LONGEST..slot * LONGEST + head.msg_len as usize;
            let each = length_of_each(&head.msg_hdr).unwrap_or(LONGEST);
            // a datagram without octets is one, too
            let begins = std::iter::once(whole.start).chain(whole.clone().step_by(each).skip(1));
            self.places
                .extend(begins.map(|begin| begin..whole.end.min(begin + each)));
        }
        Ok(())
    }

    /// How many datagrams there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The datagrams, oldest first.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| self.at(place))
    }

    /// Sends datagrams from a number on, as many as one call takes; how many went. An error is about the first that did
    /// not, or about any of the first run.
    pub fn send(&self, socket: BorrowedFd<'_>, from: usize, giving: Giving) -> io::Result<usize> {
        let mut rest = self.places.get(from..).unwrap_or_default();
        let mut parts = Vec::with_capacity(rest.len());
        let mut runs = Vec::with_capacity(BATCH);
        while runs.len() < BATCH {
            let length = match giving {
                Giving::Runs => run(rest),
                Giving::Singly => rest.len().min(1),
            };
            let Some((run, after)) = rest
                .split_at_checked(length)
                .filter(|(run, _)| !run.is_empty())
            else {
                break;
            };
            rest = after;
            runs.push(run);
            parts.extend(run.iter().map(|place| self.part(place)));
        }
        let mut heads = empty_heads();
        let mut controls = [[0_u64; LENGTH_CONTROL / 8]; BATCH];
        let mut free = parts.as_mut_slice();
        for ((run, head), control) in runs.iter().zip(&mut heads).zip(&mut controls) {
            let own = free.split_off_mut(..run.len()).unwrap_or_default();
            head.msg_hdr.msg_iov = own.as_mut_ptr();
            head.msg_hdr.msg_iovlen = own.len();
            if let [first, _, ..] = run {
                head.msg_hdr.msg_control = control.as_mut_ptr().cast();
                head.msg_hdr.msg_controllen = LENGTH_CONTROL;
                say_length(&head.msg_hdr, first.len());
            }
        }
        let count = libc::c_uint::try_from(runs.len()).map_err(io::Error::other)?;
        // SAFETY: the first `count` headers describe parts of `self` and control messages, which outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                heads.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(runs.iter().take(sent).map(|run| run.len()).sum())
    }

    fn at(&self, place: &Range<usize>) -> &[u8] {
        self.bytes.get(place.clone()).unwrap_or_default()
    }

    fn part(&self, place: &Range<usize>) -> libc::iovec {
        let bytes = self.at(place);
        libc::iovec {
            // the kernel only reads what is sent
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }
    }
}

/// How many of these go as one: equally long, but for a shorter last one.
fn run(places: &[Range<usize>]) -> usize {
    let each = places.first().map_or(0, Range::len);
    let (mut count, mut octets, mut last) = (0, 0, each);
    for place in places.iter().take(RUN) {
        let fits = last == each && (1..=each).contains(&place.len());
        if count > 0 && !(fits && octets + place.len() <= RUN_OCTETS) {
            break;
        }
        count += 1;
        octets += place.len();
        last = place.len();
    }
    count
}

/// What the kernel says of the datagrams that it joined.
fn length_of_each(head: &libc::msghdr) -> Option<usize> {
    let mut found = None;
    each_control(head, |level, kind, data| {
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            let length = data.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b));
            found = length.and_then(|length| usize::try_from(length).ok());
        }
    });
    found.filter(|length| *length > 0)
}

/// Writes the control message that cuts a run into datagrams of this length.
fn say_length(head: &libc::msghdr, length: usize) {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    // SAFETY: the header's control buffer is aligned and has room for one message with two octets.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(head);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(2) as usize;
        libc::CMSG_DATA(message)
            .cast::<u16>()
            .write_unaligned(length);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    fn gro(socket: &UdpSocket) {
        let one: libc::c_int = 1;
        // SAFETY: the option takes an int; pointer and length describe one.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_GRO,
                (&raw const one).cast(),
                4,
            )
        };
        assert_eq!(set, 0);
    }

    fn holding(datagrams: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::default();
        for (slot, datagram) in datagrams.iter().enumerate() {
            let begin = slot * LONGEST;
            batch.bytes[begin..begin + datagram.len()].copy_from_slice(datagram);
            batch.places.push(begin..begin + datagram.len());
        }
        batch
    }

    fn all_of(socket: &UdpSocket, batch: &mut Batch, wanted: usize) -> Vec<Vec<u8>> {
        let (mut got, began) = (Vec::new(), Instant::now());
        while got.len() < wanted && began.elapsed() < Duration::from_secs(5) {
            if batch.receive(socket.as_fd()).is_ok() {
                got.extend(batch.datagrams().map(<[u8]>::to_vec));
            }
        }
        got
    }

    #[test]
    fn datagrams_arrive_as_they_were_however_they_are_given_and_read() {
        let lengths = [
            3, 3, 3, 2, 0, 0, 1200, 1200, 1200, 1300, 9, 1300, 1300, 0, 7, 7,
        ];
        let sent: Vec<Vec<u8>> = (1..).zip(lengths).map(|(i, n)| vec![i; n]).collect();
        for (giving, joined) in [
            (Giving::Runs, false),
            (Giving::Runs, true),
            (Giving::Singly, false),
            (Giving::Singly, true),
        ] {
            let (from, to) = pair();
            if joined {
                gro(&to);
            }
            let (batch, mut at) = (holding(&sent), 0);
            while at < batch.count() {
                at += batch.send(from.as_fd(), at, giving).unwrap();
            }
            let mut received = Batch::default();
            let got = all_of(&to, &mut received, sent.len());
            assert_eq!(got, sent, "{giving:?}, joined: {joined}");
        }
    }

    #[test]
    fn a_run_that_is_read_as_one_is_sent_on_as_one_and_counted_as_many() {
        let (from, to) = pair();
        let (onward, last) = pair();
        gro(&to);
        let sent = vec![vec![5; 1000]; 20];
        let batch = holding(&sent);
        assert_eq!(batch.send(from.as_fd(), 0, Giving::Runs).unwrap(), 20);
        let mut received = Batch::default();
        assert_eq!(all_of(&to, &mut received, 20), sent);
        assert_eq!(received.count(), 20);
        assert_eq!(received.send(onward.as_fd(), 0, Giving::Runs).unwrap(), 20);
        assert_eq!(all_of(&last, &mut Batch::default(), 20), sent);
    }

    #[test]
    fn runs_are_of_equal_length_but_for_a_shorter_last_one_and_bounded() {
        let of = |lengths: &[usize]| {
            let places: Vec<_> = lengths.iter().map(|n| 7..7 + n).collect();
            run(&places)
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[0, 0]), 1);
        assert_eq!(of(&[5]), 1);
        assert_eq!(of(&[5, 5, 5]), 3);
        assert_eq!(of(&[5, 5, 4, 5]), 3);
        assert_eq!(of(&[5, 5, 4, 4]), 3);
        assert_eq!(of(&[5, 5, 6]), 2);
        assert_eq!(of(&[5, 5, 0, 5]), 2);
        assert_eq!(of(&[10; 100]), RUN);
        assert_eq!(of(&[1400; 100]), RUN_OCTETS / 1400);
        assert_eq!(of(&[65_507; 2]), 1);
    }
}
