//! Checked tree to [`Policy`]: the meaning of values, and the mistakes that only their meaning shows.
//!
//! Structure was checked by [`super::shape`]; what does not fit here was reported there and is skipped in silence.

use super::mistake::{Mistakes, nearest, quoted};
use super::sets::{self, Sets};
use super::shape::{flag, whole};
use super::tree::{Node, Value};
use super::values::{day_after, port_range, size};
use crate::addr::{parse_ip, parse_net};
use crate::ids::PolicyHash;
use crate::name::{Authority, NameError, Pattern};
use crate::policy::{
    Expectation, Expected, HttpRule, IngressRule, Limits, NamesMode, NetworkMode, Place, Policy, Ports, Protocol, Rule,
    SecretUse, Selector, Speaks, Unknown,
};
use crate::reason::Reason;

/// Headers that frame or route a request: a secret in one of them would break it or steer it.
const FRAMING: &[&str] = &[
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
    "proxy-connection", "proxy-authorization", "proxy-authenticate",
];

/// Builds the policy. `None` where even its outline is missing; mistakes are noted either way.
pub(super) fn policy(root: &Node, hash: PolicyHash, packages: Option<&[String]>, mistakes: &mut Mistakes) -> Option<Policy> {
    let sets = Sets::new(root, mistakes);
    let (used, needs_packages) = sets.used(root, packages, mistakes);
    let mut allow = rules(root.field("allow"), mistakes);
    allow.extend(used);
    let deny = root.field("deny").map(Node::items).unwrap_or_default();
    let deny = deny.iter().filter_map(|entry| deny_rule(entry, mistakes)).collect();
    let secrets = root.field("secrets").map(Node::items).unwrap_or_default();
    let secrets: Vec<SecretUse> = secrets.iter().filter_map(|entry| secret(entry, mistakes)).collect();
    let tests = root.field("tests").map(Node::items).unwrap_or_default();
    let tests = tests.iter().filter_map(|entry| expectation(entry, mistakes)).collect();
    let unknown = if word(root, "unknown") == Some("ask") { Unknown::Ask } else { Unknown::Deny };
    let network = match word(root, "network")? {
        "none" => NetworkMode::None,
        "domains" => NetworkMode::Domains,
        "internet" => NetworkMode::Internet,
        _ => return None,
    };
    let unenforced = unenforced(root, &allow, &secrets, unknown);
    Some(Policy {
        name: word(root, "policy")?.to_owned(),
        description: word(root, "description").unwrap_or_default().to_owned(),
        network,
        network_at: root.entry("network").map_or_else(|| root.at.clone(), |entry| entry.at.clone()),
        private: root.field("private").and_then(flag).unwrap_or(false),
        names: if word(root, "names") == Some("real") { NamesMode::Real } else { NamesMode::Leased },
        allow,
        deny,
        ingress: ingress(root),
        limits: root.field("limits").map(limits).unwrap_or_default(),
        secrets,
        unknown,
        explain: root.field("explain").and_then(flag).unwrap_or(true),
        tests,
        unenforced,
        needs_packages,
        at: root.at.clone(),
        hash,
    })
}

/// The text under a key.
fn word<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.field(key).and_then(Node::scalar)
}

/// Entries of an `allow` list.
pub(super) fn rules(list: Option<&Node>, mistakes: &mut Mistakes) -> Vec<Rule> {
    list.map(Node::items).unwrap_or_default().iter().filter_map(|entry| allow_rule(entry, mistakes)).collect()
}

fn allow_rule(node: &Node, mistakes: &mut Mistakes) -> Option<Rule> {
    let to = selector(node, mistakes);
    let http = node.field("http").map(Node::items).unwrap_or_default();
    let http: Vec<HttpRule> = http.iter().map(|rule| http_rule(rule, mistakes)).collect();
    let to = to?;
    let protocol = protocol(node).unwrap_or(Protocol::Tcp);
    Some(Rule {
        ports: node.field("ports").map_or_else(Ports::web, ports),
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

fn deny_rule(node: &Node, mistakes: &mut Mistakes) -> Option<Rule> {
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

fn protocol(node: &Node) -> Option<Protocol> {
    match word(node, "protocol")? {
        "udp" => Some(Protocol::Udp),
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
            mistakes.hint(&node.at, message, error.hint().unwrap_or("write a prefix such as 203.0.113.0/24"));
            None
        }
    }
}

fn pattern(node: &Node, mistakes: &mut Mistakes) -> Option<Pattern> {
    let text = node.scalar().filter(|text| !text.is_empty() && !node.is_null())?;
    Pattern::parse(text).map_err(|error| no_name(node, "`host`", text, &error, mistakes)).ok()
}

fn no_name(node: &Node, what: &str, text: &str, error: &NameError, mistakes: &mut Mistakes) {
    let message = format!("{what} {} is no host name: {error}", quoted(text));
    match error.hint() {
        Some(hint) => mistakes.hint(&node.at, message, hint),
        None => mistakes.add(&node.at, message),
    }
}

fn ports(node: &Node) -> Ports {
    match &node.value {
        Value::List(items) => Ports(items.iter().filter_map(port_item).collect()).normalised(),
        Value::Scalar { .. } if node.scalar() == Some("any") => Ports::any(),
        Value::Scalar { .. } | Value::Map(_) => Ports::none(),
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
        mistakes.hint(&node.at, "an http entry without methods and paths permits everything", "remove `http`, or name methods or paths");
    }
    let texts = |key| node.field(key).map(Node::items).unwrap_or_default();
    for path in texts("paths") {
        check_path(path, mistakes);
    }
    let owned = |key| texts(key).iter().filter_map(Node::scalar).map(str::to_owned).collect();
    HttpRule { methods: owned("methods"), paths: owned("paths") }
}

/// A path pattern is a canonical path in which `*` and `**` may stand.
fn check_path(node: &Node, mistakes: &mut Mistakes) {
    let Some(path) = node.scalar().filter(|path| !path.is_empty()) else { return };
    let starless = path.replace('*', "x");
    let problem = match crate::policy::http::canonical_path(&starless) {
        Err(error) => Some(error.to_string()),
        Ok(_) if path.contains(['?', '#']) => Some("a query cannot be part of a path".to_owned()),
        Ok(canonical) if canonical != starless => Some(format!("its canonical form is {canonical:?}")),
        Ok(_) if path.split('/').any(|part| part.contains("**") && part != "**") => {
            Some("`**` is a whole segment".to_owned())
        }
        Ok(_) => None,
    };
    if let Some(problem) = problem {
        let message = format!("path {} cannot be matched: {problem}", quoted(path));
        mistakes.hint(&node.at, message, "write a path such as /repos/acme/**");
    }
}

fn ingress(root: &Node) -> Vec<IngressRule> {
    let entries = root.field("ingress").map(Node::items).unwrap_or_default().iter();
    entries.filter_map(|node| Some(IngressRule { ports: ports(node.field("ports")?), at: node.at.clone() })).collect()
}

fn limits(node: &Node) -> Limits {
    let number = |key| node.field(key).and_then(whole);
    let count = |key| number(key).and_then(|n| u32::try_from(n).ok());
    let bytes = |key| word(node, key).and_then(size);
    Limits {
        flows: count("flows"),
        rate: count("rate"),
        upload: bytes("upload"),
        download: bytes("download"),
        bandwidth: bytes("bandwidth"),
        names: count("names"),
        records: number("records"),
    }
}

fn secret(node: &Node, mistakes: &mut Mistakes) -> Option<SecretUse> {
    let host = node.field("host").and_then(|host| pattern(host, mistakes));
    let header = node.field("header")?;
    let text = header.scalar()?;
    let name = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
    if FRAMING.contains(&name.as_str()) {
        mistakes.add(&header.at, format!("the header `{name}` frames or routes a request and cannot carry a secret"));
    }
    Some(SecretUse {
        secret: word(node, "secret")?.to_owned(),
        host: host?,
        header: text.to_owned(),
        at: node.at.clone(),
    })
}

fn expectation(node: &Node, mistakes: &mut Mistakes) -> Option<Expectation> {
    let to = node.field("to").and_then(|to| destination(to, mistakes));
    let addresses = node.field("resolves_to").map(Node::items).unwrap_or_default().iter();
    let resolves_to = addresses.filter_map(|item| address(item, mistakes)).collect();
    let reason = node.field("reason").and_then(|code| reason(code, mistakes));
    Some(Expectation {
        to: to?,
        protocol: protocol(node).unwrap_or(Protocol::Tcp),
        resolves_to,
        expect: match word(node, "expect")? {
            "permit" => Expected::Permit,
            "ask" => Expected::Ask,
            _ => Expected::Deny(reason),
        },
        at: node.at.clone(),
    })
}

fn destination(node: &Node, mistakes: &mut Mistakes) -> Option<Authority> {
    let text = node.scalar().filter(|text| !text.is_empty())?;
    match Authority::parse(text.as_bytes()) {
        Ok(authority) if authority.port.is_some() => Some(authority),
        Ok(_) => {
            mistakes.hint(&node.at, format!("`to` {} has no port", quoted(text)), "write host:port, ip:port or [ipv6]:port");
            None
        }
        Err(error) => {
            no_name(node, "`to`", text, &error, mistakes);
            None
        }
    }
}

fn address(node: &Node, mistakes: &mut Mistakes) -> Option<std::net::IpAddr> {
    let text = node.scalar().filter(|text| !text.is_empty())?;
    let found = parse_ip(text);
    found.map_err(|error| mistakes.add(&node.at, format!("{} is no address: {error}", quoted(text)))).ok()
}

fn reason(node: &Node, mistakes: &mut Mistakes) -> Option<Reason> {
    let text = node.scalar().filter(|text| !text.is_empty())?;
    let found = Reason::ALL.iter().copied().find(|reason| reason.code() == text);
    if found.is_none() {
        let message = format!("{} is no reason code", quoted(text));
        match nearest(text, Reason::ALL.iter().map(|reason| reason.code())) {
            Some(near) => mistakes.hint(&node.at, message, format!("did you mean `{near}`?")),
            None => mistakes.add(&node.at, message),
        }
    }
    found
}

/// What is understood and not enforced yet, so that running the policy is refused and never ignored.
fn unenforced(root: &Node, allow: &[Rule], secrets: &[SecretUse], unknown: Unknown) -> Vec<(String, Place)> {
    let with_http = allow.iter().filter(|rule| !rule.http.is_empty());
    let mut found: Vec<(String, Place)> =
        with_http.map(|rule| ("`http` (methods and paths)".to_owned(), rule.at.clone())).collect();
    found.extend(secrets.iter().map(|secret| ("`secrets`".to_owned(), secret.at.clone())));
    if unknown == Unknown::Ask
        && let Some(entry) = root.entry("unknown")
    {
        found.push(("`unknown: ask`".to_owned(), entry.at.clone()));
    }
    found
}

/// Whether a set of this name is shipped or means the image's own hosts.
pub(super) fn is_reserved(name: &str) -> bool {
    name == sets::PACKAGES || sets::shipped(name).is_some()
}
