//! Where a repository is: an https or ssh address, `user@host:path`, or an absolute path, and nothing else that git takes.

use std::str::FromStr;

use super::{LONGEST, NameError, is_plain};

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
