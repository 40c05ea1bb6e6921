//! Packet captures: what one network's link carries, read back by other readers, and nothing of its neighbours.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use lab::client::{at, connect, http_get};
use lab::origin::port;
use lab::topology::{PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, cli, policies};

/// What a capture holds: texts of all kinds, frames, and the last counts.
#[derive(Debug, Default)]
struct Read {
    texts: Vec<String>,
    frames: Vec<Vec<u8>>,
    counts: Option<(u64, u64)>,
}

fn read(bytes: &[u8]) -> Read {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| u32::from_le_bytes(b.try_into().expect("four")))
    };
    let (mut at, mut read) = (0, Read::default());
    while let (Some(kind), Some(length)) = (word(at), word(at + 4)) {
        let length = length as usize;
        let Some(body) = bytes.get(at + 8..(at + length).saturating_sub(4)) else {
            break;
        };
        let text = |from: usize| {
            String::from_utf8_lossy(body.get(from..).unwrap_or_default()).into_owned()
        };
        let number = |at: usize| {
            let eight = body.get(at..at + 8).expect("a count");
            u64::from_le_bytes(eight.try_into().expect("eight"))
        };
        match kind {
            1 => read.texts.push(text(8)),
            5 => read.counts = Some((number(16), number(28))),
            6 => {
                let captured = word(at + 20).expect("a length") as usize;
                if captured == 0 {
                    read.texts.push(text(20));
                }
                let frame = body.get(20..20 + captured).expect("a frame");
                read.frames.extend((captured > 0).then(|| frame.to_vec()));
            }
            _ => {}
        }
        at += length;
    }
    read
}

fn has(frames: &[Vec<u8>], needle: &[u8]) -> bool {
    frames
        .iter()
        .any(|f| f.windows(needle.len()).any(|w| w == needle))
}

#[test]
fn a_capture_holds_one_networks_packets_and_not_its_neighbours() {
    let lab = Lab::builder().gateway_only().start();
    let (sandbox, other) = (
        lab.sandbox(policies::DOMAINS),
        lab.sandbox(policies::DOMAINS),
    );
    let file = lab.directory().join("web.pcapng");
    let config = lab.gateway().config().display().to_string();
    let path = file.display().to_string();
    let mut child = cli::command(&[
        "--config",
        &config,
        "net",
        "capture",
        sandbox.name(),
        "-w",
        &path,
    ])
    .stderr(Stdio::null())
    .spawn()
    .expect("a capture");
    // it has begun once it has said whose it is
    eventually("the beginning", || {
        std::fs::read(&file)
            .ok()
            .filter(|b| !read(b).texts.is_empty())
    });
    let get = |path: &'static str| {
        move || {
            let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
            http_get(&mut stream, "ok.sallylab.net", path);
        }
    };
    other.run(get("/neighbour"));
    sandbox.run(get("/mine"));
    lab.replace_policy(&sandbox, policies::NONE).expect(0);
    sandbox.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::HTTP)));
    let got = eventually("frames, counts and the new policy", || {
        let got = read(&std::fs::read(&file).ok()?);
        let changed = got.texts.iter().any(|t| t.contains("generation 2"));
        (has(&got.frames, b"GET /mine") && changed && got.counts > Some((0, 0))).then_some(got)
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(
        !has(&got.frames, b"/neighbour"),
        "another network's packets"
    );
    assert!(
        got.texts[0].contains(&format!("network {}", sandbox.name())),
        "{:?}",
        got.texts
    );
    assert!(got.texts[0].contains("generation 1"), "{:?}", got.texts);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&file).expect("file").permissions(),
    );
    assert_eq!(mode & 0o077, 0, "contents are for whoever asked");
    if let Ok(said) = Command::new("tcpdump").args(["-nr", &path]).output() {
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        assert!(
            String::from_utf8_lossy(&said.stdout).contains(".80: "),
            "tcpdump reads it"
        );
    }
}

#[test]
fn a_capture_ends_at_its_count_at_its_time_and_with_its_network() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let said = lab.sallyport(&[
        "net",
        "capture",
        sandbox.name(),
        "-w",
        "-",
        "--seconds",
        "1",
        "--filter",
        "arp and port 1",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let config = lab.gateway().config().display().to_string();
    let begin = |arguments: &[&str]| {
        let mut all = vec![
            "--config",
            config.as_str(),
            "net",
            "capture",
            sandbox.name(),
            "-w",
        ];
        all.extend(arguments);
        cli::command(&all)
            .stderr(Stdio::null())
            .spawn()
            .expect("a capture")
    };
    let (one, two) = (lab.directory().join("one"), lab.directory().join("two"));
    let paths = [one.display().to_string(), two.display().to_string()];
    let mut three = begin(&[&paths[0], "--count", "3", "--filter", "tcp"]);
    let mut endless = begin(&[&paths[1]]);
    for file in [&one, &two] {
        eventually("the beginning", || {
            std::fs::read(file).ok().filter(|b| !b.is_empty())
        });
    }
    sandbox.run(|| {
        let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
        http_get(&mut stream, "ok.sallylab.net", "/");
    });
    assert!(three.wait().expect("its end").success());
    let got = read(&std::fs::read(&one).expect("file"));
    assert_eq!(got.frames.len(), 3, "{got:?}");
    assert!(got.counts.is_some(), "the counts come last");
    lab.detach(&sandbox).expect(0);
    assert!(
        endless.wait().expect("its end").success(),
        "the network is gone"
    );
}

#[test]
fn wrong_words_unknown_networks_and_those_who_may_only_look_get_no_packet() {
    let lab = Lab::builder()
        .gateway_only()
        .config("control_users: { observe: [65534] }")
        .start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let wrong = lab.sallyport(&[
        "net",
        "capture",
        sandbox.name(),
        "-w",
        "-",
        "--filter",
        "host nowhere",
    ]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(3), ""), "{wrong:?}");
    let unknown = lab.sallyport(&["net", "capture", "nobody", "-w", "-", "--seconds", "1"]);
    assert_eq!(
        (unknown.code, unknown.out.as_str()),
        (Some(3), ""),
        "{unknown:?}"
    );
    let control = lab.gateway().control();
    let request = |path: &str, body: &str| {
        use std::io::{Read, Write};
        use std::os::unix::process::CommandExt;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut child = Command::new("/usr/bin/python3");
        child
            .args(["-c", "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(sys.stdin.buffer.read())\ns.settimeout(20)\nsys.stdout.buffer.write(s.recv(4096))"])
            .arg(&control)
            .uid(65534)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = child.spawn().expect("another user");
        child
            .stdin
            .take()
            .expect("input")
            .write_all(head.as_bytes())
            .expect("send");
        let mut answer = String::new();
        drop(
            child
                .stdout
                .take()
                .expect("output")
                .read_to_string(&mut answer),
        );
        let _ = child.wait();
        answer
    };
    let network = format!("/v1/networks/{}", sandbox.name());
    let seen = request(&format!("{network}/capture"), "{\"seconds\":1}");
    assert!(seen.starts_with("HTTP/1.1 403"), "{seen}");
    // the same user may look
    let explained = request(
        &format!("{network}/explain"),
        "{\"destination\":\"ok.sallylab.net:443\"}",
    );
    assert!(explained.starts_with("HTTP/1.1 200"), "{explained}");
}
