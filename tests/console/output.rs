//! `logs`: every byte, once and in its order, whatever becomes of the console meanwhile; the exit code of the run.

use std::io::Read;
use std::process::{Child, Stdio};

use lab::cli::Said;
use lab::wait::eventually;

use crate::world::Console;

/// Follows a run.
fn follow(console: &Console, run: &str) -> Child {
    let mut command = console.command(&["logs", "-f", run]);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start")
}

fn submitted(console: &Console) -> String {
    console.run(&["job", "create", "j", "--", "true"]).expect(0);
    let run = console
        .run(&["job", "run", "j", "-o", "json"])
        .expect(0)
        .json();
    run["id"].as_str().expect("an id").to_owned()
}

#[test]
fn bytes_go_on_as_they_are_where_a_program_reads_them() {
    let console = Console::start();
    let runner = console.runner();
    let run = submitted(&console);
    let work = runner.take();
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    for (at, piece) in bytes.chunks(9_001).enumerate() {
        work.print(at * 9_001, false, piece);
    }
    work.end(0, "exited");
    let out = console.command(&["logs", &run]).output().expect("start");
    assert!(out.status.success() && out.stdout == bytes);
    let followed = console
        .command(&["logs", "-f", &run])
        .output()
        .expect("start");
    assert!(followed.status.success() && followed.stdout == bytes);
}

/// Each by itself, `logs` and `logs -f`, to its last byte.
fn whole(console: &Console, run: &str, bytes: &[u8]) {
    for arguments in [&["logs", run][..], &["logs", "-f", run]] {
        let out = console.command(arguments).output().expect("start");
        assert!(out.status.success(), "{arguments:?}: {:?}", out.status);
        assert_eq!(out.stdout.len(), bytes.len(), "{arguments:?}");
        assert!(out.stdout == bytes, "{arguments:?}");
    }
}

#[test]
fn output_longer_than_a_page_is_read_to_its_end() {
    let console = Console::start();
    let runner = console.runner();
    let run = submitted(&console);
    let work = runner.take();
    // a prime number: pieces and pages do not end at the same bytes
    let bytes: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    for (at, piece) in bytes.chunks(50_021).enumerate() {
        work.print(at * 50_021, false, piece);
    }
    work.end(0, "exited");
    whole(&console, &run, &bytes);
}

#[test]
fn output_of_more_pieces_than_a_page_has_is_read_to_its_end() {
    let console = Console::start();
    let runner = console.runner();
    let run = submitted(&console);
    let work = runner.take();
    let bytes: Vec<u8> = (0..=250).cycle().take(5_000).collect();
    for (at, pieces) in bytes.chunks(200).enumerate() {
        work.print_each(at * 200, pieces);
    }
    work.end(0, "exited");
    whole(&console, &run, &bytes);
}

#[test]
fn a_run_that_is_followed_is_told_to_its_end_also_by_a_console_that_was_killed() {
    let mut console = Console::start();
    let run = submitted(&console);
    let mut child = follow(&console, &run);
    let runner = console.runner();
    let work = runner.take();
    work.print(0, false, b"one\n");
    let mut first = [0; 4];
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut first)
        .expect("it comes while the run goes on");
    assert_eq!(&first, b"one\n");
    work.print(4, false, b"two\n");
    console.restart();
    work.print(8, false, b"three\n");
    work.end(3, "exited");
    let said = Said::from(child.wait_with_output().expect("it ends"));
    assert_eq!(said.code, Some(3), "{said:?}");
    assert_eq!(said.out, "two\nthree\n", "{said:?}");
}

#[test]
fn each_end_has_its_exit_code() {
    let console = Console::start();
    let runner = console.runner();
    console.run(&["job", "create", "j", "--", "true"]).expect(0);
    for (code, reason, exits) in [
        (0, "exited", 0),
        (1, "exited", 1),
        (143, "timed_out", 124),
        (137, "out_of_memory", 137),
        (1, "cancelled", 130),
    ] {
        let run = console
            .run(&["job", "run", "j", "-o", "json"])
            .expect(0)
            .json();
        let run = run["id"].as_str().expect("an id");
        runner.take().end(code, reason);
        let said = console.run(&["logs", "-f", run]);
        assert_eq!(said.code, Some(exits), "{reason}: {said:?}");
    }
}

#[test]
fn lines_of_json_hold_every_byte_and_the_end() {
    let console = Console::start();
    let runner = console.runner();
    let run = submitted(&console);
    let work = runner.take();
    work.print(0, true, b"\xff\x1b[2J");
    work.end(2, "exited");
    let said = console.run(&["logs", "-f", &run, "--json"]).expect(2);
    let lines: Vec<serde_json::Value> = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["stream"], &lines[0]["data"]),
        (&"stderr".into(), &"/xtbMko=".into())
    );
    assert_eq!(lines[1]["run"]["state"], "failed");
}

#[test]
fn a_run_of_nobody_is_told_so() {
    let console = Console::start();
    let nobody = "0199f3a2-7d1c-7000-8a51-3c2b9d7e4f10";
    assert!(
        console
            .run(&["logs", "-f", nobody])
            .expect(3)
            .err
            .contains("there is no such thing")
    );
    assert!(
        console
            .run(&["logs", "../secrets"])
            .expect(3)
            .err
            .contains("is no id")
    );
}

#[test]
fn on_a_terminal_a_run_colours_its_text_and_does_nothing_else() {
    let console = Console::start();
    let runner = console.runner();
    let run = submitted(&console);
    let work = runner.take();
    work.print(0, false, b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jend\n");
    work.end(0, "exited");
    // `script` gives it a terminal of its own
    let binary = lab::cli::binary();
    let line = format!("{} logs {run}", binary.display());
    let mut command = std::process::Command::new("script");
    let home = console.folder.path().join("home");
    command
        .args(["-qec", &line, "/dev/null"])
        .env("HOME", home)
        .env("SALLYPORT_URL", console.url());
    command
        .env("SALLYPORT_TOKEN", console.token("read"))
        .stdin(Stdio::null());
    let shown = eventually("the terminal to show it", || {
        let said = Said::from(command.output().expect("script of bsdutils"));
        said.out.contains("end").then_some(said.out)
    });
    assert!(shown.contains("\u{1b}[31mred\u{1b}[0m"), "{shown:?}");
    assert!(
        shown.contains("\\u{1b}]0;title\\u{7}\\u{1b}[2Jend"),
        "{shown:?}"
    );
}
