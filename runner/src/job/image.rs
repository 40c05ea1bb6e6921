//! The grammar of image names, as the distribution project's reference grammar has it.
//!
//! `[registry[:port]/]path[:tag][@sha256:digest]`: lower-case path components, nothing that a shell or an option parser
//! could read as anything else, no credentials. Only the text is judged here; whether the image exists is the engine's.

use std::fmt;
use std::str::FromStr;

/// The reference grammar's own limit for the name.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// A well-formed image name, or an image id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageName(String);

/// Why a text is no image name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// Nothing there, or too much.
    #[error("an image name has 1 to {LONGEST_NAME} characters")]
    Length,
    /// Registry host or port.
    #[error("the registry is not a host name with an optional port")]
    Registry,
    /// A path component.
    #[error(
        "a path component has lower-case letters and digits, separated by single '.', '_', '__' or '-'"
    )]
    Path,
    /// Tag.
    #[error(
        "a tag has up to {LONGEST_TAG} letters, digits, '.', '_' and '-', and starts with none of '.' and '-'"
    )]
    Tag,
    /// Digest.
    #[error("a digest is `sha256:` and 64 lower-case hex digits")]
    Digest,
}

impl ImageName {
    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("sha256:") {
            return if is_digest(text) {
                Ok(Self(text.to_owned()))
            } else {
                Err(ImageNameError::Digest)
            };
        }
        let (name, digest) = text
            .split_once('@')
            .map_or((text, None), |(name, digest)| (name, Some(digest)));
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ImageNameError::Digest);
        }
        // A colon after the last slash begins a tag; one before it belongs to the registry's port.
        let tag_at = name
            .rfind(':')
            .filter(|at| !name.split_at(*at).1.contains('/'));
        let (path, tag) = match tag_at.map(|at| name.split_at(at)) {
            Some((path, tag)) => (path, tag.strip_prefix(':')),
            None => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ImageNameError::Tag);
        }
        if path.is_empty() || path.len() > LONGEST_NAME {
            return Err(ImageNameError::Length);
        }
        let path = match path.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                if !is_registry(first) {
                    return Err(ImageNameError::Registry);
                }
                rest
            }
            _ => path,
        };
        if path.split('/').all(is_component) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ImageNameError::Path)
        }
    }
}

fn is_digest(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:")
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

fn is_tag(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=LONGEST_TAG).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(fits)
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text
        .split_once(':')
        .map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let port_fits =
        port.is_none_or(|p| p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok());
    host.split('.').all(label) && port_fits
}

/// One path component: alphanumeric runs, separated by one '.', one or two '_', or any number of '-'.
fn is_component(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = |b: u8| alphanumeric(b) || b"._-".contains(&b);
    let edges = text.bytes().next().is_some_and(alphanumeric)
        && text.bytes().last().is_some_and(alphanumeric);
    let separators = text
        .split(|c: char| c.is_ascii_alphanumeric())
        .filter(|s| !s.is_empty());
    edges
        && text.bytes().all(inner)
        && separators
            .into_iter()
            .all(|s| s == "." || s == "_" || s == "__" || s.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_shell_text_and_credentials_are_no_image_names() {
        for text in [
            "",
            "--privileged",
            "-v /:/host",
            "x y",
            "a;b",
            "a$(id)",
            "user:pass@registry.example/app",
            "app:tag;$()",
            "App",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:.tag",
            "a@sha256:12",
            "a@md5:00",
            "../a",
            "a/../b",
            "a\nb",
            "a\0",
            "registry.example:99999/a",
            "registry.example:x/a",
            "-host.example/a",
            "a__-b",
            "a...b",
            "sha256:zz",
            "http://registry.example/a",
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text:?}");
        }
        assert!("a".repeat(300).parse::<ImageName>().is_err());
    }

    #[test]
    fn ordinary_names_pass() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in [
            "debian",
            "debian:12",
            "library/debian:12-slim",
            "registry.example/team/app",
            "registry.example:5000/team/app:v1.2_3",
            "localhost/app",
            "localhost:5000/app",
            "my_app/my__thing/a-b--c",
            &digest,
            &format!("debian@{digest}"),
            &format!("debian:12@{digest}"),
        ] {
            assert_eq!(text.parse::<ImageName>().unwrap().to_string(), text);
        }
    }
}
