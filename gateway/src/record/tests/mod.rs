//! The journal against crashes, full disks and people who edit it. Negative first; each with its permitted twin.

mod disk;
mod fold;
mod keep;
mod syslog;
mod tamper;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use netpolicy::decide::Direction;
use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;

use super::entry::{Denied, Open, Subject};
use super::verify::Kind;
use super::*;
use crate::network::flows::Door;

struct Lab {
    dir: tempfile::TempDir,
    config: JournalConfig,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = JournalConfig {
            segment_bytes: 4096,
            ..JournalConfig::under(dir.path())
        };
        Self { dir, config }
    }

    fn journal(&self) -> Journal {
        Journal::open(self.config.clone()).unwrap()
    }

    /// A cleanly closed journal of several segments.
    fn filled() -> Self {
        let lab = Self::new();
        let journal = lab.journal();
        for flow in 0..60 {
            journal.append(open(flow, "a")).unwrap();
        }
        journal.close().unwrap();
        assert!(lab.segments().len() > 3);
        lab
    }

    fn segments(&self) -> Vec<PathBuf> {
        segment::list(&self.config.dir)
            .unwrap()
            .into_iter()
            .map(|s| s.path)
            .collect()
    }

    fn report(&self) -> Report {
        verify(&self.config.dir).unwrap()
    }

    fn kinds(&self) -> Vec<Kind> {
        self.report().findings.iter().map(|f| f.kind).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let mut out = Vec::new();
        export(&self.config.dir, read::Since::default(), &mut out).unwrap();
        out.split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice::<Line>(l).unwrap().entry)
            .collect()
    }
}

fn subject(network: &str, port: u16) -> Subject {
    Subject {
        network: network.parse::<NetworkId>().unwrap(),
        run: None,
        door: Door::Tcp,
        direction: Direction::Egress,
        protocol: Protocol::Tcp,
        source: SocketAddr::from(([198, 18, 0, 9], 40_000)),
        name: None,
        address: Some(IpAddr::from([203, 0, 113, 9])),
        port,
    }
}

fn open(flow: u64, network: &str) -> Entry {
    Entry::Open(Box::new(Open {
        flow,
        subject: subject(network, 443),
        upstream: SocketAddr::from(([203, 0, 113, 9], 443)),
        local: None,
        class: None,
        by: Vec::new(),
        policy: PolicyHash([1; 32]),
        generation: Generation(1),
    }))
}

fn denial(network: &str, port: u16) -> Entry {
    Entry::Denial(Box::new(Denied {
        subject: subject(network, port),
        reason: Reason::AddressPrivate,
        by: None,
        class: None,
        upstream: None,
        heard: None,
        policy: PolicyHash([1; 32]),
        generation: Generation(1),
    }))
}

/// Rewrites one file by a function over its lines.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(path, lines.join("\n") + "\n").unwrap();
}
