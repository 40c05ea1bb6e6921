//! What the first datagrams of a session are: QUIC with a server name, or something that has none.
//!
//! Datagrams are held until that is known, within a limit of number and time; nothing is sent meanwhile.

use netpolicy::decide::{Evidence, Heard};
use netpolicy::policy::Speaks;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{HELD, Held};
use crate::detect::Hello;
use crate::detect::quic::{Inspector, Look};

/// The first datagrams and what they are.
#[derive(Debug)]
pub(super) struct First {
    /// In the order in which they came.
    pub datagrams: Vec<Vec<u8>>,
    /// Knows the handshakes that they began.
    pub inspector: Inspector,
    look: Look,
}

/// Reads until the first datagrams are known for what they are; `None` when there are none.
pub(super) async fn hear(inbox: &mut mpsc::Receiver<Held>, due: Instant) -> Option<First> {
    let mut first = First {
        datagrams: Vec::new(),
        inspector: Inspector::default(),
        look: Look::NotQuic,
    };
    while first.datagrams.len() < HELD {
        let Ok(Some(held)) = timeout_at(due, inbox.recv()).await else {
            break;
        };
        let look = first.inspector.look(&held.bytes);
        // beside half a hello: early data, or a copy that says nothing new
        let beside = first.look == Look::Need && matches!(look, Look::Pass | Look::Sealed);
        let goes_on = beside || look == Look::Need;
        first.datagrams.push(held.bytes);
        if !goes_on {
            first.look = look;
            return Some(first);
        }
        first.look = Look::Need;
    }
    (!first.datagrams.is_empty()).then_some(first)
}

impl First {
    /// The hello, if there is one.
    pub fn hello(&self) -> Option<&Hello> {
        if let Look::Hello(hello) = &self.look {
            Some(hello)
        } else {
            None
        }
    }

    /// The name they carry, for the decision on an address.
    pub fn heard(&self) -> Heard {
        let name = self.hello().and_then(|hello| hello.name.clone());
        name.map_or(Heard::Nothing, |name| Heard::Name {
            name,
            answers: None,
        })
    }

    /// The evidence, where bytes are judged this way. What cannot be a handshake is nothing that TLS may be; a version
    /// that cannot be read, or the middle of a connection, has no name and passes by the lease.
    pub fn evidence(&self, speaks: Speaks) -> Evidence {
        match (&self.look, speaks) {
            (Look::Hello(hello), _) => Evidence::Tls {
                name: hello.name.clone(),
            },
            (Look::Malformed(_) | Look::Need, _) | (Look::NotQuic | Look::Sealed, Speaks::Tls) => {
                Evidence::TlsMalformed
            }
            (Look::Pass | Look::NotQuic | Look::Sealed, _) => Evidence::Opaque,
        }
    }
}
