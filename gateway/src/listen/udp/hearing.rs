//! What the first datagrams of a session are: QUIC with a server name, or something that has none.
//!
//! Datagrams are held until that is known, within a limit of number and time; nothing is sent meanwhile.

use netpolicy::decide::{Evidence, Heard};
use netpolicy::ids::Generation;
use netpolicy::policy::Speaks;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::HELD;
use super::cut::Past;
use crate::detect::Hello;
use crate::detect::quic::{Claims, Inspector, Look};
use crate::listen::sessions::Held;
use crate::network::ended::Answer;

/// The first datagrams and what they are.
#[derive(Debug)]
pub(super) struct First {
    /// In the order in which they came, without the pieces of a hello, which the inspector has.
    pub datagrams: Vec<Vec<u8>>,
    /// Knows the handshakes that they began.
    pub inspector: Inspector,
    look: Look,
}

/// What a session said so far.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// From the first datagram on.
    pub inspector: Option<Inspector>,
    /// What was permitted, for later policies: one hello for each connection.
    pub said: Vec<Evidence>,
    /// Whether names are judged here, and under which policy that was asked.
    pub judged: Option<(Generation, bool)>,
    /// What was known last of connections with this server.
    pub answer: Option<Answer>,
}

impl Hearing {
    /// Whether a hello of QUIC was read.
    pub fn is_quic(&self) -> bool {
        let inspector = self.inspector.as_ref();
        inspector.is_some_and(Inspector::has_connections)
    }

    /// Whether a hello was begun and not ended.
    pub fn is_unfinished(&self) -> bool {
        let inspector = self.inspector.as_ref();
        inspector.is_some_and(Inspector::is_waiting)
    }
}

/// Reads until the first datagrams are known for what they are; `None` when there are none that go anywhere. `dropped`
/// hears of each that goes nowhere by itself.
pub(super) async fn hear(
    inbox: &mut mpsc::Receiver<Held>,
    due: Instant,
    claims: Claims,
    dropped: impl Fn(&'static str),
) -> Option<First> {
    let mut first = First {
        datagrams: Vec::new(),
        inspector: Inspector::new(claims),
        look: Look::Drop("nothing came"),
    };
    for _ in 0..HELD {
        let Ok(Some(held)) = timeout_at(due, inbox.recv()).await else {
            break;
        };
        match first.inspector.look(&held.bytes) {
            Look::Drop(why) => dropped(why),
            Look::Need => first.look = Look::Need,
            // beside half a hello: early data
            Look::Middle if first.look == Look::Need => first.datagrams.push(held.bytes),
            look => {
                first.datagrams.push(held.bytes);
                first.look = look;
                return Some(first);
            }
        }
    }
    (first.look == Look::Need).then_some(first)
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

    /// The evidence, where bytes are judged this way. What cannot be a handshake is nothing that TLS may be. Elsewhere a
    /// short header is like any text, unless the `past` has a connection that must not go on. A version that cannot be
    /// read has no name and passes by the lease.
    pub fn evidence(&self, speaks: Speaks, past: Past) -> Evidence {
        match (&self.look, speaks) {
            (Look::Hello(hello), _) => Evidence::Tls {
                name: hello.name.clone(),
            },
            (Look::Malformed(_) | Look::Need | Look::Drop(_), _)
            | (Look::NotQuic | Look::Middle, Speaks::Tls) => Evidence::TlsMalformed,
            (look, _) if past.forbids(look) => Evidence::TlsMalformed,
            (Look::Pass | Look::Middle | Look::NotQuic, _) => Evidence::Opaque,
        }
    }
}
