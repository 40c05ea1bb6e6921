//! Forms of the texts in policy documents.

use super::shape::{Format, Lexis};

/// What the forms below leave to the builder is checked there, with the reasons that names and addresses know.
const fn anything(expected: &'static str) -> Format {
    Format {
        expected,
        pattern: None,
        fits: |text| !text.is_empty(),
        lexis: Lexis::Words,
    }
}

pub(crate) static HOST: Format = anything("a host name such as example.com or *.example.com");
pub(super) static CIDR: Format = Format {
    lexis: Lexis::Anything,
    ..anything("a prefix such as 203.0.113.0/24")
};
pub(super) static ADDRESS: Format = Format {
    lexis: Lexis::Anything,
    ..anything("an address such as 203.0.113.7")
};
pub(super) static DESTINATION: Format = anything("a destination such as example.com:443");
pub(super) static SERVER_NAME: Format = anything("a host name such as example.com");
pub(super) static REASON: Format = anything("a reason code such as name_denied");

pub(super) static SET_NAME: Format = Format {
    expected: "the name of a set: 1 to 40 of a-z, 0-9 and '-'",
    pattern: Some("^[a-z0-9][a-z0-9-]{0,39}$"),
    fits: |text| {
        (1..=40).contains(&text.len())
            && !text.starts_with('-')
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    },
    lexis: Lexis::Words,
};

pub(super) static METHOD: Format = Format {
    expected: "a method in capital letters, such as GET",
    pattern: Some("^[A-Z][A-Z0-9_-]{0,31}$"),
    fits: |text| {
        (1..=32).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
    },
    lexis: Lexis::Words,
};

pub(super) static PATH: Format = anything("a path such as /repos/acme/**");

pub(super) static SECRET_NAME: Format = Format {
    expected: "a secret's name of letters, digits and '_'",
    pattern: Some("^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    fits: |text| {
        (1..=128).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    },
    lexis: Lexis::Words,
};

pub(super) static HEADER: Format = Format {
    expected: "a header with {} where the secret goes, such as \"Authorization: Bearer {}\"",
    pattern: Some("^[A-Za-z0-9!#$%&'*+.^_`|~-]+: [^{}]*\\{\\}[^{}]*$"),
    fits: is_header,
    lexis: Lexis::Words,
};

fn is_header(text: &str) -> bool {
    let Some((name, value)) = text.split_once(": ") else {
        return false;
    };
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&b);
    let braces = value.matches(['{', '}']).count();
    !name.is_empty()
        && name.bytes().all(token)
        && value.contains("{}")
        && braces == 2
        && value.bytes().all(|b| (0x20..0x7f).contains(&b))
}
