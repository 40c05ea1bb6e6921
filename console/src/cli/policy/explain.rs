//! `sallyport policy explain`: asks the decisions themselves; nothing is looked up and nothing is sent.

use std::net::IpAddr;
use std::sync::Arc;

use clap::Args;
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::explain::{Decision, Explanation, Question, explain};
use netpolicy::name::{Authority, Host, Name};
use netpolicy::policy::Protocol;

use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

/// Wrong usage, as clap has it.
const USAGE: u8 = 2;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Policy file, or the name of a preset
    #[arg(value_name = "FILE|PRESET")]
    policy: String,
    /// host:port, ip:port (IPv6 in brackets) or a URL; for `--icmp` a host or an address
    #[arg(value_name = "DEST")]
    destination: String,
    /// A floor above the policy (file or preset): the instance's first, then the workspace's
    #[arg(long, value_name = "FILE|PRESET")]
    floor: Vec<String>,
    /// A UDP flow
    #[arg(long)]
    udp: bool,
    /// An echo (ping); the destination has no port
    #[arg(long, conflicts_with_all = ["udp", "sni", "method", "path"])]
    icmp: bool,
    /// Server name that the client would send, if it is another than the host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// What the resolver would answer; repeat for several
    #[arg(long, value_name = "IP", value_parser = address)]
    resolves_to: Vec<IpAddr>,
    /// HTTP method
    #[arg(long)]
    method: Option<String>,
    /// HTTP path
    #[arg(long)]
    path: Option<String>,
}

fn address(text: &str) -> Result<IpAddr, String> {
    netpolicy::addr::parse_ip(text).map_err(|e| e.to_string())
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    let question = question(arguments)?;
    let policy = super::load(&arguments.policy)?;
    let from_image = policy.needs_packages.clone();
    let floors = super::lints::floors(&arguments.floor)?.into_iter();
    let mut layers: Vec<_> = floors
        .map(|(kind, floor)| (kind, Arc::new(floor)))
        .collect();
    layers.push((LayerKind::Job, Arc::new(policy)));
    let snapshot = Snapshot::new(
        layers,
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    );
    let explanation = explain(&snapshot, &question, gateway::context::now());
    match format {
        Format::Json => show::json(&explanation)?,
        Format::Text => print(&arguments.destination, &explanation)?,
    }
    if let (Some(at), Format::Text, true) =
        (from_image, format, explanation.decision != Decision::Permit)
    {
        show::out(format_args!(
            "{}: note: the set `packages` is read from the image when a run starts; its hosts are not known here",
            clean(&at.to_string())
        ))?;
    }
    Ok(Outcome::Good)
}

fn print(destination: &str, explanation: &Explanation) -> Result<(), Failure> {
    let word = match explanation.decision {
        Decision::Permit => "permit",
        Decision::Deny => "deny",
        Decision::Ask => "ask",
    };
    let reason = explanation
        .reason
        .map_or_else(String::new, |reason| format!(" ({})", reason.code()));
    show::out(format_args!("{word}{reason}: {}", clean(destination)))?;
    show::out(clean(&explanation.summary))?;
    if let (Some(policy), Some(rule)) = (&explanation.policy, &explanation.rule) {
        let layer = explanation.layer.map_or("", LayerKind::word);
        show::out(format_args!(
            "decided by {layer} policy `{}`, {}",
            clean(policy),
            clean(&rule.to_string())
        ))?;
    }
    explanation
        .change
        .iter()
        .try_for_each(|change| show::out(format_args!("to change it: {}", clean(change))))
}

fn question(arguments: &Arguments) -> Result<Question, Failure> {
    let usage = |message: String| Failure::new(message).code(USAGE);
    let protocol = match (arguments.udp, arguments.icmp) {
        (_, true) => Protocol::Icmp,
        (true, false) => Protocol::Udp,
        (false, false) => Protocol::Tcp,
    };
    let destination = destination(&arguments.destination, protocol).map_err(usage)?;
    let mut question = Question::new(destination.host, destination.port, protocol);
    let sni = arguments.sni.as_deref().map(Name::parse).transpose();
    question.sni = sni.map_err(|e| usage(format!("--sni: {e}")))?;
    question.resolves_to.clone_from(&arguments.resolves_to);
    question.method.clone_from(&arguments.method);
    question.path = arguments.path.clone().or(destination.path);
    // a URL is about a request; without a method it is the one that everybody starts with
    if question.path.is_some() && question.method.is_none() {
        question.method = Some("GET".to_owned());
    }
    Ok(question)
}

/// A destination as people write it.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    host: Host,
    port: u16,
    path: Option<String>,
}

fn destination(text: &str, protocol: Protocol) -> Result<Destination, String> {
    if !protocol.has_ports() {
        return portless(text);
    }

    let (scheme_port, rest) = match text.split_once("://") {
        Some(("http", rest)) => (Some(80), rest),
        Some(("https", rest)) => (Some(443), rest),
        Some((scheme, _)) => return Err(format!("{scheme:?} URLs are not known; write host:port")),
        None => (None, text),
    };
    let cut = rest
        .find(['/', '?', '#'])
        .filter(|_| scheme_port.is_some())
        .unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(cut);
    let path = scheme_port.map(|_| path_of(tail));
    let parsed = Authority::parse(authority.as_bytes())
        .map_err(|e| format!("{authority:?} is no destination: {e}"))?;
    let port = parsed
        .port
        .or(scheme_port)
        .ok_or_else(|| format!("{text:?} has no port; write host:port, such as {text}:443"))?;
    Ok(Destination {
        host: parsed.host,
        port,
        path,
    })
}

/// A host or an address alone; IPv6 with or without brackets.
fn portless(text: &str) -> Result<Destination, String> {
    let host = match netpolicy::addr::parse_ip(text) {
        Ok(address) => Host::Address(address),
        Err(_) => match Authority::parse(text.as_bytes()) {
            Ok(Authority { host, port: None }) => host,
            Ok(_) => return Err(format!("{text:?} has a port, and an echo has none")),
            Err(error) => return Err(format!("{text:?} is no destination: {error}")),
        },
    };
    Ok(Destination {
        host,
        port: 0,
        path: None,
    })
}

/// The path of a URL's tail: without the query, which no rule speaks of, and never empty.
fn path_of(tail: &str) -> String {
    let path = tail.split(['?', '#']).next().unwrap_or_default();
    if path.is_empty() {
        "/".to_owned()
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Host {
        Host::Name(Name::parse(text).unwrap())
    }

    #[test]
    fn destinations_are_read_in_all_their_forms() {
        for (text, host, port, path) in [
            ("example.com:443", name("example.com"), 443, None),
            (
                "192.0.2.1:22",
                Host::Address("192.0.2.1".parse().unwrap()),
                22,
                None,
            ),
            (
                "[2001:db8::1]:22",
                Host::Address("2001:db8::1".parse().unwrap()),
                22,
                None,
            ),
            ("https://example.com", name("example.com"), 443, Some("/")),
            (
                "http://example.com:8080/a/b?c=d#e",
                name("example.com"),
                8080,
                Some("/a/b"),
            ),
            ("https://EXAMPLE.com?x", name("example.com"), 443, Some("/")),
        ] {
            assert_eq!(
                destination(text, Protocol::Tcp),
                Ok(Destination {
                    host,
                    port,
                    path: path.map(str::to_owned)
                }),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in [
            "example.com",
            "",
            ":443",
            "example.com:",
            "example.com:99999",
            "ftp://example.com/",
            "0x7f.1:80",
            "u@example.com:80",
        ] {
            assert!(destination(text, Protocol::Tcp).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_echo_goes_to_a_host_without_a_port() {
        for text in ["192.0.2.1", "2001:db8::1", "[2001:db8::1]", "example.com"] {
            assert_eq!(destination(text, Protocol::Icmp).unwrap().port, 0, "{text}");
        }
        for text in ["example.com:443", "https://example.com", "0x7f.1", ""] {
            assert!(destination(text, Protocol::Icmp).is_err(), "{text:?}");
        }
    }
}
