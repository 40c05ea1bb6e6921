//! Every attack case that concerns a part which exists is a test, by name; the rest says what it waits for.

use std::collections::BTreeMap;

use super::tree::root;

/// What a case may wait for. A new word here is a decision, not a way out.
const LATER: [&str; 7] = [
    "inspection of TLS",
    "credentials",
    "rules about queries",
    "console",
    "copying files out",
    "archive import",
    "volumes and caches",
];

fn lines(file: &str) -> Vec<String> {
    let text =
        std::fs::read_to_string(root().join("tests/cases").join(file)).expect("a list of cases");
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A title of a browser test as a row writes it: its words with dashes between them.
fn dashed(title: &str) -> String {
    let words: Vec<&str> = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-")
}

/// What is wrong with a row's right half.
fn complaint(covers: &str) -> Option<String> {
    if let Some(reason) = covers.strip_prefix("later: ") {
        return (!LATER.contains(&reason))
            .then(|| format!("waits for {reason:?}, which is no part that is planned"));
    }
    covers.split(' ').find_map(|test| {
        let Some((file, name)) = test.rsplit_once("::") else {
            return Some(format!("{test:?} is no file::function"));
        };
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            return Some(format!("{file} is not there"));
        };
        if file.ends_with(".test.ts") {
            let mut titles = text
                .lines()
                .filter_map(|l| l.trim_start().strip_prefix("test(\"")?.split('"').next());
            return (!titles.any(|title| dashed(title) == name))
                .then(|| format!("{file} has no test {name}"));
        }
        // the function itself, under an attribute that makes it a test
        let at = text.find(&format!("fn {name}("));
        let Some(at) = at else {
            return Some(format!("{file} has no function {name}"));
        };
        let before: Vec<&str> = text
            .get(..at)
            .unwrap_or_default()
            .lines()
            .rev()
            .take(6)
            .collect();
        let places = format!("at!({name}: ");
        let test = before.iter().any(|l| {
            let line = l.trim_start();
            ["#[test]", "#[tokio::test", places.as_str()]
                .iter()
                .any(|mark| line.starts_with(mark))
        });
        (!test).then(|| format!("{name} in {file} is no test"))
    })
}

#[test]
fn every_attack_case_is_a_test_or_says_what_it_waits_for() {
    let mut rows = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in lines("coverage.tsv") {
        let (case, covers) = line.split_once('\t').expect("a tab in every line");
        wrong.extend(complaint(covers).map(|c| format!("{case}: {c}")));
        if rows.insert(case.to_owned(), covers.to_owned()).is_some() {
            wrong.push(format!("{case} stands there twice"));
        }
    }
    let ids = lines("ids.txt");
    assert!(ids.len() > 250, "the list of cases is cut: {}", ids.len());
    for line in &ids {
        let case = line.split(' ').next().unwrap_or_default();
        if rows.remove(case).is_none() {
            wrong.push(format!("{line}: no test and no reason"));
        }
    }
    wrong.extend(
        rows.into_keys()
            .map(|case| format!("{case} is no known case")),
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn cases_without_a_test_or_with_one_that_is_gone_are_noticed() {
    assert_eq!(complaint("later: inspection of TLS"), None);
    assert!(complaint("later: no time").is_some());
    assert!(complaint("tests/audit/coverage.rs::no_such_test").is_some());
    assert!(complaint("tests/audit/coverage.rs::complaint").is_some());
    assert!(complaint("tests/audit/nowhere.rs::x").is_some());
    let browser = "console/web/tests/accounts.test.ts::";
    assert!(complaint(&format!("{browser}people")).is_some());
    let title = "a-token-is-shown-once-works-and-does-not-once-it-is-revoked";
    assert_eq!(complaint(&format!("{browser}{title}")), None);
    assert_eq!(
        complaint("tests/audit/coverage.rs::every_attack_case_is_a_test_or_says_what_it_waits_for"),
        None
    );
}
