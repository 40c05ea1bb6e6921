//! Reading of the case tables, and a small repeatable source of random bits.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![expect(
    clippy::unwrap_used,
    reason = "a wrong table or fixture should fail the test loudly"
)]

use std::fmt::Debug;
use std::net::IpAddr;

use ipnet::IpNet;

/// Rows of a tab-separated table without comments; `\t`, `\\` and `\u{...}` are decoded in each field.
pub fn rows(table: &str) -> impl Iterator<Item = Vec<String>> {
    let lines = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines.map(|line| line.split('\t').map(decode).collect())
}

fn decode(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        if let Some(after) = escape.strip_prefix('t') {
            out.push('\t');
            rest = after;
        } else if let Some((digits, after)) =
            escape.strip_prefix("u{").and_then(|e| e.split_once('}'))
        {
            out.push(char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap());
            rest = after;
        } else {
            out.push('\\');
            rest = escape.strip_prefix('\\').unwrap_or(escape);
        }
    }
    out + rest
}

/// The name of an error's variant, as the tables write it.
pub fn variant(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    text.split(['(', ' ', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Collects the rows that came out otherwise, so that one run shows them all.
#[derive(Default)]
pub struct Wrong(Vec<String>);

impl Wrong {
    pub fn expect(&mut self, found: &str, expected: &str, row: &str) {
        if found != expected {
            self.0.push(format!("{row} gave {found}, not {expected}"));
        }
    }

    pub fn assert_none(&self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// SplitMix64: repeatable, good enough to mutate test inputs.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    pub fn address_in(&mut self, net: IpNet) -> IpAddr {
        let random = (u128::from(self.next()) << 64) | u128::from(self.next());
        match net {
            IpNet::V4(net) => {
                let bits = u32::try_from(random & 0xffff_ffff).unwrap();
                IpAddr::V4((net.network().to_bits() | (bits & net.hostmask().to_bits())).into())
            }
            IpNet::V6(net) => {
                IpAddr::V6((net.network().to_bits() | (random & net.hostmask().to_bits())).into())
            }
        }
    }
}
