//! From the checked tree to sources. What does not fit its shape was reported before and is skipped here.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use netpolicy::document::Mistakes;
use netpolicy::document::shape::whole;
use netpolicy::document::tree::Node;
use netpolicy::document::values::{day_after, size};

use super::{Access, Rewrites, Signatures, SourceConfig, SourceLimits, SshSigner};
use crate::source::names::{NameError, Transport, is_short_name};

/// Reads `sources`.
pub fn sources(node: Option<&Node>, mistakes: &mut Mistakes) -> Vec<SourceConfig> {
    let mut all = Vec::new();
    for entry in node.map_or(&[][..], Node::entries) {
        if is_short_name(&entry.key) {
            all.extend(source(&entry.key, &entry.value, mistakes));
        }
    }
    all
}

fn source(name: &str, node: &Node, mistakes: &mut Mistakes) -> Option<SourceConfig> {
    let default = |text: &str| text.parse().ok();
    let remote = named(node.field("remote"), mistakes);
    let branch = match node.field("branch") {
        None => default("main"),
        some => named(some, mistakes),
    };
    let folder = match node.field("folder") {
        None => "policies".parse().ok(),
        some => named(some, mistakes),
    };
    let floors = node
        .field("floors")
        .and_then(|floors| named(Some(floors), mistakes));
    let signatures = node
        .field("signatures")
        .map(|section| signatures(section, mistakes));
    let rewrites = match (node.field("rewrites").and_then(Node::scalar), &signatures) {
        (Some("refuse"), _) | (None, Some(_)) => Rewrites::Refuse,
        _ => Rewrites::Follow,
    };
    let path = |key: &str| node.field(key).and_then(Node::scalar).map(PathBuf::from);
    let access = Access {
        ssh_key: path("ssh_key"),
        known_hosts: path("known_hosts"),
        ca: path("ca"),
        token: path("token"),
    };
    let config = SourceConfig {
        name: name.to_owned(),
        remote: remote?,
        branch: branch?,
        folder: folder?,
        floors,
        workspaces: node
            .field("workspaces")
            .map_or(&[][..], Node::items)
            .iter()
            .filter_map(|item| item.scalar().map(str::to_owned))
            .collect(),
        poll: Duration::from_secs(node.field("poll").and_then(whole).unwrap_or(60)),
        rewrites,
        signatures,
        access,
        limits: limits(node.field("limits")),
        proposals: node.field("proposals").and_then(Node::scalar) == Some("allowed"),
    };
    fits_together(node, &config, mistakes);
    Some(config)
}

/// What one key asks of another.
fn fits_together(node: &Node, config: &SourceConfig, mistakes: &mut Mistakes) {
    let transport = config.remote.transport();
    if transport == Transport::Ssh && config.access.known_hosts.is_none() {
        mistakes.hint(
            &node.at,
            "an ssh remote needs `known_hosts`",
            "write it with `ssh-keyscan HOST`, and compare the key with what the host's owner says",
        );
    }
    for (key, only) in [
        ("ssh_key", Transport::Ssh),
        ("known_hosts", Transport::Ssh),
        ("ca", Transport::Https),
        ("token", Transport::Https),
    ] {
        if let Some(given) = node.field(key)
            && transport != only
        {
            mistakes.add(&given.at, format!("`{key}` is of no use to this remote"));
        }
    }
    let floors = config.floors.as_ref().map(|f| format!("{}/", f.as_str()));
    let folder = format!("{}/", config.folder.as_str());
    if floors.is_some_and(|floors| floors.starts_with(&folder) || folder.starts_with(&floors)) {
        mistakes.add(
            &node.at,
            "`floors` and `folder` hold one another; a floor is not a policy that a run may choose",
        );
    }
}

fn named<T: FromStr<Err = NameError>>(node: Option<&Node>, mistakes: &mut Mistakes) -> Option<T> {
    let node = node?;
    let text = node
        .scalar()
        .filter(|text| !text.is_empty() && !node.is_null())?;
    text.parse()
        .map_err(|error: NameError| mistakes.add(&node.at, error.to_string()))
        .ok()
}

fn signatures(node: &Node, mistakes: &mut Mistakes) -> Signatures {
    let signers = node.field("ssh").map_or(&[][..], Node::items);
    let found = Signatures {
        ssh: signers
            .iter()
            .filter_map(|item| signer(item, mistakes))
            .collect(),
        openpgp: node
            .field("openpgp")
            .and_then(Node::scalar)
            .map(PathBuf::from),
    };
    if signers.is_empty() && found.openpgp.is_none() {
        mistakes.hint(
            &node.at,
            "no signer is listed, so no commit could ever be loaded",
            "list keys under `ssh`, or a keyring under `openpgp`",
        );
    }
    found
}

fn signer(node: &Node, mistakes: &mut Mistakes) -> Option<SshSigner> {
    let at = node.field("key")?;
    let key = match at.scalar()?.parse::<ssh_key::PublicKey>() {
        Ok(key) => key,
        Err(error) => {
            mistakes.hint(
                &at.at,
                format!("this is no SSH key: {error}"),
                "a line of a .pub file",
            );
            return None;
        }
    };
    if !super::super::signature::ssh::is_judged(&key) {
        mistakes.hint(
            &at.at,
            format!("signatures of {} keys are not judged", key.algorithm()),
            "use an ed25519 or a P-256 key",
        );
    }
    let until = node
        .field("until")
        .and_then(Node::scalar)
        .and_then(day_after);
    Some(SshSigner { key, until })
}

fn limits(node: Option<&Node>) -> SourceLimits {
    let defaults = SourceLimits::default();
    let Some(node) = node else { return defaults };
    let bytes = |key: &str| node.field(key).and_then(Node::scalar).and_then(size);
    let number = |key: &str| node.field(key).and_then(whole);
    SourceLimits {
        fetch: bytes("fetch").unwrap_or(defaults.fetch),
        files: number("files")
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(defaults.files),
        file: bytes("file").unwrap_or(defaults.file),
        total: bytes("total").unwrap_or(defaults.total),
        time: number("seconds").map_or(defaults.time, Duration::from_secs),
    }
}
