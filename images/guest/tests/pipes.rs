//! Readers that went away: whatever `sally` prints, a closed pipe is no failure (`init` is tried beside its other promises).
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const SALLY: &str = env!("CARGO_BIN_EXE_sally");

/// A pipe that nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    OwnedFd::from(writer).into()
}

#[test]
fn what_is_printed_into_a_closed_pipe_changes_no_exit_code() {
    for (arguments, code) in [
        (&["help"][..], 0),
        (&["version"], 0),
        (&["no-such-command"], 64),
        (&["net", "explain", "x.example"], 2),
        (&["hold", "--socket", "/nowhere/at-all"], 1),
    ] {
        let mut command = Command::new(SALLY);
        command.args(arguments).stdin(Stdio::null());
        let heard = command.output().unwrap();
        assert_eq!(heard.status.code(), Some(code), "{arguments:?}: {heard:?}");
        assert!(
            !heard.stdout.is_empty() || !heard.stderr.is_empty(),
            "{arguments:?} says something to who listens"
        );
        let status = command.stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {status:?}");
    }
}
