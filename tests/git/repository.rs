//! A repository of policies that the test pushes to, beside a lab.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A bare repository and a way to write commits to its branch `main`.
pub struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    pub fn new() -> Self {
        let repository = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let path = repository.path().display().to_string();
        git(&["init", "--quiet", "--bare", "--initial-branch=main", &path]);
        repository
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("policies.git")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lines of the gateway's configuration that follow it.
    pub fn source(&self, extra: &str) -> String {
        format!(
            "sources:\n  main:\n    remote: {}\n    poll: 3600\n{extra}",
            self.path().display()
        )
    }

    /// One more commit on main that holds exactly these files; its name.
    pub fn push(&self, files: &[(&str, &str)]) -> String {
        let work = self.folder.path().join("work");
        let _ = std::fs::remove_dir_all(&work);
        let (at, remote) = (
            work.display().to_string(),
            self.path().display().to_string(),
        );
        git(&["clone", "--quiet", &remote, &at]);
        git(&["-C", &at, "checkout", "--quiet", "-B", "main"]);
        let _ = std::fs::remove_dir_all(work.join("policies"));
        for (file, text) in files {
            let path = work.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, text).expect("a file");
        }
        git(&["-C", &at, "add", "--all"]);
        git(&[
            "-C",
            &at,
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "words",
        ]);
        git(&["-C", &at, "push", "--quiet", "origin", "main"]);
        git(&["-C", &at, "rev-parse", "HEAD"])
    }
}

fn git(arguments: &[&str]) -> String {
    let output = Command::new("git")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
        .args(arguments)
        .output()
        .expect("git");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
