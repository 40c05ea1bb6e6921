//! The two data files, read once into tables that answer by address or by name.
//!
//! Each file is the only place that names its blocks. The longest prefix wins; so that a look-up is one binary search,
//! the prefixes are flattened into segments, each with the row that wins there. A line that cannot be read is kept as
//! a fault; a test holds the faults at none, and a table with faults answers "never" for every address.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;

use super::Class;
use crate::name::Name;

static SPECIAL: &str = include_str!("special.tsv");
static METADATA: &str = include_str!("metadata.tsv");

/// Both tables.
pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::read(SPECIAL, METADATA));

/// What a row says about its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) label: &'static str,
    pub(super) class: Class,
}

/// Answer of a table that could not be read: never reachable.
const UNREADABLE: Row = Row {
    label: "unreadable table of special blocks",
    class: Class::Loopback,
};

#[derive(Debug, Default)]
pub(super) struct Tables {
    v4: Segments,
    v6: Segments,
    metadata: Vec<(IpNet, &'static str)>,
    metadata_trees: HashSet<Name>,
    /// First label and zone.
    metadata_within: Vec<(Name, Name)>,
    pub(super) faults: Vec<String>,
}

impl Tables {
    fn read(special: &'static str, metadata: &'static str) -> Self {
        let mut tables = Self::default();
        let mut blocks = Vec::new();
        for line in lines(special) {
            match special_row(line) {
                Some(block) => blocks.push(block),
                None => tables.faults.push(line.to_owned()),
            }
        }
        for line in lines(metadata) {
            if tables.metadata_row(line).is_none() {
                tables.faults.push(line.to_owned());
            }
        }
        if tables.faults.is_empty() {
            let of = |v4: bool| {
                blocks
                    .iter()
                    .filter(move |(net, _)| matches!(net, IpNet::V4(_)) == v4)
            };
            tables.v4 = Segments::flatten(of(true));
            tables.v6 = Segments::flatten(of(false));
        }
        tables
    }

    fn metadata_row(&mut self, line: &'static str) -> Option<()> {
        let mut fields = line.split('\t');
        let (kind, value, label) = (fields.next()?, fields.next()?, fields.next()?);
        match kind {
            "address" => self.metadata.push((value.parse().ok()?, label)),
            "tree" => drop(self.metadata_trees.insert(Name::parse(value).ok()?)),
            "within" => {
                let (first, zone) = value.split_once(' ')?;
                self.metadata_within
                    .push((Name::parse(first).ok()?, Name::parse(zone).ok()?));
            }
            _ => return None,
        }
        Some(())
    }

    /// The row of the longest prefix around an address.
    pub(super) fn row(&self, address: IpAddr) -> Row {
        let (segments, bits) = match address {
            IpAddr::V4(address) => (&self.v4, u128::from(address.to_bits())),
            IpAddr::V6(address) => (&self.v6, address.to_bits()),
        };
        segments.row(bits).unwrap_or(UNREADABLE)
    }

    /// Whether a prefix holds special blocks and nothing that is reached without naming it.
    pub(super) fn is_special_space(&self, net: &IpNet) -> bool {
        let segments = if matches!(net, IpNet::V4(_)) {
            &self.v4
        } else {
            &self.v6
        };
        let mut within = segments.overlapping(bits(net.network()), bits(net.broadcast()));
        let holds_special = within.clone().any(|row| row.class == Class::Special);
        holds_special && within.all(|row| !matches!(row.class, Class::Public | Class::Private))
    }

    /// Whether some address of a prefix is in a block of such a class.
    pub(super) fn holds(&self, net: &IpNet, wanted: impl Fn(Class) -> bool) -> bool {
        let segments = if matches!(net, IpNet::V4(_)) {
            &self.v4
        } else {
            &self.v6
        };
        segments
            .overlapping(bits(net.network()), bits(net.broadcast()))
            .any(|row| wanted(row.class))
    }

    /// Whether a prefix holds metadata, loopback and multicast addresses only.
    pub(super) fn is_never_open(&self, net: &IpNet) -> bool {
        let metadata = self.metadata.iter().any(|(block, _)| block.contains(net));
        metadata
            || !self.holds(net, |class| {
                !matches!(class, Class::Loopback | Class::Multicast)
            })
    }

    /// The first address of every segment, and of what follows a metadata block.
    pub(super) fn borders(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self
            .v4
            .0
            .iter()
            .filter_map(|(bits, _)| u32::try_from(*bits).ok());
        let v4 = v4.map(|bits| IpAddr::V4(bits.into()));
        let v6 = self.v6.0.iter().map(|(bits, _)| IpAddr::V6((*bits).into()));
        v4.chain(v6)
            .chain(self.metadata.iter().map(|(net, _)| net.network()))
    }

    /// The label of the metadata block around an address.
    pub(super) fn metadata(&self, address: IpAddr) -> Option<&'static str> {
        self.metadata
            .iter()
            .find(|(net, _)| net.contains(&address))
            .map(|(_, label)| *label)
    }

    /// Whether a name leads to metadata in some cloud.
    pub(super) fn is_metadata_name(&self, name: &Name) -> bool {
        let mut above = std::iter::successors(Some(name.clone()), Name::parent);
        above.any(|name| self.metadata_trees.contains(&name))
            || self.metadata_within.iter().any(|(first, zone)| {
                name.is_below(zone) && name.labels().any(|label| label == first.as_str())
            })
    }
}

fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn special_row(line: &'static str) -> Option<(IpNet, Row)> {
    let mut fields = line.split('\t');
    let (prefix, label, class) = (fields.next()?, fields.next()?, fields.next()?);
    let net: IpNet = prefix.parse().ok()?;
    let class = match class {
        "public" => Class::Public,
        "private" => Class::Private,
        "special" => Class::Special,
        "loopback" => Class::Loopback,
        "multicast" => Class::Multicast,
        _ => return None,
    };
    (net == net.trunc()).then_some((net, Row { label, class }))
}

/// Consecutive address ranges, each beginning at its bits and ending before the next.
#[derive(Debug, Default)]
struct Segments(Vec<(u128, Row)>);

impl Segments {
    fn flatten<'a>(blocks: impl Iterator<Item = &'a (IpNet, Row)>) -> Self {
        let blocks: Vec<(u128, u128, u8, Row)> = blocks
            .map(|(net, row)| {
                (
                    bits(net.network()),
                    bits(net.broadcast()),
                    net.prefix_len(),
                    *row,
                )
            })
            .collect();
        let mut starts: Vec<u128> = blocks
            .iter()
            .flat_map(|&(first, last, ..)| [Some(first), last.checked_add(1)])
            .flatten()
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let winner = |at: u128| {
            let around = blocks
                .iter()
                .filter(|&&(first, last, ..)| first <= at && at <= last);
            around
                .max_by_key(|(_, _, length, _)| *length)
                .map(|(.., row)| (at, *row))
        };
        Self(starts.into_iter().filter_map(winner).collect())
    }

    fn overlapping(&self, first: u128, last: u128) -> impl Iterator<Item = &Row> + Clone {
        let begin = self
            .0
            .partition_point(|(start, _)| *start <= first)
            .saturating_sub(1);
        let reached = self
            .0
            .iter()
            .skip(begin)
            .take_while(move |(start, _)| *start <= last);
        reached.map(|(_, row)| row)
    }

    fn row(&self, bits: u128) -> Option<Row> {
        let next = self.0.partition_point(|(start, _)| *start <= bits);
        self.0.get(next.checked_sub(1)?).map(|(_, row)| *row)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_tables_have_no_line_that_cannot_be_read() {
        assert_eq!(TABLES.faults, Vec::<String>::new());
        assert!(TABLES.v4.0.len() > 30 && TABLES.v6.0.len() > 30);
        assert!(
            TABLES.metadata.len() >= 10
                && TABLES.metadata_trees.len() >= 8
                && TABLES.metadata_within.len() == 2
        );
    }

    #[test]
    fn a_table_that_cannot_be_read_opens_nothing() {
        for (special, metadata) in [
            ("0.0.0.0/0\tall\tpublic\n10.0.0.0/8\tmine\tprivat\n", ""),
            (
                "0.0.0.0/0\tall\tpublic\n10.0.0.1/8\thost bits\tprivate\n",
                "",
            ),
            ("0.0.0.0/0\tall\tpublic\n", "addres\t169.254.0.0/16\tx\ty\n"),
        ] {
            let broken = Tables::read(special, metadata);
            assert_eq!(broken.faults.len(), 1);
            assert_eq!(broken.row("8.8.8.8".parse().unwrap()), UNREADABLE);
        }
        let whole = Tables::read("0.0.0.0/0\tall\tpublic\n", "");
        assert_eq!(whole.row("8.8.8.8".parse().unwrap()).class, Class::Public);
        assert_eq!(whole.row("2001:db8::1".parse().unwrap()), UNREADABLE);
    }
}
