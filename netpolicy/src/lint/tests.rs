//! Each warning with its twin that is none; and the property that makes "needless" a promise.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, Draft, NOW, draft, question, snapshot};
use crate::explain::explain;

fn lints_under(text: &str, floors: &[(LayerKind, Policy)]) -> Vec<Lint> {
    let policy = arbitrary::policy("p.yaml", &format!("policy: p\n{text}\n"));
    let setting = Setting {
        now: NOW,
        catalogue: Catalogue::shipped(),
        floors,
    };
    check(&policy, &setting)
}

/// Codes with their lines.
fn codes(text: &str) -> Vec<(&'static str, u32)> {
    lints_under(text, &[])
        .iter()
        .map(|lint| (lint.code.word(), lint.at.line))
        .collect()
}

/// What a list of entries is warned about under `network: domains`; the first entry is line 4.
fn of_entries(entries: &str) -> Vec<(&'static str, u32)> {
    codes(&format!("network: domains\nallow:\n{entries}"))
}

#[test]
fn entries_without_effect_are_told() {
    for (text, expected) in [
        (
            "network: none\nallow:\n- host: a.com\ndeny:\n- host: b.com",
            vec![("dead", 4), ("dead", 6)],
        ),
        (
            "network: domains\nallow:\n- { host: a.com, until: 2026-11-28 }\n- { host: b.com, until: 2026-11-29 }",
            vec![("expired", 4)],
        ),
        (
            "network: domains\nallow:\n- host: metadata.google.internal\n- host: z.onion\n- host: nas.local",
            vec![("dead", 4), ("dead", 5), ("dead", 6)],
        ),
        (
            "network: domains\nprivate: true\nallow:\n- host: nas.local\n- { cidr: 10.0.0.0/8, ports: [22] }",
            vec![],
        ),
        (
            "network: domains\nallow:\n- { cidr: 10.0.0.0/8, ports: [22] }\n- { cidr: 169.254.169.254, ports: [80] }\n- { cidr: 127.0.0.0/8, ports: [80] }",
            vec![("dead", 4), ("dead", 5), ("dead", 6)],
        ),
        (
            "network: domains\nallow:\n- host: a.com\n- { host: b.com, ports: [443] }\ndeny:\n- host: a.com\n- { host: b.com, ports: [80] }",
            vec![("denied", 4)],
        ),
        (
            "network: domains\nallow:\n- host: a.com\nsecrets:\n- { secret: K, host: b.com, header: 'X: {}' }",
            vec![("dead", 6)],
        ),
    ] {
        assert_eq!(codes(text), expected, "{text}");
    }
}

#[test]
fn needless_entries_are_told_and_those_that_add_something_are_not() {
    for (entries, expected) in [
        ("- host: a.com\n- host: a.com", vec![("duplicate", 5)]),
        ("- host: b.a.com\n- host: '*.a.com'", vec![("shadowed", 4)]),
        ("- host: a.com\n- host: '*.a.com'", vec![]),
        ("- { host: a.com, ports: [22] }\n- host: a.com", vec![]),
        (
            "- { host: a.com, ports: [443] }\n- host: a.com",
            vec![("shadowed", 4)],
        ),
        (
            "- { host: a.com, speaks: any }\n- host: a.com",
            vec![("shadowed", 5)],
        ),
        ("- { host: a.com, protocol: udp }\n- host: a.com", vec![]),
        (
            "- { host: a.com, until: 2027-01-01 }\n- host: a.com",
            vec![("shadowed", 4)],
        ),
        (
            "- { host: a.com, http: [{ methods: [GET] }] }\n- host: a.com",
            vec![("shadowed", 4)],
        ),
        (
            "- { cidr: 8.8.8.8, ports: [53] }\n- { cidr: 8.8.8.0/24, ports: any }",
            vec![("shadowed", 4)],
        ),
        (
            "- { cidr: 8.8.8.8, ports: [53] }\n- { cidr: 8.8.4.0/24, ports: any }",
            vec![],
        ),
    ] {
        assert_eq!(of_entries(entries), expected, "{entries}");
    }
    assert_eq!(
        codes("network: domains\nuse: [github]\nallow:\n- host: github.com"),
        [("shadowed", 5)]
    );
    assert_eq!(codes("network: domains\nuse: [github, code-hosts]"), []);
    let denials = "network: internet\ndeny:\n- host: '*.a.com'\n- host: b.a.com\n- { host: c.a.com, reason: its own words }";
    assert_eq!(codes(denials), [("shadowed", 5)]);
}

#[test]
fn entries_that_are_wider_than_they_look_are_told() {
    for (entry, expected) in [
        ("host: '*.com'", "public_suffix"),
        ("host: '*.co.uk'", "public_suffix"),
        ("host: '*.nosuchending'", "public_suffix"),
        ("host: '*.xn--p1ai'", "public_suffix"),
        ("host: '*.acme.co.uk'", ""),
        ("host: acme.co.uk", ""),
        ("host: '*.github.io'", "many_owners"),
        ("host: acme.github.io", ""),
        ("host: '*.amazonaws.com'", "many_owners"),
        ("host: '*.s3.amazonaws.com'", "many_owners"),
        ("host: bucket.s3.amazonaws.com", ""),
        ("host: s3.amazonaws.com", "many_owners"),
        ("host: '*.blob.core.windows.net'", "many_owners"),
        ("host: api.github.com", "uploads"),
        ("host: '*.github.com'", "uploads"),
        (
            "{ host: api.github.com, http: [{ methods: [GET], paths: [/repos/acme/**] }] }",
            "",
        ),
        (
            "{ host: api.github.com, http: [{ methods: [POST] }] }",
            "uploads",
        ),
        ("{ host: api.github.com, ports: [22] }", ""),
        ("host: api.telegram.org", "uploads"),
        ("host: abc.webhook.site", "uploads"),
        ("host: dns.google", "resolver"),
        ("host: x.translate.goog", "relay"),
        ("{ cidr: 0.0.0.0/0, ports: [443] }", "wide_network"),
        ("{ cidr: 203.0.112.0/24, ports: [443] }", ""),
        ("{ cidr: '2600::/12', ports: [443] }", "wide_network"),
    ] {
        let text = if entry.starts_with('{') {
            format!("- {entry}")
        } else {
            format!("- {{ {entry} }}")
        };
        let found: Vec<&str> = of_entries(&text)
            .into_iter()
            .map(|(code, _)| code)
            .collect();
        let expected: Vec<&str> = [expected]
            .into_iter()
            .filter(|code| !code.is_empty())
            .collect();
        assert_eq!(found, expected, "{entry}");
    }
    let denied = "network: domains\nallow:\n- host: '*.github.com'\ndeny:\n- host: api.github.com\n- host: gist.github.com\n- host: uploads.github.com";
    assert_eq!(codes(denied), []);
    assert_eq!(codes("network: internet\nallow:\n- host: '*.com'"), []);
}

#[test]
fn presets_and_shipped_sets_are_not_warned_about() {
    for (name, _) in crate::document::PRESETS {
        let policy = crate::document::preset(name).unwrap();
        let setting = Setting {
            now: NOW,
            catalogue: Catalogue::shipped(),
            floors: &[],
        };
        assert_eq!(check(&policy, &setting), [], "{name}");
    }
    let sets: Vec<&str> = crate::document::sets::names().collect();
    for set in sets {
        assert_eq!(
            codes(&format!("network: domains\nuse: [{set}]")),
            [],
            "{set}"
        );
    }
}

#[test]
fn long_and_hostile_lists_cost_bounded_time() {
    let began = std::time::Instant::now();
    let plain = (0..5_000).map(|n| {
        format!(
            "- host: h{n}.example.net\n- {{ cidr: 9.{}.{}.0/24, ports: [53] }}\n",
            n / 200,
            n % 200
        )
    });
    assert_eq!(of_entries(&plain.collect::<String>()), []);
    let one_host = (1..=256).map(|port| format!("- {{ host: a.com, ports: [{port}] }}\n"));
    assert_eq!(of_entries(&one_host.collect::<String>()), []);
    let nested = (0..256).map(|n| format!("- {{ cidr: 9.0.0.0/8, ports: [{}] }}\n", n + 1));
    assert!(
        of_entries(&nested.collect::<String>())
            .iter()
            .all(|(code, _)| *code == "wide_network")
    );
    let denied: Vec<String> = (0..5_000)
        .map(|n| format!("- host: h{n}.example.net\n"))
        .collect();
    let denied = denied.concat();
    let denied = format!("network: domains\nallow:\n{denied}deny:\n{denied}");
    assert_eq!(lints_under(&denied, &[]).len(), 5_000);
    // a second in a release build; this one is neither that nor alone on its machine
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn a_name_in_letters_that_are_taken_for_others_is_told_with_what_is_enforced() {
    // Cyrillic and Greek among Latin, whole labels that look like ASCII, as letters and as the A-label that holds them
    for host in [
        "g\u{456}thub.com",
        "api.g\u{3bf}ogle.com",
        "\u{430}\u{440}\u{440}\u{4cf}\u{435}.com",
        "XN--80AK6AA92E.com",
        "*.p\u{430}ypal.com",
        "g\u{131}thub.com",
        "cdn\u{434}.net",
    ] {
        for (list, network) in [
            ("allow", "domains"),
            ("deny", "domains"),
            ("deny", "internet"),
        ] {
            let text = format!("network: {network}\n{list}:\n- host: \"{host}\"");
            let found = lints_under(&text, &[]);
            let [lint] = &found[..] else {
                panic!("{list} {host}: {found:?}")
            };
            assert_eq!((lint.code, lint.at.line), (Code::Lookalike, 4), "{host}");
            assert!(lint.message.contains("xn--"), "{lint}");
            assert!(
                lint.message.is_ascii() && lint.message.contains("\\u{"),
                "{lint}"
            );
        }
    }
    // one script, and scripts that are written together
    for host in [
        "github.com",
        "b\u{fc}cher.de",
        "stra\u{df}e.de",
        "\u{43f}\u{43e}\u{447}\u{442}\u{430}.\u{440}\u{444}",
        "\u{03b5}\u{03bb}\u{03bb}\u{03ac}\u{03b4}\u{03b1}.gr",
        "\u{65e5}\u{672c}\u{8a9e}.jp",
        "\u{65e5}\u{672c}\u{306e}\u{30c6}\u{30b9}\u{30c8}abc.jp",
        "\u{d55c}\u{ad6d}tv.kr",
    ] {
        assert_eq!(of_entries(&format!("- host: \"{host}\"")), [], "{host}");
    }
    let text = "date: 2027-01-01\naccept:\n- { code: lookalike, host: xn--80ak6aa92e.com, reason: ours }\n";
    let catalogue = Catalogue::shipped().with("mine.yaml", text).unwrap();
    let setting = Setting {
        now: NOW,
        catalogue: &catalogue,
        floors: &[],
    };
    let policy = "policy: p\nnetwork: domains\nallow:\n- host: xn--80ak6aa92e.com\n- host: \"g\u{456}thub.com\"\n";
    let found = check(&arbitrary::policy("p.yaml", policy), &setting);
    let lines: Vec<_> = found.iter().map(|lint| lint.at.line).collect();
    assert_eq!(lines, [5], "{found:?}");
}

#[test]
fn what_was_judged_is_silent_and_nothing_else_is() {
    let text =
        "date: 2027-01-01\naccept:\n- { code: uploads, host: api.github.com, reason: judged }\n";
    let catalogue = Catalogue::shipped().with("mine.yaml", text).unwrap();
    let setting = Setting {
        now: NOW,
        catalogue: &catalogue,
        floors: &[],
    };
    let policy = arbitrary::policy(
        "p.yaml",
        "policy: p\nnetwork: domains\nallow:\n- host: api.github.com\n- host: pastebin.com\n",
    );
    let found: Vec<u32> = check(&policy, &setting)
        .iter()
        .map(|lint| lint.at.line)
        .collect();
    assert_eq!(found, [5]);
}

#[test]
fn entries_outside_of_a_floor_are_told() {
    let floor = |text: &str| {
        vec![(
            LayerKind::Instance,
            arbitrary::policy("floor.yaml", &format!("policy: floor\n{text}\n")),
        )]
    };
    let policy = "network: domains\nallow:\n- host: a.com\n- { cidr: 8.8.8.8, ports: [22] }";
    let found = |text: &str| -> Vec<u32> {
        lints_under(policy, &floor(text))
            .iter()
            .map(|lint| lint.at.line)
            .collect()
    };
    assert_eq!(found("network: none"), [4, 5]);
    assert_eq!(found("network: internet"), [0_u32; 0]);
    assert_eq!(found("network: internet\ndeny:\n- host: a.com"), [4]);
    assert_eq!(
        found("network: domains\nallow:\n- host: '*.a.com'\n- { host: b.com, ports: [22] }"),
        [4]
    );
    assert_eq!(found("network: domains\nallow:\n- host: a.com"), [5]);
    assert_eq!(
        found("network: domains\nallow:\n- { cidr: 8.0.0.0/8, ports: [443] }"),
        [5]
    );
    let shown = lints_under(policy, &floor("network: none"))[0].to_string();
    assert_eq!(
        shown,
        "p.yaml:4:3: warning[outside_floor]: the instance floor `floor` (floor.yaml:2) lets nothing of the entry pass \
         (hint: remove it, or ask the floor's owner to open it)"
    );
}

/// The draft without the entries at these lines of its text.
fn without(draft: &Draft, lines: &[u32]) -> Draft {
    // `policy:` and the head are four lines; a list that is there has a line for its key
    let allow_at = 6;
    let deny_at = allow_at
        + if draft.allow.is_empty() {
            0
        } else {
            1 + draft.allow.len()
        };
    let keep = |entries: &[String], first: usize| {
        let numbered = (first..).zip(entries);
        let kept = numbered.filter(|(line, _)| !lines.iter().any(|gone| *gone as usize == *line));
        kept.map(|(_, entry)| entry.clone()).collect()
    };
    Draft {
        head: draft.head.clone(),
        allow: keep(&draft.allow, allow_at),
        deny: keep(&draft.deny, deny_at),
    }
}

#[test]
fn lines_are_taken_out_where_they_stand() {
    let all = Draft {
        head: "network: domains\nprivate: false\nunknown: deny\n".to_owned(),
        allow: vec![
            "  - host: a.com\n".to_owned(),
            "  - host: b.com\n".to_owned(),
        ],
        deny: vec!["  - host: c.com\n".to_owned()],
    };
    for (line, gone) in [(6, "a.com"), (7, "b.com"), (9, "c.com")] {
        assert!(all.text().lines().nth(line - 1).unwrap().contains(gone));
        assert!(
            !without(&all, &[u32::try_from(line).unwrap()])
                .text()
                .contains(gone)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn what_is_needless_can_be_removed_without_changing_a_decision(
        draft in draft(), floor in draft(), floored in any::<bool>(),
        questions in prop::collection::vec(question(), 40),
    ) {
        let floors = if floored { vec![(LayerKind::Instance, Policy { unknown: crate::policy::Unknown::Deny, ..floor.policy() })] } else { Vec::new() };
        let setting = Setting { now: NOW, catalogue: Catalogue::shipped(), floors: &floors };
        let found = check(&draft.policy(), &setting);
        let lines: Vec<u32> = found.iter().filter(|lint| lint.code.is_needless()).map(|lint| lint.at.line).collect();
        prop_assume!(!lines.is_empty());
        let shorter = without(&draft, &lines);
        let with = |draft: &Draft| {
            let mut layers = floors.clone();
            layers.push((LayerKind::Job, draft.policy()));
            snapshot(layers)
        };
        let (before, after) = (with(&draft), with(&shorter));
        for question in &questions {
            let (was, is) = (explain(&before, question, NOW), explain(&after, question, NOW));
            prop_assert_eq!(was.decision, is.decision, "{:?}\n{}\nwithout {:?}", question, draft.text(), found);
        }
    }
}
