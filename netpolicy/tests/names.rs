//! Promises about names, patterns and authorities, from the tables in `tests/cases` and from properties.
#![expect(
    clippy::unwrap_used,
    reason = "a wrong table or fixture should fail the test loudly"
)]

mod cases;

use netpolicy::name::{Authority, Name, NameError, Pattern};
use proptest::prelude::*;

const NAMES: &str = include_str!("../../tests/cases/names.tsv");
const PATTERNS: &str = include_str!("../../tests/cases/patterns.tsv");
const AUTHORITIES: &str = include_str!("../../tests/cases/authorities.tsv");

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn outcome<T: ToString>(result: Result<T, NameError>) -> String {
    result.map_or_else(|error| cases::variant(&error), |value| value.to_string())
}

#[test]
fn every_case_name_has_its_one_form_or_its_reason() {
    let mut wrong = cases::Wrong::default();
    for row in cases::rows(NAMES) {
        let [case, entrance, text, expected] = row.try_into().unwrap();
        let found = match entrance.as_str() {
            "text" => Name::parse(&text),
            "wire" => Name::parse_ascii(text.as_bytes()),
            other => panic!("{other} is no entrance"),
        };
        wrong.expect(
            &outcome(found),
            &expected,
            &format!("{case} {entrance}: {text:?}"),
        );
    }
    wrong.assert_none();
}

#[test]
fn every_case_pattern_has_its_meaning_or_its_reason() {
    let mut wrong = cases::Wrong::default();
    for row in cases::rows(PATTERNS) {
        let [case, text, expected] = row.try_into().unwrap();
        wrong.expect(
            &outcome(Pattern::parse(&text)),
            &expected,
            &format!("{case}: {text:?}"),
        );
    }
    wrong.assert_none();
}

#[test]
fn every_case_authority_has_its_one_form_or_its_reason() {
    let mut wrong = cases::Wrong::default();
    for row in cases::rows(AUTHORITIES) {
        let [case, text, expected] = row.try_into().unwrap();
        let found = outcome(Authority::parse(text.as_bytes()));
        wrong.expect(&found, &expected, &format!("{case}: {text:?}"));
    }
    wrong.assert_none();
}

/// DNS-18
#[test]
fn a_wildcard_is_every_name_below_and_not_the_apex() {
    let pattern = Pattern::parse("*.example.com").unwrap();
    for below in ["a.example.com", "a.b.example.com", "_x.example.com"] {
        assert!(pattern.matches(&name(below)), "{below}");
    }
    for other in [
        "example.com",
        "notexample.com",
        "xexample.com",
        "example.com.evil.test",
        "com",
        "a.com",
    ] {
        assert!(!pattern.matches(&name(other)), "{other}");
    }
    let exact = Pattern::parse("example.com").unwrap();
    assert!(exact.matches(&name("EXAMPLE.com.")));
    assert!(!exact.matches(&name("a.example.com")));
}

#[test]
fn covers_says_whether_one_pattern_swallows_another() {
    let covers = |a: &str, b: &str| {
        Pattern::parse(a)
            .unwrap()
            .covers(&Pattern::parse(b).unwrap())
    };
    assert!(covers("*.example.com", "a.example.com"));
    assert!(covers("*.example.com", "*.a.example.com"));
    assert!(covers("*.example.com", "*.example.com"));
    assert!(covers("example.com", "example.com"));
    assert!(!covers("*.example.com", "example.com"));
    assert!(!covers("*.a.example.com", "*.example.com"));
    assert!(!covers("a.example.com", "*.a.example.com"));
    assert!(!covers("*.example.com", "*.notexample.com"));
}

/// DNS-24
#[test]
fn length_limits_are_exact() {
    let label = |length: usize| "a".repeat(length);
    let labels = |last: usize| format!("{0}.{0}.{0}.{1}", label(63), label(last));
    assert!(Name::parse(&label(63)).is_ok());
    assert_eq!(
        Name::parse(&label(64)),
        Err(NameError::LabelTooLong { length: 64 })
    );
    assert_eq!(labels(61).len(), 253);
    assert!(Name::parse(&labels(61)).is_ok());
    assert!(Name::parse_ascii(format!("{}.", labels(61)).as_bytes()).is_ok());
    assert_eq!(
        Name::parse(&labels(62)),
        Err(NameError::TooLong { length: 254 })
    );
    assert_eq!(
        Name::parse(&labels(63)),
        Err(NameError::TooLong { length: 255 })
    );
    let many = vec!["a"; 127].join(".");
    assert_eq!(name(&many).labels().count(), 127);
    assert!(Name::parse(&"a.".repeat(100_000)).is_err());
    assert!(Name::parse(&"\u{fc}".repeat(100_000)).is_err());
    // the limit holds for the A-label, not for the characters
    assert!(matches!(
        Name::parse(&"\u{fc}".repeat(63)),
        Err(NameError::LabelTooLong { .. })
    ));
    let endless = std::iter::repeat(&b"abc"[..]);
    assert_eq!(
        Name::from_labels(endless),
        Err(NameError::TooLong { length: 255 })
    );
}

/// DNS-17: labels stay labels.
#[test]
fn dns_labels_never_merge_or_split() {
    let of = |labels: &[&[u8]]| Name::from_labels(labels.iter().copied());
    assert_eq!(
        of(&[b"WWW", b"Example", b"com"]),
        Ok(name("www.example.com"))
    );
    assert_eq!(
        of(&[b"_dmarc", b"example", b"com"]),
        Ok(name("_dmarc.example.com"))
    );
    assert_eq!(of(&[b"www.example", b"com"]), Err(NameError::DotInLabel));
    assert_eq!(
        of(&[b"evil\0", b"github", b"com"]),
        Err(NameError::BadCharacter('\0'))
    );
    assert_eq!(of(&[b"\xff", b"com"]), Err(NameError::NotAscii(0xff)));
    assert_eq!(
        of(&[b"b\xc3\xbccher", b"test"]),
        Err(NameError::NotAscii(0xc3))
    );
    assert_eq!(of(&[b"", b"com"]), Err(NameError::EmptyLabel));
    assert_eq!(of(&[b"a", b"", b"com"]), Err(NameError::EmptyLabel));
    assert_eq!(of(&[]), Err(NameError::Empty));
    assert_eq!(of(&[b"*", b"com"]), Err(NameError::Wildcard));
    assert_eq!(
        of(&[b"127", b"0", b"0", b"1"]),
        Err(NameError::LooksLikeAddress)
    );
    assert_eq!(
        of(&[b"xn--a", b"test"]),
        Err(NameError::BadALabel("xn--a".into()))
    );
    assert_eq!(
        of(&[b"a".repeat(64).as_slice(), b"com"]),
        Err(NameError::LabelTooLong { length: 64 })
    );
}

#[test]
fn parents_and_ancestry_follow_label_borders() {
    let deep = name("a.b.example.com");
    assert_eq!(deep.parent(), Some(name("b.example.com")));
    assert_eq!(name("com").parent(), None);
    assert!(deep.is_below(&name("example.com")) && deep.is_below(&name("com")));
    assert!(!deep.is_below(&deep) && !name("example.com").is_below(&deep));
    assert!(!name("notexample.com").is_below(&name("example.com")));
    assert_eq!(
        deep.labels().collect::<Vec<_>>(),
        ["a", "b", "example", "com"]
    );
}

#[test]
fn service_names_inherit_only_the_name_they_serve() {
    for (service, base) in [
        ("_http._tcp.mirror.example.org", "mirror.example.org"),
        ("_xmpp-server._tcp.example.com", "example.com"),
        ("_443._tcp.example.com", "example.com"),
        ("_sip._udp.example.com", "example.com"),
        ("_8443._https.example.com", "example.com"),
    ] {
        assert_eq!(name(service).service_base(), Some(name(base)), "{service}");
    }
    for other in [
        "example.com",
        "_dmarc.example.com",
        "_http._tcp",
        "_a._b.example.com",
        "http._tcp.example.com",
        "_._tcp.example.com",
        "_x._https.example.com",
        "_08443._https.example.com",
        "_70000._https.example.com",
        "_a_b._tcp.example.com",
        "_x._http._tcp.example.com",
        "_http._tcp._tcp.example.com",
    ] {
        assert_eq!(name(other).service_base(), None, "{other}");
    }
}

#[test]
fn deserialised_names_are_checked() {
    assert_eq!(
        serde_json::from_str::<Name>("\"EXAMPLE.com.\"").unwrap(),
        name("example.com")
    );
    assert_eq!(
        serde_json::to_string(&name("example.com")).unwrap(),
        "\"example.com\""
    );
    for bad in [
        "\"\"",
        "\"*.example.com\"",
        "\"127.0.0.1\"",
        "\"a..b\"",
        "\"a b\"",
        "7",
    ] {
        assert!(serde_json::from_str::<Name>(bad).is_err(), "{bad}");
    }
    assert!(serde_json::from_str::<Pattern>("{\"Below\":\"*.com\"}").is_err());
}

#[test]
fn name_errors_say_what_is_wrong_and_what_to_write() {
    let error = Pattern::parse("*").unwrap_err();
    assert_eq!(error.to_string(), "'*' alone names every host");
    assert_eq!(
        error.hint(),
        Some("write `network: internet` for every public destination")
    );
    let error = Name::parse("git\u{200b}hub.com").unwrap_err();
    assert_eq!(
        error.to_string(),
        r"the invisible character '\u{200b}' cannot stand in a name"
    );
    let error = Name::parse("\u{ff47}ithub.com").unwrap_err();
    assert_eq!(
        error.to_string(),
        "a label in look-alike characters reads as \"github\""
    );
    let hostile = Name::parse("a\u{1b}[2Jb.com").unwrap_err().to_string();
    assert!(!hostile.contains('\u{1b}'), "{hostile}");
}

fn assert_canonical(name: &Name) -> Result<(), TestCaseError> {
    let text = name.as_str();
    prop_assert!((1..=253).contains(&text.len()));
    prop_assert!(text.split('.').all(|label| (1..=63).contains(&label.len())));
    prop_assert!(
        text.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
    );
    prop_assert!(text.parse::<std::net::IpAddr>().is_err());
    prop_assert_eq!(Name::parse(text), Ok(name.clone()));
    prop_assert_eq!(Name::parse_ascii(text.as_bytes()), Ok(name.clone()));
    prop_assert_eq!(
        Name::from_labels(name.labels().map(str::as_bytes)),
        Ok(name.clone())
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_parses_is_canonical_by_every_entrance(text in "([a-zA-Z0-9_-]{1,9}|xn--[a-z0-9-]{1,8}|[\\PC]{1,3})(\\.([a-z0-9-]{1,6}|[\u{e0}-\u{24f}]{1,4})){0,4}\\.?") {
        if let Ok(name) = Name::parse(&text) {
            assert_canonical(&name)?;
        }
    }

    #[test]
    fn any_bytes_are_a_canonical_name_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let found = [Name::parse_ascii(&bytes), Name::from_labels(bytes.split(|b| *b == 0))];
        for name in found.iter().flatten() {
            assert_canonical(name)?;
        }
        if let Ok(authority) = Authority::parse(&bytes) {
            prop_assert_eq!(Authority::parse(authority.to_string().as_bytes()), Ok(authority));
        }
    }

    #[test]
    fn ascii_case_never_matters(text in "[a-z]{1,8}(\\.[a-z0-9]{1,8}){0,3}\\.[a-z]{2,5}") {
        let upper = Name::parse(&text.to_ascii_uppercase());
        prop_assert_eq!(Name::parse(&text), upper.clone());
        prop_assert_eq!(Name::parse_ascii(text.to_ascii_uppercase().as_bytes()), upper);
    }
}
