//! The attributes of an event, as the schema names them. Absent ones are not written.

use serde::Serialize;
use serde_json::{Map, Value};

use super::objects::{
    ConnectionInfo, DnsQuery, Endpoint, FirewallRule, HttpRequest, Metadata, Policy, Tls, Traffic,
};

/// An event of any of the classes that are written.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Event {
    /// What happened, within the class.
    pub activity_id: u8,
    /// Same, in words.
    pub activity_name: String,
    /// Category of the class.
    pub category_uid: u8,
    /// Same, in words.
    pub category_name: &'static str,
    /// Class.
    pub class_uid: u16,
    /// Same, in words.
    pub class_name: &'static str,
    /// `class_uid * 100 + activity_id`.
    pub type_uid: u32,
    /// Milliseconds since the epoch.
    pub time: i64,
    /// When the flow began, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<i64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<i64>,
    /// Milliseconds between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// How many equal events this one stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How much it matters.
    pub severity_id: u8,
    /// Same, in words.
    pub severity: &'static str,
    /// Whether it came about.
    pub status_id: u8,
    /// Same, in words.
    pub status: &'static str,
    /// Reason code, or how a flow ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<String>,
    /// The reason in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Everything in one sentence.
    pub message: String,
    /// Where the event comes from.
    pub metadata: Metadata,
    /// What the gateway did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_id: Option<u8>,
    /// Same, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<&'static str>,
    /// What came of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disposition_id: Option<u8>,
    /// Same, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disposition: Option<&'static str>,
    /// The line of a policy that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall_rule: Option<FirewallRule>,
    /// The effective policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Who began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_endpoint: Option<Endpoint>,
    /// To whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_endpoint: Option<Endpoint>,
    /// Protocol and direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_info: Option<ConnectionInfo>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// What the ClientHello said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_request: Option<HttpRequest>,
    /// The question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<DnsQuery>,
    /// What has no place in the schema, in the journal's words.
    pub unmapped: Map<String, Value>,
}
