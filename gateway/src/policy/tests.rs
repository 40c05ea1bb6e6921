//! Floors that seal, policies that are refused, and layers that only narrow.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use super::*;

const OPEN: &str = "policy: open\nnetwork: internet\n";

fn floor(dir: &Path, text: &str) -> FloorFiles {
    let path = dir.join("floor.yaml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    FloorFiles {
        instance: Some(path),
        workspaces: None,
    }
}

fn job(text: &str) -> PolicySource {
    PolicySource::Document {
        file: "job.yaml".to_owned(),
        text: text.to_owned(),
        packages: None,
    }
}

fn composer(files: FloorFiles) -> Composer {
    let composer = Composer::new(files, OwnListeners::default());
    assert!(composer.reload().unwrap());
    composer
}

fn composed(files: FloorFiles, source: &PolicySource) -> Result<Composed, ComposeError> {
    composer(files).compose("default", source, Arc::default())
}

#[test]
fn a_floor_that_is_missing_wrong_or_writable_by_others_is_an_error_and_a_sound_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let files = floor(dir.path(), OPEN);
    let path = files.instance.clone().unwrap();
    assert!(Floors::read(&files).is_ok());

    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(
        Floors::read(&files),
        Err(FloorError::NotBelieved { .. })
    ));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&path, Some(65534), None).unwrap();
    assert!(matches!(
        Floors::read(&files),
        Err(FloorError::NotBelieved { .. })
    ));
    chown(&path, Some(0), None).unwrap();

    let other = dir.path().join("other.yaml");
    fs::rename(&path, &other).unwrap();
    assert!(matches!(Floors::read(&files), Err(FloorError::Read { .. })));
    symlink(&other, &path).unwrap();
    assert!(matches!(Floors::read(&files), Err(FloorError::Read { .. })));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "policy: x\nnetwork: everything\n").unwrap();
    assert!(matches!(
        Floors::read(&files),
        Err(FloorError::Wrong { .. })
    ));
    fs::write(&path, "").unwrap();
    assert!(matches!(
        Floors::read(&files),
        Err(FloorError::Wrong { .. })
    ));
}

#[test]
fn a_folder_that_others_can_write_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let files = floor(dir.path(), OPEN);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        Floors::read(&files),
        Err(FloorError::NotBelieved { .. })
    ));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Floors::read(&files).is_ok());
}

#[test]
fn a_missing_folder_of_workspace_floors_is_an_error_and_a_missing_file_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("workspaces");
    let files = FloorFiles {
        instance: None,
        workspaces: Some(folder.clone()),
    };
    assert!(matches!(Floors::read(&files), Err(FloorError::Read { .. })));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("acme.yaml"), OPEN).unwrap();
    let floors = Floors::read(&files).unwrap();
    assert_eq!(
        (floors.of("acme").count(), floors.of("other").count()),
        (1, 0)
    );
    fs::write(folder.join("other.yml"), OPEN).unwrap();
    assert!(
        Floors::read(&files).is_err(),
        "a second spelling is an error, not a file that nobody reads"
    );
}

#[test]
fn nothing_is_composed_while_a_named_floor_was_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let composer = Composer::new(floor(dir.path(), "nonsense"), OwnListeners::default());
    assert!(composer.reload().is_err());
    assert!(matches!(
        composer.compose("default", &job(OPEN), Arc::default()),
        Err(ComposeError::NoFloors)
    ));
    floor(dir.path(), OPEN);
    assert!(composer.reload().unwrap());
    assert!(
        composer
            .compose("default", &job(OPEN), Arc::default())
            .is_ok()
    );
}

#[test]
fn every_layer_is_in_the_hash() {
    let dir = tempfile::tempdir().unwrap();
    let without = composed(FloorFiles::default(), &job(OPEN)).unwrap();
    let with = composed(floor(dir.path(), OPEN), &job(OPEN)).unwrap();
    assert_ne!(without.snapshot.hash(), with.snapshot.hash());
    assert_eq!(without.job, with.job);
    assert_eq!(with.snapshot.layers().len(), 2);
}

#[test]
fn a_policy_that_asks_for_what_is_not_enforced_is_refused_with_key_and_place() {
    let asks = "policy: asks\nnetwork: domains\nunknown: ask\nallow:\n  - host: example.com\n";
    let error = composed(FloorFiles::default(), &job(asks)).unwrap_err();
    assert!(matches!(error, ComposeError::NotEnforcedYet(_)));
    assert!(
        error.to_string().starts_with("not enforced yet: `unknown")
            && error.to_string().contains("job.yaml:3:"),
        "{error}"
    );
    assert!(
        composed(
            FloorFiles::default(),
            &job(&asks.replace("ask\n", "deny\n"))
        )
        .is_ok()
    );
}

#[test]
fn a_broken_policy_names_every_mistake_and_an_unknown_preset_is_no_policy() {
    let Err(ComposeError::Invalid(mistakes)) = composed(
        FloorFiles::default(),
        &job("policy: x\nnetwork: maybe\nalow: []\n"),
    ) else {
        panic!("the policy was taken");
    };
    assert_eq!(mistakes.len(), 2);
    let preset = |name: &str| {
        composed(
            FloorFiles::default(),
            &PolicySource::Preset(name.to_owned()),
        )
    };
    assert!(matches!(
        preset("everything"),
        Err(ComposeError::UnknownPreset(_))
    ));
    assert_eq!(preset("internet").unwrap().name, "internet");
}

#[test]
fn a_workspace_name_never_becomes_a_path() {
    let composer = composer(FloorFiles::default());
    for name in ["", "..", "a/b", "/etc", "A", "a\0", &"a".repeat(41)] {
        assert!(
            matches!(
                composer.compose(name, &job(OPEN), Arc::default()),
                Err(ComposeError::WorkspaceName)
            ),
            "{name:?}"
        );
    }
    assert!(
        composer
            .compose("acme-2", &job(OPEN), Arc::default())
            .is_ok()
    );
}

#[test]
fn a_changed_floor_is_noticed_and_a_broken_one_leaves_the_last_good_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let files = floor(dir.path(), OPEN);
    let composer = composer(files);
    let before = composer
        .compose("default", &job(OPEN), Arc::default())
        .unwrap()
        .snapshot
        .hash();
    assert!(!composer.reload().unwrap());
    floor(dir.path(), "policy: x\nnetwork: nonsense\n");
    assert!(composer.reload().is_err());
    assert_eq!(
        composer
            .compose("default", &job(OPEN), Arc::default())
            .unwrap()
            .snapshot
            .hash(),
        before
    );
    floor(dir.path(), "policy: closed\nnetwork: none\n");
    assert!(composer.reload().unwrap());
    assert_ne!(
        composer
            .compose("default", &job(OPEN), Arc::default())
            .unwrap()
            .snapshot
            .hash(),
        before
    );
}
