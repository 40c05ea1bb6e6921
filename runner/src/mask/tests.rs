//! What masking promises, at every place where a stream can be cut.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::*;

const SECRET: &str = "s3cr3t/Value+with=?&\"sigils";

fn mask(values: &[&str]) -> Mask {
    let named = values.iter().enumerate();
    let secrets = named.map(|(n, v)| (format!("S{n}"), (*v).to_owned()));
    Mask::new(&secrets.collect()).unwrap().0
}

/// What is kept of these writes, and that of each output alone.
fn printed(mask: &Mask, writes: &[(bool, &[u8])]) -> (String, [String; 2]) {
    let mut streams = mask.streams();
    let mut kept = Vec::new();
    for (error, bytes) in writes {
        kept.extend(streams.take(*error, Bytes::copy_from_slice(bytes)));
    }
    kept.extend(streams.release());
    let text = |of: &dyn Fn(bool) -> bool| {
        let parts: Vec<u8> = kept
            .iter()
            .filter(|(error, _)| of(*error))
            .flat_map(|(_, bytes)| bytes.to_vec())
            .collect();
        String::from_utf8(parts).unwrap()
    };
    (
        text(&|_| true),
        [text(&|error| !error), text(&|error| error)],
    )
}

/// A text of so many numbers.
fn numbers(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = write!(text, "{n:x}-");
        text
    })
}

fn alone(mask: &Mask, text: &str) -> String {
    printed(mask, &[(false, text.as_bytes())]).0
}

#[test]
fn a_value_in_two_writes_is_masked_wherever_it_is_cut_and_whichever_outputs_they_go_to() {
    let mask = mask(&[SECRET]);
    let text = format!("before {SECRET} after\n");
    for cut in 0..=text.len() {
        let (head, tail) = text.as_bytes().split_at(cut);
        for (first, second) in [(false, false), (true, true), (false, true), (true, false)] {
            let (kept, _) = printed(&mask, &[(first, head), (second, tail)]);
            // stars of both outputs may stand side by side
            let kept = kept.replace("******", "***");
            assert_eq!(kept, "before *** after\n", "{cut} {first} {second}");
        }
        // the other output comes between
        let noise = b"noise of the other\n".repeat(50);
        let (_, [out, error]) = printed(&mask, &[(false, head), (true, &noise), (false, tail)]);
        assert_eq!(out, "before *** after\n", "{cut}");
        assert_eq!(error.as_bytes(), noise, "{cut}");
    }
    let bytes: Vec<(bool, &[u8])> = text.as_bytes().chunks(1).map(|b| (false, b)).collect();
    assert_eq!(printed(&mask, &bytes).0, "before *** after\n");
}

#[test]
fn what_cannot_become_a_value_is_not_held_back() {
    let mask = mask(&[SECRET]);
    let mut streams = mask.streams();
    let prompt = streams.take(false, "name? ".into());
    assert_eq!(prompt, [(false, Bytes::from("name? "))]);
    // the beginning of one is, and goes on when it is not one, or at the end
    assert!(streams.take(false, "s3cr3t".into()).is_empty());
    assert_eq!(
        streams.take(false, "!\n".into()),
        [(false, Bytes::from("s3cr3t!\n"))]
    );
    // nor for long: a chance beginning goes on, one that is hardly chance does not
    assert!(streams.take(false, "s3".into()).is_empty());
    assert!(streams.take(true, "s3cr3t/".into()).is_empty());
    assert!(streams.patient_until(Instant::now()).is_some());
    let released = [(false, Bytes::from("s3")), (true, Bytes::from("***"))];
    assert_eq!(streams.release(), released);
    assert!(streams.patient_until(Instant::now()).is_none());
    let rest = streams.take(true, SECRET.trim_start_matches("s3cr3t/").to_owned().into());
    assert!(
        rest.is_empty() || rest == [(true, Bytes::from("***"))],
        "{rest:?}"
    );
    assert!(
        streams
            .take(true, "!s3c".into())
            .iter()
            .all(|(_, text)| text != SECRET)
    );
    assert_eq!(streams.release(), [(true, Bytes::from("s3c"))]);
    // without secrets nothing is looked at
    let mut plain = Mask::none().streams();
    assert_eq!(plain.take(true, "s3c".into()), [(true, Bytes::from("s3c"))]);
}

#[test]
fn what_one_output_prints_meanwhile_does_not_wait_without_bound() {
    let mask = mask(&[SECRET]);
    let mut streams = mask.streams();
    assert!(streams.take(false, "s3cr3t".into()).is_empty());
    let mut noise = 0;
    for _ in 0..100 {
        let passed = streams.take(true, vec![b'\n'; 1 << 10].into());
        noise += passed.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    assert!(noise > 64 << 10, "{noise}");
    let rest = streams.take(false, format!("{}\n", &SECRET[6..]).into());
    let text: Vec<u8> = rest.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    assert!(!String::from_utf8(text).unwrap().contains("Value"));
}

#[test]
fn what_waits_has_one_time_to_wait_whatever_the_other_output_prints() {
    let mask = mask(&[SECRET]);
    let mut streams = mask.streams();
    let begin = Instant::now();
    let after = |seconds| begin + Duration::from_secs(seconds);
    assert_eq!(streams.patient_until(begin), None);
    assert!(streams.take(false, "s3cr3t".into()).is_empty());
    assert_eq!(streams.patient_until(begin), Some(after(10)));
    for second in 1..9 {
        assert!(streams.take(true, "noise\n".into()).is_empty());
        assert_eq!(streams.patient_until(after(second)), Some(after(10)));
    }
    // it was none and went on; what waits now has waited since now
    assert!(!streams.take(false, "! s3".into()).is_empty());
    assert_eq!(streams.patient_until(after(9)), Some(after(19)));
    assert_eq!(streams.release(), [(false, Bytes::from("s3"))]);
    assert_eq!(streams.patient_until(after(20)), None);
    assert_eq!(Mask::none().streams().patient_until(begin), None);
}

#[test]
fn output_that_ends_within_a_value_does_not_show_its_beginning() {
    let mask = mask(&[SECRET]);
    assert_eq!(alone(&mask, "see s3cr3t/Val"), "see ***");
    assert_eq!(mask.text("see s3cr3t/Val"), "see ***");
    assert_eq!(alone(&mask, "see s3c"), "see s3c");
}

#[test]
fn the_longest_pieces_are_masked() {
    for length in [127, 128, 254, 255, 256, 383, 511] {
        let value = numbers(300)[..length].to_owned();
        let mask = mask(&[&value]);
        assert_eq!(alone(&mask, &format!("<{value}>")), "<***>", "{length}");
        let cut = &value[..length - 1];
        let kept = alone(&mask, &format!("<{cut}"));
        assert_eq!(kept, "<***", "{length}");
    }
}

#[test]
fn output_that_is_cut_off_does_not_end_with_the_beginning_of_a_value() {
    let mask = mask(&[SECRET]);
    let mut streams = mask.streams();
    assert_eq!(
        streams.take(false, "see s3cr3t/Val".into()),
        [(false, Bytes::from("see "))]
    );
    assert_eq!(streams.cut(), [(false, Bytes::from("***"))]);
}

#[test]
fn each_documented_form_is_masked_at_every_alignment() {
    let mask = mask(&[SECRET]);
    for before in ["", "a", "ab", "abc"] {
        for engine in [&STANDARD, &URL_SAFE_NO_PAD] {
            let text = engine.encode(format!("{before}{SECRET}"));
            let kept = alone(&mask, &text);
            assert!(kept.contains("***"), "{text}: {kept}");
            assert!(kept.len() < before.len() * 4 / 3 + 12, "{text}: {kept}");
        }
    }
    let hex = SECRET.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let percent = "s3cr3t%2FValue%2Bwith%3D%3F%26%22sigils";
    for text in [
        SECRET,
        &hex,
        &hex.to_uppercase(),
        percent,
        &percent.to_lowercase().replace("value", "Value"),
        "s3cr3t/Value%2Bwith%3D%3F%26%22sigils",
        "s3cr3t/Value+with=?&\\\"sigils",
        "s3cr3t\\/Value+with=?&\\\"sigils",
        "s3cr3t/Value+with=?\\u0026\\\"sigils",
    ] {
        assert_eq!(alone(&mask, &format!("<{text}>")), "<***>", "{text}");
    }
    // and what base64 writes in lines
    let long = "0123456789abcdefghijklmnopqrstuvwxyz".repeat(5);
    let mask = self::mask(&[&long]);
    for width in [64, 76] {
        let text = STANDARD.encode(format!("{long}\n"));
        let lines = text.as_bytes().chunks(width);
        let lines: Vec<&str> = lines.map(|l| std::str::from_utf8(l).unwrap()).collect();
        let kept = alone(&mask, &lines.join("\n"));
        for line in kept.lines() {
            assert!(line.len() < 8, "{kept}");
        }
    }
    let mask = self::mask(&["it's täglich"]);
    assert_eq!(alone(&mask, "x='it'\\''s täglich'"), "x='***'");
    assert_eq!(alone(&mask, "\"it's t\\u00e4glich\""), "\"***\"");
    // what is not in the list is not masked: the documentation says so
    let wide: String = "it's täglich".chars().flat_map(|c| [c, '\0']).collect();
    assert_eq!(alone(&mask, &wide), wide);
}

#[test]
fn awkward_values_are_masked_or_named_and_the_log_stays() {
    let key = "-----BEGIN KEY-----\r\nMIIEvQIBADANBgkqhkiG\r\nzz9w0BAQEFAASCBKcw\r\n-----END KEY-----\r\n";
    let values = [
        ("A", "a"),
        ("TRUE", "true"),
        ("EMPTY", ""),
        ("NEWLINE", "\n"),
        ("KEY", key),
        ("LINES", "login: ada\n1234\n"),
        ("INNER", "inner-secret"),
        ("OUTER", "outer-inner-secret-outer"),
        ("META", ".*[a-z]+(x|y)$"),
    ];
    let secrets = values.map(|(n, v)| (n.to_owned(), v.to_owned()));
    let (mask, left) = Mask::new(&secrets.into_iter().collect()).unwrap();
    assert_eq!(left.short, ["A", "EMPTY", "NEWLINE", "TRUE"]);
    assert_eq!(left.lines, ["LINES"]);
    assert_eq!(alone(&mask, "login: ada\n1234\n1234\n"), "***\n1234\n");
    assert_eq!(alone(&mask, "that is true\n\n"), "that is true\n\n");
    for ends in ["\n", "\r\n"] {
        let text = key.replace("\r\n", ends);
        let kept = alone(
            &mask,
            &format!("begin\n  {}", text.replace(ends, &format!("{ends}  "))),
        );
        assert!(!kept.contains("MIIE") && !kept.contains("zz9w"), "{kept}");
        assert!(kept.starts_with("begin\n"), "{kept}");
    }
    assert_eq!(alone(&mask, "-outer-inner-secret-outer-\n"), "-***-\n");
    assert_eq!(alone(&mask, "an inner-secret-out"), "an ***-out");
    assert_eq!(alone(&mask, "re .*[a-z]+(x|y)$ bax"), "re *** bax");
    // one after the other without anything between
    assert_eq!(alone(&mask, &"inner-secret".repeat(10_000)), "***");
    let mut told = serde_json::json!({ "why": ["no such file: inner-secret"], "n": 1 });
    mask.json(&mut told);
    assert_eq!(
        told,
        serde_json::json!({ "why": ["no such file: ***"], "n": 1 })
    );
}

#[test]
fn large_values_are_masked_and_too_large_ones_refused() {
    let large = numbers(20_000);
    let secrets = BTreeMap::from([("LARGE".to_owned(), large.clone())]);
    let (mask, left) = Mask::new(&secrets).unwrap();
    assert_eq!(left.plain, ["LARGE"]);
    let writes: Vec<(bool, &[u8])> = large.as_bytes().chunks(777).map(|b| (false, b)).collect();
    assert_eq!(printed(&mask, &writes).0, "***");
    let huge = numbers(300_000);
    let secrets = BTreeMap::from([("HUGE".to_owned(), huge)]);
    assert!(Mask::new(&secrets).is_err());
}

#[test]
fn two_hundred_secrets_and_a_stream_made_against_them_cost_little_more_than_reading() {
    let values: Vec<String> = (0..200)
        .map(|n| format!("{}{n}", "a".repeat(100)))
        .collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mask = mask(&values);
    let rate = |chunk: Vec<u8>| {
        let chunk = Bytes::from(chunk);
        let mut streams = mask.streams();
        let begun = std::time::Instant::now();
        let mut passed = 0;
        for _ in 0..32 {
            let kept = streams.take(false, chunk.clone());
            passed += kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        }
        assert!(passed > 31 * chunk.len(), "all of it goes on");
        begun.elapsed()
    };
    let ordinary = rate(b"an ordinary line of a log, 17:03 +0000\n".repeat(1000));
    let hostile = rate([b"a".repeat(99), b"b".to_vec()].concat().repeat(390));
    // the same size: one step for each byte, whatever it is, and no second look
    assert!(
        hostile < ordinary * 20 + Duration::from_millis(200),
        "{hostile:?} against {ordinary:?}"
    );
}
