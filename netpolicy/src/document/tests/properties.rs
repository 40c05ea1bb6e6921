//! Nothing that a text can be makes reading panic, and every mistake has its place in the text.

use proptest::prelude::*;

use super::*;

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "policy",
        "network",
        "allow",
        "host",
        "ports",
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n  - ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "!t ",
        "'",
        "\"",
        "|",
        ">",
        "#",
        "%",
        "@",
        "`",
        "?",
        "<<",
        "---",
        "...",
        "none",
        "domains",
        "80",
        "*.example.com",
        "a.example.com",
        "\\",
        "\\u202e",
        "\t",
        "\r\n",
        "\u{fc}",
        "~",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_a_policy_or_placed_mistakes(text in prop_oneof![pieces(), any::<String>()]) {
        if let Err(mistakes) = parse("p.yaml", &text, None) {
            prop_assert!(!mistakes.is_empty());
            let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap();
            for mistake in mistakes {
                prop_assert!(mistake.at.line >= 1 && mistake.at.line <= lines + 1, "{mistake}");
                prop_assert!(!mistake.to_string().chars().any(char::is_control), "{mistake:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_bytes("p.yaml", &bytes, None);
    }
}
