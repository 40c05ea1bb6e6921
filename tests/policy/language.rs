//! The shipped examples and presets hold to the language.

use lab::cli::{sallyport, sallyport_in};

#[test]
fn every_preset_prints_a_text_that_check_accepts() {
    let presets = sallyport(&["policy", "presets", "--json"]).expect(0).json();
    let names: Vec<&str> = presets
        .as_array()
        .expect("list")
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "none",
            "domains",
            "domains-private",
            "internet",
            "internet-private",
            "app",
            "build",
            "own-calls"
        ]
    );
    for name in names {
        let text = sallyport(&["policy", "presets", name]).expect(0).out;
        let directory = tempfile::tempdir().expect("directory");
        std::fs::write(directory.path().join("p.yml"), text).expect("policy");
        sallyport_in(directory.path(), &["policy", "check", "p.yml"]).expect(0);
    }
}

#[test]
fn every_shipped_example_is_good() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/policies");
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("examples")
        .flatten()
        .map(|e| e.path())
        .collect();
    assert!(!files.is_empty());
    for file in files {
        sallyport(&["policy", "check", &file.display().to_string()]).expect(0);
    }
}

#[test]
fn rendered_rules_are_the_same_for_every_policy_and_never_forward() {
    let plain = sallyport(&["policy", "render"]).expect(0).out;
    assert_eq!(
        sallyport(&["policy", "render", "internet-private"])
            .expect(0)
            .out,
        plain
    );
    assert!(
        plain.contains("table inet sallyport") && plain.contains("hook forward"),
        "{plain}"
    );
    assert_ne!(
        sallyport(&["policy", "render", "--sealed"]).expect(0).out,
        plain
    );
}
