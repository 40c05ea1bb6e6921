//! Runs the real `sallyport` binary, as a person or a script would.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::user::User;

/// Where the binary is: `SALLYPORT_BIN`, or beside the test binaries.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SALLYPORT_BIN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("own path");
    let beside = own
        .ancestors()
        .skip(1)
        .map(|d| d.join("sallyport"))
        .find(|p| p.is_file());
    beside.expect(
        "the binary is not built: run `cargo build --bin sallyport`, or name it in SALLYPORT_BIN",
    )
}

/// What a command said.
#[derive(Clone, Debug)]
pub struct Said {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Standard output as JSON, or a failed test.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// Itself where the exit code is this one, or a failed test.
    #[expect(
        clippy::return_self_not_must_use,
        reason = "often only the exit code is of interest"
    )]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.out,
            self.err
        );
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A command line of the binary, in a clean environment.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("SALLYPORT_CONFIG")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100");
    command
}

/// The same as an ordinary user.
pub fn command_of<S: AsRef<OsStr>>(user: &User, arguments: &[S]) -> Command {
    let mut command = Command::new(user.program(&binary()));
    command.args(arguments).stdin(Stdio::null());
    user.dress(&mut command);
    command
}

/// Runs it to its end.
pub fn sallyport<S: AsRef<OsStr>>(arguments: &[S]) -> Said {
    command(arguments).output().expect("start sallyport").into()
}

/// Runs it in a directory.
pub fn sallyport_in<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Said {
    command(arguments)
        .current_dir(directory)
        .output()
        .expect("start sallyport")
        .into()
}
