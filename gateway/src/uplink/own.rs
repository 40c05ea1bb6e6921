//! Which peers of a watched listener are the gateway itself: the local port of each dial to it is noted before it leaves.
//!
//! For the selftest, whose listeners anybody on the machine reaches: a connection that comes from no noted port is some
//! other process's, whatever it does and however soon it goes. Nothing is noted while nobody watches, which costs a dial
//! one load.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::net::TcpSocket;

/// The gateway's own dials to watched listeners.
#[derive(Debug, Default)]
pub struct OwnDials {
    watched: ArcSwap<BTreeSet<SocketAddr>>,
    noted: Mutex<BTreeSet<(SocketAddr, u16)>>,
}

impl OwnDials {
    /// Watches one more listener.
    pub fn watch(&self, to: SocketAddr) {
        self.change(|watched| {
            watched.insert(to);
        });
    }

    /// Forgets a listener, and who connected to it.
    pub fn forget(&self, to: SocketAddr) {
        self.change(|watched| {
            watched.remove(&to);
        });
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|(at, _)| *at != to);
    }

    fn change(&self, change: impl Fn(&mut BTreeSet<SocketAddr>)) {
        self.watched.rcu(|watched| {
            let mut next = BTreeSet::clone(watched);
            change(&mut next);
            next
        });
    }

    /// Whether the gateway has dialled this listener from this port.
    pub fn has(&self, to: SocketAddr, port: u16) -> bool {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.contains(&(to, port))
    }

    /// Gives a socket a port of its own and notes it, if it is about to connect to a watched listener.
    pub(crate) fn note(&self, socket: &TcpSocket, to: SocketAddr) -> io::Result<()> {
        if !self.watched.load().contains(&to) {
            return Ok(());
        }
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        socket.bind((any, 0).into())?;
        let port = socket.local_addr()?.port();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.insert((to, port));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dial_is_noted_before_it_leaves_and_only_while_its_listener_is_watched() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let own = OwnDials::default();
        let socket = TcpSocket::new_v4().unwrap();
        own.note(&socket, to).unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), 0, "left to the kernel");
        own.watch(to);
        own.note(&socket, to).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(own.has(to, port) && !own.has(to, port ^ 1));
        let stream = socket.connect(to).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().port(), port);
        own.forget(to);
        assert!(!own.has(to, port));
    }
}
