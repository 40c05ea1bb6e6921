//! Method and path rules of an `allow` entry.
//!
//! A path is brought to one canonical form or refused; it is never "cleaned" into something that may be permitted. What
//! servers disagree about (encoded separators, dot segments, backslashes, path parameters, double encoding) is refused,
//! so that the path that was judged is the path that every server sees.

/// `{ methods: [...], paths: [...] }`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRule {
    /// Empty: any.
    pub methods: Vec<String>,
    /// Empty: any.
    pub paths: Vec<String>,
}

/// Why a path cannot be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`.
    #[error("a path starts with '/'")]
    NotAbsolute,
    /// `.` or `..`, in any spelling, with or without path parameters.
    #[error("a path with '.' or '..' segments means different things to different servers")]
    DotSegment,
    /// `//`, `\`, a control byte, a blank or a non-ASCII byte.
    #[error(
        "a path with empty segments, backslashes, blanks or control bytes means different things to different servers"
    )]
    Unusual,
    /// `%` without two hex digits, or `%25` before what looks like another code.
    #[error("the percent coding of the path is malformed or doubled")]
    Coding,
}

impl HttpRule {
    /// Whether a request is permitted by this rule. `path` is canonical ([`canonical_path`]), as its segments: it is split
    /// once for all rules.
    pub fn matches(&self, method: &str, path: &[&str]) -> bool {
        let method_fits = self.methods.is_empty() || self.methods.iter().any(|m| m == method);
        method_fits
            && (self.paths.is_empty()
                || self.paths.iter().any(|pattern| path_matches(pattern, path)))
    }
}

/// The canonical form of a request's path (query removed): unreserved characters decoded, hex digits in upper case.
///
/// `%2F` stays as it is: it is data inside one segment, and a pattern's `/` never matches it.
pub fn canonical_path(target: &str) -> Result<String, PathError> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if path.contains("//")
        || path
            .bytes()
            .any(|b| !(0x21..=0x7e).contains(&b) || b == b'\\')
    {
        return Err(PathError::Unusual);
    }
    let decoded = decode(path)?;
    if decoded.split('/').any(is_dot_segment) {
        return Err(PathError::DotSegment);
    }
    Ok(decoded)
}

/// Decodes what may be decoded without changing the meaning.
fn decode(path: &str) -> Result<String, PathError> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let code = after.get(..2).and_then(hex_byte).ok_or(PathError::Coding)?;
        rest = after.get(2..).unwrap_or_default();
        match code {
            // a decoded separator or control byte would make another path of it
            0..=0x20 | 0x7f | b'\\' => return Err(PathError::Unusual),
            // `%2541` decodes to `%41`, which a second decoder makes `A`
            b'%' if rest.get(..2).and_then(hex_byte).is_some() => return Err(PathError::Coding),
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') => {
                out.push(char::from(b));
            }
            b => {
                use std::fmt::Write as _;
                // writing to a String cannot fail
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Two hex digits.
fn hex_byte(hex: &str) -> Option<u8> {
    let digits = hex.bytes().all(|b| b.is_ascii_hexdigit());
    if digits {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

/// `.` and `..`, also with path parameters (`..;x`) or beside an encoded separator (`..%2Fx`, `x%2F..`).
fn is_dot_segment(segment: &str) -> bool {
    segment.split("%2F").any(|part| {
        let bare = part.split(';').next().unwrap_or_default();
        let bare = bare.split("%3B").next().unwrap_or_default();
        bare == "." || bare == ".."
    })
}

/// Whether the segments of a canonical path fit a pattern: `*` is one segment (or part of one), `**` any number of
/// segments.
fn path_matches(pattern: &str, path: &[&str]) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    segments_match(&pattern, path)
}

/// Greedy matching with one remembered `**`: linear times the number of segments, never exponential.
fn segments_match(pattern: &[&str], path: &[&str]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while s < path.len() {
        match pattern.get(p) {
            Some(&"**") => {
                retry = Some((p + 1, s));
                p += 1;
                continue;
            }
            Some(glob)
                if path
                    .get(s)
                    .is_some_and(|segment| segment_matches(glob, segment)) =>
            {
                p += 1;
                s += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, taken)) = retry else {
            return false;
        };
        retry = Some((after, taken + 1));
        (p, s) = (after, taken + 1);
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|glob| *glob == "**"))
}

/// One segment against one glob with `*`.
fn segment_matches(glob: &str, segment: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(rest) = segment.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    // `/a/*` does not mean `/a/`: a star alone needs a segment that is there
    rest.ends_with(last) && !(glob == "*" && segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_servers_read_differently_are_refused() {
        for (path, why) in [
            ("/public/../secret", PathError::DotSegment),
            ("/public/%2e%2e/secret", PathError::DotSegment),
            ("/public/%2E./secret", PathError::DotSegment),
            ("/public/..;/secret", PathError::DotSegment),
            ("/public/..;a=b/secret", PathError::DotSegment),
            ("/public/%2e%2e%2fsecret", PathError::DotSegment),
            ("/public/x%2f../secret", PathError::DotSegment),
            ("/public/./x", PathError::DotSegment),
            ("//secret", PathError::Unusual),
            ("/public//x", PathError::Unusual),
            ("/public\\..\\x", PathError::Unusual),
            ("/public%5c..%5cx", PathError::Unusual),
            ("/a%00b", PathError::Unusual),
            ("/a%0d%0ab", PathError::Unusual),
            ("/a b", PathError::Unusual),
            ("/b\u{fc}cher", PathError::Unusual),
            ("/%252e%252e/secret", PathError::Coding),
            ("/%", PathError::Coding),
            ("/%g0", PathError::Coding),
            ("/%+1", PathError::Coding),
            ("/%\u{e9}a", PathError::Unusual),
            ("public", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("http://a.example/x", PathError::NotAbsolute),
            ("", PathError::NotAbsolute),
        ] {
            assert_eq!(canonical_path(path), Err(why), "{path}");
        }
    }

    #[test]
    fn harmless_paths_keep_their_meaning() {
        for (path, canonical) in [
            ("/", "/"),
            ("/a/b?x=../y", "/a/b"),
            ("/o/a%2fb", "/o/a%2Fb"),
            ("/%61%7E", "/a~"),
            ("/a.b/..c/d..", "/a.b/..c/d.."),
            ("/100%25", "/100%25"),
            ("/caf%c3%a9", "/caf%C3%A9"),
        ] {
            assert_eq!(canonical_path(path).as_deref(), Ok(canonical), "{path}");
        }
    }

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, path, fits) in [
            ("/repos/acme/**", "/repos/acme/a/b", true),
            ("/repos/acme/**", "/repos/acme", true),
            ("/repos/acme/**", "/repos/acmeX", false),
            ("/repos/acme/**", "/repos/evil/acme/x", false),
            ("/repos/*/issues", "/repos/a/issues", true),
            ("/repos/*/issues", "/repos/a/b/issues", false),
            ("/repos/*/issues", "/repos/a%2Fb/issues", true),
            ("/repos/*", "/repos/", false),
            ("/v*/x", "/v1/x", true),
            ("/a*b*c", "/abbc", true),
            ("/a*b*c", "/ac", false),
            ("/**/x", "/a/b/x", true),
            ("/**/x", "/x", true),
            ("/**/x", "/a/y", false),
            ("/a/**/b/**/c", "/a/b/b/c/c", true),
            ("/a", "/a/", false),
            ("/", "/", true),
            ("/**", "/", true),
        ] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(path_matches(pattern, &segments), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn methods_are_compared_as_they_stand() {
        let rule = HttpRule {
            methods: vec!["GET".into()],
            paths: vec!["/a".into()],
        };
        assert!(rule.matches("GET", &["", "a"]));
        assert!(!rule.matches("get", &["", "a"]));
        assert!(!rule.matches("POST", &["", "a"]));
        assert!(!rule.matches("GET", &["", "b"]));
        assert!(
            HttpRule {
                methods: vec![],
                paths: vec![]
            }
            .matches("PUT", &["", "x"])
        );
    }
}
