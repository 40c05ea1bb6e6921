//! What passes through a network: its flows, what would become of one, a way in, a capture.

use std::net::{IpAddr, SocketAddr};

use netpolicy::addr::Class;
use netpolicy::ids::NetworkId;
use netpolicy::policy::{Place, Protocol};
use serde::{Deserialize, Serialize};

use crate::network::flows::Door;

/// One live flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowView {
    /// Number in the record.
    pub id: u64,
    /// Network.
    pub network: NetworkId,
    /// Door.
    pub door: Door,
    /// Sandbox side.
    pub source: SocketAddr,
    /// What the sandbox addressed.
    pub destination: SocketAddr,
    /// What was dialled.
    pub upstream: SocketAddr,
    /// Name, where known.
    pub name: Option<String>,
    /// Class of the address.
    pub class: Option<Class>,
    /// Line that permitted it (of the narrowest layer).
    pub rule: Option<Place>,
    /// Milliseconds since the epoch.
    pub opened_ms: i64,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to it.
    pub down: u64,
}

/// A change in the set of live flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FlowEvent {
    /// Was live when the stream began, or was opened since.
    Open(FlowView),
    /// Has ended; the record says how.
    Close {
        /// Network.
        network: NetworkId,
        /// Flow.
        id: u64,
    },
}

/// Something signed about the record, as it stands in its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signed {
    /// The file beside the segments, or [`Signed::ANCHORS`].
    pub place: String,
    /// Line in it, of an anchor.
    pub number: u64,
    /// The text.
    pub text: String,
}

impl Signed {
    /// Where anchors stand.
    pub const ANCHORS: &str = "anchors";
}

/// What would become of this destination on a network?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// `host:port`, `ip:port` (IPv6 in brackets) or a URL.
    pub destination: String,
    /// Transport.
    #[serde(default = "tcp")]
    pub protocol: Protocol,
    /// Server name that the client would send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// What the resolver would say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves_to: Vec<IpAddr>,
    /// HTTP method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// HTTP path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

fn tcp() -> Protocol {
    Protocol::Tcp
}

/// Opens a connection into the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressRequest {
    /// Port in the sandbox.
    pub port: u16,
    /// Address family: IPv6 instead of IPv4.
    #[serde(default)]
    pub v6: bool,
}

/// Captures a network's packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Which frames: words such as `tcp and port 443`; empty for all.
    #[serde(default)]
    pub filter: String,
    /// After so many frames it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// After so many seconds it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The two ends of a TCP connection as the asker sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FourTuple {
    /// One end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Whether a 4-tuple is an upstream socket of this gateway, and for whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Whether it is one of ours.
    pub ours: bool,
    /// For which network.
    pub network: Option<NetworkId>,
    /// Which flow.
    pub flow: Option<u64>,
}
