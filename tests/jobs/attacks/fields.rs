//! What a caller writes in a job's fields is a value: never an option, a path of the machine or a text for a shell.

use super::world::World;

/// Refused with the field's name, before the engine is asked.
fn refused(world: &World, options: &[&str], word: &str) {
    let said = world.run(options, &["true"]);
    assert_eq!(said.code, Some(125), "{options:?} {said:?}");
    assert!(
        said.err.contains(word),
        "{options:?} does not say {word}: {}",
        said.err
    );
    assert!(
        !said.err.contains('\u{1b}'),
        "control characters come back: {:?}",
        said.err
    );
}

#[test]
fn sbx_05_34_35_and_39_what_could_be_read_as_something_else_is_refused() {
    let world = World::start();
    for image in [
        "--privileged",
        "-v /:/host",
        "x y",
        "user:pass@registry.example/app",
        "app:tag;$(id)",
        "App",
        "a\nb",
    ] {
        refused(&world, &[&format!("--image={image}")], "image");
    }
    for workdir in [
        "/proc/self/fd/8",
        "../../",
        "/home/agent/../..",
        "/sys/fs",
        "/dev/shm",
        "relative",
        "/a\nb",
    ] {
        refused(&world, &["--workdir", workdir], "workdir");
    }
    for variable in [
        "A B=1",
        "A\nB=1",
        "1A=1",
        "SALLYPORT_RUN=1",
        "A=\u{1b}[2J",
        "LD-X=1",
    ] {
        refused(&world, &["--env", variable], "env");
    }
    refused(&world, &["--workspace", "broker/../gateway"], "workspace");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[test]
fn sbx_39_arguments_reach_the_command_as_they_are() {
    let world = World::start();
    let odd = [
        "$(id)",
        "a;b|c",
        "two\nlines",
        "-x",
        "--",
        "`id`",
        "*",
        "",
        "\u{2028}ä",
        "'\"\\",
    ];
    let program =
        "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.getcwd()]))";
    let command: Vec<&str> = ["python3", "-c", program].into_iter().chain(odd).collect();
    let said = world
        .run(&["--env", "A=$(id) \n\t'\"", "--workdir", "/tmp"], &command)
        .expect(0);
    let got: serde_json::Value = serde_json::from_str(said.out.trim_end()).expect("JSON");
    assert_eq!(got, serde_json::json!([odd, "$(id) \n\t'\"", "/tmp"]));
    // the kernel's own limit for one argument is told as such, and nothing is started
    let long = "x".repeat(128 * 1024 - 1);
    let said = world.run(
        &[],
        &["/bin/sh", "-c", "printf %s \"$1\" | wc -c", "sh", &long],
    );
    assert!(
        said.code == Some(0) && said.out.trim() == "131071",
        "{:?} {:?}",
        said.code,
        said.err
    );
}
