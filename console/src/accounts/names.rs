//! What an email address and a name may be.

use netpolicy::document::text::unusual;

use crate::server::problem::Wrong;

/// RFC 5321 4.5.3.1.3.
const LONGEST_EMAIL: usize = 254;
/// More is not a name.
const LONGEST_NAME: usize = 100;

/// An email address as the store keeps it: ASCII, lower case. Look-alikes in other scripts are other addresses, and none
/// is taken.
pub fn email(text: &str) -> Result<String, Wrong> {
    let lower = text.trim().to_ascii_lowercase();
    let fits = lower.len() <= LONGEST_EMAIL
        && lower
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&b))
        && lower.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty()
                && domain.contains('.')
                && !domain.contains('@')
                && !domain.starts_with('.')
                && !domain.ends_with('.')
        });
    if fits {
        Ok(lower)
    } else {
        Err(Wrong::new("email", "an address such as ada@example.com"))
    }
}

/// A name of a person, a workspace, a token: something, on one line, without characters that are not seen.
pub fn name(text: &str) -> Result<String, Wrong> {
    let name = text.trim();
    let length = name.chars().count();
    if length == 0 || length > LONGEST_NAME {
        return Err(Wrong::new(
            "name",
            format!("1 to {LONGEST_NAME} characters"),
        ));
    }
    if name.chars().any(|c| c.is_control() || unusual(c).is_some()) {
        return Err(Wrong::new(
            "name",
            "no line breaks, no characters that are not seen",
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_or_hides_something_is_refused() {
        for wrong in [
            "",
            "ada",
            "ada@",
            "@example.com",
            "ada@example",
            "a da@example.com",
            "ada@exämple.com",
            "a@b@c.d",
            "ada@example.com\nx",
        ] {
            assert!(email(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(email(" Ada+x@Example.com").unwrap(), "ada+x@example.com");
        for wrong in [
            "",
            "  ",
            "a\nb",
            "a\0b",
            "a\u{202e}b",
            "a\u{1b}[31m",
            &"x".repeat(101),
        ] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(name(" <img onerror=x> ").unwrap(), "<img onerror=x>");
    }
}
