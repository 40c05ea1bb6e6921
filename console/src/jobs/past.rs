//! What was recorded of flows, as contacts that another policy decides again.
//!
//! The console keeps less of a flow than the gateway's journal: not the server name that a client sent, and so not
//! whether its bytes were any protocol that the gateway knows. Such flows are taken for what they were permitted as.
//! `sallyport policy replay` reads the journal itself.

use std::net::{IpAddr, SocketAddr};

use netpolicy::name::{Host, Name};
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;
use netpolicy::replay::{Contact, Verdict, is_by_policy};
use serde::de::DeserializeOwned;

use crate::store::flows::Flow;

fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::from(text)).ok()
}

fn verdict(flow: &Flow) -> Option<Verdict> {
    if flow.outcome != "denied" {
        return Some(Verdict::Permit);
    }
    let code = flow.reason.as_deref()?;
    let reason = Reason::ALL.iter().find(|reason| reason.code() == code)?;
    is_by_policy(*reason).then_some(Verdict::Deny(*reason))
}

/// A flow as a contact; `None`: no policy decided about it, or it names nothing that could be decided about.
pub fn contact(flow: &Flow) -> Option<Contact> {
    if flow.door == "ingress" {
        return None;
    }
    let was = verdict(flow)?;
    let protocol: Protocol = word(&flow.protocol)?;
    let dialled = flow.upstream.as_deref();
    let dialled = dialled
        .and_then(|text| text.parse::<SocketAddr>().ok())
        .map(|to| to.ip());
    let addressed = flow
        .address
        .as_deref()
        .and_then(|text| text.parse::<IpAddr>().ok());
    let to = match &flow.name {
        Some(name) => Host::Name(Name::parse_ascii(name.as_bytes()).ok()?),
        None => Host::Address(dialled.or(addressed)?),
    };
    let port = u16::try_from(flow.port).ok()?;
    let port = (port != 0 || protocol == Protocol::Icmp).then_some(port);
    let failed = flow.outcome == "failed";
    if failed && port.is_none() {
        return None;
    }
    let request = flow.http.as_deref().and_then(|text| text.split_once(' '));
    Some(Contact {
        // what a sandbox addresses for a name is its lease
        address: dialled.or(match to {
            Host::Address(address) => Some(address),
            Host::Name(_) => None,
        }),
        to,
        port,
        protocol,
        class: flow.class.as_deref().and_then(word),
        heard: None,
        request: request.map(|(method, path)| (method.to_owned(), path.to_owned())),
        opaque: false,
        failed,
        was,
    })
}
