//! Pinned dialling over UDP: consumes a permit, connects a socket to one of its addresses and to no other.
//!
//! The same refusals as over TCP: an address that turns out to be the machine itself, by the kernel's route look-up before
//! or by the socket's own ends after the connect, unless its class was Host. A connected socket takes datagrams from the
//! one address and port it is connected to; whatever else arrives is the kernel's to drop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use netpolicy::addr::Class;
use netpolicy::decide::{DialPermit, Ground};

use super::dial::{DialError, Dialer};
use crate::kernel::sessions::{Cutting, tune_upstream};

/// A connected upstream socket.
#[derive(Debug)]
pub struct DialledDatagrams {
    /// The socket, non-blocking.
    pub socket: UdpSocket,
    /// Far end.
    pub upstream: SocketAddr,
    /// Why.
    pub ground: Ground,
}

impl Dialer {
    /// Connects to the first address that there is a way to; addresses of the family that the client used come first,
    /// so that errors and sizes mean the same on both sides. Nothing is sent.
    pub fn dial_datagrams(
        &self,
        permit: DialPermit,
        family_of: IpAddr,
        cutting: Cutting,
    ) -> Result<DialledDatagrams, DialError> {
        let port = permit.ground().port();
        let mut addresses = permit.addresses().to_vec();
        addresses.sort_by_key(|address| address.is_ipv4() != family_of.is_ipv4());
        let ground = permit.into_ground();
        let mut last = DialError::errno(libc::ENETUNREACH);
        for address in addresses {
            let upstream = SocketAddr::new(address, port);
            match self.connect_datagrams(upstream, &ground, cutting) {
                Ok(socket) => {
                    return Ok(DialledDatagrams {
                        socket,
                        upstream,
                        ground,
                    });
                }
                Err(error) if error.forbidden.is_some() => return Err(error),
                Err(error) => last = error.at(upstream),
            }
        }
        Err(last)
    }

    fn connect_datagrams(
        &self,
        target: SocketAddr,
        ground: &Ground,
        cutting: Cutting,
    ) -> Result<UdpSocket, DialError> {
        let failed = DialError::kernel;
        let may_be_host = ground.class() == Some(Class::Host);
        if !may_be_host {
            self.check_elsewhere(target.ip())?;
        }
        let any: IpAddr = if target.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        tune_upstream(&socket, cutting).map_err(failed)?;
        socket.connect(target).map_err(failed)?;
        forget_strangers(&socket);
        let local = socket.local_addr().map_err(failed)?;
        if local == target || (!may_be_host && local.ip() == target.ip()) {
            return Err(DialError::is_machine());
        }
        Ok(socket)
    }
}

/// What came in between binding and connecting is from anybody; nothing was asked yet, so nothing of it is an answer.
fn forget_strangers(socket: &UdpSocket) {
    while socket.recv(&mut [0]).is_ok() {}
}
