//! Checked tree to [`Policy`]: the meaning of values, and the mistakes that only their meaning shows.
//!
//! Structure was checked by [`super::shape`]; what does not fit here was reported there and is skipped in silence.

use super::bounds;
use super::mistake::{Mistakes, nearest, quoted};
use super::rules::{allow_rules, deny_rule, no_name, pattern, ports, protocol, word};
use super::sets::Sets;
use super::shape::{flag, is_text, whole};
use super::tree::Node;
use super::values::size;
use crate::addr::parse_ip;
use crate::ids::PolicyHash;
use crate::name::{Authority, Name};
use crate::policy::{
    Expectation, Expected, IngressRule, Limits, NamesMode, NetworkMode, Place, Policy, Protocol,
    Rule, SecretUse, Unknown,
};
use crate::reason::Reason;

/// Headers that frame or route a request: a secret in one of them would break it or steer it.
const FRAMING: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "expect",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
];

/// Builds the policy. `None` where even its outline is missing; mistakes are noted either way.
pub(super) fn policy(
    root: &Node,
    hash: PolicyHash,
    packages: Option<&[String]>,
    mistakes: &mut Mistakes,
) -> Option<Policy> {
    let sets = Sets::new(root, mistakes);
    let (used, needs_packages) = sets.used(root, packages, mistakes);
    let mut allow = allow_rules(root.field("allow"), mistakes);
    allow.extend(used);
    let deny = root.field("deny").map(Node::items).unwrap_or_default();
    let deny = deny
        .iter()
        .filter_map(|entry| deny_rule(entry, mistakes))
        .collect();
    let secrets = root.field("secrets").map(Node::items).unwrap_or_default();
    let secrets: Vec<SecretUse> = secrets
        .iter()
        .filter_map(|entry| secret(entry, mistakes))
        .collect();
    let tests = root.field("tests").map(Node::items).unwrap_or_default();
    let tests = tests
        .iter()
        .filter_map(|entry| expectation(entry, mistakes))
        .collect();
    let unknown = if word(root, "unknown") == Some("ask") {
        Unknown::Ask
    } else {
        Unknown::Deny
    };
    let network = match word(root, "network")? {
        "none" => NetworkMode::None,
        "domains" => NetworkMode::Domains,
        "internet" => NetworkMode::Internet,
        _ => return None,
    };
    let unenforced = unenforced(root, &allow, &secrets, unknown);
    let policy = Policy {
        name: word(root, "policy")?.to_owned(),
        description: word(root, "description").unwrap_or_default().to_owned(),
        network,
        network_at: root
            .entry("network")
            .map_or_else(|| root.at.clone(), |entry| entry.at.clone()),
        private: root.field("private").and_then(flag).unwrap_or(false),
        names: if word(root, "names") == Some("real") {
            NamesMode::Real
        } else {
            NamesMode::Leased
        },
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
    };
    bounds::check(&policy, mistakes);
    Some(policy)
}

fn ingress(root: &Node) -> Vec<IngressRule> {
    let entries = root
        .field("ingress")
        .map(Node::items)
        .unwrap_or_default()
        .iter();
    entries
        .filter_map(|node| {
            Some(IngressRule {
                ports: ports(node.field("ports")?),
                at: node.at.clone(),
            })
        })
        .collect()
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
    let name = text
        .split(':')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if FRAMING.contains(&name.as_str()) {
        mistakes.add(
            &header.at,
            format!("the header `{name}` frames or routes a request and cannot carry a secret"),
        );
    }
    Some(SecretUse {
        secret: word(node, "secret")?.to_owned(),
        host: host?,
        header: text.to_owned(),
        at: node.at.clone(),
    })
}

fn expectation(node: &Node, mistakes: &mut Mistakes) -> Option<Expectation> {
    let protocol = protocol(node).unwrap_or(Protocol::Tcp);
    let to = node
        .field("to")
        .and_then(|to| destination(to, protocol, mistakes));
    let addresses = node
        .field("resolves_to")
        .map(Node::items)
        .unwrap_or_default()
        .iter();
    let resolves_to = addresses
        .filter_map(|item| address(item, mistakes))
        .collect();
    let reason = node.field("reason").and_then(|code| reason(code, mistakes));
    let sni = node
        .field("sni")
        .and_then(|name| server_name(name, mistakes));
    if let Some(path) = node.field("path") {
        check_request_path(path, mistakes);
    }
    Some(Expectation {
        to: to?,
        protocol,
        resolves_to,
        sni,
        method: word(node, "method").map(str::to_owned),
        path: word(node, "path").map(str::to_owned),
        expect: match word(node, "expect")? {
            "permit" => Expected::Permit,
            "ask" => Expected::Ask,
            _ => Expected::Deny(reason),
        },
        at: node.at.clone(),
    })
}

/// A name as a client sends it: no pattern.
fn server_name(node: &Node, mistakes: &mut Mistakes) -> Option<Name> {
    let text = node
        .scalar()
        .filter(|text| !text.is_empty() && is_text(node))?;
    Name::parse(text)
        .map_err(|error| no_name(node, "`sni`", text, &error, mistakes))
        .ok()
}

/// Any path that a client could send: one that no rule can match is worth a test of its own.
fn check_request_path(node: &Node, mistakes: &mut Mistakes) {
    if let Some(text) = node
        .scalar()
        .filter(|text| !text.is_empty() && !text.starts_with('/'))
    {
        let message = format!("path {} does not begin with '/'", quoted(text));
        mistakes.hint(&node.at, message, "write a path such as /repos/acme/x");
    }
}

fn destination(node: &Node, protocol: Protocol, mistakes: &mut Mistakes) -> Option<Authority> {
    let text = node.scalar().filter(|text| !text.is_empty())?;
    match Authority::parse(text.as_bytes()) {
        Ok(authority) if authority.port.is_some() == protocol.has_ports() => Some(authority),
        Ok(_) if !protocol.has_ports() => {
            mistakes.hint(
                &node.at,
                format!("`to` {} has a port, and an echo has none", quoted(text)),
                "write the host or the address alone",
            );
            None
        }
        Ok(_) => {
            mistakes.hint(
                &node.at,
                format!("`to` {} has no port", quoted(text)),
                "write host:port, ip:port or [ipv6]:port",
            );
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
    found
        .map_err(|error| mistakes.add(&node.at, format!("{} is no address: {error}", quoted(text))))
        .ok()
}

fn reason(node: &Node, mistakes: &mut Mistakes) -> Option<Reason> {
    let text = node.scalar().filter(|text| !text.is_empty())?;
    let found = Reason::ALL
        .iter()
        .copied()
        .find(|reason| reason.code() == text);
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
fn unenforced(
    root: &Node,
    allow: &[Rule],
    secrets: &[SecretUse],
    unknown: Unknown,
) -> Vec<(String, Place)> {
    let with_http = allow.iter().filter(|rule| !rule.http.is_empty());
    let mut found: Vec<(String, Place)> = with_http
        .map(|rule| ("`http` (methods and paths)".to_owned(), rule.at.clone()))
        .collect();
    found.extend(
        secrets
            .iter()
            .map(|secret| ("`secrets`".to_owned(), secret.at.clone())),
    );
    if unknown == Unknown::Ask
        && let Some(entry) = root.entry("unknown")
    {
        found.push(("`unknown: ask`".to_owned(), entry.at.clone()));
    }
    found
}
