//! Images are made by strangers: their settings decide nothing that protects the machine or other runs.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use lab::cli::Said;

use super::world::{IMAGE, World, docker};
use crate::place::{Place, at};

/// An image of this test, removed at the end.
#[derive(Debug)]
struct Made(String);

impl Made {
    /// The sandbox image with changed settings, whose stop signal would not stop anything.
    fn new(name: &str, changes: &[&str]) -> Self {
        let image = format!("sallyport-test/{name}:{}", std::process::id());
        let container = docker(&[
            "create",
            "--network",
            "none",
            "--stop-signal",
            "SIGCONT",
            IMAGE,
            "true",
        ])
        .expect(0)
        .out
        .trim()
        .to_owned();
        let mut arguments = vec!["commit"];
        for change in changes {
            arguments.extend(["--change", change]);
        }
        arguments.extend([container.as_str(), image.as_str()]);
        let said: Said = docker(&arguments);
        docker(&["rm", "-f", &container]);
        said.expect(0);
        Self(image)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        docker(&["rmi", "-f", &self.0]);
    }
}

#[test]
fn sbx_33_an_images_own_settings_do_not_decide() {
    let world = World::start();
    let instance = world.instance();
    let label = format!(
        "LABEL sallyport.instance={instance} sallyport.run=0123456789abcdef sallyport.role=holder"
    );
    let image = Made::new(
        "settings",
        &[
            "HEALTHCHECK --interval=1s CMD touch /tmp/checked",
            "USER 0:0",
            "ENTRYPOINT [\"/bin/sh\", \"-c\", \"touch /tmp/entered; exec \\\"$@\\\"\"]",
            "ENV LD_PRELOAD=/tmp/none.so BASH_ENV=/tmp/none PATH=/usr/bin:/bin",
            "VOLUME /data",
            &label,
        ],
    );
    let script = "id -u; sleep 3; ls -A /tmp; echo; kill -TERM $$; sleep 9";
    let said = world.run(
        &["--image", &image.0, "--policy", "none"],
        &["/bin/sh", "-c", script],
    );
    assert_eq!(said.out.lines().next(), Some("1000"), "{said:?}");
    assert!(
        !said.out.contains("checked") && !said.out.contains("entered"),
        "{said:?}"
    );
    assert_eq!(
        said.code,
        Some(143),
        "SIGTERM ends it, whatever the image's stop signal: {said:?}"
    );

    // the preload concerns the job's own programs only: process 1 is static and lives
    let program = "import json; print(json.dumps(open('/proc/1/cmdline').read().split('\\0')[0]))";
    let helper = world.probe(&["--image", &image.0], program);
    assert!(
        helper.as_str().is_some_and(|h| h.starts_with("/.sally-")),
        "{helper}"
    );

    // a container of somebody else with our labels is not ours to remove, and it hides nothing
    let foreign = format!("sallyport-test-foreign-{}", std::process::id());
    docker(&[
        "run",
        "-d",
        "--rm",
        "--network",
        "none",
        "--name",
        &foreign,
        "--entrypoint",
        "sleep",
        &image.0,
        "300",
    ])
    .expect(0);
    let said = world.run(&[], &["echo", "beside it"]);
    let still = docker(&["inspect", "-f", "{{.State.Running}}", &foreign]);
    docker(&["rm", "-f", &foreign]);
    said.expect(0);
    assert_eq!(
        still.out.trim(),
        "true",
        "a foreign container was removed for its labels"
    );
    assert_eq!(world.containers(), Vec::<String>::new());
    let volumes = docker(&[
        "volume",
        "ls",
        "-q",
        "--filter",
        "dangling=true",
        "--filter",
        &format!("label=sallyport.instance={instance}"),
    ]);
    assert_eq!(volumes.out, "", "a volume was left");
}

#[test]
fn sbx_05_and_33_images_that_lead_out_of_the_sandbox_are_refused() {
    let world = World::start();
    for (name, change, word) in [
        ("fd", "WORKDIR /proc/self/fd/8", "working directory"),
        ("sys", "WORKDIR /sys/fs/cgroup", "working directory"),
        ("etc", "VOLUME /etc", "volume"),
        ("proc", "VOLUME /proc/x", "volume"),
        ("helper", "VOLUME /usr/local/bin/sally", "volume"),
    ] {
        let image = Made::new(name, &[change]);
        let said = world.run(&["--image", &image.0], &["true"]);
        assert_eq!(said.code, Some(125), "{change}: {said:?}");
        assert!(said.err.contains(word), "{change}: {}", said.err);
    }
    assert_eq!(world.containers(), Vec::<String>::new());
    let said = world.run(&["--image", "sallyport-test/is-not-there:1"], &["true"]);
    assert_eq!(
        said.code,
        Some(125),
        "an image is never fetched behind the caller's back: {said:?}"
    );
}

/// The sandbox image of a place with these files over its root, and with volumes.
fn with_files(world: &World, name: &str, files: &Path, volumes: &str) -> String {
    let image = format!("localhost/sallyport-test/{name}:{}", std::process::id());
    let made = world
        .engine(&["create", "--network", "none", IMAGE, "true"])
        .expect(0);
    let container = made.out.trim();
    let copied = format!("{}/.", files.display());
    let at = format!("{container}:/");
    world.engine(&["cp", &copied, &at]).expect(0);
    let change = format!("VOLUME {volumes}");
    world
        .engine(&["commit", "--change", &change, container, &image])
        .expect(0);
    world.engine(&["rm", "-f", container]).expect(0);
    image
}

/// What an image would have run in the place of process 1.
fn program(at: &Path) {
    std::fs::write(at, "#!/bin/sh\necho the image is process 1\n").expect("a program");
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

at!(sbx_33_no_image_puts_a_program_in_the_place_of_process_1: docker podman gvisor);
fn sbx_33_no_image_puts_a_program_in_the_place_of_process_1(place: Place) {
    const SEEN: &str = "tr '\\0' ' ' </proc/1/cmdline; echo; echo ran";
    let world = World::on(place);
    let folder = |name: &str| {
        let folder = world.lab.directory().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        folder
    };
    // the helper would be mounted through the link, and a volume with the image's content over it
    let linked = folder("linked");
    for (link, volume) in [(".sally", "vol1"), (".sally-", "a")] {
        std::fs::create_dir(linked.join(volume)).expect("a folder");
        program(&linked.join(volume).join("x"));
        symlink(format!("/{volume}/x"), linked.join(link)).expect("a link");
    }
    let image = with_files(&world, "linked", &linked, "/vol1 /a");
    // the order of mounts is by chance, so it is tried more than once
    for _ in 0..4 {
        let said = world.run(&["--image", &image], &["/bin/sh", "-c", SEEN]);
        assert_eq!(said.code, Some(0), "an odd image, and it runs: {said:?}");
        assert!(said.out.starts_with("/.sally-"), "{said:?}");
        assert!(said.out.ends_with("\nran\n"), "{said:?}");
    }
    world.engine(&["rmi", "-f", &image]);

    // the root itself, by another name, as a volume: the helper may end below it, then nothing starts
    let whole = folder("whole");
    program(&whole.join(".sally"));
    symlink("/", whole.join("vol1")).expect("a link");
    let image = with_files(&world, "whole", &whole, "/vol1");
    let said = world.run(&["--image", &image], &["/bin/sh", "-c", SEEN]);
    world.engine(&["rmi", "-f", &image]);
    assert!(!said.out.contains("the image is"), "{said:?}");
    assert_eq!(world.containers(), Vec::<String>::new());
    world.run(&[], &["echo", "the next run"]).expect(0);
}
