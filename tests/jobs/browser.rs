//! The whole way in a browser: the app against everything of `sallyport up`, with a real runner and a real engine.
//!
//! Owns the machine that the browser looks at; what is clicked and seen stands in `console/web/tests/live`. The browser
//! runs in the uplink's namespace, for the console listens on loopback there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::cli::Said;
use lab::topology::{OTHER4, ip};
use lab::wait::eventually;

use crate::pulled::{stop, with_console};
use crate::up::log;
use crate::world::Here;

/// Where the app's sources are.
fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../console/web")
}

/// Beside those of the other browser tests: this binary lies in `TARGET/debug/deps`.
fn shots() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.ancestors().nth(3).expect("target").join("browser")
}

fn clicked(lab: &Here) -> Said {
    let link = eventually("the owner's link", || {
        let text = log(lab.directory());
        let at = text.find("#owner=")?;
        let begin = text.get(..at)?.rfind("http")?;
        let link = text.get(begin..)?.split(char::is_whitespace).next()?;
        Some(link.trim_matches(['"', '`', '\'']).to_owned())
    });
    let mut command = Command::new("npm");
    command
        .args(["run", "--silent", "live"])
        .current_dir(web())
        .env("LIVE_LINK", link)
        .env("BROWSER_SHOTS", shots())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.topology.uplink.start(&mut command).expect("npm");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn from_the_first_start_to_a_denial_and_the_rule_that_permits_it() {
    assert!(
        web().join("node_modules/vitest").is_dir(),
        "the browser app's packages are not installed: run `./dev check` or `./dev browser` once"
    );
    let (lab, child) = with_console();
    let frames = lab.capture.mark();
    let said = clicked(&lab);
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
