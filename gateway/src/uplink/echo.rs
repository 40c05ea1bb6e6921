//! Pinned asking: consumes a permit, connects a socket for echo requests to one of its addresses and to no other.
//!
//! The same refusals as over UDP: an address that turns out to be the machine itself, by the kernel's route look-up before
//! or by the socket's own ends after the connect, unless its class was Host.

use std::net::{IpAddr, SocketAddr};

use netpolicy::addr::Class;
use netpolicy::decide::{DialPermit, Ground};

use super::dial::{DialError, Dialer};
use crate::kernel::echo::Pinger;
use crate::kernel::sessions::Cutting;

/// A connected socket for echo requests.
#[derive(Debug)]
pub struct DialledEcho {
    /// The socket, non-blocking.
    pub pinger: Pinger,
    /// Whom it asks.
    pub upstream: IpAddr,
    /// Why.
    pub ground: Ground,
}

impl Dialer {
    /// Connects to the first address that there is a way to, addresses of the asker's family first. Nothing is sent.
    pub fn dial_echo(
        &self,
        permit: DialPermit,
        family_of: IpAddr,
        cutting: Cutting,
    ) -> Result<DialledEcho, DialError> {
        let mut addresses = permit.addresses().to_vec();
        addresses.sort_by_key(|address| address.is_ipv4() != family_of.is_ipv4());
        let ground = permit.into_ground();
        let mut last = DialError::errno(libc::ENETUNREACH);
        for upstream in addresses {
            match self.connect_echo(upstream, &ground, cutting) {
                Ok(pinger) => {
                    return Ok(DialledEcho {
                        pinger,
                        upstream,
                        ground,
                    });
                }
                Err(error) if error.forbidden.is_some() => return Err(error),
                Err(error) => last = error.at(SocketAddr::new(upstream, 0)),
            }
        }
        Err(last)
    }

    fn connect_echo(
        &self,
        target: IpAddr,
        ground: &Ground,
        cutting: Cutting,
    ) -> Result<Pinger, DialError> {
        let may_be_host = ground.class() == Some(Class::Host);
        if !may_be_host {
            self.check_elsewhere(target)?;
        }
        let failed = DialError::kernel;
        let mut identifier = [0; 2];
        getrandom::fill(&mut identifier)
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        let identifier = u16::from_ne_bytes(identifier);
        let pinger = Pinger::connect(target, identifier, cutting).map_err(failed)?;
        if !may_be_host && pinger.local() == target {
            return Err(DialError::is_machine());
        }
        Ok(pinger)
    }
}
