//! Output is bytes: nothing in it is lost, changed, believed, or able to fill the machine.

use std::process::Stdio;

use lab::cli;

use super::world::World;
use crate::place::{Place, at};

at!(sbx_15_and_17_every_byte_arrives_as_it_was_written: docker podman gvisor);
fn sbx_15_and_17_every_byte_arrives_as_it_was_written(place: Place) {
    let world = World::on(place);
    let program = r"
import sys, time
out = sys.stdout.buffer
parts = [b'\0', b'\xff\xfe', b'\xed\xa0\x80', b'\xc0\xaf', '\u2028\ufeff'.encode(), '\U0001f600'.encode(), b'\x1b[31m', bytes(range(256))]
for part in parts:
    for byte in part:
        out.write(bytes([byte])); out.flush()
out.write(b'end'); out.flush()
sys.stderr.buffer.write(b'\x9b\xff'); sys.stderr.flush()
";
    let mut expected = vec![0, 0xff, 0xfe, 0xed, 0xa0, 0x80, 0xc0, 0xaf];
    expected.extend("\u{2028}\u{feff}\u{1f600}\u{1b}[31m".bytes());
    expected.extend(0..=255u8);
    expected.extend(b"end");
    let config = world
        .lab
        .directory()
        .join("config.yml")
        .display()
        .to_string();
    let mut command = cli::command(&[
        "run",
        "--quiet",
        "--isolation",
        place.class,
        "--config",
        &config,
        "--",
        "python3",
        "-c",
        program,
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = world
        .lab
        .topology
        .uplink
        .start(&mut command)
        .expect("start")
        .wait_with_output()
        .expect("output");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, expected);
    assert_eq!(output.stderr, b"\x9b\xff");
    // as data, nothing is lost either
    let said = world
        .run(&["--json"], &["printf", "a\\377\\000b"])
        .expect(0);
    assert!(
        said.out
            .lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
        "{}",
        said.out
    );
}

#[test]
fn sbx_10_and_14_a_flood_is_cut_behind_a_marker_and_costs_no_memory() {
    let world = World::with("  pool: 0\n  limits: { output_bytes: 50000000 }\n");
    // one line without an end, and twenty million short ones on each of both streams
    for script in [
        "head -c 200000000 /dev/zero; echo after >&2",
        "yes | head -c 40000000 | tee /dev/stderr",
    ] {
        let said = world.run(&["--timeout", "60s"], &["/bin/bash", "-c", script]);
        assert_eq!(said.code, Some(0), "{script}: {:?}", said.code);
        let notes = said.err.matches("output is dropped from here on").count();
        assert_eq!(notes, 1, "{script}: the marker stands {notes} times");
        let passed = said.out.len() + said.err.len();
        assert!(
            (50_000_000..50_001_000).contains(&passed),
            "{script}: {passed}"
        );
    }
    assert!(world.runner_memory() < 300, "{} MiB", world.runner_memory());
    world.run(&[], &["echo", "the next run"]).expect(0);
}
