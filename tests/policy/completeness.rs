//! The command line as a whole: help that teaches, stable exit codes, completions, the configuration's check.

use lab::cli::{sallyport, sallyport_in};

#[test]
fn every_verb_has_help() {
    for verb in [
        &["run"][..],
        &["policy", "check"],
        &["policy", "lints"],
        &["policy", "test"],
        &["policy", "diff"],
        &["policy", "replay"],
        &["policy", "learn"],
        &["policy", "reference"],
        &["policy", "reasons"],
        &["policy", "sets"],
        &["policy", "explain"],
        &["policy", "schema"],
        &["policy", "render"],
        &["policy", "presets"],
        &["net", "ls"],
        &["net", "show"],
        &["net", "flows"],
        &["net", "attach"],
        &["net", "detach"],
        &["net", "policy"],
        &["record", "verify"],
        &["record", "export"],
        &["gateway"],
        &["gateway", "rules"],
        &["runner"],
        &["up"],
        &["doctor"],
        &["selftest"],
        &["uninstall"],
        &["completions"],
        &["version"],
    ] {
        let said = sallyport(&[verb, &["--help"]].concat()).expect(0);
        assert!(said.out.contains("Usage:"), "{verb:?}");
    }
    assert!(sallyport(&["--help"]).expect(0).out.contains("Exit codes:"));
    // not even that is done in silence
    let doctor = sallyport(&["doctor", "--help"]).expect(0).out;
    assert!(doctor.contains("podman pause"), "{doctor}");
}

#[test]
fn the_policy_that_the_readme_shows_has_no_mistake_and_no_warning() {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```yaml\npolicy:").expect("an example");
    let (policy, _) = rest.split_once("```").expect("its end");
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("p.yml"), format!("policy:{policy}")).expect("policy");
    sallyport_in(
        directory.path(),
        &["policy", "check", "--deny-warnings", "p.yml"],
    )
    .expect(0);
}

#[test]
fn a_configuration_is_checked_by_its_name_or_as_the_one_in_use() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("c.yml"), "gateway: { nonsense: 1 }\n").expect("config");
    for arguments in [
        &["config", "check", "c.yml"][..],
        &["config", "check", "--config", "c.yml"],
    ] {
        let said = sallyport_in(directory.path(), arguments).expect(1);
        assert!(said.out.contains("nonsense"), "{said:?}");
    }
}

#[test]
fn wrong_usage_is_2_and_what_cannot_be_reached_is_3() {
    sallyport(&["frobnicate"]).expect(2);
    sallyport(&["run"]).expect(2);
    sallyport(&["run", "--timeout", "soon", "--", "true"]).expect(2);
    let directory = tempfile::tempdir().expect("directory");
    let config = format!(
        "gateway: {{ control: {}/none.sock }}\n",
        directory.path().display()
    );
    std::fs::write(directory.path().join("c.yml"), config).expect("config");
    let said = sallyport_in(directory.path(), &["net", "ls", "--config", "c.yml"]).expect(3);
    assert!(said.err.contains("hint:"), "{said:?}");
    sallyport_in(directory.path(), &["net", "ls", "--config", "missing.yml"]).expect(3);
}

#[test]
fn a_run_that_cannot_be_had_is_125() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("bad.yml"), "policy: p\n").expect("policy");
    let said = sallyport_in(
        directory.path(),
        &["run", "--policy", "bad.yml", "--", "true"],
    )
    .expect(125);
    assert!(said.err.contains("bad.yml:1:1"), "{said:?}");
    sallyport_in(
        directory.path(),
        &["run", "--policy", "no-such-preset", "--", "true"],
    )
    .expect(125);
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let said = sallyport(&["completions", shell]).expect(0);
        assert!(
            said.out.contains("sallyport") && said.out.contains("uninstall"),
            "{shell}"
        );
    }
}

#[test]
fn the_version_names_its_licences() {
    assert!(
        sallyport(&["version"])
            .expect(0)
            .out
            .starts_with("sallyport ")
    );
    let licences = sallyport(&["version", "--licenses"]).expect(0).out;
    assert!(
        licences.contains("GPL-3.0-or-later") && licences.contains("Apache License"),
        "{licences}"
    );
}

#[test]
fn invariant_11_a_wrong_configuration_names_every_mistake_and_starts_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let text =
        "gateway:\n  contrl: /x\n  egress_filter: requierd\nrunner:\n  pool: many\nconsol: {}\n";
    std::fs::write(directory.path().join("c.yml"), text).expect("config");
    for verb in [
        &["gateway"][..],
        &["runner"],
        &["up"],
        &["gateway", "--check"],
        &["config", "check"],
    ] {
        let said = sallyport_in(directory.path(), &[verb, &["--config", "c.yml"]].concat());
        assert!(
            said.code.is_some_and(|code| code != 0),
            "{verb:?}: {said:?}"
        );
        let all = said.out.clone() + &said.err;
        for place in ["c.yml:2:", "c.yml:3:", "c.yml:5:", "c.yml:6:"] {
            assert!(all.contains(place), "{verb:?} does not name {place}: {all}");
        }
    }
    let schema = sallyport(&["config", "schema"]).expect(0).json();
    assert!(schema["properties"]["gateway"]["properties"]["resolvers"].is_object());
}
