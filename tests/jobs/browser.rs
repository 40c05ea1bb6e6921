//! The whole way in a browser: the app against everything of `sallyport up`, with a real runner and a real engine; and
//! against a gateway whose policies are in a real repository.
//!
//! Owns the machine that the browser looks at; what is clicked and seen stands in `console/web/tests/live`. The browser
//! runs in the uplink's namespace, for the console listens on loopback there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::Lab;
use lab::cli::{self, Said};
use lab::topology::{OTHER4, ip};
use lab::wait::eventually;

use crate::commits::{OPEN, commit, git};
use crate::pulled::{Ends, stop, with_console};
use crate::up::log;

/// Where the app's sources are.
fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../console/web")
}

/// Beside those of the other browser tests: this binary lies in `TARGET/debug/deps`.
fn shots() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.ancestors().nth(3).expect("target").join("browser")
}

/// What came of the clicks of a file of `tests/live`, on the console that has logged its owner's link.
fn clicked(lab: &Lab, file: &str, log: impl Fn() -> String, about: &[(&str, &str)]) -> Said {
    assert!(
        web().join("node_modules/vitest").is_dir(),
        "the browser app's packages are not installed: run `./dev check` or `./dev browser` once"
    );
    let link = eventually("the owner's link", || {
        let text = log();
        let at = text.find("#owner=")?;
        let begin = text.get(..at)?.rfind("http")?;
        let link = text.get(begin..)?.split(char::is_whitespace).next()?;
        Some(link.trim_matches(['"', '`', '\'']).to_owned())
    });
    let mut command = Command::new("npm");
    command
        .args(["run", "--silent", "live", "--", file])
        .current_dir(web())
        .env("LIVE_LINK", link)
        .envs(about.iter().copied())
        .env("BROWSER_SHOTS", shots())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.topology.uplink.start(&mut command).expect("npm");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn from_the_first_start_to_a_denial_and_the_rule_that_permits_it() {
    let (lab, child) = with_console();
    let frames = lab.capture.mark();
    let said = clicked(&lab, "first", || log(lab.directory()), &[]);
    assert_eq!(
        said.code,
        Some(0),
        "{}\n{}\n{}",
        said.out,
        said.err,
        log(lab.directory())
    );
    // what was denied at first was reached in the end, not only said to be
    lab.capture.settle();
    assert!(!lab.capture.touching(frames, ip(OTHER4)).is_empty());
    stop(&lab, child);
}

#[test]
fn what_is_proposed_in_a_browser_is_a_branch_of_the_real_repository_and_nothing_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let [open, shut] = ["open", "shut"].map(|name| folder.path().join(name));
    for at in [&open, &shut] {
        std::fs::create_dir(at).expect("a folder");
        git(at, &["init", "--quiet", "--initial-branch=main"]);
    }
    let in_force = commit(&open, OPEN);
    commit(&shut, &OPEN.replace("research", "closed"));
    let sources = format!(
        "sources:\n  open:\n    remote: {}\n    poll: 3600\n    proposals: allowed\n  shut:\n    remote: {}\n    poll: 3600\n",
        open.display(),
        shut.display()
    );
    let lab = Lab::builder().gateway_only().config(&sources).start();
    let config = lab.directory().join("config.yml").display().to_string();
    let words = lab.directory().join("console.log");
    let mut command = cli::command(&["console", "--config", &config]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&words).expect("a log"));
    let _console = Ends::of(lab.topology.uplink.start(&mut command).expect("start"));
    let log = || std::fs::read_to_string(&words).unwrap_or_default();
    let said = clicked(&lab, "git", log, &[("LIVE_COMMIT", &in_force)]);
    assert_eq!(said.code, Some(0), "{}\n{}\n{}", said.out, said.err, log());

    let heads = ["for-each-ref", "--format=%(refname:short)", "refs/heads"];
    let branches = git(&open, &heads);
    let branches: Vec<&str> = branches.lines().collect();
    let [_, proposed] = branches[..] else {
        panic!("main and one more: {branches:?}");
    };
    assert!(
        proposed.starts_with("sallyport/proposals/let-research-reach-more"),
        "{proposed}"
    );
    // one commit on top of what was in force, of one file
    assert_eq!(
        git(&open, &["rev-parse", &format!("{proposed}^")]),
        in_force
    );
    let files = git(&open, &["diff", "--name-only", &in_force, proposed]);
    assert_eq!(files, "policies/research.yml");
    let text = git(
        &open,
        &["show", &format!("{proposed}:policies/research.yml")],
    );
    let changed = OPEN.replacen(
        "  - host: ok",
        "  - host: more.sallylab.net\n  - host: ok",
        1,
    );
    assert_eq!(text, changed.trim());
    let subject = git(&open, &["log", "-1", "--format=%s", proposed]);
    assert_eq!(subject, "Let research reach more");
    // and in force is what was
    assert_eq!(git(&open, &["rev-parse", "main"]), in_force);
    assert_eq!(git(&shut, &heads), "main");
}
