//! A short run of every fuzz target: its corpus, then seeded mutations of it for about two seconds.
//!
//! The same bodies run under libFuzzer for as long as somebody likes (`cargo fuzz run name` in `netpolicy`). Here the
//! seed is fixed, so a failure repeats; the offending input is printed with it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a wrong table or fixture should fail the test loudly"
)]

mod cases;

#[path = "../fuzz/targets.rs"]
mod targets;

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use cases::Random;

/// How long each target runs: two seconds, or `FUZZ_SECONDS`.
fn time() -> Duration {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    Duration::from_secs(asked.and_then(|s| s.parse().ok()).unwrap_or(2))
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    // the order of a directory is not repeatable
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn run(target: &str, body: fn(&[u8])) {
    let corpus = corpus(target);
    assert!(
        corpus.len() >= 10,
        "the corpus of {target} is too small to start from"
    );
    let check = |input: &[u8]| {
        let shown = input.escape_ascii();
        assert!(
            catch_unwind(|| body(input)).is_ok(),
            "target {target} fails for b\"{shown}\""
        );
    };
    for input in &corpus {
        check(input);
    }
    let mut random = Random::new(0x5a11);
    let begin = Instant::now();
    let mut runs = 0_u32;
    while begin.elapsed() < time() {
        check(&mutated(&corpus, &mut random));
        runs += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "fuzz {target}: {runs} inputs in {seconds:.1} s, {:.0} a second",
        f64::from(runs) / seconds
    );
    assert!(runs > 50, "{target} managed only {runs} inputs");
}

/// One to six edits of a seed: flip, replace, insert, remove, repeat a part, or splice with another seed.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b".:-_*%[]/@ \n\t\0\xff0x9aA{}\"'#&!|>,";
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let telling = TELLING[random.below(TELLING.len())];
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = telling,
            2 => input.insert(at, telling),
            3 => drop(input.drain(at..(at + random.below(8)).min(input.len()))),
            4 if input.len() < 4096 => input.extend_from_within(at..),
            5 => {
                let other = &corpus[random.below(corpus.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => {
                let mut buffer = [0; 4];
                let any = char::from_u32(u32::try_from(random.below(0x11_0000)).unwrap());
                let octets = any.unwrap_or('\u{ad}').encode_utf8(&mut buffer).bytes();
                input.splice(at..at, octets.collect::<Vec<_>>());
            }
        }
    }
    input
}

#[test]
fn fuzzed_names_have_one_form_or_are_refused() {
    run("name", targets::name);
}

#[test]
fn fuzzed_addresses_keep_their_class() {
    run("address", targets::address);
}

#[test]
fn fuzzed_documents_are_refused_with_a_place_or_parse() {
    run("document", targets::document);
}
