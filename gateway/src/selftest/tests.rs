//! Each check can fail: where everything gets through, every kind of frame is noticed; what programs reach is said.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::process::Command;

use super::frames::{self, Marks, Places};
use super::programs::Refusal;
use super::report::{Family, Outcome, SelftestDone, SelftestReport};
use super::sandbox::Sandbox;
use super::suite::forbidden;
use super::table::Table;
use super::watch::Watch;
use super::{Selftest, programs};
use crate::kernel::Ns;

type Make = dyn Fn(&Sandbox, &Sandbox) -> Box<dyn Any> + Send + Sync;

/// What a test breaks around the two probes; mended when what it returns is dropped.
pub struct Hole(pub Box<Make>);

impl std::fmt::Debug for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hole")
    }
}

/// Makes the hole, if there is one.
pub fn hole(of: &Selftest, (probe, other): (&Sandbox, &Sandbox)) -> Option<Box<dyn Any>> {
    let hole = of.hole.lock().ok()?;
    hole.as_ref().map(|Hole(make)| make(probe, other))
}

fn places() -> Places {
    Places {
        own: (
            [198, 18, 0, 2].into(),
            Ipv6Addr::new(0xfd53, 0, 0, 1, 0, 0, 0, 2),
        ),
        other: (
            [198, 18, 0, 3].into(),
            Ipv6Addr::new(0xfd53, 0, 0, 1, 0, 0, 0, 3),
        ),
        service: (
            [198, 18, 0, 1].into(),
            Ipv6Addr::new(0xfd53, 0, 0, 0, 0, 0, 0, 1),
        ),
        host: (
            Some(Ipv4Addr::new(203, 0, 113, 7)),
            Some(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 7)),
        ),
    }
}

fn ip(ns: &Ns, line: &str) {
    let line = line.to_owned();
    let out = ns.run(move || Ok(Command::new("ip").args(line.split(' ')).output().unwrap()));
    let out = out.unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// A sandbox whose link ends in a namespace without a gateway.
fn unguarded() -> (Ns, Ns) {
    let (sandbox, outside) = (Ns::anonymous().unwrap(), Ns::anonymous().unwrap());
    ip(&outside, "link set lo up");
    let end = outside.fd().try_clone_to_owned().unwrap();
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&end)
    );
    ip(
        &sandbox,
        &format!("link add eth0 type veth peer name out netns {path}"),
    );
    ip(&sandbox, "link set eth0 up");
    ip(&outside, "link set out up");
    (sandbox, outside)
}

#[test]
fn every_kind_of_frame_is_noticed_where_it_gets_through_in_the_uplink_and_in_another_sandbox() {
    let marks = Marks::new().unwrap();
    let list = frames::all(&places(), &marks);
    assert!(list.len() > 150, "{}", list.len());
    for (place, witness_outside) in [("the uplink", true), ("another sandbox", false)] {
        let (sandbox, outside) = unguarded();
        let (list, nowhere) = (list.clone(), Ns::anonymous().unwrap());
        let entry = outside.duplicate().unwrap();
        let table = if witness_outside {
            outside.run(move || {
                let mut watch = Watch::open(marks, &entry, &nowhere)?;
                let mut table = Table::default();
                forbidden(&mut table, &mut watch, &sandbox, &list)?;
                Ok(table)
            })
        } else {
            nowhere.run(move || {
                let mut watch = Watch::open(marks, &entry, &outside)?;
                let mut table = Table::default();
                forbidden(&mut table, &mut watch, &sandbox, &list)?;
                Ok(table)
            })
        };
        for row in table.unwrap().rows() {
            let seen = format!("it was seen in {place}");
            assert_eq!(
                (row.outcome, &row.detail),
                (Outcome::Failed, &seen),
                "{row:?}"
            );
        }
    }
}

#[test]
fn each_frame_carries_its_own_mark_and_no_two_rows_of_a_family_are_the_same_attempt() {
    let marks = Marks::new().unwrap();
    let list = frames::all(&places(), &marks);
    let mut attempts = BTreeSet::new();
    for (number, one) in (0_u16..).zip(&list) {
        assert_eq!(marks.found_in(&one.frame), Some(number), "{}", one.check);
        assert!(
            one.frame.len() < crate::kernel::witness::LONGEST,
            "{}",
            one.check
        );
        assert!(attempts.insert(&one.frame), "{}", one.check);
    }
    for family in [Family::Ipv4, Family::Ipv6, Family::Ethernet] {
        assert!(
            list.iter().filter(|f| f.family == family).count() >= 15,
            "{family}"
        );
    }
    assert_eq!(marks.found_in(marks.label(7).as_bytes()), Some(7));
    assert_eq!(Marks::new().unwrap().found_in(&list[0].frame), None);
}

#[test]
fn what_programs_reach_is_said() {
    let ns = Ns::anonymous().unwrap();
    ip(&ns, "link set lo up");
    let listener = ns
        .run(|| Ok(TcpListener::bind("127.0.0.1:0").unwrap()))
        .unwrap();
    let to = listener.local_addr().unwrap();
    let reached = programs::is_refused(&ns, to, Refusal::AtOnce).unwrap_err();
    assert!(reached.contains("was reached"), "{reached}");
    drop(listener);
    programs::is_refused(&ns, to, Refusal::AtOnce).unwrap();
    programs::connects(&ns, to, b"x").unwrap_err();
    assert!(programs::name_is_denied(&ns, to.ip(), "a.example").is_err());
    assert!(programs::name_is_denied_over_tcp(&ns, to.ip(), "a.example").is_err());
    // a name that exists, or a server that fails, is no denial
    assert!(programs::denied(&[0x53, 0x50, 0x81, 0x80, 0]).is_err());
    assert!(programs::denied(&[0x53, 0x50, 0x81, 0x82, 0]).is_err());
    assert!(programs::denied(&[0x53, 0x50, 0x81, 0x83, 0]).is_ok());
    assert!(programs::denied(b"").is_err());
}

#[test]
fn a_connect_that_is_accepted_first_counts_as_refused_only_when_it_is_reset_and_nowhere_else() {
    let ns = Ns::anonymous().unwrap();
    ip(&ns, "link set lo up");
    let listener = ns
        .run(|| Ok(TcpListener::bind("127.0.0.1:0").unwrap()))
        .unwrap();
    let to = listener.local_addr().unwrap();
    let resets = std::thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().unwrap();
            socket2::SockRef::from(&stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        }
        listener
    });
    let seen = programs::is_refused(&ns, to, Refusal::AfterAccepting).unwrap();
    assert!(seen.contains("reset after"), "{seen}");
    programs::is_refused(&ns, to, Refusal::AtOnce).unwrap_err();
    let listener = resets.join().unwrap();
    // one that goes on, or ends in order, was reached
    let ends = std::thread::spawn(move || drop(listener.accept().unwrap()));
    programs::is_refused(&ns, to, Refusal::AfterAccepting).unwrap_err();
    ends.join().unwrap();
}

#[test]
fn a_table_without_a_passed_row_has_not_passed() {
    let empty = SelftestReport::default();
    assert!(!empty.passed() && super::cause(&empty).is_some());
    let done = SelftestDone::of(&empty, "asked", 1);
    assert_eq!(done.counts(), "0 passed, 0 failed, 0 skipped");
}
