//! What a run is given: copies of files, and what is piped to it. Everywhere in the same way, on demand and under `up`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lab::cli::Said;
use lab::wait::within;

use crate::attacks::world::World;
use crate::place::{Place, at};
use crate::world::{Here, lab_at};

/// `sallyport run` with its standard input open to the test.
fn piped(lab: &Here, options: &[&str], command: &[&str]) -> Child {
    let config = lab.directory().join("config.yml").display().to_string();
    let class = lab.place.class;
    let before = ["run", "--quiet", "--config", &config, "--isolation", class];
    let arguments = [&before[..], options, &["--"], command].concat();
    let mut command = lab.command(&arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    lab.topology.uplink.start(&mut command).expect("start")
}

/// Gives it these bytes, then the end.
fn fed(lab: &Here, options: &[&str], command: &[&str], input: &[u8]) -> Said {
    let mut child = piped(lab, options, command);
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        // one that reads no more is no failure
        let _ = stdin.write_all(&input);
    });
    let said = child.wait_with_output().expect("it ends").into();
    feeding.join().expect("fed");
    said
}

/// Folders and files with everything that a tree can have, in the lab's directory: where an ordinary user may read.
fn project(lab: &Here) -> PathBuf {
    let folder = lab.directory().join("project");
    std::fs::create_dir_all(folder.join("sub/empty")).expect("folders");
    std::fs::write(lab.directory().join("outside"), "s3cr3t").expect("a file");
    std::fs::write(
        folder.join("agent.py"),
        "print('agent', open('sub/data').read())\n",
    )
    .expect("a file");
    std::fs::write(folder.join("sub/data"), "data").expect("a file");
    let odd = folder.join("sub/new\nline \u{1b}[31m");
    std::fs::write(odd, "odd").expect("a file");
    let tool = folder.join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho tool\n").expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(tool, mode).expect("a mode");
    for (target, name) in [
        ("sub/data", "near"),
        ("../outside", "out"),
        ("/etc/shadow", "far"),
    ] {
        symlink(target, folder.join(name)).expect("a link");
    }
    folder
}

at!(what_is_piped_reaches_the_command_whole_and_ends_where_it_ends: docker podman rootless gvisor);
fn what_is_piped_reaches_the_command_whole_and_ends_where_it_ends(place: Place) {
    let lab = lab_at(place);
    // more than any buffer on the way, every byte, and the keys by which people leave a container
    let mut input: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    input.extend(b"\x10\x11\x10\x11 end");
    let script = "python3 -c 'import hashlib, sys; d = sys.stdin.buffer.read(); print(len(d), hashlib.sha256(d).hexdigest())'";
    let said = fed(&lab, &[], &["/bin/sh", "-c", script], &input);
    let local = fed_to_sha256(&input);
    assert_eq!(
        said.out.trim(),
        format!("{} {local}", input.len()),
        "{said:?}"
    );
    // without a pipe it ends at once; an empty pipe is an end, too
    let said = lab.sallyport(&["run", "--quiet", "--", "cat"]).expect(0);
    assert_eq!(said.out, "");
    let said = fed(&lab, &[], &["/bin/sh", "-c", "cat; echo end"], b"");
    assert_eq!(said.out, "end\n", "{said:?}");
    // and what is not read holds nobody up
    let begun = Instant::now();
    let said = fed(&lab, &[], &["true"], &vec![b'y'; 8 << 20]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(begun.elapsed() < Duration::from_mins(1), "{begun:?}");
}

fn fed_to_sha256(input: &[u8]) -> String {
    let mut child = std::process::Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start sha256sum");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input)
        .expect("fed");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout)
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

at!(a_command_talks_with_whoever_pipes: docker gvisor);
fn a_command_talks_with_whoever_pipes(place: Place) {
    let lab = lab_at(place);
    let script = "while read -r line; do echo \"got $line\"; done; echo end";
    let mut child = piped(&lab, &[], &["/bin/sh", "-c", script]);
    let (mut stdin, mut stdout) = (
        child.stdin.take().expect("piped"),
        child.stdout.take().expect("piped"),
    );
    for word in ["one", "two"] {
        stdin
            .write_all(format!("{word}\n").as_bytes())
            .expect("given");
        let mut answer = vec![0; "got one\n".len()];
        stdout.read_exact(&mut answer).expect("answered");
        assert_eq!(String::from_utf8_lossy(&answer), format!("got {word}\n"));
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("answered");
    assert_eq!(rest, "end\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

at!(a_copy_is_there_before_the_command_and_is_the_jobs_own: docker podman rootless gvisor);
fn a_copy_is_there_before_the_command_and_is_the_jobs_own(place: Place) {
    let lab = lab_at(place);
    let folder = project(&lab);
    let path = |name: &str| folder.join(name).display().to_string();
    let agent = path("agent.py");
    // as the first lines of the README have it
    let both = format!("{}:sub", path("sub"));
    let arguments = ["run", "--quiet", "--copy", &agent, "--copy", &both];
    let said = lab
        .sallyport(&[&arguments[..], &["--", "python3", "agent.py"]].concat())
        .expect(0);
    assert_eq!(said.out, "agent data\n", "{said:?}");
    let script = "pwd; ./project/tool; stat -c '%u %a' project project/tool project/sub/data; \
        for l in near out far; do readlink project/$l; done; cat project/near; cat project/out project/far 2>/dev/null; \
        ls project/sub | wc -l; echo more >> project/sub/data && cat project/sub/data; cat";
    for (option, user) in [(&[][..], 1000), (&["--root"], 0)] {
        let whole = folder.display().to_string();
        let options = [option, &["--copy", &whole]].concat();
        let said = fed(&lab, &options, &["/bin/sh", "-c", script], b"\nrest");
        let wanted = format!(
            "/home/agent\ntool\n{user} 755\n{user} 755\n{user} 644\nsub/data\n../outside\n/etc/shadow\ndata"
        );
        assert!(said.out.starts_with(&wanted), "{said:?}");
        assert!(said.out.ends_with("datamore\n\nrest"), "{said:?}");
        assert!(!said.out.contains("s3cr3t"), "{said:?}");
    }
    // a copy: nothing of it comes back
    assert_eq!(
        std::fs::read_to_string(folder.join("sub/data")).expect("there"),
        "data"
    );
    // by a path of its own, and the content of a folder
    let (away, content) = (
        format!("{agent}:/tmp/x/y.py"),
        format!("{}/", folder.display()),
    );
    let said = lab
        .sallyport(&[
            "run", "--quiet", "--copy", &away, "--copy", &content, "--", "ls", "/tmp/x", "sub/data",
        ])
        .expect(0);
    assert!(
        said.out.contains("y.py") && said.out.contains("sub/data"),
        "{said:?}"
    );
}

#[test]
fn what_cannot_be_copied_starts_nothing_and_says_why() {
    let lab = lab_at(crate::place::docker().expect("always there"));
    let folder = project(&lab);
    let pipe = folder.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let whole = folder.display().to_string();
    let link = folder.join("far").display().to_string();
    let up = format!("{}:../x", folder.join("tool").display());
    for (what, why) in [
        (whole.as_str(), "pipe"),
        (&link, "is a link"),
        (&up, ".."),
        ("/nonexistent-here", "No such file"),
        ("/dev/zero", "device"),
    ] {
        let said = lab
            .sallyport(&["run", "--copy", what, "--", "true"])
            .expect(125);
        assert!(said.err.contains(why), "{what}: {said:?}");
        assert!(!said.err.contains('\u{1b}'), "{said:?}");
    }
    assert!(
        !lab.directory().join("runner-state").exists(),
        "nothing was started"
    );
    std::fs::remove_file(pipe).expect("removed");
    // where the job may not write, the command is not started
    let tool = format!("{}:/usr/bin/tool", folder.join("tool").display());
    let said = lab
        .sallyport(&["run", "--quiet", "--copy", &tool, "--", "echo", "started"])
        .expect(125);
    assert!(
        said.out.is_empty() && said.err.contains("/usr/bin/tool"),
        "{said:?}"
    );
}

#[test]
fn a_command_that_does_not_read_holds_up_who_pipes_and_costs_no_memory() {
    let world = World::start();
    let mut child = piped(&world.lab, &[], &["sleep", "20"]);
    let mut stdin = child.stdin.take().expect("piped");
    let (telling, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let piece = vec![b'y'; 1 << 20];
        let mut given = 0_u64;
        while given < 512 && stdin.write_all(&piece).is_ok() {
            given += 1;
        }
        let _ = telling.send(given);
    });
    let status = within(Duration::from_mins(1), || child.try_wait().expect("wait"));
    assert_eq!(status.and_then(|s| s.code()), Some(0));
    let given = told
        .recv_timeout(Duration::from_secs(20))
        .expect("the pipe broke");
    assert!(given < 64, "{given} MiB went somewhere");
    assert!(world.runner_memory() < 200, "{} MiB", world.runner_memory());
}

#[test]
fn input_is_given_once_and_only_to_a_run_that_takes_it() {
    let world = World::start();
    let socket = world.lab.directory().join("runner.sock");
    let ask = |path: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connect");
        let request = format!("POST {path} HTTP/1.1\r\nhost: r\r\ncontent-length: 1\r\n\r\nx");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let mut child = world.spawn(&["--json"], &["sleep", "5"]);
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let accepted: serde_json::Value =
        serde_json::from_str(&lines.next().expect("a line").expect("read")).expect("json");
    let run = accepted["run"].as_str().expect("a run").to_owned();
    for path in [
        format!("/v1/runs/{run}/input"),
        "/v1/runs/0123456789abcdef/input".to_owned(),
    ] {
        assert_eq!(ask(&path), "HTTP/1.1 409", "{path}");
    }
    assert_eq!(ask("/v1/runs/../input"), "HTTP/1.1 404");
    child.wait().expect("it ends");
}
