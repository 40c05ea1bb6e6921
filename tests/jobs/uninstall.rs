//! `sallyport uninstall`: all of one installation, nothing of another, also where its folders lie in each other.

use std::path::Path;

use lab::cli::{Said, command};

/// A configuration that says no more than a second installation must.
fn installation(folder: &Path) -> String {
    let at = folder.display();
    let name = format!("spx-none-{}", std::process::id());
    let config = folder.join("config.yml");
    let text =
        format!("gateway: {{ namespace: {name}, state_dir: {at}/state, run_dir: {at}/run }}\n");
    std::fs::write(&config, text).expect("a configuration");
    config.display().to_string()
}

fn sallyport(arguments: &[&str]) -> Said {
    command(arguments).output().expect("start").into()
}

#[test]
fn folders_in_folders_go_and_those_of_another_installation_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = installation(folder.path());
    for inner in ["state/runner", "run/runner/pods"] {
        std::fs::create_dir_all(folder.path().join(inner)).expect("folders");
    }
    let all = ["uninstall", "--purge", "--config", &config];
    let dry = sallyport(&[&all[..], &["--dry-run"]].concat()).expect(0);
    let own = folder.path().display().to_string();
    assert!(dry.out.contains("would remove folder"), "{dry:?}");
    let foreign = dry
        .out
        .lines()
        .find(|line| line.contains("folder") && !line.contains(&own));
    assert_eq!(foreign, None, "{dry:?}");
    let done = sallyport(&all).expect(0);
    assert!(!done.out.contains("could not"), "{done:?}");
    assert!(!folder.path().join("state").exists() && !folder.path().join("run").exists());
    let again = sallyport(&all).expect(0);
    assert!(again.out.contains("nothing is left"), "{again:?}");
}

#[test]
fn a_variable_that_is_set_to_nothing_names_no_configuration() {
    for verb in [&["policy", "presets"][..], &["version"]] {
        let said: Said = command(verb)
            .env("SALLYPORT_CONFIG", "")
            .output()
            .expect("start")
            .into();
        said.expect(0);
    }
    let said: Said = command(&["config", "check"])
        .env("SALLYPORT_CONFIG", "/nonexistent/config.yml")
        .output()
        .expect("start")
        .into();
    assert!(said.err.contains("/nonexistent/config.yml"), "{said:?}");
}
