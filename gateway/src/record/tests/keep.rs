//! Clean and unclean ends, retention, and readers that come back.

use std::fs;
use std::sync::atomic::Ordering;

use super::super::verify::Kind;
use super::super::*;
use super::{Lab, denial, open};
use crate::context::{SET_CLOCK, now_ms};

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

/// What one test has set the clock by; other tests of its process go on without it.
struct SetClock;

impl SetClock {
    fn by_ms(ms: i64) -> Self {
        SET_CLOCK.store(ms / 1000, Ordering::Relaxed);
        Self
    }
}

impl Drop for SetClock {
    fn drop(&mut self) {
        SET_CLOCK.store(0, Ordering::Relaxed);
    }
}

#[test]
fn a_clock_that_is_set_ahead_removes_nothing() {
    let lab = Lab::filled();
    let before = lab.segments().len();
    let journal = lab.journal();
    journal.tick(true).unwrap();
    let ahead = SetClock::by_ms(2 * lab.config.keep_ms);
    journal.append(open(60, "a")).unwrap();
    journal.tick(true).unwrap();
    assert!(lab.segments().len() >= before, "records are gone");
    // the same after a restart under that clock
    drop(journal);
    let journal = lab.journal();
    journal.tick(true).unwrap();
    assert!(lab.segments().len() >= before, "records are gone");
    // and one that is right again writes on
    drop(ahead);
    journal.append(open(61, "a")).unwrap();
    journal.tick(true).unwrap();
    journal.close().unwrap();
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
}

#[test]
fn lines_keep_their_order_and_their_chain_when_the_clock_is_set_back() {
    let lab = Lab::new();
    let journal = lab.journal();
    journal.append(open(0, "a")).unwrap();
    for _ in 0..20 {
        journal.append(denial("a", 22)).unwrap();
    }
    let _back = SetClock::by_ms(-86_400_000);
    // what was folded before is written now, not when the clock has caught up
    journal.tick(true).unwrap();
    journal.append(open(1, "a")).unwrap();
    journal.close().unwrap();
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    let entries = lab.entries();
    let counted = |e: &Entry| matches!(e, Entry::Folded { count: 15, .. });
    let folded = entries.iter().position(counted).expect("the folded ones");
    let last = entries.iter().rposition(|e| matches!(e, Entry::Open(_)));
    assert!(last > Some(folded), "written before the next flow opened");
    let mut reader = Reader::open(&lab.config.dir, 0).unwrap();
    let lines = std::iter::from_fn(|| reader.next_line().unwrap());
    let lines: Vec<Line> = lines.map(|l| serde_json::from_str(&l).unwrap()).collect();
    assert!(lines.windows(2).all(|w| w[0].seq + 1 == w[1].seq));
    assert!(
        lines.windows(2).any(|w| w[0].t > w[1].t),
        "the clock went back"
    );
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
fn a_cursor_in_a_long_segment_is_found_without_reading_what_is_before_it() {
    let lab = Lab::filled();
    let long = lab.config.dir.join("00000099.jsonl");
    let hash = "0".repeat(64);
    let line = |seq: u64| {
        format!(
            "{{\"seq\":{seq},\"t\":1,\"prev\":\"{hash}\",\"hash\":\"{hash}\",\"kind\":\"x\"}}\n"
        )
    };
    let text: String = (10_000..30_000).map(line).collect();
    std::fs::write(&long, &text).unwrap();
    let segment = crate::record::segment::Segment {
        index: 99,
        path: long,
    };
    let width = line(10_000).len() as u64;
    for after in [9_999, 10_000, 15_000, 22_345, 29_998, 29_999, 90_000] {
        let offset = crate::record::segment::offset_of(&segment, after).unwrap();
        let wanted = (after.min(29_999) - 9_999) * width;
        assert!(
            offset <= wanted && wanted <= offset + (64 << 10) + 2 * width,
            "{after}: {offset}, not just before {wanted}"
        );
    }
    let mut reader = Reader::open(&lab.config.dir, 22_345).unwrap();
    let line = reader.next_line().unwrap().unwrap();
    assert!(line.starts_with("{\"seq\":22346,"), "{line}");
}
