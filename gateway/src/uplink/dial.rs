//! Pinned dialling: consumes a permit, dials only its addresses, happy eyeballs among them (RFC 8305).
//!
//! Owns: every upstream TCP connection of the gateway. Refuses to own: which addresses (the permit says so) and names
//! (nothing is resolved here, so nothing can be rebound). A destination that turns out to be the machine itself, by the
//! kernel's route look-up before or by the socket's own ends after the connect, is refused unless its class was Host.
//! Failure stance: the kernel's errno is kept, for the client's kernel to hear. A look-up that fails refuses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use netpolicy::addr::Class;
use netpolicy::decide::{DialPermit, Ground};
use netpolicy::reason::Reason;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::own::OwnDials;
use crate::kernel::sockets::keep_alive;

/// RFC 8305 5: "Connection Attempt Delay".
const STAGGER: Duration = Duration::from_millis(250);
/// All attempts together; as long as Linux gives a connect before its fifth SYN.
const OVERALL: Duration = Duration::from_secs(30);
/// Data that nobody acknowledges, or a window that stays shut: five minutes, for slow readers are alive.
const USER_TIMEOUT: Duration = Duration::from_mins(5);

/// Whether the kernel's own route look-up calls an address local; fails when it could not be asked.
pub type IsLocal = Arc<dyn Fn(IpAddr) -> io::Result<bool> + Send + Sync>;

/// Opens upstream sockets in the uplink namespace.
pub struct Dialer {
    is_local: IsLocal,
    /// Who of a watched listener's peers this is.
    pub own: Arc<OwnDials>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

/// An open upstream connection.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub stream: TcpStream,
    /// Far end.
    pub upstream: SocketAddr,
    /// Near end.
    pub local: SocketAddr,
    /// Why.
    pub ground: Ground,
}

/// A dial that failed; the kernel's own word, for the client's kernel to hear.
#[derive(Debug, thiserror::Error)]
#[error("dialling failed")]
pub struct DialError {
    /// errno of the last attempt.
    #[source]
    pub source: io::Error,
    /// Set when the gateway itself refused: the destination is the machine, or nobody can say whether it is.
    pub forbidden: Option<Reason>,
    /// Whom the last attempt was made to.
    pub tried: Option<SocketAddr>,
}

impl DialError {
    pub(super) fn errno(code: i32) -> Self {
        Self {
            source: io::Error::from_raw_os_error(code),
            forbidden: None,
            tried: None,
        }
    }

    /// An attempt that the kernel ended.
    pub(super) fn kernel(source: io::Error) -> Self {
        Self {
            source,
            forbidden: None,
            tried: None,
        }
    }

    /// The same, of an attempt to reach this destination.
    pub(super) fn at(self, target: SocketAddr) -> Self {
        Self {
            tried: Some(target),
            ..self
        }
    }

    pub(super) fn is_machine() -> Self {
        Self {
            forbidden: Some(Reason::AddressHost),
            ..Self::errno(libc::ECONNREFUSED)
        }
    }

    /// The kernel could not be asked whose the destination is: a shortage of the gateway's own, whatever its errno.
    fn is_unknown(source: io::Error) -> Self {
        Self {
            source,
            forbidden: Some(Reason::LimitFlows),
            tried: None,
        }
    }

    /// The failure in the one vocabulary. The gateway's own shortage of descriptors or ports is `limit_flows`.
    pub fn reason(&self) -> Reason {
        if let Some(reason) = self.forbidden {
            return reason;
        }
        match self.source.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::ECONNRESET) => Reason::UpstreamRefused,
            Some(
                libc::EMFILE
                | libc::ENFILE
                | libc::EADDRNOTAVAIL
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EAGAIN,
            ) => Reason::LimitFlows,
            Some(libc::ETIMEDOUT) => Reason::UpstreamTimeout,
            _ => Reason::UpstreamUnreachable,
        }
    }
}

impl Dialer {
    /// With the kernel's word on which addresses are local.
    pub fn new(is_local: impl Fn(IpAddr) -> io::Result<bool> + Send + Sync + 'static) -> Self {
        Self {
            is_local: Arc::new(is_local),
            own: Arc::default(),
        }
    }

    /// Refuses an address that leads to the machine itself, and one of which that cannot be known now.
    pub(super) fn check_elsewhere(&self, address: IpAddr) -> Result<(), DialError> {
        match (self.is_local)(address) {
            Ok(false) => Ok(()),
            Ok(true) => Err(DialError::is_machine()),
            Err(error) => Err(DialError::is_unknown(error)),
        }
    }

    /// Dials. Addresses that turn out local (route look-up, same two ends) are refused unless the class was Host.
    pub async fn dial(&self, permit: DialPermit) -> Result<Dialled, DialError> {
        let port = permit.ground().port();
        let targets: Vec<SocketAddr> = interleave(permit.addresses())
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port))
            .collect();
        let ground = permit.into_ground();
        let raced = timeout(OVERALL, self.race(&targets, &ground)).await;
        let late = || {
            let late = DialError::errno(libc::ETIMEDOUT);
            match targets.first() {
                Some(target) => late.at(*target),
                None => late,
            }
        };
        let connected = raced.map_err(|_| late())??;
        Ok(Dialled {
            stream: connected.stream,
            upstream: connected.target,
            local: connected.local,
            ground,
        })
    }

    /// One address is simply dialled. Of several: starts one attempt every [`STAGGER`], or at once when all others have failed; the first that connects wins and
    /// the others are dropped.
    async fn race(&self, targets: &[SocketAddr], ground: &Ground) -> Result<Connected, DialError> {
        if let [only] = targets {
            return self.attempt(*only, ground).await;
        }
        let mut waiting = targets.iter();
        let mut attempts = FuturesUnordered::new();
        let mut last = DialError::errno(libc::ENETUNREACH);
        loop {
            if attempts.is_empty() {
                match waiting.next() {
                    Some(target) => attempts.push(self.attempt(*target, ground)),
                    None => return Err(last),
                }
            }
            let more = waiting.len() > 0;
            tokio::select! {
                Some(done) = attempts.next() => match done {
                    Ok(connected) => return Ok(connected),
                    // the machine itself is never "one of several that failed"
                    Err(error) if error.forbidden.is_some() => return Err(error),
                    Err(error) => last = error,
                },
                () = tokio::time::sleep(STAGGER), if more => {
                    attempts.extend(waiting.next().map(|target| self.attempt(*target, ground)));
                }
            }
        }
    }

    async fn attempt(&self, target: SocketAddr, ground: &Ground) -> Result<Connected, DialError> {
        let connected = self.connect_to(target, ground).await;
        connected.map_err(|error| error.at(target))
    }

    async fn connect_to(
        &self,
        target: SocketAddr,
        ground: &Ground,
    ) -> Result<Connected, DialError> {
        let may_be_host = ground.class() == Some(Class::Host);
        if !may_be_host {
            self.check_elsewhere(target.ip())?;
        }
        let stream = self.connect(target).await.map_err(DialError::kernel)?;
        let local = stream.local_addr().map_err(DialError::kernel)?;
        // equal ends are a socket that met itself (simultaneous open); an equal address is the machine
        if local == target || (!may_be_host && local.ip() == target.ip()) {
            return Err(DialError::is_machine());
        }
        Ok(Connected {
            stream,
            target,
            local,
        })
    }

    async fn connect(&self, target: SocketAddr) -> io::Result<TcpStream> {
        let socket = if target.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_nodelay(true)?;
        self.own.note(&socket, target)?;
        socket.connect(target).await
    }
}

/// An attempt that connected.
struct Connected {
    stream: TcpStream,
    target: SocketAddr,
    local: SocketAddr,
}

/// Has the death of a far end be noticed. Only flows that last need it, so it is no cost of the others; without it the
/// kernel gives up on unacknowledged data by its own count, after about a quarter of an hour.
pub(crate) fn watch_over(stream: &TcpStream) {
    let options = SockRef::from(stream);
    let watched =
        keep_alive(&options).and_then(|()| options.set_tcp_user_timeout(Some(USER_TIMEOUT)));
    if let Err(error) = watched {
        tracing::debug!(%error, "a far end that dies may go unnoticed");
    }
}

/// RFC 8305 4: families take turns, beginning with the family of the first answer; order within a family is kept.
fn interleave(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (mut first, mut second): (Vec<_>, Vec<_>) = addresses
        .iter()
        .copied()
        .partition(|ip| ip.is_ipv4() == first_is_v4);
    first.reverse();
    second.reverse();
    let mut order = Vec::with_capacity(addresses.len());
    while !first.is_empty() || !second.is_empty() {
        order.extend(first.pop());
        order.extend(second.pop());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split(' ').map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_and_none_is_lost() {
        assert_eq!(
            interleave(&ips("192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1")),
            ips("192.0.2.1 2001:db8::1 192.0.2.2 192.0.2.3")
        );
        assert_eq!(
            interleave(&ips("2001:db8::1 192.0.2.1")),
            ips("2001:db8::1 192.0.2.1")
        );
    }

    #[test]
    fn own_shortage_is_a_limit_and_never_the_far_ends_fault() {
        for (code, reason) in [
            (libc::ECONNREFUSED, Reason::UpstreamRefused),
            (libc::ETIMEDOUT, Reason::UpstreamTimeout),
            (libc::EHOSTUNREACH, Reason::UpstreamUnreachable),
            (libc::ENETUNREACH, Reason::UpstreamUnreachable),
            (libc::EMFILE, Reason::LimitFlows),
            (libc::EADDRNOTAVAIL, Reason::LimitFlows),
        ] {
            assert_eq!(DialError::errno(code).reason(), reason);
        }
        assert_eq!(DialError::is_machine().reason(), Reason::AddressHost);
    }
}
