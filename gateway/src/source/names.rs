//! What git is told: remotes, branches, paths in a tree, object names. Each is read strictly, once, from root's own
//! configuration or from git's answer, and only these types reach a command line.
//!
//! A remote can be an option (`--upload-pack=…`), a program (`ext::…`), a file of this machine (`file:///…`) or carry a
//! password; a branch can be a revision (`a..b`, `@{-1}`); a path can leave its folder. None of them has a form here.
//! Refuses to own: who may be reached. Failure stance: what is not plainly one of the forms is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest remote, branch or path; `PATH_MAX` of linux/limits.h bounds what can exist anyway.
const LONGEST: usize = 1024;

/// Why a text is none of these names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub &'static str);

/// How a remote is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A repository on this machine.
    Local,
    /// HTTPS.
    Https,
    /// SSH.
    Ssh,
}

/// Where a repository is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    text: String,
    transport: Transport,
}

impl Remote {
    /// As git is told.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How it is reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }
}

impl FromStr for Remote {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > LONGEST {
            return Err(NameError("a remote is at most 1024 bytes long"));
        }
        // Spaces, quotes, backslashes, control characters, '%' and everything beyond ASCII have no form.
        if !text
            .bytes()
            .all(|b| is_plain(b) || matches!(b, b'/' | b':' | b'@' | b'[' | b']' | b'~'))
        {
            return Err(NameError("a remote has only letters, digits and -._~/:@[]"));
        }
        let transport = if let Some(rest) = text.strip_prefix("https://") {
            https(rest)?;
            Transport::Https
        } else if let Some(rest) = text.strip_prefix("ssh://") {
            ssh_url(rest)?;
            Transport::Ssh
        } else if text.starts_with('/') {
            local(text)?;
            Transport::Local
        } else if text.contains("://") {
            return Err(NameError(
                "a remote is https://, ssh:// or an absolute path",
            ));
        } else if let Some((login, path)) = text.split_once(':') {
            scp(login, path)?;
            Transport::Ssh
        } else {
            return Err(NameError(
                "a remote is https://, ssh://, user@host:path or an absolute path",
            ));
        };
        Ok(Self {
            text: text.to_owned(),
            transport,
        })
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'+')
}

fn path(path: &str) -> Result<(), NameError> {
    let parts = path.split('/').skip(1);
    let good = |part: &str| {
        !part.is_empty()
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part.bytes().all(|b| is_plain(b) || b == b'~')
    };
    let whole = path.strip_suffix('/').unwrap_or(path);
    if whole.starts_with('/')
        && whole.len() > 1
        && parts.clone().count() > 0
        && whole.split('/').skip(1).all(good)
    {
        Ok(())
    } else {
        Err(NameError(
            "the path of a remote has parts without '..', and none that begins with '-'",
        ))
    }
}

fn local(text: &str) -> Result<(), NameError> {
    // A single file here would be read as a bundle; what is read must be a repository, which git checks.
    path(text)
}

fn host_and_port(authority: &str) -> Result<(), NameError> {
    let wrong =
        NameError("the host of a remote is a name, an address or [IPv6], with an optional port");
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or_else(|| wrong.clone())?;
        address
            .parse::<std::net::Ipv6Addr>()
            .map_err(|_| wrong.clone())?;
        (
            None,
            rest.strip_prefix(':').or((!rest.is_empty()).then_some("x")),
        )
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(authority), None),
        }
    };
    let labels = |host: &str| {
        host.len() <= 253
            && host.split('.').all(|label| {
                !label.is_empty()
                    && !label.starts_with('-')
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            })
    };
    let port_is_one = port.is_none_or(|p| {
        p.len() <= 5 && p.parse::<u16>().is_ok_and(|n| n > 0) && !p.starts_with('+')
    });
    if host.is_none_or(labels) && port_is_one {
        Ok(())
    } else {
        Err(wrong)
    }
}

fn https(rest: &str) -> Result<(), NameError> {
    let (authority, _) = rest
        .split_once('/')
        .ok_or(NameError("an https remote has a path"))?;
    if authority.contains('@') {
        return Err(NameError(
            "a remote carries no user and no password; name a file under `token`",
        ));
    }
    host_and_port(authority)?;
    path(rest.get(authority.len()..).unwrap_or_default())
}

fn ssh_url(rest: &str) -> Result<(), NameError> {
    let (authority, _) = rest
        .split_once('/')
        .ok_or(NameError("an ssh remote has a path"))?;
    let host = match authority.split_once('@') {
        Some((login, host)) => {
            user(login)?;
            host
        }
        None => authority,
    };
    host_and_port(host)?;
    path(rest.get(authority.len()..).unwrap_or_default())
}

fn user(login: &str) -> Result<(), NameError> {
    let good = !login.is_empty() && !login.starts_with(['-', '.']) && login.bytes().all(is_plain);
    if good {
        Ok(())
    } else {
        Err(NameError(
            "the user of a remote is a plain name, without a password",
        ))
    }
}

fn scp(login: &str, at: &str) -> Result<(), NameError> {
    let (who, host) = login.split_once('@').ok_or(NameError(
        "write user@host:path, https://, ssh:// or an absolute path",
    ))?;
    user(who)?;
    host_and_port(host)?;
    if host.contains(':') || host.starts_with('[') {
        return Err(NameError(
            "write ssh://user@host:port/path where a port or an address is needed",
        ));
    }
    path(&format!("/{}", at.strip_prefix('/').unwrap_or(at)))
}

/// A branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch(String);

impl Branch {
    /// Its short name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its whole name.
    pub fn reference(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl FromStr for Branch {
    type Err = NameError;

    /// A part of what git-check-ref-format(1) permits.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && !part.ends_with('.')
                && !part.to_ascii_lowercase().ends_with(".lock")
                && !part.contains("..")
                && part.bytes().all(is_plain)
        };
        if text.len() > 200 || !text.split('/').all(part) {
            return Err(NameError(
                "a branch has parts of letters, digits and -._+ between slashes",
            ));
        }
        if matches!(text, "HEAD" | "FETCH_HEAD" | "ORIG_HEAD") || text.starts_with("refs/") {
            return Err(NameError(
                "a branch is named without `refs/`, and is not HEAD",
            ));
        }
        // The branches that proposals are written to can never be followed, on any file system.
        if text
            .split('/')
            .next()
            .is_some_and(|first| first.eq_ignore_ascii_case("sallyport"))
        {
            return Err(NameError(
                "branches below `sallyport/` are for proposals and cannot be followed",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A path in a tree, relative to its root, of plain names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TreePath(String);

impl TreePath {
    /// With slashes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its names.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl FromStr for TreePath {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() <= LONGEST
            && text
                .split('/')
                .all(|part| super::tree::odd_name(part.as_bytes()).is_none())
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(
                "a path in the repository is relative and has plain names: letters, digits and -._",
            ))
        }
    }
}

/// The name of an object: 40 hexadecimal digits (SHA-1 repositories, with git's collision detection).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From the bytes that a tree holds.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let digits = bytes.iter().fold(String::with_capacity(40), |text, b| {
            text + &format!("{b:02x}")
        });
        digits.parse().ok()
    }
}

impl FromStr for Oid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(
                "an object is named by 40 hexadecimal digits, lower case",
            ))
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a source, or of a proposal: 1 to 40 characters of a-z, 0-9 and '-', not at the ends.
pub fn is_short_name(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GIT-04
    #[test]
    fn a_remote_is_never_an_option_a_program_a_password_or_another_protocol() {
        for text in [
            "--upload-pack=touch /tmp/x",
            "-u./x",
            "ext::sh -c touch% /tmp/x",
            "ext::x",
            "fd::17",
            "file:///etc",
            "file:/etc",
            "git://example.com/x",
            "http://example.com/x",
            "ftp://example.com/x",
            "rsync://e/x",
            "ssh://-oProxyCommand=x/y",
            "ssh://-oProxyCommand/y",
            "-oProxyCommand=x:y",
            "ssh://user:pass@example.com/x",
            "https://user:tok@example.com/x",
            "https://tok@example.com/x",
            "https://example.com",
            "https://example.com/",
            "https:///x",
            "ssh://git@/x",
            "https://example.com/x?y",
            "https://example.com/x#y",
            "https://example.com/a/../b",
            "https://example.com/%2e%2e/b",
            "https://example.com:0/x",
            "https://example.com:99999/x",
            "https://example.com:+1/x",
            "https://[::1/x",
            "https://[::1]x/y",
            "example.com:x",
            "git@example.com",
            "-git@example.com:x",
            "git@-example.com:x",
            "git@example.com:-x",
            "git@example.com:../x",
            "git@example.com:22:x",
            "relative/x",
            "./x",
            "../x",
            "/",
            "//",
            "/a//b",
            "/a/../b",
            "/a/./b",
            "/a b",
            "/a\nb",
            "/a\0b",
            "/-a",
            "",
            "https://exämple.com/x",
            "ssh://git@example.com/a\\b",
            "https://example.com/a'b",
            "https://example.com/a$b",
        ] {
            assert!(text.parse::<Remote>().is_err(), "{text:?}");
        }
        for (text, transport) in [
            (
                "https://git.example.com/team/policies.git",
                Transport::Https,
            ),
            ("https://git.example.com:8443/policies", Transport::Https),
            ("https://[2001:db8::1]:8443/policies", Transport::Https),
            (
                "ssh://git@git.example.com:2222/srv/policies.git",
                Transport::Ssh,
            ),
            ("ssh://git.example.com/~/policies.git", Transport::Ssh),
            ("git@git.example.com:team/policies.git", Transport::Ssh),
            ("/srv/git/policies.git", Transport::Local),
        ] {
            assert_eq!(
                text.parse::<Remote>().map(|r| r.transport()),
                Ok(transport),
                "{text}"
            );
        }
    }

    /// GIT-21
    #[test]
    fn a_branch_is_never_a_revision_an_option_or_a_place_of_proposals() {
        for text in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a@{1}",
            "@",
            "@{-1}",
            "HEAD",
            "refs/heads/main",
            "a/",
            "/a",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a/b.LOCK",
            "a.",
            "a b",
            "a\nb",
            "a~1",
            "a^",
            "a:b",
            "a?b",
            "a*",
            "a[b",
            "a\\b",
            "main\0",
            "mäin",
            "sallyport",
            "sallyport/proposals/x",
            "SallyPort/proposals/x",
            "0123456789012345678901234567890123456789^{tree}",
        ] {
            assert!(text.parse::<Branch>().is_err(), "{text:?}");
        }
        for text in ["main", "team/policies", "v1.2", "release-2026_01"] {
            assert_eq!(
                text.parse::<Branch>().map(|b| b.reference()),
                Ok(format!("refs/heads/{text}"))
            );
        }
    }

    /// GIT-05
    #[test]
    fn a_path_never_leaves_the_repository() {
        for text in [
            "",
            "/etc/x",
            "../../x",
            "a/../b",
            "a//b",
            "a/",
            ".",
            "..",
            "a\0b",
            ".git/config",
            ".GIT/config",
            "git~1",
            "a\\..\\b",
            "a\nb",
            "-a",
            "a b",
            "ä",
        ] {
            assert!(text.parse::<TreePath>().is_err(), "{text:?}");
        }
        assert!("policies/team-a/research.yml".parse::<TreePath>().is_ok());
    }

    #[test]
    fn an_object_is_named_by_all_its_digits() {
        for text in [
            "",
            "HEAD",
            "abc",
            &"A".repeat(40),
            &"g".repeat(40),
            &"0".repeat(41),
            &"0".repeat(64),
        ] {
            assert!(text.parse::<Oid>().is_err(), "{text:?}");
        }
        assert_eq!(
            Oid::from_bytes(&[0xab; 20]).unwrap().as_str(),
            "ab".repeat(20)
        );
        assert!(Oid::from_bytes(&[0; 19]).is_none());
    }
}
