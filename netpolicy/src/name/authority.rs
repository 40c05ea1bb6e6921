//! `host[:port]` as a Host field, a CONNECT target or a URL carries it.
//!
//! The strict part of RFC 9110's authority: no user, no blank, no zone id, no percent coding, no IPvFuture; a port is
//! plain decimal from 1 to 65535 without leading zeros; an address is dotted decimal or bracketed IPv6. What two
//! programs could read differently is an error here, because the origin's reading is not ours to guess.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Name, NameError, parse};
use crate::addr::parse_ip;

/// The host of an authority (`Host:` header, CONNECT target, URL).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// A name.
    Name(Name),
    /// A literal address (IPv6 was in brackets).
    Address(IpAddr),
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// `host[:port]` as RFC 9110 authority without userinfo.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Authority {
    /// Host part.
    pub host: Host,
    /// Port if written.
    pub port: Option<u16>,
}

impl Authority {
    /// Strict: no userinfo, no blanks, no empty or signed or overlong port, no zone id, no percent coding, only strict
    /// addresses; a last label that is numeric is an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if let Some(&octet) = bytes.iter().find(|b| !b.is_ascii()) {
            return Err(NameError::NotAscii(octet));
        }
        let text = str::from_utf8(bytes).map_err(|_| NameError::Idna)?;
        if text.contains('@') {
            return Err(NameError::UserInfo);
        }
        match text.strip_prefix('[') {
            Some(rest) => Self::parse_bracketed(rest),
            None => Self::parse_plain(text),
        }
    }

    fn parse_bracketed(rest: &str) -> Result<Self, NameError> {
        let (inside, after) = rest.split_once(']').ok_or(NameError::Brackets)?;
        let host = match parse_ip(inside) {
            Ok(IpAddr::V6(address)) => Host::Address(IpAddr::V6(address)),
            Ok(IpAddr::V4(_)) => return Err(NameError::Brackets),
            Err(crate::addr::AddressError::ZoneId) => return Err(NameError::ZoneId),
            Err(error) => return Err(NameError::Bracketed(error)),
        };
        let port = match after.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if after.is_empty() => None,
            None => return Err(NameError::Brackets),
        };
        Ok(Self { host, port })
    }

    fn parse_plain(text: &str) -> Result<Self, NameError> {
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(NameError::Unbracketed);
        }
        let (host, port) = match text.split_once(':') {
            // a second colon is never part of a port; the name's own check says what it is
            Some((_, port)) if port.contains(':') => {
                parse::refuse_foreign_syntax(text)?;
                return Err(NameError::UnexpectedPort);
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let host = match host.parse::<Ipv4Addr>() {
            Ok(address) => Host::Address(IpAddr::V4(address)),
            Err(_) => Host::Name(Name::parse_ascii(host.as_bytes())?),
        };
        Ok(Self {
            host,
            port: port.map(parse_port).transpose()?,
        })
    }
}

impl std::fmt::Display for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

/// Digits only, at most five, no leading zero: `+80`, `080` and 65537 must not become a port.
fn parse_port(text: &str) -> Result<u16, NameError> {
    if text.is_empty() {
        return Err(NameError::PortEmpty);
    }
    if text.contains('/') {
        return Err(NameError::Url);
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) || (text.starts_with('0') && text.len() > 1) {
        return Err(NameError::PortSyntax);
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(NameError::PortRange),
    }
}
