//! ICMP errors about a first SYN: what a router says of a place that a connect cannot reach, or of a SYN without a hop left.
//!
//! The rules of nf_tables say these themselves. Those of iptables cannot: their target works only on the way to a local
//! socket, and from there IPv4 finds no way back for the error. Owns the shape of the error; sockets and headers are
//! those of [`super::icmp`].

use std::net::{IpAddr, SocketAddr};

use super::icmp::{Errors, Trouble, envelope, header4, header6, message};

const TCP: u8 = 6;
/// Ports and sequence number: what the sender's kernel looks at, and what RFC 792 says is quoted.
const QUOTE: usize = 8;
/// Of the header that the SYN had; options are not known here.
const HEADER: usize = 20;

/// A first SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Who sent it.
    pub from: SocketAddr,
    /// Where to.
    pub to: SocketAddr,
    /// Its sequence number: an error about another is not believed.
    pub isn: u32,
}

impl Errors {
    /// Tells the sender of a SYN. A lost error is like any lost packet.
    pub fn refuse(&self, syn: Refused, trouble: Trouble) {
        let packet = packet(syn, trouble, self.service());
        let sent = packet.map(|packet| self.put(&packet, syn.from.ip()));
        if let Some(Err(error)) = sent {
            tracing::trace!(%error, "an ICMP error was lost");
        }
    }
}

fn packet(
    syn: Refused,
    trouble: Trouble,
    service: (std::net::Ipv4Addr, std::net::Ipv6Addr),
) -> Option<Vec<u8>> {
    let mut quote = Vec::with_capacity(QUOTE);
    quote.extend(syn.from.port().to_be_bytes());
    quote.extend(syn.to.port().to_be_bytes());
    quote.extend(syn.isn.to_be_bytes());
    let (mut quoted, by, (kind, code, word)) = match (syn.from.ip(), syn.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = header4((from, to), TCP, HEADER);
            (header, IpAddr::V4(service.0), trouble.four()?)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = header6((from, to), TCP, HEADER);
            (header, IpAddr::V6(service.1), trouble.six()?)
        }
        _ => return None,
    };
    quoted.extend(quote);
    envelope((by, syn.from.ip()), message(kind, code, word, &quoted))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::icmp::{ICMP6, checksum};
    use super::*;

    const SERVICE: (Ipv4Addr, Ipv6Addr) = (
        Ipv4Addr::new(198, 18, 0, 1),
        Ipv6Addr::new(0xfd00, 0x5a, 0, 0, 0, 0, 0, 1),
    );

    fn refused(from: &str, to: &str) -> Refused {
        Refused {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            isn: 0x0102_0304,
        }
    }

    #[test]
    fn an_error_quotes_ports_and_sequence_number_and_its_sums_are_right() {
        let four = refused("198.18.0.2:4000", "8.8.8.8:443");
        let whole = packet(four, Trouble::HostUnreachable, SERVICE).unwrap();
        assert_eq!(checksum(&[&whole[..20]]), [0, 0]);
        assert_eq!(checksum(&[&whole[20..]]), [0, 0]);
        assert_eq!(&whole[20..22], [3, 1]);
        assert_eq!(whole[28 + 9], TCP);
        assert_eq!(&whole[48..], [0x0f, 0xa0, 1, 0xbb, 1, 2, 3, 4]);
        let six = refused("[fd00:5a::2]:4000", "[2001:db8::1]:443");
        let whole = packet(six, Trouble::Prohibited, SERVICE).unwrap();
        assert_eq!(&whole[40..42], [1, 1]);
        let length = u32::try_from(whole.len() - 40).unwrap().to_be_bytes();
        let sum = checksum(&[&whole[8..40], &length, &[0, 0, 0, ICMP6], &whole[40..]]);
        assert_eq!(sum, [0, 0]);
        let mixed = refused("198.18.0.2:4000", "[2001:db8::1]:443");
        assert_eq!(packet(mixed, Trouble::Prohibited, SERVICE), None);
    }
}
