//! What would become of a destination on a live network: the question's text read strictly, then netpolicy's own words.
//!
//! Nothing is looked up: a question must not become a packet.

use netpolicy::addr::parse_ip;
use netpolicy::explain::{Question, explain as explained};
use netpolicy::name::{Authority, Host, Name};

use super::api::{ExplainRequest, Problem};
use crate::context::now;
use crate::network::Network;

/// Explains on the policy that is in force now. Beside the explanation: the `generation` that was asked, its `hash`, and
/// whether the policy `explains` itself to its sandbox (who answers a sandbox leaves policy and rule out if not).
pub fn explain(network: &Network, request: &ExplainRequest) -> Result<serde_json::Value, Problem> {
    let question = question(request)?;
    let live = network.live.load();
    let internal = |e: serde_json::Error| Problem::new(500, "internal", e.to_string());
    let explanation = explained(&live.snapshot, &question, now());
    let mut answer = serde_json::to_value(explanation).map_err(internal)?;
    if let Some(keys) = answer.as_object_mut() {
        let generation = serde_json::to_value(live.generation).map_err(internal)?;
        keys.insert("generation".to_owned(), generation);
        keys.insert("hash".to_owned(), live.snapshot.hash().to_string().into());
        keys.insert("explains".to_owned(), live.snapshot.explains().into());
    }
    Ok(answer)
}

/// Reads the question. A URL gives host, port and path.
fn question(request: &ExplainRequest) -> Result<Question, Problem> {
    let text = request.destination.as_str();
    if !request.protocol.has_ports() {
        return echo_question(request);
    }
    let (authority, default, path) = match split_url(text) {
        Some((scheme, authority, path)) => (authority, port_of(scheme), Some(path)),
        None => (text, None, None),
    };
    let wrong = |why: String| {
        Problem::new(
            400,
            "bad_request",
            format!("{text:?} is no destination: {why}"),
        )
        .hint("write host:port, ip:port, [ipv6]:port or a URL")
    };
    let Authority { host, port } =
        Authority::parse(authority.as_bytes()).map_err(|e| wrong(e.to_string()))?;
    let port = port
        .or(default)
        .ok_or_else(|| wrong("it has no port".to_owned()))?;
    let sni = request
        .sni
        .as_deref()
        .map(Name::parse)
        .transpose()
        .map_err(|e| wrong(format!("the server name is none: {e}")))?;
    let is_name = matches!(host, Host::Name(_));
    Ok(Question {
        sni,
        resolves_to: request.resolves_to.clone(),
        method: request.method.clone(),
        path: request.path.clone().or(path.filter(|_| is_name)),
        ..Question::new(host, port, request.protocol)
    })
}

/// An echo goes to a host or an address alone, and there is nothing to suppose about its bytes.
fn echo_question(request: &ExplainRequest) -> Result<Question, Problem> {
    let text = request.destination.as_str();
    let wrong = || {
        Problem::new(
            400,
            "bad_request",
            format!("{text:?} is no destination of an echo"),
        )
        .hint("write a host or an address, without a port")
    };
    let host = match parse_ip(text) {
        Ok(address) => Host::Address(address),
        Err(_) => match Authority::parse(text.as_bytes()) {
            Ok(Authority { host, port: None }) => host,
            Ok(_) | Err(_) => return Err(wrong()),
        },
    };
    Ok(Question {
        resolves_to: request.resolves_to.clone(),
        ..Question::new(host, 0, request.protocol)
    })
}

fn split_url(text: &str) -> Option<(&str, &str, String)> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let path = tail
        .split(['?', '#'])
        .next()
        .filter(|path| !path.is_empty())
        .unwrap_or("/");
    Some((scheme, authority, path.to_owned()))
}

fn port_of(scheme: &str) -> Option<u16> {
    match scheme {
        "https" | "wss" => Some(443),
        "http" | "ws" => Some(80),
        "ssh" => Some(22),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netpolicy::policy::Protocol;

    fn asked(destination: &str) -> Result<Question, Problem> {
        question(&ExplainRequest {
            destination: destination.to_owned(),
            protocol: Protocol::Tcp,
            sni: None,
            resolves_to: Vec::new(),
            method: None,
            path: None,
        })
    }

    #[test]
    fn destinations_are_read_strictly_and_urls_give_port_and_path() {
        for text in [
            "example.com",
            "example.com:0",
            "user@example.com:443",
            "0x7f.1:80",
            "::1:80",
            "ftp://example.com",
            "",
            "https://",
            "a b:80",
        ] {
            assert_eq!(asked(text).unwrap_err().status, 400, "{text:?}");
        }
        assert_eq!(asked("example.com:8443").unwrap().port, 8443);
        assert_eq!(
            asked("[2001:db8::1]:80").unwrap().to,
            Host::Address("2001:db8::1".parse().unwrap())
        );
        let url = asked("https://example.com/a/b?c=d#e").unwrap();
        assert_eq!((url.port, url.path.as_deref()), (443, Some("/a/b")));
        assert_eq!(asked("http://example.com").unwrap().port, 80);
    }
}
