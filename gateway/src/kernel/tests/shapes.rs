//! Frames as a sandbox with every right inside can write them, good ones to begin with: a test bends one field.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::lab::{Sandbox, v4, v6};

const GATEWAY_MAC: [u8; 6] = [0x02, 0x53, 0x50, 0, 0, 1];

pub const FAR4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

pub const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80);

/// An AF_PACKET socket in the sandbox.
pub fn wire(sandbox: &Sandbox) -> OwnedFd {
    sandbox.run(|| {
        // SAFETY: plain socket calls; results are checked, the address is fully initialised.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = 17;
            address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()).cast_signed();
            let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
            assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
            OwnedFd::from_raw_fd(fd)
        }
    })
}

pub fn send(wire: &OwnedFd, ethertype: u16, packet: &[u8]) {
    let mut frame = GATEWAY_MAC.to_vec();
    frame.extend([0x02, 0, 0, 0, 0, 9]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    nix::unistd::write(wire, &frame).unwrap();
    assert!(wire.as_raw_fd() >= 0);
}

pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|c| u32::from(u16::from_be_bytes([c[0], *c.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

#[derive(Clone)]
pub struct Four {
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub protocol: u8,
    pub fragment: u16,
    pub options: &'static [u8],
    pub payload: Vec<u8>,
}

impl Four {
    pub fn question() -> Self {
        let (from, to) = (v4(0), FAR4);
        Self {
            from,
            to,
            protocol: 17,
            fragment: 0,
            options: &[],
            payload: datagram(53),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let length = 20 + self.options.len() + self.payload.len();
        let mut header = vec![0x40 | u8::try_from(5 + self.options.len() / 4).unwrap(), 0];
        header.extend(u16::try_from(length).unwrap().to_be_bytes());
        header.extend([0, 1]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(self.from.octets());
        header.extend(self.to.octets());
        header.extend(self.options);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum);
        header.extend(&self.payload);
        header
    }
}

#[derive(Clone)]
pub struct Six {
    pub from: Ipv6Addr,
    pub to: Ipv6Addr,
    pub next: u8,
    pub payload: Vec<u8>,
}

impl Six {
    pub fn question() -> Self {
        let mut payload = datagram(53);
        let (from, to) = (v6(0), FAR6);
        // UDP over IPv6 needs its checksum.
        let mut pseudo = from.octets().to_vec();
        pseudo.extend(to.octets());
        pseudo.extend([0, 0, 0, u8::try_from(payload.len()).unwrap(), 0, 0, 0, 17]);
        pseudo.extend(&payload);
        let sum = checksum(&pseudo);
        payload[6..8].copy_from_slice(&sum);
        Self {
            from,
            to,
            next: 17,
            payload,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend(u16::try_from(self.payload.len()).unwrap().to_be_bytes());
        header.extend([self.next, 64]);
        header.extend(self.from.octets());
        header.extend(self.to.octets());
        header.extend(&self.payload);
        header
    }

    /// The same packet behind an extension header of eight bytes.
    pub fn behind(&self, header: u8, rest: [u8; 7]) -> Self {
        let mut payload = vec![self.next];
        payload.extend(rest);
        payload.extend(&self.payload);
        Self {
            next: header,
            payload,
            ..self.clone()
        }
    }
}

pub fn datagram(port: u16) -> Vec<u8> {
    let mut bytes = 4000_u16.to_be_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 16, 0, 0]);
    bytes.extend(b"question");
    bytes
}

pub fn segment(flags: u8) -> Vec<u8> {
    let mut bytes = vec![0x0f, 0xa0, 0x1f, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags];
    bytes.extend([0x10, 0, 0, 0, 0, 0]);
    bytes
}
