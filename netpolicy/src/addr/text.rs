//! Which texts are an address or a prefix.
//!
//! Only dotted decimal without leading zeros and RFC 4291 text. Everything that `inet_aton`, a URL parser or a browser
//! would also take (octal, hexadecimal, short, single number, zone id, brackets) is refused with its own reason and
//! never repaired: two programs reading one text as two addresses is how filters are passed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Longer than any address, zone id or prefix; keeps hostile text out of error messages and parsers.
const LONGEST_TEXT: usize = 128;

/// Why a text is no address or prefix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// Nothing.
    #[error("the address is empty")]
    Empty,
    /// Space, tab or line end.
    #[error("a blank cannot stand in an address")]
    Blank,
    /// `fe80::1%eth0`
    #[error("a zone id cannot be given")]
    ZoneId,
    /// `[::1]`
    #[error("brackets do not belong to the address")]
    Brackets,
    /// Something else than digits, dots, colons and hex digits.
    #[error("{0:?} cannot stand in an address")]
    BadCharacter(char),
    /// `127.0.0.1:80`
    #[error("a port does not belong to the address")]
    Port,
    /// `010.8.8.8`: octal to some programs, decimal to others.
    #[error("a number with a leading zero is octal to some programs and decimal to others")]
    LeadingZero,
    /// `0x7f.1`
    #[error("hexadecimal cannot stand in an IPv4 address")]
    Hexadecimal,
    /// `2130706433`
    #[error("a single number is not an IPv4 address")]
    SingleNumber,
    /// `127.1`
    #[error("an IPv4 address has four numbers, not {parts}")]
    PartCount {
        /// Numbers found.
        parts: usize,
    },
    /// `127..0.1`, `127.0.0.1.`
    #[error("a number between dots is missing")]
    EmptyPart,
    /// `256.0.0.1`
    #[error("a number of an IPv4 address is above 255")]
    OutOfRange,
    /// A part that is not a number.
    #[error("the text is not an address")]
    NotAnAddress,
    /// Group count, group length, more than one `::`.
    #[error("the text is not an IPv6 address in RFC 4291 form")]
    MalformedIpv6,
    /// The dotted end of an IPv6 address is not strict.
    #[error("the dotted end of the IPv6 address is malformed: {0}")]
    EmbeddedIpv4(#[source] Box<AddressError>),
    /// Far longer than any address.
    #[error("the text is too long for an address")]
    TooLong,
    /// `10.0.0.0/`, `10.0.0.0/+8`, `10.0.0.0/8/8`
    #[error("the prefix length is not a plain number")]
    LengthSyntax,
    /// `10.0.0.0/08`
    #[error("the prefix length has a leading zero")]
    LengthLeadingZero,
    /// `10.0.0.0/33`
    #[error("the prefix length is above {longest}")]
    LengthRange {
        /// 32 or 128.
        longest: u8,
    },
    /// `10.0.0.0/255.0.0.0`
    #[error("a netmask cannot stand for a prefix length")]
    Netmask,
    /// `10/8`
    #[error("a prefix is written with its whole address")]
    ShortPrefix,
    /// `10.1.2.3/8`
    #[error("bits are set behind the prefix length; the prefix would be {network}")]
    HostBits {
        /// What it would be without them.
        network: IpNet,
    },
}

impl AddressError {
    /// What to write instead.
    pub const fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Empty | Self::NotAnAddress => {
                "write an address such as 203.0.113.7 or 2001:db8::1"
            }
            Self::Blank => "remove the blank",
            Self::ZoneId => {
                "leave out '%' and what follows; link-local addresses cannot be reached"
            }
            Self::Brackets => "leave the brackets out",
            Self::Port => "write the port under `ports:`",
            Self::LeadingZero | Self::EmbeddedIpv4(_) => {
                "write plain decimal numbers without leading zeros"
            }
            Self::Hexadecimal
            | Self::SingleNumber
            | Self::PartCount { .. }
            | Self::EmptyPart
            | Self::OutOfRange => "write four decimal numbers from 0 to 255, as in 203.0.113.7",
            Self::MalformedIpv6 => {
                "write up to eight groups of up to four hex digits, with `::` at most once"
            }
            Self::LengthSyntax | Self::LengthLeadingZero | Self::Netmask => {
                "write the number of leading bits, as in 203.0.113.0/24"
            }
            Self::LengthRange { .. } => "an IPv4 prefix has 0 to 32 bits, an IPv6 prefix 0 to 128",
            Self::ShortPrefix => "write 10.0.0.0/8, not 10/8",
            Self::HostBits { .. } => {
                "write the network itself, or a single address without a length"
            }
            Self::BadCharacter(_) | Self::TooLong => return None,
        })
    }
}

/// Strict dotted-quad or RFC 4291 text only (no octal, hex, short, decimal forms, zone ids, brackets).
pub fn parse_ip(text: &str) -> Result<IpAddr, AddressError> {
    if text.len() > LONGEST_TEXT {
        return Err(AddressError::TooLong);
    }
    refuse_foreign_syntax(text)?;
    if text.contains(':') {
        return text
            .parse::<Ipv6Addr>()
            .map(IpAddr::V6)
            .map_err(|_| explain_v6(text));
    }
    text.parse::<Ipv4Addr>()
        .map(IpAddr::V4)
        .map_err(|_| explain_v4(text))
}

/// `address/len` with no host bits set; a bare address is a single-address prefix. A prefix inside `::ffff:0:0/96` is
/// returned as the IPv4 prefix it is, because addresses are compared in that form.
pub fn parse_net(text: &str) -> Result<IpNet, AddressError> {
    let Some((address, length)) = text.split_once('/') else {
        return Ok(as_ipv4(IpNet::from(parse_ip(text)?)));
    };
    let longest = if address.contains(':') { 128 } else { 32 };
    let address = parse_ip(address).map_err(|error| match error {
        AddressError::PartCount { parts: 2 | 3 } | AddressError::SingleNumber => {
            AddressError::ShortPrefix
        }
        other => other,
    })?;
    let length = parse_length(length, longest)?;
    let net = IpNet::new(address, length).map_err(|_| AddressError::LengthRange { longest })?;
    if net != net.trunc() {
        return Err(AddressError::HostBits {
            network: net.trunc(),
        });
    }
    Ok(as_ipv4(net))
}

fn parse_length(text: &str, longest: u8) -> Result<u8, AddressError> {
    if text.parse::<IpAddr>().is_ok() {
        return Err(AddressError::Netmask);
    }
    if text.chars().any(char::is_whitespace) {
        return Err(AddressError::Blank);
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AddressError::LengthSyntax);
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(AddressError::LengthLeadingZero);
    }
    text.parse()
        .ok()
        .filter(|length| *length <= longest)
        .ok_or(AddressError::LengthRange { longest })
}

fn as_ipv4(net: IpNet) -> IpNet {
    let (IpNet::V6(v6), Some(length)) = (net, net.prefix_len().checked_sub(96)) else {
        return net;
    };
    let inner = v6
        .network()
        .to_ipv4_mapped()
        .and_then(|inner| Ipv4Net::new(inner, length).ok());
    inner.map_or(net, IpNet::V4)
}

fn refuse_foreign_syntax(text: &str) -> Result<(), AddressError> {
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    match text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ':')))
    {
        None => Ok(()),
        Some('%') => Err(AddressError::ZoneId),
        Some('[' | ']') => Err(AddressError::Brackets),
        Some(blank) if blank.is_whitespace() => Err(AddressError::Blank),
        Some(other) => Err(AddressError::BadCharacter(other)),
    }
}

fn explain_v4(text: &str) -> AddressError {
    let parts: Vec<&str> = text.split('.').collect();
    let is_hex = |part: &&str| {
        let digits = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
        digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if parts.iter().any(is_hex) {
        return AddressError::Hexadecimal;
    }
    if !parts
        .iter()
        .all(|part| part.bytes().all(|b| b.is_ascii_digit()))
    {
        return AddressError::NotAnAddress;
    }
    if parts.iter().any(|part| part.is_empty()) {
        return AddressError::EmptyPart;
    }
    if parts
        .iter()
        .any(|part| part.len() > 1 && part.starts_with('0'))
    {
        return AddressError::LeadingZero;
    }
    match parts.len() {
        1 => AddressError::SingleNumber,
        4 => AddressError::OutOfRange,
        parts => AddressError::PartCount { parts },
    }
}

fn explain_v6(text: &str) -> AddressError {
    if let Some((host, port)) = text.split_once(':')
        && !port.contains(':')
        && host.parse::<Ipv4Addr>().is_ok()
    {
        return AddressError::Port;
    }
    match text.rsplit_once(':') {
        Some((_, end)) if end.contains('.') && end.parse::<Ipv4Addr>().is_err() => {
            AddressError::EmbeddedIpv4(Box::new(explain_v4(end)))
        }
        _ => AddressError::MalformedIpv6,
    }
}
