//! Full disks, failed writes and killed writers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::*;
use super::{Lab, open};

#[test]
fn a_full_disk_refuses_new_flows_keeps_room_for_their_ends_and_recovers() {
    let lab = Lab::new();
    let disk = Disk::mount(&lab.dir.path().join("disk"), "size=1m");
    let config = JournalConfig {
        ahead_bytes: 256 << 10,
        segment_bytes: 64 << 20,
        ..JournalConfig::under(&disk.0)
    };
    let journal = Journal::open(config.clone()).unwrap();
    journal.append(open(1, "a")).unwrap();
    let filler = disk.0.join("filler");
    fill(&filler);
    let refused = (2..10_000)
        .find(|flow| journal.append(open(*flow, "a")).is_err())
        .unwrap();
    assert!(!journal.writable());
    for _ in 0..100 {
        journal.append(Entry::Gap { window_ms: 1 }).unwrap();
    }
    fs::remove_file(&filler).unwrap();
    journal.tick(false).unwrap();
    assert!(journal.writable());
    journal.append(open(refused, "a")).unwrap();
    journal.close().unwrap();
    let report = verify(&config.dir).unwrap();
    assert!(report.ok(), "{:?}", report.findings);
}

#[test]
fn a_failed_write_leaves_no_hole_in_the_chain() {
    let lab = Lab::new();
    let disk = Disk::mount(&lab.dir.path().join("disk"), "size=1m");
    let config = JournalConfig {
        ahead_bytes: 16 << 10,
        segment_bytes: 64 << 20,
        ..JournalConfig::under(&disk.0)
    };
    let journal = Journal::open(config.clone()).unwrap();
    let filler = disk.0.join("filler");
    fill(&filler);
    let failed = (0..10_000)
        .position(|_| journal.append(Entry::Gap { window_ms: 1 }).is_err())
        .unwrap();
    assert!(!journal.writable());
    fs::remove_file(&filler).unwrap();
    journal.tick(false).unwrap();
    journal.append(Entry::Gap { window_ms: 2 }).unwrap();
    journal.close().unwrap();
    let report = verify(&config.dir).unwrap();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!(report.lines, failed as u64 + 1);
}

/// Writes until the disk is full.
fn fill(path: &Path) {
    let block = vec![1; 4096];
    let mut file = fs::File::create(path).unwrap();
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
}

struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, options: &str) -> Self {
        fs::create_dir(at).unwrap();
        nix::mount::mount(
            Some("tmpfs"),
            at,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some(options),
        )
        .unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

const WRITER: &str = "SALLYPORT_TEST_JOURNAL_WRITER";

#[test]
fn a_killed_writer_loses_no_line_that_it_had_acknowledged() {
    if let Ok(dir) = std::env::var(WRITER) {
        // The child: writes and says so until it is killed.
        let journal = Journal::open(JournalConfig {
            segment_bytes: 4096,
            ..JournalConfig::under(Path::new(&dir))
        })
        .unwrap();
        for flow in 1.. {
            journal.append(open(flow, "a")).unwrap();
            println!("acknowledged {flow}");
        }
    }
    let lab = Lab::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "record::tests::disk::a_killed_writer_loses_no_line_that_it_had_acknowledged",
            "--nocapture",
        ])
        .env(WRITER, lab.dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    let mut output = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let number = |line: String| {
        line.split_once("acknowledged ")
            .and_then(|(_, n)| n.parse::<u64>().ok())
    };
    while acknowledged < 500 {
        acknowledged = output.next().and_then(number).unwrap_or(acknowledged);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged = output.filter_map(number).last().unwrap_or(acknowledged);
    drop(lab.journal());
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!(report.gaps.len(), 1);
    let opens = lab
        .entries()
        .iter()
        .filter(|e| matches!(e, Entry::Open(_)))
        .count() as u64;
    assert!(opens >= acknowledged, "{opens} of {acknowledged}");
}
