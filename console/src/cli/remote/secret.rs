//! A token, and the files that may hold one.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ::console::settings::{AppUrl, Scheme};
use zeroize::Zeroizing;

use crate::exit::Failure;

/// Nothing that holds a token is longer.
const LONGEST: u64 = 256 << 10;

/// An API token. It leaves memory with its holder and is never printed by accident.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Token {
    /// From its text. What cannot be a token is sent to nobody.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let rest = text.strip_prefix("spt_").unwrap_or_default();
        let fits = rest.len() == 43
            && rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if fits {
            return Ok(Self(Zeroizing::new(text.to_owned())));
        }
        Err(Failure::new("what is given as a token is no API token")
            .hint("it begins with spt_ and has 47 letters; `sallyport auth login` gets one"))
    }

    /// Its text, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Whether a token may be sent there: encrypted, or without leaving this machine, or because somebody insists.
pub fn may_send(url: &AppUrl, insists: bool) -> Result<(), Failure> {
    if url.scheme == Scheme::Https || is_loopback(&url.host) || insists {
        return Ok(());
    }
    Err(Failure::new(format!(
        "a token is not sent in the clear to {}: whoever is on the way could take it",
        url.origin()
    ))
    .hint("use its https address; --insecure sends it all the same"))
}

/// A name that leads nowhere but to this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    bare == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The text of a file that nobody else can read. What was checked is what is read: the open file, not its name.
pub fn owner_only(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| Failure::new(format!("reading {shown}: {error}"));
    let file = std::fs::File::options()
        .read(true)
        .custom_flags_nonblocking()
        .open(path)
        .map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let me = nix::unistd::geteuid().as_raw();
    if !found.is_file() {
        return Err(Failure::new(format!("{shown} is no file")));
    }
    if found.uid() != me && found.uid() != 0 {
        return Err(Failure::new(format!("{shown} belongs to somebody else"))
            .hint("a token is read from a file of your own"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(
            Failure::new(format!("others can read or change {shown}")).hint(format!(
                "chmod 600 {shown}; if others may have read it, revoke the token as well"
            )),
        );
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

/// A pipe that nobody writes into is told, not waited for.
trait Nonblocking {
    fn custom_flags_nonblocking(&mut self) -> &mut Self;
}

impl Nonblocking for std::fs::OpenOptions {
    fn custom_flags_nonblocking(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_in_the_clear_to_this_machine_alone() {
        let may = |url: &str, insists| may_send(&AppUrl::parse(url).unwrap(), insists).is_ok();
        for near in [
            "http://localhost:8420",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "https://a.example",
        ] {
            assert!(may(near, false), "{near}");
        }
        for far in [
            "http://a.example",
            "http://localhost.a.example",
            "http://127.0.0.1.nip.example",
            "http://10.0.0.1",
        ] {
            assert!(!may(far, false), "{far}");
            assert!(may(far, true), "{far}");
        }
    }

    #[test]
    fn what_is_no_token_is_sent_to_nobody() {
        for wrong in [
            "",
            "spt_",
            "sps_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "spt_a\r\nHost: x",
            "password",
        ] {
            assert!(Token::parse(wrong).is_err(), "{wrong}");
        }
        let odd = format!("spt_{}\n", "a".repeat(42));
        assert!(Token::parse(&odd).is_err());
    }
}
