//! A repository that the test writes object by object, and a source that follows it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gateway::config::GatewayConfig;
use gateway::source::{Looked, Source, SourceView, Sources};

pub const OPEN: &str = "policy: research\nnetwork: internet\n";
pub const CLOSED: &str = "policy: research\nnetwork: none\n";

/// A bare repository.
pub struct Repository {
    pub path: PathBuf,
    home: PathBuf,
}

impl Repository {
    pub fn new(folder: &Path) -> Self {
        let home = folder.join("author");
        std::fs::create_dir_all(&home).unwrap();
        let repository = Self {
            path: folder.join("remote.git"),
            home,
        };
        repository.git(&["init", "--quiet", "--bare", "--initial-branch=main"], b"");
        repository
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .arg("--git-dir")
            .arg(&self.path)
            .args(arguments)
            .env("HOME", &self.home)
            .env("GNUPGHOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "A")
                .env(format!("GIT_{who}_EMAIL"), "a@example.com");
            command.env(format!("GIT_{who}_DATE"), "1767225600 +0000");
        }
        command
    }

    /// Runs git with this input; what it prints.
    pub fn git(&self, arguments: &[&str], input: &[u8]) -> String {
        run(self.command(arguments), input)
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn blob(&self, text: impl AsRef<[u8]>) -> String {
        self.git(&["hash-object", "-w", "--stdin"], text.as_ref())
    }

    /// A tree of exactly these entries, whatever they are.
    pub fn raw_tree(&self, entries: &[(&str, &[u8], &str)]) -> String {
        let mut bytes = Vec::new();
        for (mode, name, oid) in entries {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend(
                (0..40)
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&oid[at..at + 2], 16).unwrap()),
            );
        }
        self.git(
            &["hash-object", "-w", "--literally", "-t", "tree", "--stdin"],
            &bytes,
        )
    }

    /// A tree with `policies/` of these files.
    pub fn policies(&self, files: &[(&str, &str)]) -> String {
        let mut entries: Vec<(&str, Vec<u8>, String)> = files
            .iter()
            .map(|(name, text)| ("100644", name.as_bytes().to_vec(), self.blob(text)))
            .collect();
        entries.sort_by(|a, b| a.1.cmp(&b.1));
        let entries: Vec<(&str, &[u8], &str)> = entries
            .iter()
            .map(|(m, n, o)| (*m, n.as_slice(), o.as_str()))
            .collect();
        let folder = self.raw_tree(&entries);
        self.raw_tree(&[("40000", b"policies", &folder)])
    }

    pub fn commit(&self, tree: &str, parents: &[&str]) -> String {
        self.commit_with(&[], tree, parents)
    }

    /// With options before `commit-tree` (`-c …`) and `-S` if there are any.
    pub fn commit_with(&self, options: &[&str], tree: &str, parents: &[&str]) -> String {
        let mut arguments = options.to_vec();
        arguments.extend(["commit-tree", "-m", "words"]);
        if !options.is_empty() {
            arguments.push("-S");
        }
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        arguments.push(tree);
        self.git(&arguments, b"")
    }

    /// A commit object of exactly these bytes.
    pub fn raw_commit(&self, bytes: &[u8]) -> String {
        self.git(
            &[
                "hash-object",
                "-w",
                "--literally",
                "-t",
                "commit",
                "--stdin",
            ],
            bytes,
        )
    }

    pub fn set(&self, branch: &str, oid: &str) {
        self.git(&["update-ref", &format!("refs/heads/{branch}"), oid], b"");
    }

    /// One more commit on main with this `research.yml`.
    pub fn push(&self, text: &str, parents: &[&str]) -> String {
        let tree = self.policies(&[("research.yml", text)]);
        let oid = self.commit(&tree, parents);
        self.set("main", &oid);
        oid
    }
}

pub fn run(mut command: Command, input: &[u8]) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// A repository, and where a gateway's state is.
pub struct Lab {
    pub folder: tempfile::TempDir,
    pub remote: Repository,
    /// Lines of the source's configuration.
    pub extra: String,
}

impl Lab {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let remote = Repository::new(folder.path());
        Self {
            folder,
            remote,
            extra: String::new(),
        }
    }

    pub fn with(extra: &str) -> Self {
        Self {
            extra: extra.to_owned(),
            ..Self::new()
        }
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The sources of a gateway that starts now.
    pub fn open(&self) -> Sources {
        self.open_at(&self.remote.path.display().to_string())
    }

    pub fn open_at(&self, remote: &str) -> Sources {
        let mut text = format!("gateway:\n  sources:\n    main:\n      remote: {remote}\n");
        for line in self.extra.lines() {
            text = format!("{text}      {line}\n");
        }
        let config =
            GatewayConfig::parse("c.yml", &text).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
        Sources::open(&config.sources, &self.state()).unwrap()
    }

    /// A file that only root may write, or only read.
    pub fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

pub fn main_of(sources: &Sources) -> &Source {
    sources.named("main").unwrap()
}

/// Looks, and what is true then.
pub async fn sync(sources: &Sources) -> SourceView {
    main_of(sources).sync(None).await;
    main_of(sources).view()
}

/// Looks at what must be in order.
pub async fn loaded(sources: &Sources, commit: &str) {
    let looked = main_of(sources).sync(None).await;
    let view = main_of(sources).view();
    assert!(
        matches!(looked, Looked::Loaded { .. }),
        "{looked:?} {view:#?}"
    );
    assert_eq!((view.commit.as_deref(), view.problem), (Some(commit), None));
}

/// Looks at what must be refused; what is in force stays. Returns message and mistakes.
pub async fn refused(sources: &Sources, in_force: Option<&str>) -> String {
    let view = sync(sources).await;
    assert_eq!(view.commit.as_deref(), in_force);
    let problem = view.problem.expect("it must be refused");
    format!("{}\n{}", problem.message, problem.mistakes.join("\n"))
}

/// The text of `research` that a network would get now.
pub fn research(sources: &Sources) -> Option<String> {
    sources
        .shelf()
        .find("default", None, "research")
        .ok()
        .map(|found| found.entry.document.text)
}
