//! Promises about the index over many patterns: the same answers as the one matcher, at a cost that does not grow.
#![expect(
    clippy::unwrap_used,
    reason = "a wrong table or fixture should fail the test loudly"
)]

use std::time::{Duration, Instant};

use netpolicy::name::{Name, Pattern, PatternIndex};
use proptest::prelude::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn index(patterns: &[&str]) -> PatternIndex<usize> {
    let parsed = patterns.iter().map(|text| Pattern::parse(text).unwrap());
    parsed.zip(0..).collect()
}

fn found(index: &PatternIndex<usize>, text: &str) -> Vec<usize> {
    index.matches(&name(text)).copied().collect()
}

#[test]
fn matches_come_from_the_exact_name_outwards() {
    let index = index(&[
        "*.com",
        "*.example.com",
        "a.example.com",
        "*.a.example.com",
        "a.example.com",
        "example.com",
    ]);
    assert_eq!(found(&index, "a.example.com"), [2, 4, 1, 0]);
    assert_eq!(found(&index, "b.a.example.com"), [3, 1, 0]);
    assert_eq!(found(&index, "x.y.z.b.a.example.com"), [3, 1, 0]);
    assert_eq!(found(&index, "example.com"), [5, 0]);
    assert_eq!(found(&index, "com"), Vec::<usize>::new());
    assert_eq!(found(&index, "notexample.org"), Vec::<usize>::new());
    assert!(!index.is_empty() && PatternIndex::<u8>::new().is_empty());
}

/// DNS-38: an ancestor of a permitted name exists.
#[test]
fn strict_ancestors_of_named_hosts_are_known() {
    let index = index(&["a.b.example.com", "*.example.org", "single"]);
    for ancestor in ["com", "example.com", "b.example.com", "org", "example.org"] {
        assert!(index.has_descendant(&name(ancestor)), "{ancestor}");
    }
    for other in [
        "a.b.example.com",
        "x.a.b.example.com",
        "c.example.com",
        "net",
        "single",
        "xcom",
    ] {
        assert!(!index.has_descendant(&name(other)), "{other}");
    }
}

/// The aim of one decision over 10,000 rules is under 5 microseconds; the bound here leaves room for an unoptimised
/// build on a busy machine and still fails for anything that walks the rules (milliseconds).
#[test]
fn a_look_up_over_ten_thousand_patterns_does_not_walk_them() {
    let mut index = PatternIndex::new();
    for number in 0..10_000 {
        let text = match number % 2 {
            0 => format!("host{number}.example.com"),
            _ => format!("*.zone{number}.example.net"),
        };
        index.insert(&Pattern::parse(&text).unwrap(), number);
    }
    let deepest = name(&vec!["a"; 127].join("."));
    let probes = [
        name("host4242.example.com"),
        name("a.b.zone4243.example.net"),
        deepest,
    ];
    let rounds: u32 = 2000;
    let best = (0..5).map(|_| {
        let begin = Instant::now();
        let hits: usize = (0..rounds)
            .map(|_| {
                probes
                    .iter()
                    .map(|p| index.matches(p).count())
                    .sum::<usize>()
            })
            .sum();
        assert_eq!(hits, 2 * rounds as usize);
        begin.elapsed() / (rounds * 3)
    });
    let best = best.min().unwrap_or_default();
    assert!(best < Duration::from_micros(25), "{best:?} for one look-up");
}

fn few_labels() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abc]|xa", 1..5).prop_map(|labels| labels.join("."))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_and_the_matcher_agree(
        patterns in proptest::collection::vec((any::<bool>(), few_labels()), 0..12),
        probe in few_labels(),
    ) {
        let patterns: Vec<Pattern> = patterns
            .iter()
            .map(|(below, text)| Pattern::parse(&if *below { format!("*.{text}") } else { text.clone() }).unwrap())
            .collect();
        let index: PatternIndex<usize> = patterns.iter().cloned().zip(0..).collect();
        let probe = name(&probe);
        let mut found: Vec<usize> = index.matches(&probe).copied().collect();
        found.sort_unstable();
        let expected: Vec<usize> = (0..patterns.len()).filter(|i| patterns[*i].matches(&probe)).collect();
        prop_assert_eq!(found, expected);
        let has_descendant = patterns.iter().any(|pattern| match pattern {
            Pattern::Exact(named) => named.is_below(&probe),
            Pattern::Below(apex) => apex == &probe || apex.is_below(&probe),
        });
        prop_assert_eq!(index.has_descendant(&probe), has_descendant);
    }
}
