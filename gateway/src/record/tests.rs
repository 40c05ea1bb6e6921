//! The journal against crashes, full disks and people who edit it. Negative first; each with its permitted twin.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netpolicy::decide::Direction;
use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;

use super::entry::{Close, Denied, Open, Subject};
use super::verify::Kind;
use super::*;
use crate::context::now_ms;
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

#[test]
fn an_untouched_journal_verifies() {
    let report = Lab::filled().report();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!(
        (report.lines, report.first, report.last, report.anchors),
        (60, Some(1), Some(60), 1)
    );
    assert_eq!(report.gaps, []);
}

#[test]
fn a_changed_byte_is_found() {
    let lab = Lab::filled();
    edit(&lab.segments()[1], |lines| {
        lines[2] = lines[2].replace("203.0.113.9", "203.0.113.8");
    });
    assert_eq!(lab.kinds(), [Kind::Changed]);
}

#[test]
fn a_changed_line_with_its_hash_made_again_is_found() {
    let lab = Lab::filled();
    edit(&lab.segments()[1], |lines| {
        let parsed = chain::parse(&lines[2]).unwrap();
        let body = format!(
            "{{{}",
            lines[2]
                .split_once(&format!("{}\",", parsed.hash))
                .unwrap()
                .1
                .replace("113.9", "113.8")
        );
        let mut line = Vec::new();
        let before = chain::Position {
            seq: parsed.seq - 1,
            link: parsed.prev,
        };
        chain::compose(before, parsed.t, body.as_bytes(), &mut line);
        lines[2] = String::from_utf8(line).unwrap().trim_end().to_owned();
    });
    assert_eq!(lab.kinds(), [Kind::Broken]);
}

#[test]
fn a_removed_line_is_found() {
    let lab = Lab::filled();
    edit(&lab.segments()[1], |lines| drop(lines.remove(2)));
    assert_eq!(lab.kinds(), [Kind::Broken]);
}

#[test]
fn re_ordered_lines_are_found() {
    let lab = Lab::filled();
    edit(&lab.segments()[1], |lines| lines.swap(1, 2));
    assert!(lab.kinds().contains(&Kind::Broken));
}

#[test]
fn a_removed_segment_is_found_wherever_it_was() {
    for (which, kind) in [
        (0, Kind::Beheaded),
        (1, Kind::Broken),
        (usize::MAX, Kind::Cut),
    ] {
        let lab = Lab::filled();
        let segments = lab.segments();
        fs::remove_file(&segments[which.min(segments.len() - 1)]).unwrap();
        assert!(lab.kinds().contains(&kind), "{which}: {:?}", lab.report());
    }
}

#[test]
fn a_removed_journal_is_found() {
    let lab = Lab::filled();
    for segment in lab.segments() {
        fs::remove_file(segment).unwrap();
    }
    assert_eq!(lab.kinds(), [Kind::Cut]);
}

#[test]
fn a_cut_end_is_found_even_when_the_head_goes_too() {
    let lab = Lab::filled();
    edit(lab.segments().last().unwrap(), |lines| drop(lines.pop()));
    assert_eq!(lab.kinds(), [Kind::Cut]);
    fs::remove_file(lab.config.dir.join(keep::HEAD)).unwrap();
    assert_eq!(
        lab.kinds(),
        [Kind::Signature, Kind::Cut],
        "the anchor still covers the line"
    );
}

#[test]
fn a_rewritten_chain_with_a_head_by_another_key_is_found() {
    let lab = Lab::filled();
    let anchors = fs::read(&lab.config.anchors).unwrap();
    fs::remove_dir_all(&lab.config.dir).unwrap();
    fs::remove_file(&lab.config.key).unwrap();
    let forged = lab.journal();
    for flow in 0..60 {
        forged.append(open(flow + 1000, "a")).unwrap();
    }
    forged.close().unwrap();
    fs::write(&lab.config.anchors, anchors).unwrap();
    assert!(lab.kinds().contains(&Kind::Signature), "{:?}", lab.report());
}

#[test]
fn a_clean_end_leaves_no_gap_and_an_unclean_one_states_it() {
    let lab = Lab::filled();
    drop(lab.journal());
    assert!(lab.report().gaps.is_empty());
    drop(lab.journal());
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!(report.gaps.iter().map(|g| g.0).collect::<Vec<_>>(), [61]);
}

#[test]
fn a_torn_tail_is_cut_and_stated() {
    let lab = Lab::new();
    let journal = lab.journal();
    journal.append(open(1, "a")).unwrap();
    drop(journal);
    let path = lab.segments().pop().unwrap();
    let mut torn = fs::read(&path).unwrap();
    torn.extend_from_slice(b"{\"seq\":2,\"t\":12,\"pre");
    fs::write(&path, torn).unwrap();
    lab.journal().append(open(2, "a")).unwrap();
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!((report.lines, report.gaps.len()), (3, 1));
}

#[test]
fn lines_changed_under_the_signed_head_are_kept_as_evidence() {
    let lab = Lab::filled();
    let path = lab.segments().pop().unwrap();
    edit(&path, |lines| {
        lines[0] = lines[0].replace("203.0.113.9", "203.0.113.8");
    });
    let changed = fs::read(&path).unwrap();
    lab.journal().append(open(99, "a")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), changed, "nothing was cut");
    assert!(lab.kinds().contains(&Kind::Changed));
}

#[test]
fn retention_removes_whole_segments_and_what_is_left_still_verifies() {
    let lab = Lab::filled();
    let config = JournalConfig {
        keep_bytes: 9000,
        ..lab.config.clone()
    };
    let journal = Journal::open(config).unwrap();
    journal.append(open(60, "a")).unwrap();
    journal.expire(now_ms()).unwrap();
    journal.close().unwrap();
    assert_eq!(lab.segments().len(), 2);
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    assert!(report.first.unwrap() > 1);
    fs::remove_file(lab.config.dir.join(keep::CHECKPOINT)).unwrap();
    assert_eq!(lab.kinds(), [Kind::Beheaded]);
}

#[test]
fn old_segments_go_by_age_and_the_one_being_written_stays() {
    let lab = Lab::filled();
    let journal = lab.journal();
    journal.expire(now_ms() + lab.config.keep_ms / 2).unwrap();
    assert!(lab.segments().len() > 3);
    journal
        .expire(now_ms() + lab.config.keep_ms + 1000)
        .unwrap();
    assert_eq!(lab.segments().len(), 1);
    journal.close().unwrap();
    assert!(lab.report().ok(), "{:?}", lab.report().findings);
}

#[test]
fn equal_denials_fold_into_one_with_a_count() {
    let lab = Lab::new();
    let journal = lab.journal();
    for _ in 0..100 {
        journal.append(denial("a", 22)).unwrap();
    }
    journal.append(denial("a", 23)).unwrap();
    journal.append(denial("b", 22)).unwrap();
    journal.close().unwrap();
    let entries = lab.entries();
    let single = entries
        .iter()
        .filter(|e| matches!(e, Entry::Denial(_)))
        .count();
    let folded: Vec<u64> = entries
        .iter()
        .filter_map(|e| {
            if let Entry::Folded { count, .. } = e {
                Some(*count)
            } else {
                None
            }
        })
        .collect();
    assert_eq!((single, folded), (7, vec![95]));
}

#[test]
fn a_scan_of_many_ports_cannot_fill_the_journal_and_no_denial_goes_uncounted() {
    let lab = Lab::new();
    let journal = lab.journal();
    for port in 0..20_000 {
        journal.append(denial("a", port)).unwrap();
    }
    journal.append(denial("b", 1)).unwrap();
    journal.close().unwrap();
    let entries = lab.entries();
    assert!(entries.len() < 1200, "{}", entries.len());
    let counted: u64 = entries
        .iter()
        .map(|e| {
            if let Entry::Folded { count, .. } = e {
                *count
            } else {
                1
            }
        })
        .sum();
    assert_eq!(counted, 20_001);
}

#[test]
fn a_network_over_its_bytes_opens_no_flow_and_the_others_do() {
    let lab = Lab::new();
    let journal = Journal::open(JournalConfig {
        network_bytes: 2000,
        ..lab.config.clone()
    })
    .unwrap();
    let written = (0..100)
        .filter(|flow| journal.append(open(*flow, "a")).is_ok())
        .count();
    assert!((2..10).contains(&written), "{written}");
    journal.append(open(1, "b")).unwrap();
    assert!(journal.writable());
}

#[test]
fn a_reader_resumes_at_its_cursor_across_segments() {
    let lab = Lab::filled();
    let mut reader = Reader::open(&lab.config.dir, 30).unwrap();
    let first: Line = serde_json::from_str(&reader.next_line().unwrap().unwrap()).unwrap();
    assert_eq!(first.seq, 31);
    let rest = std::iter::from_fn(|| reader.next_line().unwrap()).count();
    assert_eq!((rest, reader.cursor()), (29, 60));
    let journal = lab.journal();
    for flow in 0..40 {
        journal.append(open(flow, "a")).unwrap();
    }
    let more = std::iter::from_fn(|| reader.next_line().unwrap()).count();
    assert_eq!((more, reader.cursor()), (40, 100));
}

#[test]
fn a_long_request_path_is_cut_in_the_record() {
    let lab = Lab::new();
    let journal = lab.journal();
    let http = Some(("GET".to_owned(), format!("/{}", "é".repeat(40_000))));
    let close = Close {
        flow: 1,
        subject: subject("a", 80),
        sni: None,
        alpn: Vec::new(),
        http,
        up: 0,
        down: 0,
        duration_ms: 1,
        end: "reset".to_owned(),
    };
    journal.append(Entry::Close(Box::new(close))).unwrap();
    journal.close().unwrap();
    assert!(fs::metadata(&lab.segments()[0]).unwrap().len() < 4000);
    assert!(lab.report().ok());
}

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
            "record::tests::a_killed_writer_loses_no_line_that_it_had_acknowledged",
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

#[test]
fn appending_costs_microseconds() {
    let lab = Lab::new();
    let journal = Journal::open(JournalConfig::under(lab.dir.path())).unwrap();
    let mut costs: Vec<_> = (0..2000)
        .map(|flow| {
            let begin = std::time::Instant::now();
            journal.append(open(flow, "a")).unwrap();
            begin.elapsed()
        })
        .collect();
    costs.sort();
    // Unoptimised and on a busy machine; optimised it is a tenth of this.
    assert!(
        costs[1000] < std::time::Duration::from_micros(200),
        "{:?}",
        costs[1000]
    );
}
