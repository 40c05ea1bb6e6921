//! Where a call may go: the text of a URL, then every address behind its name.
//!
//! A URL is read once and strictly: what two programs could read differently is refused. Addresses are judged by the
//! policy engine's one table of classes, in whatever form they come, literal or resolved, here or after a redirect.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use netpolicy::addr::{AddressBook, Class};
use netpolicy::name::{Authority, Host};

use crate::settings::{Allowed, OutboundSettings, Scheme};

/// Longer is no address that somebody has read.
const LONGEST: usize = 2048;

/// Ports on which other protocols listen that a request could talk to by accident or on purpose (the Fetch standard's
/// list of bad ports, without the ones that nobody uses any more).
const OTHER_PROTOCOLS: [u16; 46] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 79, 87, 95, 109, 110, 111,
    113, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 587, 993, 995,
    2049, 6000, 6667,
];

/// On whose word a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The operator's: it stands in `config.yml`, as sign-in providers do. Private and local addresses are theirs to name.
    Operator,
    /// A member's, or anybody's: the text came by the API, or somebody who was asked redirects to another host.
    Member,
}

/// Why a call is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It is no URL that everybody reads the same way.
    #[error("is no address such as https://example.com/path")]
    Malformed,
    /// Neither http nor https.
    #[error("begins with neither https:// nor http://")]
    Scheme,
    /// A user name or password stands in it.
    #[error("has a user name or a password in it")]
    UserInfo,
    /// Another protocol's port.
    #[error("names a port of another protocol")]
    Port,
    /// Cloud metadata, by name or address.
    #[error("points to cloud metadata, which is never asked")]
    Metadata,
    /// Private, of this machine, loopback, special.
    #[error("points to a private or local network address")]
    Private,
    /// Multicast, unspecified, sandboxes.
    #[error("points to an address that is never called")]
    Never,
    /// From https to http.
    #[error("leads from https to http")]
    Downgrade,
}

/// A URL that may be called, as far as its text says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// How.
    pub scheme: Scheme,
    /// Whom.
    pub host: Host,
    /// At which port.
    pub port: u16,
    /// What: path and query.
    pub path: String,
}

impl Target {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let plain = |b: u8| b.is_ascii_graphic() && !b"\\\"<>^`{|}#".contains(&b);
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(plain) {
            return Err(Refusal::Malformed);
        }
        let (scheme, rest) = text.split_once("://").ok_or(Refusal::Malformed)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return Err(Refusal::Scheme),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(Refusal::UserInfo);
        }
        let authority = Authority::parse(authority.as_bytes()).map_err(|_| Refusal::Malformed)?;
        let port = authority.port.unwrap_or(scheme.port());
        if OTHER_PROTOCOLS.contains(&port) {
            return Err(Refusal::Port);
        }
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        path.parse::<Uri>().map_err(|_| Refusal::Malformed)?;
        Ok(Self {
            scheme,
            host: authority.host,
            port,
            path,
        })
    }

    /// Where an answer sends the call.
    pub fn redirected(&self, location: &str) -> Result<Self, Refusal> {
        let next = if location.starts_with('/') && !location.starts_with("//") {
            Self::parse(&format!("{}{location}", self.origin()))?
        } else {
            Self::parse(location)?
        };
        if self.scheme == Scheme::Https && next.scheme == Scheme::Http {
            return Err(Refusal::Downgrade);
        }
        Ok(next)
    }

    /// Scheme, host and port: what may stand in logs.
    pub fn origin(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        format!("{scheme}://{}", self.authority())
    }

    /// As a `Host` header has it.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Judges a host and every address behind it. One that may not be called refuses them all: whoever answers for the name
/// has tried something.
pub fn judge(
    host: &Host,
    port: u16,
    addresses: &[IpAddr],
    purpose: Purpose,
    (settings, book): (&OutboundSettings, &AddressBook),
) -> Result<(), Refusal> {
    if let Host::Name(name) = host
        && AddressBook::is_metadata_name(name)
    {
        return Err(Refusal::Metadata);
    }
    for address in addresses {
        let listed = settings.allowed.iter().any(|allowed| match allowed {
            Allowed::Net(net) => net.contains(&address.to_canonical()),
            Allowed::Host(named, at) => named == host && at.is_none_or(|at| at == port),
        });
        let operator = listed || purpose == Purpose::Operator;
        let unspecified = address.to_canonical().is_unspecified();
        match book.classify(*address).class {
            Class::Metadata => return Err(Refusal::Metadata),
            Class::Multicast | Class::Gateway => return Err(Refusal::Never),
            Class::Loopback if unspecified => return Err(Refusal::Never),
            Class::Public => {}
            Class::Private if operator || settings.allow_private => {}
            Class::Host | Class::Loopback | Class::Special if operator => {}
            Class::Private | Class::Host | Class::Loopback | Class::Special => {
                return Err(Refusal::Private);
            }
        }
    }
    Ok(())
}

/// What this machine is called, for [`judge`].
pub fn book(pools: &[IpNet]) -> AddressBook {
    let host = nix::ifaddrs::getifaddrs().map_or_else(
        |_| Vec::new(),
        |interfaces| {
            interfaces
                .filter_map(|interface| {
                    let address = interface.address?;
                    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
                    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
                })
                .collect()
        },
    );
    AddressBook {
        gateway: pools.to_vec(),
        host,
        ..AddressBook::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_two_ways_is_not_read() {
        for (text, refusal) in [
            ("", Refusal::Malformed),
            ("example.com", Refusal::Malformed),
            ("https:/example.com", Refusal::Malformed),
            ("http:evil", Refusal::Malformed),
            ("http:\\\\evil", Refusal::Malformed),
            ("https://", Refusal::Malformed),
            ("https://example.com\\@evil", Refusal::Malformed),
            ("https://exa mple.com", Refusal::Malformed),
            ("https://example.com/\r\nHost: x", Refusal::Malformed),
            ("https://example.com/#x", Refusal::Malformed),
            ("https://0x0a000005/", Refusal::Malformed),
            ("https://10.5/", Refusal::Malformed),
            ("https://012.0.0.5/", Refusal::Malformed),
            ("https://2130706433/", Refusal::Malformed),
            ("https://[::1%25lo]/", Refusal::Malformed),
            ("https://example.com:0/", Refusal::Malformed),
            ("file:///etc/passwd", Refusal::Scheme),
            ("gopher://example.com/", Refusal::Scheme),
            ("ftp://example.com/", Refusal::Scheme),
            ("unix://run/docker.sock", Refusal::Scheme),
            ("data:text/plain,x", Refusal::Malformed),
            ("javascript:alert(1)", Refusal::Malformed),
            ("https://user:pass@example.com/", Refusal::UserInfo),
            ("https://example.com@evil/", Refusal::UserInfo),
            ("http://example.com:22/", Refusal::Port),
            ("http://example.com:25/", Refusal::Port),
        ] {
            assert_eq!(Target::parse(text), Err(refusal), "{text:?}");
        }
        let read = Target::parse("https://Example.com:8443?a=b").unwrap();
        assert_eq!(
            (read.origin().as_str(), read.path.as_str()),
            ("https://example.com:8443", "/?a=b")
        );
        assert_eq!(
            Target::parse("http://[2001:db8::1]").unwrap().authority(),
            "[2001:db8::1]"
        );
    }

    #[test]
    fn a_redirect_is_read_like_any_url_and_never_leaves_tls() {
        let from = Target::parse("https://example.com/a").unwrap();
        assert_eq!(from.redirected("/b?c").unwrap().path, "/b?c");
        assert_eq!(
            from.redirected("https://other.example/").unwrap().origin(),
            "https://other.example"
        );
        for (location, refusal) in [
            ("http://example.com/", Refusal::Downgrade),
            ("//evil.example/", Refusal::Malformed),
            ("file:///etc/passwd", Refusal::Scheme),
            ("https://a:b@example.com/", Refusal::UserInfo),
        ] {
            assert_eq!(from.redirected(location), Err(refusal), "{location}");
        }
    }

    fn verdict(
        address: &str,
        purpose: Purpose,
        settings: &OutboundSettings,
    ) -> Result<(), Refusal> {
        let address: IpAddr = address.parse().unwrap();
        let book = AddressBook {
            gateway: vec!["10.222.0.0/16".parse().unwrap()],
            host: vec!["192.168.1.5".parse().unwrap()],
            ..AddressBook::default()
        };
        judge(
            &Host::Address(address),
            443,
            &[address],
            purpose,
            (settings, &book),
        )
    }

    #[test]
    fn every_class_in_every_form_is_judged_by_the_one_table() {
        let (open, shut) = (
            OutboundSettings::default(),
            OutboundSettings {
                allow_private: false,
                ..OutboundSettings::default()
            },
        );
        let (private, metadata, never) = (
            Err(Refusal::Private),
            Err(Refusal::Metadata),
            Err(Refusal::Never),
        );
        for (address, with_private, without, operator) in [
            ("8.8.8.8", Ok(()), Ok(()), Ok(())),
            ("2606:4700::1111", Ok(()), Ok(()), Ok(())),
            ("10.0.0.5", Ok(()), private, Ok(())),
            ("::ffff:10.0.0.5", Ok(()), private, Ok(())),
            ("fd12:3456::1", Ok(()), private, Ok(())),
            ("127.0.0.1", private, private, Ok(())),
            ("::1", private, private, Ok(())),
            ("::ffff:127.0.0.1", private, private, Ok(())),
            ("192.168.1.5", private, private, Ok(())),
            ("198.18.0.1", private, private, Ok(())),
            ("0.0.0.0", never, never, never),
            ("::", never, never, never),
            ("224.0.0.1", never, never, never),
            ("10.222.0.7", never, never, never),
            ("169.254.169.254", metadata, metadata, metadata),
            ("::ffff:169.254.169.254", metadata, metadata, metadata),
            ("64:ff9b::a9fe:a9fe", metadata, metadata, metadata),
            ("fd00:ec2::254", metadata, metadata, metadata),
            ("168.63.129.16", metadata, metadata, metadata),
            ("100.100.100.200", metadata, metadata, metadata),
            ("169.254.170.2", metadata, metadata, metadata),
        ] {
            assert_eq!(
                verdict(address, Purpose::Member, &open),
                with_private,
                "{address}"
            );
            assert_eq!(
                verdict(address, Purpose::Member, &shut),
                without,
                "{address}"
            );
            assert_eq!(
                verdict(address, Purpose::Operator, &shut),
                operator,
                "{address}"
            );
        }
    }

    #[test]
    fn what_the_operator_lists_is_called_and_nothing_beside_it() {
        let name = |text: &str| Host::Name(netpolicy::name::Name::parse(text).unwrap());
        let settings = OutboundSettings {
            allow_private: false,
            allowed: vec![
                Allowed::Net("127.0.0.1/32".parse().unwrap()),
                Allowed::Host(name("hooks.internal"), Some(8080)),
                Allowed::Net("169.254.0.0/16".parse().unwrap()),
            ],
            ..OutboundSettings::default()
        };
        assert_eq!(verdict("127.0.0.1", Purpose::Member, &settings), Ok(()));
        assert_eq!(
            verdict("127.0.0.2", Purpose::Member, &settings),
            Err(Refusal::Private)
        );
        assert_eq!(
            verdict("169.254.169.254", Purpose::Member, &settings),
            Err(Refusal::Metadata)
        );
        let book = AddressBook::default();
        let at = |host: &str, port| {
            let address = "10.0.0.5".parse().unwrap();
            judge(
                &name(host),
                port,
                &[address],
                Purpose::Member,
                (&settings, &book),
            )
        };
        assert_eq!(at("hooks.internal", 8080), Ok(()));
        assert_eq!(at("hooks.internal", 8081), Err(Refusal::Private));
        assert_eq!(at("other.internal", 8080), Err(Refusal::Private));
        let one_is_bad = ["8.8.8.8".parse().unwrap(), "10.0.0.5".parse().unwrap()];
        let judged = judge(
            &name("mixed.example"),
            443,
            &one_is_bad,
            Purpose::Member,
            (&settings, &book),
        );
        assert_eq!(judged, Err(Refusal::Private));
        let judged = judge(
            &name("metadata.google.internal"),
            80,
            &[],
            Purpose::Operator,
            (&settings, &book),
        );
        assert_eq!(judged, Err(Refusal::Metadata));
    }
}
