//! What an unquoted scalar is: a flag, a whole number, or something that YAML readers disagree about.

use super::tree::Node;

/// A flag: `true` or `false` without quotes, and nothing else that some reader takes for one.
pub fn flag(node: &Node) -> Option<bool> {
    match node.plain()? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A whole number in plain digits: no sign, no leading zero, no separators, no quotes.
pub fn whole(node: &Node) -> Option<u64> {
    let text = node.plain()?;
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits && (text == "0" || !text.starts_with('0')) {
        text.parse().ok()
    } else {
        None
    }
}

/// Whether every YAML reader takes this scalar for a text.
pub fn is_text(node: &Node) -> bool {
    node.scalar().is_some() && !node.plain().is_some_and(is_other_type)
}

/// Whether some YAML reader (1.1 or 1.2) takes an unquoted scalar for something else than a text.
fn is_other_type(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    if matches!(
        lower.as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "null" | "~" | ""
    ) {
        return true;
    }
    if matches!(lower.trim_start_matches(['+', '-']), ".inf" | ".nan") {
        return true;
    }
    // numbers of any base, with signs, separators, exponents, and times like 22:22
    lower.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && lower.bytes().all(|b| {
            b.is_ascii_hexdigit() || matches!(b, b'+' | b'-' | b'.' | b'_' | b':' | b'x' | b'o')
        })
        && !is_address_like(&lower)
}

/// Addresses are made of the same characters and are no numbers to anybody.
fn is_address_like(text: &str) -> bool {
    text.matches('.').count() == 3 || text.matches(':').count() >= 2
}
