//! A witness of every small frame that a namespace carries on any link, and a wire that puts frames of any shape on one.
//!
//! Both are packet sockets of packet(7), for the selftest alone: the wire belongs to a probe sandbox, the witness stands
//! where nothing of it may arrive. A filter keeps big frames from the witness's buffer, so that the traffic of a busy
//! machine does not crowd out what it waits for; frames that it missed all the same are counted, and a witness that
//! missed some has not seen that nothing came.

use std::io;

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::buffers;
use super::error::{Act, KernelError};
use super::packets::{Statistics, address, statistics};

/// Longest frame that a witness takes: well above what the selftest sends, with room for a header that a leak adds.
pub const LONGEST: usize = MOST as usize;
const MOST: u32 = 400;
/// Room for tens of thousands of small frames while the reader is not scheduled.
const BUFFER: usize = 16 << 20;

/// Sees the frames of the namespace that it was opened in.
#[derive(Debug)]
pub struct Witness {
    socket: Socket,
    counted: Statistics,
}

impl Witness {
    /// On every link of the calling thread's namespace, those that come later included.
    pub fn open() -> Result<Self, KernelError> {
        const ACT: &str = "opening a witness";
        let kind = Type::RAW.nonblocking().cloexec();
        // protocol 0 receives nothing until the filter stands
        let socket = Socket::new(Domain::PACKET, kind, Some(Protocol::from(0))).act(ACT)?;
        socket.attach_filter(&small()).act(ACT)?;
        buffers::receive(&socket, BUFFER).act(ACT)?;
        socket
            .bind(&address(0, libc::ETH_P_ALL).act(ACT)?)
            .act(ACT)?;
        Ok(Self {
            socket,
            counted: Statistics::default(),
        })
    }

    /// The next frame; `WouldBlock` when there is none.
    pub fn receive<'a>(&self, buffer: &'a mut [u8; LONGEST]) -> io::Result<&'a [u8]> {
        let length = {
            let room: &mut [u8] = buffer;
            io::Read::read(&mut &self.socket, room)?
        };
        Ok(buffer.get(..length).unwrap_or_default())
    }

    /// How many frames found the buffer full.
    pub fn missed(&mut self) -> io::Result<u64> {
        self.counted = statistics(&self.socket, self.counted)?;
        Ok(self.counted.dropped)
    }
}

/// `ld len; jgt #LONGEST, drop; ret #LONGEST; drop: ret #0` of the classic filter language (linux/filter.h).
fn small() -> [SockFilter; 4] {
    const LOAD_LENGTH: u16 = 0x80;
    const JUMP_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    let step = |code, jt, k| SockFilter::new(code, jt, 0, k);
    [
        step(LOAD_LENGTH, 0, 0),
        step(JUMP_GREATER, 1, MOST),
        step(RETURN, 0, MOST),
        step(RETURN, 0, 0),
    ]
}

/// Puts frames on one link, as they are.
#[derive(Debug)]
pub struct Wire {
    socket: Socket,
}

impl Wire {
    /// On a link of the calling thread's namespace.
    pub fn open(link: &str) -> Result<Self, KernelError> {
        let act = || format!("opening the wire of {link}");
        let index = if_nametoindex(link).act(act())?;
        let kind = Type::RAW.cloexec();
        let socket = Socket::new(Domain::PACKET, kind, Some(Protocol::from(0))).act(act())?;
        // protocol 0: only sends
        socket.bind(&address(index, 0).act(act())?).act(act())?;
        Ok(Self { socket })
    }

    /// Sends one frame, its Ethernet header included.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }
}
