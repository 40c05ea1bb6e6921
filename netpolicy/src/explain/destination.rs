//! What people ask about, as they write it: a host or an address with or without a port, or a URL.
//!
//! One reading for the command line, the control socket and the sandbox. Names may be written in any letters, as in a
//! policy; everything else is read as strictly as a client's own words. What has no port stands for HTTPS.

use crate::addr::parse_ip;
use crate::name::{Authority, Host, Name, NameError};
use crate::policy::Protocol;

/// What is meant by a destination without a port.
const DEFAULT_PORT: u16 = 443;

/// Schemes whose port is known; a path is asked about for the first four.
const SCHEMES: [(&str, u16); 5] = [
    ("https", 443),
    ("http", 80),
    ("wss", 443),
    ("ws", 80),
    ("ssh", 22),
];

/// A destination that was asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Name or address.
    pub host: Host,
    /// Port; 0 where the protocol has none.
    pub port: u16,
    /// Path of a URL, without its query.
    pub path: Option<String>,
}

/// Why a text is no destination.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AskedError {
    /// Neither a host nor an address.
    #[error("{0:?} is no destination: {1}")]
    Host(String, NameError),
    /// A port that no program could use.
    #[error("{0:?} has no port that can be: write 1 to 65535")]
    Port(String),
    /// A URL of a scheme that says nothing about ports.
    #[error("{0:?} URLs are not known")]
    Scheme(String),
    /// An echo has no port.
    #[error("{0:?} has a port or a scheme, and an echo has neither")]
    Echo(String),
}

impl AskedError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Scheme(scheme) if scheme == "udp" => {
                "write host:port, and say that it is UDP (--udp)".to_owned()
            }
            Self::Scheme(scheme) if scheme == "icmp" || scheme == "ping" => {
                "write the host alone, and say that it is an echo (--icmp)".to_owned()
            }
            Self::Echo(_) => "write a host or an address, without a port".to_owned(),
            Self::Host(..) | Self::Port(_) | Self::Scheme(_) => {
                "write host:port, ip:port, [ipv6]:port or a URL".to_owned()
            }
        }
    }
}

impl Asked {
    /// Reads a destination of this protocol.
    pub fn parse(text: &str, protocol: Protocol) -> Result<Self, AskedError> {
        if !protocol.has_ports() {
            return portless(text);
        }
        if let Ok(address) = parse_ip(text)
            && !may_end_in_port(text)
        {
            return Ok(Self {
                host: Host::Address(address),
                port: DEFAULT_PORT,
                path: None,
            });
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let (host, port) = authority(text)?;
            return Ok(Self {
                host,
                port: port.unwrap_or(DEFAULT_PORT),
                path: None,
            });
        };
        let known = SCHEMES.into_iter().find(|(word, _)| *word == scheme);
        let (word, default) = known.ok_or_else(|| AskedError::Scheme(scheme.to_owned()))?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (before, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (host, port) = authority(before)?;
        Ok(Self {
            host,
            port: port.unwrap_or(default),
            path: (word != "ssh").then(|| path_of(tail)),
        })
    }
}

/// Whether the end of an IPv6 address without brackets could be meant for a port.
fn may_end_in_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| parse_ip(host).is_ok() && port.parse::<u16>().is_ok())
}

/// `host[:port]`. Letters beyond ASCII are mapped as a policy's are; the rest must be what a client could send.
fn authority(text: &str) -> Result<(Host, Option<u16>), AskedError> {
    let wrong = |error| AskedError::Host(text.to_owned(), error);
    if text.is_ascii() {
        let Authority { host, port } = Authority::parse(text.as_bytes()).map_err(wrong)?;
        return Ok((host, port));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let name = Name::parse(name).map_err(wrong)?;
    let port = port.map(|port| {
        let plain = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
        let number = port.parse::<u16>().ok().filter(|_| plain);
        number.ok_or_else(|| AskedError::Port(text.to_owned()))
    });
    Ok((Host::Name(name), port.transpose()?))
}

/// A host or an address alone; IPv6 with or without brackets.
fn portless(text: &str) -> Result<Asked, AskedError> {
    let host = match parse_ip(text) {
        Ok(address) => Host::Address(address),
        Err(_) if text.contains("://") => return Err(AskedError::Echo(text.to_owned())),
        Err(_) => match authority(text)? {
            (host, None) => host,
            (_, Some(_)) => return Err(AskedError::Echo(text.to_owned())),
        },
    };
    Ok(Asked {
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

    fn address(text: &str) -> Host {
        Host::Address(text.parse().unwrap())
    }

    #[test]
    fn destinations_are_read_in_all_their_forms() {
        for (text, host, port, path) in [
            ("example.com:8443", name("example.com"), 8443, None),
            ("example.com", name("example.com"), 443, None),
            ("192.0.2.1:22", address("192.0.2.1"), 22, None),
            ("192.0.2.1", address("192.0.2.1"), 443, None),
            ("[2001:db8::1]:22", address("2001:db8::1"), 22, None),
            ("[2001:db8::1]", address("2001:db8::1"), 443, None),
            ("2001:db8::1", address("2001:db8::1"), 443, None),
            ("https://example.com", name("example.com"), 443, Some("/")),
            (
                "http://example.com:8080/a/b?c=d#e",
                name("example.com"),
                8080,
                Some("/a/b"),
            ),
            ("https://EXAMPLE.com?x", name("example.com"), 443, Some("/")),
            ("wss://example.com/s", name("example.com"), 443, Some("/s")),
            ("ssh://example.com", name("example.com"), 22, None),
            (
                "b\u{fc}cher.example:443",
                name("xn--bcher-kva.example"),
                443,
                None,
            ),
            (
                "b\u{fc}cher.example",
                name("xn--bcher-kva.example"),
                443,
                None,
            ),
            (
                "http://b\u{fc}cher.example/x",
                name("xn--bcher-kva.example"),
                80,
                Some("/x"),
            ),
        ] {
            let path = path.map(str::to_owned);
            let asked = Asked { host, port, path };
            assert_eq!(Asked::parse(text, Protocol::Tcp), Ok(asked), "{text}");
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in [
            "",
            ":443",
            "example.com:",
            "example.com:0",
            "example.com:99999",
            "b\u{fc}cher.example:",
            "b\u{fc}cher.example:0443",
            "b\u{fc}cher.example:99999",
            "ftp://example.com/",
            "udp://example.com:123",
            "https://",
            "0x7f.1:80",
            "::1:80",
            "2001:db8::1:443",
            "u@example.com:80",
            "a b:80",
        ] {
            assert!(Asked::parse(text, Protocol::Tcp).is_err(), "{text:?}");
        }
        let udp = Asked::parse("udp://example.com:123", Protocol::Tcp).unwrap_err();
        assert!(udp.hint().contains("--udp"), "{udp:?}");
    }

    #[test]
    fn an_echo_goes_to_a_host_without_a_port() {
        for text in ["192.0.2.1", "2001:db8::1", "[2001:db8::1]", "example.com"] {
            let asked = Asked::parse(text, Protocol::Icmp).unwrap();
            assert_eq!(asked.port, 0, "{text}");
        }
        for text in ["example.com:443", "https://example.com", "0x7f.1", ""] {
            assert!(Asked::parse(text, Protocol::Icmp).is_err(), "{text:?}");
        }
    }
}
