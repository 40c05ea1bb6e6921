//! Text and labels to the canonical form: the only file that knows which characters a name may hold.
//!
//! Three entrances, one exit: presentation text (IDNA mapping), wire text (ASCII only, no mapping) and DNS labels all
//! end in [`canonical`], which lower-cases ASCII and judges the labels. Nothing is repaired: what is not a name in the
//! strict reading is refused with its own reason, because a lenient reading is a second name for the same host.
//! Work is bounded by [`LONGEST_TEXT`] before anything is mapped.

use std::net::IpAddr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use super::NameError;

/// RFC 1035 section 2.3.4.
const LONGEST_LABEL: usize = 63;
/// 255 octets on the wire less the first length octet and the root.
const LONGEST_NAME: usize = 253;
/// No text longer than this can become a name: 253 characters of four octets each. Keeps Punycode, which is quadratic
/// in the label, away from hostile lengths.
const LONGEST_TEXT: usize = LONGEST_NAME * 4 + 4;

/// STD3 plus the underscore, which `_dmarc` and `_service._proto` names need. Upper case is mapped before this applies.
const DENIED_ASCII: AsciiDenyList = AsciiDenyList::new(true, " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// The characters that UTS 46 takes for a dot.
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];

/// Presentation text: policy, command line, configuration.
pub(super) fn presentation(text: &str) -> Result<Box<str>, NameError> {
    if text.len() > LONGEST_TEXT {
        return Err(NameError::TooLong { length: text.len() });
    }
    refuse_foreign_syntax(text)?;
    let text = text.strip_suffix(DOTS).unwrap_or(text);
    if text.is_ascii() {
        return canonical(text.to_ascii_lowercase());
    }
    refuse_deceptive(text)?;
    let (service, host) = split_service(text);
    let mapped = to_ascii(host).ok_or(NameError::Idna)?;
    let name = canonical(service.to_ascii_lowercase() + &mapped)?;
    refuse_folded(text, &name)?;
    Ok(name)
}

/// Wire text that must already be ASCII: a server name, a Host field, a CONNECT target.
pub(super) fn wire(text: &[u8]) -> Result<Box<str>, NameError> {
    let text = ascii(text)?;
    if text.len() > LONGEST_TEXT {
        return Err(NameError::TooLong { length: text.len() });
    }
    refuse_foreign_syntax(text)?;
    canonical(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase())
}

/// DNS labels without the root. A label is never split and two are never merged.
pub(super) fn labels<'a>(
    labels: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Box<str>, NameError> {
    let mut name = String::new();
    for (index, label) in labels.into_iter().enumerate() {
        if label.is_empty() {
            return Err(NameError::EmptyLabel);
        }
        if label.contains(&b'.') {
            return Err(NameError::DotInLabel);
        }
        let label = ascii(label)?;
        refuse_foreign_syntax(label)?;
        if index > 0 {
            name.push('.');
        }
        name.push_str(label);
        // checked here as well, so that an endless iterator cannot grow the string
        if name.len() > LONGEST_NAME {
            return Err(NameError::TooLong { length: name.len() });
        }
    }
    name.make_ascii_lowercase();
    canonical(name)
}

/// Judges lower-case ASCII text without its trailing dot.
fn canonical(name: String) -> Result<Box<str>, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let mut has_a_label = false;
    let mut last = "";
    for label in name.split('.') {
        judge_label(label)?;
        has_a_label |= label.starts_with("xn--");
        last = label;
    }
    if name.len() > LONGEST_NAME {
        return Err(NameError::TooLong { length: name.len() });
    }
    if is_numeric(last) {
        return Err(NameError::LooksLikeAddress);
    }
    if has_a_label {
        judge_a_labels(&name)?;
    }
    Ok(name.into_boxed_str())
}

fn judge_label(label: &str) -> Result<(), NameError> {
    if label.is_empty() {
        return Err(NameError::EmptyLabel);
    }
    if let Some(bad) = label
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
    {
        return Err(NameError::BadCharacter(bad));
    }
    if label.len() > LONGEST_LABEL {
        return Err(NameError::LabelTooLong {
            length: label.len(),
        });
    }
    if label.starts_with('-') {
        return Err(NameError::LeadingHyphen);
    }
    if label.ends_with('-') {
        return Err(NameError::TrailingHyphen);
    }
    Ok(())
}

/// A last label that `inet_aton` or a URL parser could read as a number: decimal, octal or hexadecimal.
fn is_numeric(label: &str) -> bool {
    label.bytes().all(|b| b.is_ascii_digit())
        || label
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Every `xn--` label must be what IDNA itself would write, and the whole name must pass the bidi rule.
fn judge_a_labels(name: &str) -> Result<(), NameError> {
    let (_, host) = split_service(name);
    if to_ascii(host).as_deref() == Some(host) {
        return Ok(());
    }
    let bad = host
        .split('.')
        .find(|label| label.starts_with("xn--") && to_ascii(label).as_deref() != Some(label));
    // every label may be right by itself and the bidi rule still refuse their sequence
    Err(NameError::BadALabel(bad.unwrap_or(host).to_owned()))
}

/// Splits the leading ASCII labels that begin with an underscore from the host name they belong to. They are no host
/// labels (RFC 8552), and the bidi rule would refuse `_http._tcp` before every name in a right-to-left script.
fn split_service(name: &str) -> (&str, &str) {
    let mut end = 0;
    for label in name.split_inclusive('.') {
        if !label.starts_with('_') || !label.is_ascii() || !label.ends_with('.') {
            break;
        }
        end += label.len();
    }
    name.split_at_checked(end).unwrap_or(("", name))
}

/// UTS 46 processing, non-transitional, with bidi and joiner rules. Lengths and outer hyphens are judged by
/// [`canonical`]; hyphens in the third and fourth place are permitted because CDN host names have them.
fn to_ascii(text: &str) -> Option<String> {
    let ascii = Uts46::new().to_ascii(
        text.as_bytes(),
        DENIED_ASCII,
        Hyphens::CheckFirstLast,
        DnsLength::Ignore,
    );
    ascii.ok().map(std::borrow::Cow::into_owned)
}

fn ascii(bytes: &[u8]) -> Result<&str, NameError> {
    match bytes.iter().find(|b| !b.is_ascii()) {
        Some(&octet) => Err(NameError::NotAscii(octet)),
        None => str::from_utf8(bytes).map_err(|_| NameError::Idna),
    }
}

/// Refuses, with the reason a person needs, text that is something else than a name.
pub(super) fn refuse_foreign_syntax(text: &str) -> Result<(), NameError> {
    let foreign =
        |c: &char| c.is_whitespace() || c.is_control() || (c.is_ascii() && !is_name_ascii(*c));
    let Some(found) = text.chars().find(foreign) else {
        return Ok(());
    };
    if let Some((address, _)) = text.split_once('%')
        && address.trim_start_matches('[').parse::<IpAddr>().is_ok()
    {
        return Err(NameError::ZoneId);
    }
    if text.contains(':') && text.parse::<IpAddr>().is_ok() {
        return Err(NameError::LooksLikeAddress);
    }
    if text.contains(['[', ']']) {
        return Err(NameError::Brackets);
    }
    if text.contains("://") {
        return Err(NameError::Url);
    }
    Err(match found {
        '*' => NameError::Wildcard,
        '%' => NameError::PercentCoding,
        ':' => NameError::UnexpectedPort,
        '/' | '\\' => NameError::Url,
        '@' => NameError::UserInfo,
        blank if blank.is_whitespace() => NameError::Blank,
        other => NameError::BadCharacter(other),
    })
}

fn is_name_ascii(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Refuses what IDNA would quietly take away, and A-labels mixed with Unicode.
fn refuse_deceptive(text: &str) -> Result<(), NameError> {
    if let Some(invisible) = text.chars().find(|c| !c.is_ascii() && is_dropped(*c)) {
        return Err(NameError::Invisible(invisible));
    }
    let prefixed = |label: &&str| {
        label
            .get(..4)
            .is_some_and(|p| p.eq_ignore_ascii_case("xn--"))
    };
    match text
        .split(DOTS)
        .find(|label| !label.is_ascii() && prefixed(label))
    {
        Some(mixed) => Err(NameError::BadALabel(mixed.to_owned())),
        None => Ok(()),
    }
}

/// Whether UTS 46 maps the character to nothing. Asked of the mapping itself, so the answer follows its Unicode version.
fn is_dropped(c: char) -> bool {
    to_ascii(&format!("a{c}a")).as_deref() == Some("aa")
}

/// Refuses labels that were not ASCII and became plain ASCII, and mappings that moved a label border.
fn refuse_folded(text: &str, name: &str) -> Result<(), NameError> {
    if text.split(DOTS).count() != name.split('.').count() {
        return Err(NameError::Idna);
    }
    let folded =
        |(written, mapped): &(&str, &str)| !written.is_ascii() && !mapped.starts_with("xn--");
    match text.split(DOTS).zip(name.split('.')).find(folded) {
        Some((_, mapped)) => Err(NameError::FoldsToAscii(mapped.to_owned())),
        None => Ok(()),
    }
}
