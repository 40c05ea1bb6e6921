//! Leases over restarts, damage, full pools and full disks.

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use netpolicy::name::Name;
use netpolicy::policy::Limits;
use netpolicy::reason::Reason;
use proptest::prelude::*;

use super::{Asked, LeaseError, LeasePools, Leases, MOST_BINDINGS};
use crate::limits::{Ledger, Used};

fn pools(v4: &str) -> LeasePools {
    LeasePools {
        v4: v4.parse().unwrap(),
        v6: "fd00:1:2:3::/64".parse().unwrap(),
        key: [3; 16],
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("leases")
    }

    fn open(&self) -> Result<Leases, LeaseError> {
        Leases::open(&self.file(), pools("198.19.0.0/16"), "w")
    }
}

fn ledger(names: u32) -> Ledger {
    Ledger::new(
        &Limits {
            names: Some(names),
            ..Limits::default()
        },
        Used::default(),
    )
}

#[test]
fn lease_is_on_disk_before_it_is_returned_and_survives() {
    let place = Place::new();
    let leases = place.open().unwrap();
    let (v4, v6) = leases.lease(&name("ok.net")).unwrap();
    // as a crash right now would leave it
    let again = place.open().unwrap();
    assert_eq!(again.find(v4.into()), Some(name("ok.net")));
    assert_eq!(again.find(v6.into()), Some(name("ok.net")));
    assert_eq!(
        again.find(IpAddr::V6(v4.to_ipv6_mapped())),
        Some(name("ok.net"))
    );
    assert_eq!(again.lease(&name("ok.net")).unwrap(), (v4, v6));
}

#[test]
fn same_workspace_and_name_tend_to_the_same_address_and_others_do_not() {
    let (a, b, c) = (Place::new(), Place::new(), Place::new());
    let first = a.open().unwrap().lease(&name("ok.net")).unwrap();
    assert_eq!(b.open().unwrap().lease(&name("ok.net")).unwrap(), first);
    let other = Leases::open(&c.file(), pools("198.19.0.0/16"), "x").unwrap();
    assert_ne!(other.lease(&name("ok.net")).unwrap(), first);
}

#[test]
fn full_pool_is_an_error_and_reuses_nothing() {
    let place = Place::new();
    let small = || Leases::open(&place.file(), pools("198.19.0.0/29"), "w").unwrap();
    let leases = small();
    let addresses: HashSet<_> = (0..6)
        .map(|n| leases.lease(&name(&format!("n{n}.net"))).unwrap().0)
        .collect();
    assert_eq!(addresses.len(), 6);
    // neither the first nor the last address of the pool
    assert!(addresses.iter().all(|a| !matches!(a.octets()[3], 0 | 7)));
    assert!(matches!(
        leases.lease(&name("n6.net")),
        Err(LeaseError::Exhausted)
    ));
    assert!(matches!(
        small().lease(&name("n6.net")),
        Err(LeaseError::Exhausted)
    ));
    assert!(leases.lease(&name("n0.net")).is_ok());
}

#[test]
fn torn_last_line_is_cut_off_and_damage_elsewhere_is_an_error() {
    let place = Place::new();
    let leases = place.open().unwrap();
    leases.lease(&name("ok.net")).unwrap();
    let (v4, _) = leases.lease(&name("a.net")).unwrap();
    drop(leases);
    let whole = fs::read(place.file()).unwrap();
    fs::write(place.file(), &whole[..whole.len() - 5]).unwrap();
    let torn = place.open().unwrap();
    assert_eq!(torn.find(v4.into()), None);
    assert_eq!(torn.lease(&name("a.net")).unwrap().0, v4);
    drop(torn);
    assert_eq!(fs::read(place.file()).unwrap(), whole);
    for at in 0..whole.len() - 1 {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(place.file(), &damaged).unwrap();
        let Err(LeaseError::Damaged { line, .. }) = place.open() else {
            panic!("octet {at} changed unseen")
        };
        let line_of_octet = whole[..at].split(|b| *b == b'\n').count();
        assert!(
            line == line_of_octet || line == line_of_octet + 1,
            "octet {at}: line {line}"
        );
    }
}

#[test]
fn lease_that_cannot_be_written_is_not_handed_out() {
    let place = Place::new();
    let leases = place.open().unwrap();
    let (kept, _) = leases.lease(&name("kept.net")).unwrap();
    leases.file.lock().unwrap().break_handle();
    assert!(matches!(
        leases.lease(&name("ok.net")),
        Err(LeaseError::Write(_))
    ));
    assert!(matches!(
        leases.bind(&name("ok.net"), &[[1, 2, 3, 4].into()]),
        Err(LeaseError::Write(_))
    ));
    assert!(matches!(
        leases.ask(&name("ok.net"), &ledger(5), 5),
        Err(Asked::Failed(LeaseError::Write(_)))
    ));
    assert_eq!((leases.leased(&name("ok.net")), leases.len()), (None, 0));
    assert!(leases.bound([1, 2, 3, 4].into()).is_empty());
    assert_eq!(leases.find(kept.into()), Some(name("kept.net")));
}

#[test]
fn what_is_no_file_is_refused() {
    let unending = Leases::open(
        std::path::Path::new("/dev/zero"),
        pools("198.19.0.0/16"),
        "w",
    );
    assert!(matches!(unending, Err(LeaseError::Write(_))));
}

#[test]
fn lines_that_contradict_each_other_are_damage() {
    let place = Place::new();
    place.open().unwrap().lease(&name("ok.net")).unwrap();
    let text = fs::read_to_string(place.file()).unwrap();
    let line = text.lines().last().unwrap();
    fs::write(place.file(), format!("{text}{line}\n")).unwrap();
    assert!(matches!(
        place.open(),
        Err(LeaseError::Damaged { line: 3, .. })
    ));
    // a pool that moved: the addresses mean something else now
    fs::write(place.file(), text).unwrap();
    let moved = Leases::open(&place.file(), pools("10.9.0.0/16"), "w");
    assert!(matches!(moved, Err(LeaseError::Damaged { line: 2, .. })));
}

#[test]
fn asked_names_are_counted_once_also_over_a_restart() {
    let place = Place::new();
    let budget = ledger(2);
    let leases = place.open().unwrap();
    for _ in 0..3 {
        leases.ask(&name("a.net"), &budget, 2).unwrap();
    }
    let leases = place.open().unwrap();
    leases.ask(&name("a.net"), &budget, 2).unwrap();
    leases.ask(&name("b.net"), &budget, 2).unwrap();
    assert!(matches!(
        leases.ask(&name("c.net"), &budget, 2),
        Err(Asked::Denied(Reason::LimitNames))
    ));
    assert_eq!(leases.len(), 2);
}

#[test]
fn bindings_are_bounded_in_memory_and_on_disk() {
    let place = Place::new();
    let leases = place.open().unwrap();
    let address = |n: usize| IpAddr::from(u32::try_from(0x0505_0000 + n).unwrap().to_be_bytes());
    for n in 0..MOST_BINDINGS * 5 {
        leases.bind(&name("ok.net"), &[address(n)]).unwrap();
    }
    assert!(leases.bound(address(0)).is_empty());
    assert_eq!(
        leases.bound(address(MOST_BINDINGS * 5 - 1)),
        [name("ok.net")]
    );
    let lines = fs::read_to_string(place.file()).unwrap().lines().count();
    assert!(lines <= MOST_BINDINGS * 4 + 1, "{lines} lines");
    let again = place.open().unwrap();
    assert_eq!(
        again.bound(address(MOST_BINDINGS * 5 - 1)),
        [name("ok.net")]
    );
    assert!(again.bound(address(MOST_BINDINGS * 4 - 1)).is_empty());
}

proptest! {
    #[test]
    fn no_address_ever_means_two_names(names in proptest::collection::vec("[a-z]{1,3}\\.[a-z]{2}", 1..200)) {
        let place = Place::new();
        let mut leases = Leases::open(&place.file(), pools("198.19.0.0/24"), "w").unwrap();
        let mut given = std::collections::HashMap::new();
        for (index, text) in names.iter().enumerate() {
            let wanted = name(text);
            let (v4, v6) = leases.lease(&wanted).unwrap();
            for address in [IpAddr::from(v4), v6.into()] {
                prop_assert_eq!(given.entry(address).or_insert_with(|| wanted.clone()), &wanted);
                prop_assert_eq!(leases.find(address), Some(wanted.clone()));
            }
            if index % 50 == 49 {
                leases = Leases::open(&place.file(), pools("198.19.0.0/24"), "w").unwrap();
            }
        }
    }
}
