//! The schema's objects, with the attributes that the record can fill.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

/// `metadata`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Metadata {
    /// Schema version.
    pub version: &'static str,
    /// Who reports.
    pub product: Product,
    /// Profiles whose attributes are used.
    pub profiles: &'static [&'static str],
    /// Hash of the journal line: unique, and what `record verify` checks.
    pub uid: String,
    /// Number of the line.
    pub sequence: u64,
    /// The journal's kind of entry.
    pub event_code: &'static str,
    /// Which log.
    pub log_name: &'static str,
    /// The flow that open and close share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_uid: Option<String>,
}

/// `product`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Product {
    /// Product.
    pub name: &'static str,
    /// Vendor.
    pub vendor_name: &'static str,
    /// Version of the binary.
    pub version: &'static str,
}

/// `network_endpoint`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Endpoint {
    /// Network, for the sandbox's side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Run, for the sandbox's side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<String>,
    /// Name, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// For a questioner's other side, which has no address of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub svc_name: Option<&'static str>,
}

/// `network_connection_info`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConnectionInfo {
    /// 1 inbound, 2 outbound.
    pub direction_id: u8,
    /// Same, in words.
    pub direction: &'static str,
    /// IANA protocol number.
    pub protocol_num: u8,
    /// Same, in words.
    pub protocol_name: &'static str,
    /// 4 or 6.
    pub protocol_ver_id: u8,
}

/// `network_traffic`: out is from the source endpoint, in is to it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Traffic {
    /// From the destination.
    pub bytes_in: u64,
    /// From the source.
    pub bytes_out: u64,
    /// Both.
    pub bytes: u64,
    /// Datagrams and echoes from the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_in: Option<u64>,
    /// From the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_out: Option<u64>,
    /// Both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// `tls`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tls {
    /// Required by the schema; the gateway passes TLS and does not see what the ends agree on.
    pub version: &'static str,
    /// Server name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// Offered protocols.
    #[serde(rename = "tls_extension_list", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<TlsExtension>,
}

/// `tls_extension`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TlsExtension {
    /// IANA number.
    pub type_id: u16,
    /// Same, in words.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it says.
    pub data: Value,
}

/// `firewall_rule`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirewallRule {
    /// `file:line:column`.
    pub uid: String,
    /// Name of the policy.
    pub name: String,
    /// Which layer: instance, workspace or job.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// `policy`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Policy {
    /// Hash of the effective policy.
    pub uid: String,
    /// Its generation in the network.
    pub version: String,
}

/// `http_request`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HttpRequest {
    /// Absent if the schema does not know it; the activity's name has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_method: Option<&'static str>,
    /// Path, never the query.
    pub url: Url,
}

/// `url`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Url {
    /// Host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Path.
    pub path: String,
    /// Port.
    pub port: u16,
    /// Scheme; a request that the gateway could read was not encrypted.
    pub scheme: &'static str,
}

/// `dns_query`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DnsQuery {
    /// The name.
    pub hostname: String,
}
