//! The promises of `sally init`, each with the real binary as process 1 of a pid namespace of its own.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SALLY: &str = env!("CARGO_BIN_EXE_sally");

/// The helper as process 1: unshare(1) forks, so its child is the first process of the new pid namespace.
fn pid_one(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--pid",
        "--mount",
        "--mount-proc",
        "--fork",
        "--kill-child",
        SALLY,
        "init",
        "--deadline-seconds",
    ]);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn sh(deadline: &str, script: &str) -> Output {
    pid_one(&[deadline, "--", "sh", "-c", script])
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exit_code_is_the_commands() {
    assert_eq!(sh("60", "exit 0").status.code(), Some(0));
    assert_eq!(sh("60", "exit 37").status.code(), Some(37));
    assert_eq!(sh("60", "kill -KILL $$").status.code(), Some(137));
}

#[test]
fn missing_command_is_127_and_unexecutable_one_126() {
    let missing = pid_one(&["60", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let directory = pid_one(&["60", "--", "/tmp"]).output().unwrap();
    assert_eq!(directory.status.code(), Some(126));
}

#[test]
fn workload_cannot_trace_or_read_init_and_reads_itself() {
    // As root with every capability ptrace would be granted, so the probe runs as an ordinary user like `agent` does,
    // and so does init.
    let script = "for f in mem environ maps fd/0 root cwd exe; do cat /proc/1/$f >/dev/null 2>&1 && echo open $f; done; \
                  cat /proc/$$/environ >/dev/null && echo own; ls /proc/1/fd >/dev/null 2>&1 && echo open fd";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]);
    command.args([
        "setpriv",
        "--reuid",
        "1000",
        "--regid",
        "1000",
        "--clear-groups",
        "--bounding-set=-all",
    ]);
    command.args([
        readable_copy().to_str().unwrap(),
        "init",
        "--deadline-seconds",
        "60",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let output = command.output().unwrap();
    assert_eq!(text(&output).trim(), "own", "{output:?}");
}

/// The build folder may be closed to other users; the workload's user has to be able to execute the helper.
fn readable_copy() -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::path::Path::new("/tmp").join(format!("sally-init-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("sally");
    std::fs::copy(SALLY, &copy).unwrap();
    for path in [&folder, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

#[test]
fn deadline_ends_everything_that_ignores_signals() {
    let begun = Instant::now();
    let output = sh(
        "1",
        "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; while :; do :; done' &) ; kill -STOP -1; while :; do :; done",
    );
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_engine_that_closed_its_pipe_changes_nothing() {
    for (deadline, script, code) in [
        ("60", "/no/such/program", 127),
        ("1", "trap '' TERM; while :; do :; done", 124),
        ("60", "exit 5", 5),
    ] {
        let mut command = if code == 127 {
            pid_one(&[deadline, "--", script])
        } else {
            pid_one(&[deadline, "--", "sh", "-c", script])
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command.stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{script}");
    }
}

#[test]
fn workload_cannot_end_or_stop_init() {
    let script = "for s in TERM INT QUIT HUP KILL STOP TSTP USR1 SEGV ABRT; do kill -$s 1 2>/dev/null; done; echo alive; exit 5";
    let output = sh("60", script);
    assert_eq!(
        (output.status.code(), text(&output).trim()),
        (Some(5), "alive")
    );
}

#[test]
fn orphans_are_reaped() {
    // Each subshell's child outlives its parent and falls to process 1. Zombies would stay listed in /proc.
    let script = "i=0; while [ $i -lt 300 ]; do (true & ) ; i=$((i+1)); done; \
                  n=0; while [ $n -lt 200 ]; do z=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); \
                  [ $z -eq 0 ] && break; n=$((n+1)); sleep 0.05; done; echo $z";
    assert_eq!(text(&sh("60", script)).trim(), "0");
}

#[test]
fn process_that_keeps_stdout_open_does_not_outlive_the_command() {
    let begun = Instant::now();
    let output = sh("60", "(setsid sleep 1000 &) ; echo done");
    assert_eq!(
        (output.status.code(), text(&output).trim()),
        (Some(0), "done")
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn signal_from_outside_reaches_the_command() {
    let mut child = pid_one(&[
        "60",
        "--",
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    assert_eq!(line, "ready\n");
    let init = only_child_of(child.id());
    assert!(
        Command::new("kill")
            .args(["-TERM", &init])
            .status()
            .unwrap()
            .success()
    );
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(9), None));
}

fn only_child_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn wrong_arguments_start_nothing() {
    for arguments in [
        &["x", "--", "true"][..],
        &["-1", "--", "true"],
        &["5", "--"],
        &["5", "true"],
        &["5", "--stdin"],
        &["5", "--stdin", "--"],
        &["5", "--input", "--", "true"],
    ] {
        assert_eq!(
            pid_one(arguments).output().unwrap().status.code(),
            Some(64),
            "{arguments:?}"
        );
    }
}

#[test]
fn command_starts_with_no_signal_blocked() {
    let output = pid_one(&["60", "--", "grep", "SigBlk", "/proc/self/status"])
        .output()
        .unwrap();
    assert_eq!(text(&output), "SigBlk:\t0000000000000000\n");
}

#[test]
fn command_can_leave_no_core_file_and_open_no_more_files_than_others() {
    let script = "ulimit -Sc; ulimit -Hc; ulimit -c unlimited 2>/dev/null; ulimit -Hn";
    let init = format!("exec {SALLY} init --deadline-seconds 60 -- sh -c '{script}'");
    // without the power that would give it back, as in a sandbox
    let limits = format!("ulimit -c unlimited; ulimit -n 20000; {init}");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_resource", "sh", "-c", &limits]);
    let output = command.output().unwrap();
    assert_eq!(text(&output), "0\n0\n16384\n", "{output:?}");
}

/// The helper in a folder, with this on its standard input.
fn fed(folder: &std::path::Path, flags: &[&str], input: &[u8], script: &str) -> Output {
    let arguments = [&["60"], flags, &["--", "sh", "-c", script]].concat();
    let mut command = pid_one(&arguments);
    command.current_dir(folder).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // one that reads no more has closed its end
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input);
    child.wait_with_output().unwrap()
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("sally-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn standard_input_reaches_the_command_only_when_it_is_to() {
    let folder = folder("stdin");
    let output = fed(&folder, &["--stdin"], b"two\x10\x11\nlines\n", "cat");
    assert_eq!(text(&output), "two\x10\x11\nlines\n");
    let output = fed(&folder, &[], b"something", "cat; echo end");
    assert_eq!(text(&output), "end\n");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_come_in_before_the_command_and_what_follows_them_is_its_input() {
    let folder = folder("files");
    let away = folder.join("away");
    std::fs::write(&away, "untouched").unwrap();
    let mut parcel = Vec::new();
    parcel.extend(b"D\x00\x01d\x01\xff");
    parcel.extend(b"F\x00\x06d/tool\x01\xed\0\0\0\0\0\0\0\x05E\0DLF");
    parcel.extend(b"L\x00\x04link\x00\x04away");
    // a link in the way of a file is replaced, not followed
    parcel.extend(b"F\x00\x04link\x01\xa4\0\0\0\0\0\0\0\x02hi");
    parcel.extend(b"L\x00\x05other\x00\x04away");
    parcel.extend(b"F\x00\x05p/q/r\x01\xa4\0\0\0\0\0\0\0\0E");
    parcel.extend(b"rest");
    let script =
        "cat; echo; cat away link; echo; readlink other; stat -c %a d d/tool p/q/r; wc -c < d/tool";
    let output = fed(&folder, &["--files", "--stdin"], &parcel, script);
    let wanted = "rest\nuntouchedhi\naway\n777\n755\n644\n5\n";
    assert_eq!(text(&output), wanted, "{output:?}");
    // without its own input the command has none, whatever follows
    let output = fed(&folder, &["--files"], b"Erest", "cat; echo end");
    assert_eq!(text(&output), "end\n");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn who_gives_files_without_an_end_does_not_outlast_the_deadline() {
    let folder = folder("endless");
    let mut command = pid_one(&["1", "--files", "--", "sh", "-c", "echo started"]);
    command.current_dir(&folder).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut giving = child.stdin.take().unwrap();
    let begun = std::time::Instant::now();
    let folders = b"D\x00\x01d\x01\xff".repeat(1000);
    while std::io::Write::write_all(&mut giving, &folders).is_ok() {
        assert!(begun.elapsed().as_secs() < 20, "it is still taken in");
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_that_do_not_come_in_whole_start_nothing() {
    let folder = folder("broken");
    for parcel in [
        &b""[..],
        b"X",
        b"D\x00\x00\x01\xff",
        b"D\x00\x05../up\x01\xffE",
        b"D\x00\x03a\0b\x01\xffE",
        b"F\x00\x01f\x01\xa4\0\0\0\0\0\0\0\x09short",
        b"F\x00\x01f\x01\xa4\xff\xff\xff\xff\xff\xff\xff\xffE",
        b"L\x00\x01l\x00\x00E",
        b"D\x00\x0d/proc/1/x\x1b[2J\x01\xffE",
    ] {
        let output = fed(&folder, &["--files"], parcel, "echo started");
        assert_eq!(output.status.code(), Some(125), "{parcel:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(!output.stderr.contains(&0x1b), "{output:?}");
    }
    assert!(!folder.join("../up").exists());
    std::fs::remove_dir_all(folder).unwrap();
}
