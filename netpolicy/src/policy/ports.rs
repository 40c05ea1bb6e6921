//! Sets of ports: what rules carry, and the little algebra that look-ups need (is any port left?).
//!
//! Port 0 is in no set that a document can write, so it is permitted by no `allow` entry.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Ports: a set of inclusive ranges; `any` is 1-65535.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ports(pub Vec<RangeInclusive<u16>>);

impl Ports {
    /// Every port that a flow can have.
    pub fn any() -> Self {
        Self(vec![1..=u16::MAX])
    }

    /// The ports of a web host: what an allowed host means without `ports`.
    pub fn web() -> Self {
        Self(vec![80..=80, 443..=443])
    }

    /// No port at all.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Membership.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// Whether the set holds no port.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(RangeInclusive::is_empty)
    }

    /// The same set as sorted ranges that neither overlap nor touch.
    #[must_use]
    pub fn normalised(&self) -> Self {
        let mut ranges: Vec<_> = self
            .0
            .iter()
            .filter(|r| !r.is_empty())
            .map(|r| (*r.start(), *r.end()))
            .collect();
        ranges.sort_unstable();
        let mut out: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match out.last_mut() {
                Some(last) if u32::from(start) <= u32::from(last.1) + 1 => last.1 = last.1.max(end),
                _ => out.push((start, end)),
            }
        }
        Self(out.into_iter().map(|(start, end)| start..=end).collect())
    }

    /// Ports of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect()).normalised()
    }

    /// Ports of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (left, right) = (self.normalised(), other.normalised());
        let (mut left, mut right) = (left.0.iter().peekable(), right.0.iter().peekable());
        let mut out = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (start, end) = ((*a.start()).max(*b.start()), (*a.end()).min(*b.end()));
            if start <= end {
                out.push(start..=end);
            }
            if a.end() < b.end() {
                left.next()
            } else {
                right.next()
            };
        }
        Self(out)
    }

    /// Ports of this set that are not in the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// Every port from 0 to 65535 that is not in the set.
    fn complement(&self) -> Self {
        let mut out = Vec::new();
        let mut next = 0_u32;
        for range in self.normalised().0 {
            push(&mut out, next, u32::from(*range.start()));
            next = u32::from(*range.end()) + 1;
        }
        push(&mut out, next, 0x1_0000);
        Self(out)
    }
}

/// Appends `from..until` (half open, so that 65536 can end it) if it holds anything.
fn push(out: &mut Vec<RangeInclusive<u16>>, from: u32, until: u32) {
    if from < until
        && let (Ok(start), Ok(end)) = (u16::try_from(from), u16::try_from(until - 1))
    {
        out.push(start..=end);
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::any() {
            return f.write_str("any");
        }
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sets() -> impl Strategy<Value = Ports> {
        let near = prop::collection::vec((0_u16..40, 0_u16..8), 0..5);
        near.prop_map(|ranges| {
            let end = |(s, l): (u16, u16)| {
                if s > 36 {
                    65_530 + (s - 36)..=u16::MAX
                } else {
                    s..=s + l
                }
            };
            Ports(ranges.into_iter().map(end).collect())
        })
    }

    proptest! {
        #[test]
        fn algebra_agrees_with_membership(a in sets(), b in sets()) {
            let (union, both, minus) = (a.union(&b), a.intersection(&b), a.minus(&b));
            for port in (0..60).chain(65_500..=u16::MAX) {
                prop_assert_eq!(union.contains(port), a.contains(port) || b.contains(port));
                prop_assert_eq!(both.contains(port), a.contains(port) && b.contains(port));
                prop_assert_eq!(minus.contains(port), a.contains(port) && !b.contains(port));
            }
            prop_assert_eq!(minus.is_empty(), minus.0.is_empty());
        }
    }

    #[test]
    fn any_has_no_port_zero() {
        assert!(!Ports::any().contains(0));
        assert!(Ports::any().contains(1) && Ports::any().contains(65_535));
    }
}
