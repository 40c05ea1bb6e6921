//! How the code is laid out: every file says what it is for, none is longer than a person reads, nothing is unfinished.

use super::tree::{files, root, shown};

/// No file of code is longer than this.
const LONGEST: usize = 600;

#[test]
fn every_file_opens_with_what_it_is_for() {
    let silent: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            !text
                .lines()
                .find(|line| !line.starts_with("#!"))
                .is_some_and(|line| line.starts_with("//!"))
        })
        .map(|path| shown(path))
        .collect();
    assert!(
        silent.is_empty(),
        "these do not open with `//!`: {silent:#?}"
    );
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = files(&[".rs"])
        .iter()
        .map(|path| {
            (
                path,
                std::fs::read_to_string(path)
                    .unwrap_or_default()
                    .lines()
                    .count(),
            )
        })
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(path, lines)| format!("{} has {lines} lines", shown(path)))
        .collect();
    assert!(long.is_empty(), "split these: {long:#?}");
}

#[test]
fn nothing_is_marked_as_unfinished() {
    // put together here, so that this file does not find itself
    let marks = [
        ["to", "do!("].concat(),
        ["unimplemen", "ted!("].concat(),
        ["FIX", "ME"].concat(),
        ["TO", "DO"].concat(),
    ];
    let skip = ["#[ign", "ore"].concat();
    let mut found = Vec::new();
    for path in files(&[".rs", ".toml", ".sh", "dev"]) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str()))
                || line.trim_start().starts_with(&skip)
            {
                found.push(format!("{}:{}: {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn lints_are_switched_off_only_with_a_reason() {
    let bare = ["al", "low("].concat();
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // an attribute ends at the first `)]`; its reason stands before that
        let attributes = text.match_indices('#').filter_map(|(at, _)| {
            let rest = text.get(at..)?;
            let rest = rest
                .strip_prefix("#![")
                .or_else(|| rest.strip_prefix("#["))?;
            rest.starts_with(&bare)
                .then(|| rest.split(")]").next().unwrap_or_default())
        });
        found.extend(
            attributes
                .filter(|a| !a.contains("reason"))
                .map(|a| format!("{}: {a}", shown(&path))),
        );
    }
    assert!(found.is_empty(), "say why: {found:#?}");
}

#[test]
fn scripts_and_documents_name_no_package_host() {
    let hosts = ["crates", "npmjs", "pypi"]
        .map(|name| [".io", ".org", ".com"].map(|end| [name, end].concat()))
        .concat();
    let hosts: Vec<String> = hosts
        .into_iter()
        .chain([
            ["registry.", "docker"].concat(),
            ["deb.", "debian.org"].concat(),
        ])
        .collect();
    let mut found = Vec::new();
    for path in files(&[
        ".md", ".toml", ".sh", ".yml", ".yaml", "dev", "run", "build",
    ]) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        found.extend(
            hosts
                .iter()
                .filter(|h| text.contains(h.as_str()))
                .map(|h| format!("{} names {h}", shown(&path))),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_two_commands_are_on_the_first_screen_of_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let screen: String = readme.lines().take(30).collect::<Vec<_>>().join("\n");
    assert!(
        screen.contains("./dev run") && screen.contains("./dev test"),
        "{screen}"
    );
}
