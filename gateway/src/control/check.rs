//! What can be refused about an attach before anything is made.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::access::{Peer, is_ours};
use super::api::{AttachRequest, Problem};
use crate::member::{MOST_NEEDS, Membership};

/// More labels than anybody needs.
const MOST_LABELS: usize = 64;
/// Longest text of a label, run or workspace.
const LONGEST: usize = 256;

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
