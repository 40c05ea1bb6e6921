//! Entries of `allow`, `deny` and sets: selectors, ports, request rules.

use super::mistake::{Mistakes, quoted};
use super::shape::{is_text, whole};
use super::tree::{Node, Value};
use super::values::{day_after, port_range};
use crate::addr::parse_net;
use crate::name::{NameError, Pattern};
use crate::policy::{HttpRule, Ports, Protocol, Rule, Selector, Speaks};

/// The text under a key.
pub(crate) fn word<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.field(key).and_then(Node::scalar)
}

/// Entries of an `allow` list.
pub(super) fn allow_rules(list: Option<&Node>, mistakes: &mut Mistakes) -> Vec<Rule> {
    list.map(Node::items)
        .unwrap_or_default()
        .iter()
        .filter_map(|entry| allow_rule(entry, mistakes))
        .collect()
}

fn allow_rule(node: &Node, mistakes: &mut Mistakes) -> Option<Rule> {
    let to = selector(node, mistakes);
    let http = node.field("http").map(Node::items).unwrap_or_default();
    let http: Vec<HttpRule> = http.iter().map(|rule| http_rule(rule, mistakes)).collect();
    let to = to?;
    let protocol = protocol(node).unwrap_or(Protocol::Tcp);
    Some(Rule {
        ports: match node.field("ports") {
            Some(written) => ports(written),
            None if protocol.has_ports() => Ports::web(),
            None => Ports::any(),
        },
        to,
        protocol: Some(protocol),
        speaks: match word(node, "speaks") {
            Some("tls") => Some(Speaks::Tls),
            Some("http") => Some(Speaks::Http),
            Some("any") => Some(Speaks::Any),
            _ => None,
        },
        until: word(node, "until").and_then(day_after),
        http,
        reason: None,
        at: node.at.clone(),
    })
}

pub(super) fn deny_rule(node: &Node, mistakes: &mut Mistakes) -> Option<Rule> {
    Some(Rule {
        to: selector(node, mistakes)?,
        ports: node.field("ports").map_or_else(Ports::any, ports),
        protocol: protocol(node),
        speaks: None,
        until: None,
        http: Vec::new(),
        reason: word(node, "reason").map(str::to_owned),
        at: node.at.clone(),
    })
}

pub(super) fn protocol(node: &Node) -> Option<Protocol> {
    match word(node, "protocol")? {
        "udp" => Some(Protocol::Udp),
        "icmp" => Some(Protocol::Icmp),
        _ => Some(Protocol::Tcp),
    }
}

fn selector(node: &Node, mistakes: &mut Mistakes) -> Option<Selector> {
    if let Some(host) = node.field("host") {
        return pattern(host, mistakes).map(Selector::Host);
    }
    let node = node.field("cidr")?;
    let text = node.scalar().filter(|_| !node.is_null())?;
    match parse_net(text) {
        Ok(net) => Some(Selector::Cidr(net)),
        Err(error) => {
            let message = format!("`cidr` {} is no prefix: {error}", quoted(text));
            mistakes.hint(
                &node.at,
                message,
                error
                    .hint()
                    .unwrap_or("write a prefix such as 203.0.113.0/24"),
            );
            None
        }
    }
}

pub(crate) fn pattern(node: &Node, mistakes: &mut Mistakes) -> Option<Pattern> {
    let text = node
        .scalar()
        .filter(|text| !text.is_empty() && is_text(node))?;
    Pattern::parse(text)
        .map_err(|error| no_name(node, "`host`", text, &error, mistakes))
        .ok()
}

pub(super) fn no_name(
    node: &Node,
    what: &str,
    text: &str,
    error: &NameError,
    mistakes: &mut Mistakes,
) {
    let message = format!("{what} {} is no host name: {error}", quoted(text));
    match error.hint() {
        Some(hint) => mistakes.hint(&node.at, message, hint),
        None => mistakes.add(&node.at, message),
    }
}

pub(super) fn ports(node: &Node) -> Ports {
    match &node.value {
        Value::List(items) => Ports(items.iter().filter_map(port_item).collect()).normalised(),
        Value::Scalar { .. } if node.scalar() == Some("any") => Ports::any(),
        Value::Scalar { .. } | Value::Map(_) | Value::Refused => Ports::none(),
    }
}

fn port_item(node: &Node) -> Option<std::ops::RangeInclusive<u16>> {
    match whole(node) {
        Some(port) => u16::try_from(port).ok().map(|port| port..=port),
        None => node.scalar().and_then(port_range),
    }
}

fn http_rule(node: &Node, mistakes: &mut Mistakes) -> HttpRule {
    if node.entries().is_empty() {
        mistakes.hint(
            &node.at,
            "an http entry without methods and paths permits everything",
            "remove `http`, or name methods or paths",
        );
    }
    let texts = |key| node.field(key).map(Node::items).unwrap_or_default();
    for path in texts("paths") {
        check_path(path, mistakes);
    }
    let owned = |key| {
        texts(key)
            .iter()
            .filter_map(Node::scalar)
            .map(str::to_owned)
            .collect()
    };
    HttpRule {
        methods: owned("methods"),
        paths: owned("paths"),
    }
}

/// A path pattern is a canonical path in which `*` and `**` may stand.
fn check_path(node: &Node, mistakes: &mut Mistakes) {
    let Some(path) = node.scalar().filter(|path| !path.is_empty()) else {
        return;
    };
    let starless = path.replace('*', "x");
    let problem = match crate::policy::http::canonical_path(&starless) {
        Err(error) => Some(error.to_string()),
        Ok(_) if path.contains(['?', '#']) => Some("a query cannot be part of a path".to_owned()),
        Ok(canonical) if canonical != starless => {
            Some(format!("its canonical form is {canonical:?}"))
        }
        Ok(_)
            if path
                .split('/')
                .any(|part| part.contains("**") && part != "**") =>
        {
            Some("`**` is a whole segment".to_owned())
        }
        Ok(_) => None,
    };
    if let Some(problem) = problem {
        let message = format!("path {} cannot be matched: {problem}", quoted(path));
        mistakes.hint(&node.at, message, "write a path such as /repos/acme/**");
    }
}
