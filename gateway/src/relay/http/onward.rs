//! Requests that do not go on as they came: those for a proxy, and those that offer to leave HTTP/1 for HTTP/2.
//!
//! What belongs to one connection ends here (RFC 9110 7.6.1). An offer that is not sent on cannot be accepted, so the
//! requests that follow stay ones that are read. Everything else is passed in its order, value for value.

use crate::detect::Head;
use crate::detect::http::Target;

/// Fields that belong to one connection (RFC 9110 7.6.1) or to the proxy, and go no further.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "upgrade",
    "http2-settings",
];

/// The request as its origin gets it: origin form, one Host, nothing that belonged to this connection.
///
/// HTTP/1.0 may name its host in the target alone. What goes on has no other place for it than Host, and a server that
/// many names share would answer for one that was never asked about.
pub fn origin_form(head: &Head) -> Vec<u8> {
    let options: Vec<String> = head
        .fields
        .iter()
        .filter(|field| field.name == "connection")
        .flat_map(|field| field.value.split(|b| *b == b','))
        .map(|option| String::from_utf8_lossy(option).trim().to_ascii_lowercase())
        .collect();
    let stays =
        |name: &str| !HOP_BY_HOP.contains(&name) && !options.iter().any(|option| option == name);
    let mut raw = format!("{} {} HTTP/1.{}\r\n", head.method, head.path(), head.minor).into_bytes();
    if let (None, Target::Absolute { authority, .. }) = (&head.host, &head.target) {
        raw.extend_from_slice(format!("host: {authority}\r\n").as_bytes());
    }
    for field in head.fields.iter().filter(|field| stays(&field.name)) {
        raw.extend_from_slice(field.name.as_bytes());
        raw.extend_from_slice(b": ");
        raw.extend_from_slice(&field.value);
        raw.extend_from_slice(b"\r\n");
    }
    raw.extend_from_slice(b"\r\n");
    raw
}

/// The same head as far as an exchange asks: what was left out was not offered.
pub(crate) fn without_offers(head: &Head) -> Head {
    Head {
        upgrade: Vec::new(),
        ..head.clone()
    }
}
