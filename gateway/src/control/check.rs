//! What can be refused about an attach before anything is made.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use netpolicy::document::text::unusual;

use super::access::{Peer, is_ours};
use super::api::{AttachRequest, PolicySource, Problem};
use crate::member::{MOST_NEEDS, Membership};

/// More labels than anybody needs.
const MOST_LABELS: usize = 64;
/// Longest text of a label, run or workspace.
const LONGEST: usize = 256;

/// `PATH_MAX`: no file has a longer name.
const LONGEST_FILE: usize = 4096;

/// What can be checked before anything is made.
pub(super) fn check_attach(request: &AttachRequest, peer: Peer) -> Result<(), Problem> {
    let texts = request
        .labels
        .iter()
        .flat_map(|(k, v)| [k, v])
        .chain(&request.run)
        .chain([&request.workspace]);
    if request.labels.len() > MOST_LABELS
        || texts
            .into_iter()
            .any(|t| t.len() > LONGEST || t.chars().any(char::is_control))
    {
        let message = format!(
            "labels, run and workspace are at most {MOST_LABELS} texts of {LONGEST} bytes without control characters"
        );
        return Err(Problem::new(400, "bad_request", message));
    }
    check_source(&request.policy)?;
    if let Some(member) = &request.member {
        check_member(request, member)?;
    }
    let Some(broker) = &request.broker else {
        return Ok(());
    };
    let refuse = |message: &str| {
        Err(Problem::new(400, "bad_request", message)
            .hint("bind the broker's socket before attaching"))
    };
    if !broker.is_absolute() {
        return refuse("the broker's socket is not an absolute path");
    }
    // The path is only ever connected to; this keeps one user from having connections sent to another's socket.
    match std::fs::symlink_metadata(broker) {
        Ok(found) if !found.file_type().is_socket() => refuse("the broker's path is not a socket"),
        Ok(found) if found.uid() != peer.uid && !(found.uid() == 0 && is_ours(peer.uid)) => {
            refuse("the broker's socket belongs to another user")
        }
        Ok(_) => Ok(()),
        Err(_) => refuse("the broker's socket cannot be found"),
    }
}

/// A document's name comes back in denials, DNS answers and records, to people who did not choose it.
pub(super) fn check_source(source: &PolicySource) -> Result<(), Problem> {
    match source {
        PolicySource::Document { file, .. }
            if file.is_empty() || file.len() > LONGEST_FILE || file.chars().any(is_unusual) =>
        {
            let message = format!(
                "a document's name is one line of printable text of at most {LONGEST_FILE} bytes"
            );
            Err(Problem::new(400, "bad_request", message).hint("rename the file"))
        }
        _ => Ok(()),
    }
}

fn is_unusual(character: char) -> bool {
    unusual(character).is_some()
}

/// Runs never share a network.
fn check_member(request: &AttachRequest, member: &Membership) -> Result<(), Problem> {
    let refuse = |message: String| Err(Problem::new(400, "bad_request", message));
    if request.run.is_some() {
        return refuse("a run is never a member of a group".to_owned());
    }
    if member.needs.contains(&member.service) {
        return refuse("a service does not need itself".to_owned());
    }
    if member.needs.len() > MOST_NEEDS {
        return refuse(format!("a service needs at most {MOST_NEEDS} siblings"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documents_name_is_one_line_of_printable_text() {
        let check = |file: &str| {
            check_source(&PolicySource::Document {
                file: file.to_owned(),
                text: String::new(),
                packages: None,
            })
        };
        for bad in [
            "",
            "a\nb",
            "a\u{1b}[2Jb",
            "a\u{202e}b",
            "a\u{200b}b",
            "a\u{2028}b",
        ] {
            assert_eq!(check(bad).unwrap_err().code, "bad_request", "{bad:?}");
        }
        assert!(check(&"a".repeat(LONGEST_FILE + 1)).is_err());
        for good in ["job.yaml", "/home/a b/policies/für alle.yml", "-"] {
            check(good).unwrap();
        }
    }
}
