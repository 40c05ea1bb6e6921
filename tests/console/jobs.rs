//! Jobs by the command line: made, shown, changed, run, removed; each form of output; names of somebody else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::cli::Said;
use serde_json::{Value, json};

use crate::world::Console;

fn nightly(console: &Console) -> Said {
    console.run(&[
        "job",
        "create",
        "nightly",
        "--policy",
        "internet",
        "--schedule",
        "30 4 * * *",
        "--",
        "sh",
        "-c",
        "echo x",
    ])
}

#[test]
fn a_job_is_made_shown_run_and_removed() {
    let console = Console::start();
    nightly(&console).expect(0);
    assert!(
        nightly(&console)
            .expect(3)
            .err
            .contains("there is a job with this name")
    );
    let listed = console.run(&["job", "list", "-o", "json"]).expect(0).json();
    assert_eq!(listed[0]["spec"]["network"]["mode"], "internet");
    let table = console.run(&["job", "list"]).expect(0).out;
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("nightly  ") && line.contains("sh -c echo x")),
        "{table}"
    );
    let run = console
        .run(&["job", "run", "nightly", "-o", "json"])
        .expect(0)
        .json();
    let ps = console.run(&["ps", "--json"]).expect(0).json();
    assert_eq!(ps[0]["id"], run["id"]);
    assert_eq!(ps[0]["state"], "queued");
    let id = run["id"].as_str().unwrap();
    console.run(&["cancel", id]).expect(0);
    assert_eq!(
        console.run(&["ps", "-o", "json"]).expect(0).json(),
        json!([])
    );
    console.run(&["cancel", id]).expect(3);
    let again = console.run(&["retry", id, "-o", "json"]).expect(0).json();
    assert_eq!(again["retry_of"], run["id"]);
    let all = console
        .run(&["ps", "--all", "--job", "nightly"])
        .expect(0)
        .out;
    assert!(all.contains("cancelled") && all.contains("queued"), "{all}");
    console.run(&["job", "delete", "nightly"]).expect(0);
    assert!(
        console
            .run(&["job", "show", "nightly"])
            .expect(3)
            .err
            .contains("there is no job \"nightly\"")
    );
}

#[test]
fn a_job_that_is_shown_as_yaml_is_made_again_from_it() {
    let console = Console::start();
    nightly(&console).expect(0);
    let shown = console
        .run(&["job", "show", "nightly", "-o", "yaml"])
        .expect(0)
        .out;
    let before = console
        .run(&["job", "show", "nightly", "-o", "json"])
        .expect(0)
        .json();
    console.run(&["job", "delete", "nightly"]).expect(0);
    let file = console.folder.path().join("nightly.yml");
    fs::write(&file, &shown).unwrap();
    let file = file.display().to_string();
    let made = console
        .run(&["job", "create", "-f", &file, "-o", "json"])
        .expect(0)
        .json();
    assert_eq!(
        (&made["spec"], &made["name"]),
        (&before["spec"], &before["name"]),
        "{shown}"
    );
    fs::write(
        &file,
        "job: a\nlimts: {}\nlimits: { pids: 0 }\nnetwork: { mode: all }\n",
    )
    .unwrap();
    let refused = console.run(&["job", "create", "-f", &file]).expect(3);
    for place in ["nightly.yml:2:1", "nightly.yml:4:18"] {
        assert!(refused.err.contains(place), "{place}: {}", refused.err);
    }
}

#[test]
fn an_edit_does_not_overwrite_what_somebody_else_changed_meanwhile() {
    let console = Console::start();
    nightly(&console).expect(0);
    let editor = console.folder.path().join("editor");
    let edit = |script: &str| {
        fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = console.command(&["job", "edit", "nightly", "-o", "json"]);
        Said::from(
            command
                .env("EDITOR", &editor)
                .env_remove("VISUAL")
                .output()
                .unwrap(),
        )
    };
    assert!(edit("true").expect(0).err.contains("nothing was changed"));
    assert_eq!(
        edit("echo 'root: true' >> \"$1\"").expect(0).json()["spec"]["root"],
        true
    );
    assert!(
        edit("echo 'rot: true' >> \"$1\"")
            .expect(3)
            .err
            .contains("what you wrote is in ")
    );
    assert!(edit("exit 1").expect(3).err.contains("nothing was changed"));
    // the editor plays somebody else, who is quicker
    let token = console.token("write");
    let other = format!(
        "SALLYPORT_URL={} SALLYPORT_TOKEN={token} {} job delete nightly\necho 'description: mine' >> \"$1\"",
        console.url(),
        lab::cli::binary().display()
    );
    edit(&other).expect(3);
    assert_eq!(
        console.run(&["job", "list", "--json"]).expect(0).json(),
        json!([])
    );
}

#[test]
fn names_that_would_write_to_a_terminal_are_shown_as_what_they_are() {
    let console = Console::start();
    // a name is checked by the console, a command is the author's own
    let hostile = "\u{1b}]52;c;aGk=\u{7}\u{9b}2J";
    console
        .run(&[
            "job",
            "create",
            "odd",
            "--",
            "echo",
            hostile,
            "\u{202e}evil",
        ])
        .expect(0);
    for form in ["table", "json", "yaml"] {
        let out = console.run(&["job", "list", "-o", form]).expect(0).out;
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!out.contains(bad), "{form}: {out:?}");
    }
    let listed = console.run(&["job", "list", "-o", "json"]).expect(0).json();
    assert_eq!(
        listed[0]["spec"]["command"],
        json!(["echo", hostile, "\u{202e}evil"])
    );
}

#[test]
fn a_run_is_submitted_where_somebody_is_signed_in_and_takes_what_is_piped() {
    let console = Console::start();
    let runner = console.runner();
    let file = console.folder.path().join("in.txt");
    fs::write(&file, "what is piped").unwrap();
    let mut command = console.command(&[
        "run", "--policy", "internet", "--env", "A=b", "--", "cat", "-n",
    ]);
    command.stdin(fs::File::open(&file).unwrap());
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let work = runner.take();
    assert_eq!(work.job["job"]["command"], json!(["cat", "-n"]));
    assert_eq!(work.job["input"], Value::from("d2hhdCBpcyBwaXBlZA=="));
    work.print(0, false, b"out\n");
    work.print(4, true, b"err\n");
    work.end(7, "exited");
    let said = Said::from(child.wait_with_output().unwrap()).expect(7);
    assert_eq!(said.out, "out\n");
    assert!(
        said.err.contains("err\n") && said.err.contains(&work.run),
        "{}",
        said.err
    );
    let refused = console
        .run(&["run", "--copy", "/etc/hostname", "--", "true"])
        .expect(125);
    assert!(refused.err.contains("--direct"), "{}", refused.err);
}
