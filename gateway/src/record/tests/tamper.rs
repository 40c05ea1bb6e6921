//! People who edit the journal: whatever they do is found, whichever line or segment it is done to.

use std::fs;

use super::super::verify::Kind;
use super::super::*;
use super::{Lab, edit, open};

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

/// What somebody does to one line of one segment.
type Edit = fn(&mut Vec<String>, usize);

/// Edits of one line, each with a name and what may be found. Every one is made at the first, a middle and the last line
/// of the first, a middle and the last segment.
const EDITS: [(&str, Edit); 9] = [
    ("a changed number", |l, i| {
        l[i] = l[i].replacen("{\"seq\":", "{\"seq\":1", 1);
    }),
    ("a changed time", |l, i| {
        l[i] = l[i].replacen(",\"t\":1", ",\"t\":2", 1);
    }),
    ("a changed byte of the hash before", |l, i| {
        flip(&mut l[i], "\"prev\":\"", 8);
    }),
    ("a changed byte of the hash", |l, i| {
        flip(&mut l[i], "\"hash\":\"", 8);
    }),
    ("a changed byte of the entry", |l, i| {
        l[i] = l[i].replacen("203.0.113.9", "203.0.113.8", 1);
    }),
    ("a removed line", |l, i| drop(l.remove(i))),
    ("a line twice", |l, i| l.insert(i, l[i].clone())),
    ("a line that is none", |l, i| {
        l.insert(i, "{\"kind\":\"open\"}".to_owned());
    }),
    ("a line of noise", |l, i| l[i] = "\u{0}".repeat(40)),
];

/// Changes the hex digit at an offset behind a mark.
fn flip(line: &mut String, mark: &str, offset: usize) {
    let at = line.find(mark).unwrap() + mark.len() + offset;
    let digit = if line.as_bytes()[at] == b'0' {
        "1"
    } else {
        "0"
    };
    line.replace_range(at..=at, digit);
}

/// First, middle and last of so many.
fn places(count: usize) -> [usize; 3] {
    [0, count / 2, count - 1]
}

#[test]
fn every_edit_of_a_line_is_found_at_every_place() {
    for (what, change) in EDITS {
        for segment in places(4) {
            for line in 0..3 {
                let lab = Lab::filled();
                let segments = lab.segments();
                let path = &segments[segment * (segments.len() - 1) / 3];
                edit(path, |lines| change(lines, places(lines.len())[line]));
                assert!(!lab.report().ok(), "{what}, segment {segment}, line {line}");
                // and a gateway that starts on it neither signs it nor throws the evidence away
                drop(lab.journal());
                assert!(
                    !lab.report().ok(),
                    "{what} after a start, segment {segment}, line {line}"
                );
            }
        }
    }
}

#[test]
fn two_swapped_lines_are_found_at_every_place() {
    for segment in 0..3 {
        let lab = Lab::filled();
        edit(&lab.segments()[segment], |lines| {
            let last = lines.len() - 1;
            lines.swap(last - 1, last);
        });
        assert!(lab.kinds().contains(&Kind::Broken), "segment {segment}");
    }
}

#[test]
fn swapped_segments_are_found_and_a_segment_that_is_moved_back_is_fine() {
    for (one, other) in [(0, 1), (1, 2), (0, 3)] {
        let lab = Lab::filled();
        let segments = lab.segments();
        let aside = lab.config.dir.join("aside");
        let swap = || {
            fs::rename(&segments[one], &aside).unwrap();
            fs::rename(&segments[other], &segments[one]).unwrap();
            fs::rename(&aside, &segments[other]).unwrap();
        };
        swap();
        assert!(!lab.report().ok(), "{one} and {other}");
        swap();
        assert!(lab.report().ok(), "{one} and {other} moved back");
    }
}

#[test]
fn a_segment_cut_in_the_middle_of_a_line_is_found_wherever_it_is() {
    for which in 0..3 {
        let lab = Lab::filled();
        let segments = lab.segments();
        let path = &segments[which * (segments.len() - 1) / 2];
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 40]).unwrap();
        assert!(!lab.report().ok(), "segment {which}");
    }
}

#[test]
fn bytes_behind_the_last_line_of_a_segment_are_found() {
    for which in [0, 1, usize::MAX] {
        let lab = Lab::filled();
        let segments = lab.segments();
        let path = &segments[which.min(segments.len() - 1)];
        let mut bytes = fs::read(path).unwrap();
        bytes.extend_from_slice(b"{\"seq\":");
        fs::write(path, bytes).unwrap();
        assert!(
            lab.kinds().contains(&Kind::Malformed),
            "{which}: {:?}",
            lab.report()
        );
    }
}

/// A line that fits the chain: whoever can write the journal can compute it, but not sign it.
fn forge(lab: &Lab) {
    let path = lab.segments().pop().unwrap();
    edit(&path, |lines| {
        let last = chain::parse(lines.last().unwrap()).unwrap();
        let body = serde_json::to_vec(&open(4711, "a")).unwrap();
        let mut line = Vec::new();
        chain::compose(last.position(), last.t, &body, &mut line);
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    });
}

#[test]
fn a_forged_entry_after_a_clean_end_is_found_and_never_signed() {
    let lab = Lab::filled();
    forge(&lab);
    assert_eq!(lab.kinds(), [Kind::Appended]);
    // the next gateway goes on after the last line that it wrote itself
    let journal = lab.journal();
    journal.append(open(1, "a")).unwrap();
    journal.close().unwrap();
    let report = lab.report();
    assert!(
        report.findings.iter().any(|f| f.kind == Kind::Broken),
        "{report:?}"
    );
}

#[test]
fn lines_that_nobody_signed_yet_are_counted_and_no_damage() {
    let lab = Lab::filled();
    let journal = lab.journal();
    for flow in 0..3 {
        journal.append(open(flow, "a")).unwrap();
    }
    let report = lab.report();
    assert!(report.ok(), "{:?}", report.findings);
    assert_eq!(report.unsigned, 3);
    journal.tick(false).unwrap();
    assert_eq!(lab.report().unsigned, 0);
}

#[test]
fn a_removed_or_foreign_head_is_found() {
    let lab = Lab::filled();
    let head = lab.config.dir.join(crate::record::keep::HEAD);
    let own = fs::read(&head).unwrap();
    for text in ["", "{}", "not json"] {
        fs::write(&head, text).unwrap();
        assert!(lab.kinds().contains(&Kind::Signature), "{text:?}");
    }
    fs::write(
        &head,
        fs::read(Lab::filled().config.dir.join(crate::record::keep::HEAD)).unwrap(),
    )
    .unwrap();
    assert!(!lab.report().ok(), "another journal's head");
    fs::write(&head, own).unwrap();
    assert!(lab.report().ok());
}
