//! IPv4 addresses inside IPv6 ones.
//!
//! A translator or tunnel somewhere on the path may unwrap such an address, so the class of what is inside counts.
//! IPv4-mapped addresses are not here: they *are* the IPv4 address and are unwrapped before anything is asked.
//! Only bits decide; an address that merely looks like a form without lying in its prefix is of that form for ISATAP
//! alone, whose mark is in the interface identifier under any prefix.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// The prefix lengths of RFC 6052 section 2.2.
pub(super) const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// How an IPv6 address carries IPv4 ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Embedding {
    /// 64:ff9b::/96 (RFC 6052): the class of the embedded address, if that is public.
    WellKnown(Ipv4Addr),
    /// Every other form. All addresses that could be meant; never empty.
    Other { inner: Vec<Ipv4Addr>, isatap: bool },
}

/// The embedding of an address that is not IPv4-mapped.
pub(super) fn of(address: Ipv6Addr) -> Option<Embedding> {
    let bits = address.to_bits();
    let mut inner = match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => return Some(Embedding::WellKnown(low(bits))),
        [0x64, 0xff9b, 1, ..] => local_use(bits),
        // IPv4-compatible (RFC 4291) and IPv4-translated (RFC 2765)
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] => vec![low(bits)],
        // Teredo (RFC 4380): server, and client with its bits inverted
        [0x2001, 0, ..] => vec![low(!bits), low(bits >> 64)],
        // 6to4 (RFC 3056)
        [0x2002, ..] => vec![low(bits >> 80)],
        _ => Vec::new(),
    };
    let isatap = is_isatap(bits);
    if isatap {
        inner.push(low(bits));
    }
    (!inner.is_empty()).then_some(Embedding::Other { inner, isatap })
}

/// Local-use NAT64 (RFC 8215): the site chooses the length, so every reading counts, and the plain middle bits. Zeros
/// are what the readings of the wrong length mostly give, so 0.0.0.0/8 counts only when nothing else is there.
fn local_use(bits: u128) -> Vec<Ipv4Addr> {
    let lengths = NAT64_LENGTHS.iter().filter(|&&length| length >= 48);
    let readings = lengths
        .map(|&length| nat64(bits, length))
        .chain([low(bits >> 32)]);
    let telling: Vec<_> = readings.filter(|inner| inner.octets()[0] != 0).collect();
    if telling.is_empty() {
        vec![low(bits)]
    } else {
        telling
    }
}

/// The address inside an address of a learnt NAT64 prefix; `None` outside it or for a length that RFC 6052 lacks.
pub(super) fn in_nat64(prefix: &Ipv6Net, address: Ipv6Addr) -> Option<Ipv4Addr> {
    let usable = NAT64_LENGTHS.contains(&prefix.prefix_len()) && prefix.contains(&address);
    usable.then(|| nat64(address.to_bits(), prefix.prefix_len()))
}

/// RFC 6052 section 2.2: the 32 bits after the prefix, skipping bits 64 to 71.
fn nat64(bits: u128, length: u8) -> Ipv4Addr {
    if length > 64 {
        return low(bits);
    }
    let (before, after) = (bits >> 64, bits & (u128::MAX >> 72));
    let without_octet = (before << 56) | after;
    low(without_octet >> (88 - u32::from(length)))
}

/// RFC 5214 section 6.1: `0000:5efe` before the IPv4 address, with either value of the universal and group bits.
fn is_isatap(bits: u128) -> bool {
    (bits >> 32) & 0xfcff_ffff == 0x0000_5efe
}

/// The lowest 32 bits.
fn low(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_6052_unwrap() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
        ] {
            let prefix: Ipv6Net = prefix.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(
                in_nat64(&prefix, address),
                Some(Ipv4Addr::new(192, 0, 2, 33)),
                "{prefix}"
            );
            assert_eq!(
                in_nat64(&prefix, "2001:db9::1".parse().unwrap()),
                None,
                "{prefix}"
            );
        }
        let odd: Ipv6Net = "2001:db8::/44".parse().unwrap();
        assert_eq!(in_nat64(&odd, "2001:db8::1".parse().unwrap()), None);
    }

    #[test]
    fn plain_addresses_embed_nothing() {
        for plain in [
            "2606:4700::1",
            "fd00::5efe:1:a00:1",
            "64:ff9b:2::a00:1",
            "2003:a00:1::1",
            "fe80::1",
        ] {
            assert_eq!(of(plain.parse().unwrap()), None, "{plain}");
        }
    }
}
