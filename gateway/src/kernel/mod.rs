//! Everything that touches the kernel: the namespace, its settings, links, rules, queue and sockets.
//!
//! Owns: netlink, nf_tables, iptables where there is none, socket options and every `unsafe` of the gateway. [`Enforcer`] is the front: it makes or
//! adopts the namespace, applies the ruleset of a posture, reads back what the kernel holds through a second
//! implementation, attaches and detaches networks, and takes everything away again.
//! Refuses to own: when to seal and when to repair (posture), what a packet may do (netpolicy), tasks.
//!
//! Invariants: nothing here opens a way out of the namespace: it has no route to the outside and forwards nothing, so
//! losing the rules, the gateway or both closes the sandboxes. A set element is added last and removed first.
//! All calls block for milliseconds and belong on a blocking thread; threads that enter a namespace are short-lived and
//! never tokio's.
//! Failure stance: an act that is not read back as asked is an error, and what it made is taken away.

mod answers;
pub mod arrivals;
pub mod attach;
pub mod backend;
pub mod batch;
mod belonging;
mod buffers;
pub mod cutting;
pub mod datagrams;
pub mod echo;
pub mod enforcer;
pub mod error;
pub mod firewall;
pub mod icmp;
pub mod icmp_syn;
pub mod inside;
mod inspect;
mod lanes;
pub mod limits;
pub mod links;
mod members;
pub mod monitor;
pub mod netns;
pub mod nft;
pub mod packets;
pub mod policy_routing;
pub mod queue;
pub mod ready;
pub mod sessions;
pub mod sockets;
pub mod steering;
pub mod survey;
pub mod sysctl;
mod uphold;
mod wire;
pub mod witness;
mod xt;

pub use attach::{AttachPlan, Attached, LiveLink, Removal};
pub use backend::{Backend, Enforcement};
pub use belonging::NOT_OWN;
pub use datagrams::DatagramDoor;
pub use enforcer::{Config, Enforcer, Posture};
pub use error::{KernelError, Mismatch};
pub use firewall::Firewall;
pub use links::is_ours as is_our_link;
pub use monitor::{Change, Monitor};
pub use netns::{Ns, NsId};
pub use nft::Counter;
pub use packets::{Seen, Statistics, Tap};
pub use queue::{Held, Queue, Syn, Verdict};
pub use ready::watch;
pub use sockets::Doors;

// the lab's own, for promises in seconds
#[cfg(test)]
#[path = "../../../tests/src/pace.rs"]
pub mod pace;
#[cfg(test)]
mod tests;
