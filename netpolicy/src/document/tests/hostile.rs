//! What hides meaning, and what wears a reader out.

use std::fmt::Write as _;

use super::*;

#[test]
fn what_hides_meaning_is_refused() {
    insta::assert_snapshot!(report(&[
        &with("allow: &a\n  - host: a.example.com\ndeny: *a"),
        &with("x: &base { host: a.example.com }\nallow:\n  - <<: *base"),
        &with("allow:\n  - !!str host: a.example.com\n  - !Rule { host: a.example.com }"),
        &with("---\npolicy: q"),
        "%YAML 1.1\n---\npolicy: p\nnetwork: none\n---\npolicy: q\nnetwork: internet",
        "policy: p\nnetwork: none\n...\npolicy: q\nnetwork: internet",
        &with("? [a, b]\n: c"),
        &with("? { a: b }\n: c\n'': d"),
        "policy: p\n\"network\": none\nnetwork: internet",
        "policy: p\nnetwork: none\n\tprivate: true",
        "policy: p\nnetwork: [none",
        "policy: p\nnetwork: \"none",
        "{ policy: p, network: none }}",
    ]));
}

#[test]
fn characters_that_nobody_sees_are_refused() {
    for (character, what) in [
        ('\0', "NUL"),
        ('\u{7}', "control"),
        ('\u{1b}', "control"),
        ('\u{7f}', "control"),
        ('\u{85}', "control"),
        ('\u{2028}', "control"),
        ('\u{202e}', "bidirectional"),
        ('\u{2066}', "bidirectional"),
        ('\u{200f}', "bidirectional"),
        ('\u{200b}', "invisible"),
        ('\u{200d}', "invisible"),
        ('\u{2060}', "invisible"),
        ('\u{ad}', "invisible"),
        ('\u{feff}', "byte order mark"),
        ('\u{fe0f}', "invisible"),
        ('\u{e0041}', "invisible"),
        ('\u{3164}', "invisible"),
        ('\u{a0}', "blank"),
        ('\u{3000}', "blank"),
        ('\u{ffff}', "non-character"),
        ('\u{fdd0}', "non-character"),
        ('\u{1fffe}', "non-character"),
        ('\u{e000}', "private-use"),
        ('\u{fffd}', "replacement"),
    ] {
        let raw = mistakes_of(&with(&format!("description: ab{character}c")));
        assert_eq!(raw.len(), 1, "{character:?} {raw:?}");
        assert!(
            raw[0].starts_with("p.yaml:3:16:") && raw[0].contains(what),
            "{raw:?}"
        );
        let code = u32::from(character);
        let escape = if code > 0xffff {
            format!("\\U{code:08x}")
        } else {
            format!("\\u{code:04x}")
        };
        let escaped = mistakes_of(&with(&format!("description: \"ab{escape}c\"")));
        assert!(
            escaped[0].starts_with("p.yaml:3:14:") && escaped[0].contains(what),
            "{escaped:?}"
        );
        mistakes_of(&with(&format!(
            "allow: [{{ host: \"exam{escape}ple.com\" }}]"
        )));
        mistakes_of(&with(&format!("\"allow{escape}\": []")));
    }
    accepted("\u{feff}policy: p\nnetwork: none\n");
    accepted(
        "policy: p\r\nnetwork: none\r\ndescription: Gr\u{fc}\u{df}e \u{4f60}\u{597d} \u{1f600}\r\n",
    );
    accepted(&with("description: |\n  two\n  lines"));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let of = |bytes: &[u8]| {
        parse_bytes("p.yaml", bytes, None)
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(b"\xff\xfep\0"),
        ["p.yaml:1:1: the file is UTF-16 (hint: save it as UTF-8)"]
    );
    assert_eq!(
        of(b"policy: p\nnetwork: n\xffne"),
        ["p.yaml:2:11: the file is not UTF-8 (hint: save it as UTF-8)"]
    );
    assert_eq!(
        parse_bytes("p.yaml", b"policy: p\nnetwork: none\n", None),
        parse("p.yaml", "policy: p\nnetwork: none\n", None)
    );
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    mistakes_of(pointer);
}

#[test]
fn documents_that_no_person_writes_are_refused_quickly() {
    let start = std::time::Instant::now();
    let mut alias_bomb = "a: &a [x, x]\n".to_owned();
    let mut stairs = String::new();
    for i in 0..1000 {
        writeln!(alias_bomb, "b{i}: [*a, *a, *a]").unwrap();
        writeln!(stairs, "{}a:", " ".repeat(i)).unwrap();
    }
    let scalar = format!("policy: p\ndescription: {}\n", "x".repeat(2 << 20));
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        format!("a: {}", "&a ".repeat(10_000)),
        stairs,
        format!("policy: {}", "\"".repeat(100_000)),
        "a: b\n".repeat(100_000),
        "!!a ".repeat(100_000),
        "%TAG ! x\n".repeat(50_000),
        format!("allow: [{}]", "a, ".repeat(250_000)),
        alias_bomb,
        scalar,
    ] {
        let mistakes = mistakes_of(&text);
        assert!(mistakes.len() <= 101);
        assert!(
            mistakes.iter().all(|mistake| mistake.len() < 600),
            "{mistakes:?}"
        );
    }
    // generous for a loaded machine; what is excluded is work that grows faster than the text
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

fn refused(text: &str) -> Vec<String> {
    let mistakes = crate::document::parse("p.yml", text, None).unwrap_err();
    mistakes.iter().map(ToString::to_string).collect()
}

fn entries(list: &str, of: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = of.map(|entry| format!("  - {{ {entry} }}\n")).collect();
    format!("policy: p\nnetwork: domains\n{list}:\n{}", lines.concat())
}

#[test]
fn a_policy_with_more_entries_than_anybody_reads_is_refused_at_the_first_that_is_too_many() {
    let hosts = |count: usize| entries("allow", (0..count).map(|n| format!("host: h{n}.example")));
    let most = crate::document::bounds::MOST_ENTRIES;
    assert!(crate::document::parse("p.yml", &hosts(most), None).is_ok());
    let [mistake] = &refused(&hosts(most + 1))[..] else {
        panic!("one mistake")
    };
    assert!(
        mistake.starts_with("p.yml:10004:")
            && mistake.contains("10001 entries; 10000 are the most"),
        "{mistake}"
    );
}

#[test]
fn names_of_many_labels_are_bounded_together_whatever_room_the_text_has() {
    // a megabyte of names that share no label, each as deep as a name may be
    let deep = |n: usize| format!("host: \"{}z{n}\"", "a.".repeat(120));
    let most = crate::document::bounds::MOST_LABELS / 121;
    assert!(crate::document::parse("p.yml", &entries("allow", (0..most).map(deep)), None).is_ok());
    for list in ["allow", "deny"] {
        let [mistake] = &refused(&entries(list, (0..=most).map(deep)))[..] else {
            panic!("one mistake")
        };
        assert!(mistake.contains("labels; 80000 are the most"), "{mistake}");
    }
}

type Entry = fn(usize) -> String;

#[test]
fn what_one_decision_reads_is_bounded_for_every_name_and_address() {
    let most = crate::document::bounds::MOST_ON_ONE;
    let shapes: [Entry; 4] = [
        |n| format!("host: one.example, ports: [{}]", n + 1),
        // wildcards above each other: all of them speak of the deepest name
        |n| {
            format!(
                "host: \"*.{}example\", ports: [{}]",
                "a.".repeat(n % 100),
                n + 1
            )
        },
        |n| format!("cidr: 9.0.0.0/8, ports: [{}]", n + 1),
        |n| format!("cidr: \"fd00::/{}\", ports: [{}]", 8 + n % 100, n + 1),
    ];
    for shape in shapes {
        for list in ["allow", "deny"] {
            let text = entries(list, (0..most).map(shape));
            assert!(
                crate::document::parse("p.yml", &text, None).is_ok(),
                "{}",
                shape(0)
            );
            let found = refused(&entries(list, (0..=most).map(shape)));
            assert!(
                found.len() == 1 && found.iter().all(|m| m.contains("256 are the most")),
                "{found:?}"
            );
        }
    }
    // in one entry as in many; and a range is one, however many ports it holds
    let listed: Vec<String> = (1..=257).map(|n| (2 * n).to_string()).collect();
    let one = format!("host: one.example, ports: [{}]", listed.join(", "));
    assert_eq!(refused(&entries("allow", std::iter::once(one))).len(), 1);
    let range = "host: one.example, ports: [1-65535]".to_owned();
    let text = entries("allow", std::iter::once(range));
    assert!(crate::document::parse("p.yml", &text, None).is_ok());
}
