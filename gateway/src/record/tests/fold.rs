//! What one network may write: folding, quotas, lengths, and what a line costs.

use std::fs;

use super::super::entry::Close;
use super::super::*;
use super::{Lab, denial, open, subject};

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
fn a_long_request_path_is_cut_in_the_record() {
    let lab = Lab::new();
    let journal = lab.journal();
    let http = Some(("GET".to_owned(), format!("/{}", "é".repeat(40_000))));
    let close = Close {
        datagrams: None,
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
