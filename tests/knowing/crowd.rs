//! A crowd at the control socket: users that may look take every place they can get, and hold it.
//!
//! Each user is a process of its own uid whose connections follow the flows, which goes on for as long as they like. What
//! must hold: one user has its share and no more, all together leave root's part alone, who is refused is told so, and a
//! place that is given back is had again.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use lab::client::{connect, connect_within, resolver};
use lab::namespace::Namespace;
use lab::origin::port;
use lab::topology::{PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

/// What one user may have, and all of them together.
const OF_ONE: usize = 128;
const OF_ALL: usize = 896;
const USERS: std::ops::Range<u32> = 61_001..61_009;

/// Opens followers until one is refused or there are enough, says how many, and holds them until its input ends.
const FOLLOWER: &str = r"
import socket, sys
held, said = [], b''
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(sys.argv[1])
    # who is refused may hear so before it has asked
    try: s.sendall(b'GET /v1/flows?follow=1 HTTP/1.1\r\nHost: g\r\n\r\n')
    except OSError: pass
    try: said = s.recv(4096)
    except OSError: said = b''
    if not said.startswith(b'HTTP/1.1 200'): break
    held.append(s)
print(len(held), said.decode().replace('\r\n', ' '), flush=True)
sys.stdin.read()
";

/// A user that holds connections until it is dropped.
struct Follower {
    child: Child,
    input: Option<ChildStdin>,
    held: usize,
    said: String,
}

impl Follower {
    fn of(lab: &Lab, uid: u32, wanted: usize) -> Self {
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", FOLLOWER])
            .arg(lab.gateway().control())
            .arg(wanted.to_string())
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another user");
        let mut line = String::new();
        let output = child.stdout.take().expect("output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("what it got");
        let (held, said) = line.split_once(' ').expect("a count and an answer");
        Self {
            input: child.stdin.take(),
            held: held.parse().expect("a number"),
            said: said.to_owned(),
            child,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn refused(follower: &Follower) {
    assert!(
        follower.said.starts_with("HTTP/1.1 503")
            && follower.said.contains("no place for one more connection"),
        "{}",
        follower.said
    );
}

fn root_is_answered(lab: &Lab) {
    lab.sallyport(&["net", "ls", "--json"]).expect(0);
}

/// A gateway whose socket those users may ask to follow, with so many open files.
fn watched(open_files: Option<u64>) -> Lab {
    let listed: Vec<String> = USERS.map(|uid| uid.to_string()).collect();
    let users = format!("control_users: {{ observe: [{}] }}", listed.join(", "));
    let mut lab = Lab::builder().gateway_only().config(&users).start();
    if let Some(files) = open_files {
        lab.gateway_mut().stop();
        let limit = format!("--nofile={files}:{files}");
        lab.gateway_mut().launch_through(&["prlimit", &limit]);
    }
    std::fs::set_permissions(lab.directory(), PermissionsExt::from_mode(0o755)).expect("chmod");
    lab
}

#[test]
fn a_crowd_of_users_has_its_places_is_told_when_they_are_taken_and_never_keeps_root_out() {
    let lab = watched(None);
    let mut crowd = vec![Follower::of(&lab, 61_001, OF_ONE + 1)];
    assert_eq!(crowd[0].held, OF_ONE, "{}", crowd[0].said);
    refused(&crowd[0]);
    root_is_answered(&lab);

    // the others are not concerned, until they are too many
    crowd.extend(USERS.skip(1).map(|uid| Follower::of(&lab, uid, OF_ONE)));
    let held: usize = crowd.iter().map(|follower| follower.held).sum();
    assert_eq!(held, OF_ALL);
    let last = crowd.last().expect("the last");
    assert_eq!(
        last.held, 0,
        "seven have taken everything that is not root's"
    );
    refused(last);
    root_is_answered(&lab);
    root_is_answered(&lab);

    drop(crowd);
    eventually("a place for the first again", || {
        (Follower::of(&lab, 61_001, 1).held == 1).then_some(())
    });
    root_is_answered(&lab);
}

/// Connects until nothing more is taken, or so often; what was taken is held.
fn all_of(to: SocketAddr, most: usize) -> Vec<TcpStream> {
    let short = Duration::from_millis(500);
    let opened = std::iter::from_fn(|| {
        let opened = connect_within(to, short);
        opened.is_open().then(|| opened.expect_open())
    });
    opened.take(most).collect()
}

#[test]
fn under_a_small_limit_of_open_files_everybody_who_holds_on_leaves_the_gateway_its_own() {
    let lab = watched(Some(512));
    let greedy = [(); 3].map(|()| lab.sandbox(policies::INTERNET));
    let other = lab.sandbox(policies::INTERNET);
    // whoever may look, sandboxes with flows, sandboxes that ask on streams
    let crowd: Vec<Follower> = USERS.map(|uid| Follower::of(&lab, uid, OF_ONE)).collect();
    let to = SocketAddr::new(ip(PUBLIC4), port::ECHO);
    let held: Vec<_> = (greedy.iter())
        .map(|sandbox| sandbox.run(|| (all_of(to, 80), all_of(resolver(), 80))))
        .collect();
    let count: usize = held
        .iter()
        .map(|(flows, asks)| flows.len() + asks.len())
        .sum();
    let followers: usize = crowd.iter().map(|follower| follower.held).sum();
    assert!(followers > 10 && count > 20, "{followers} {count}");

    // it looks at its rules, answers root, resolves and dials for the next
    root_is_answered(&lab);
    let asked = other.run(|| lab::client::resolve4("ok.sallylab.net"));
    assert!(!asked.is_empty(), "a question of another sandbox");
    let open = other.run(|| connect(to).is_open());
    assert!(open, "a connect of another sandbox");
    let attached = lab.sandbox(policies::INTERNET);
    assert!(attached.run(|| connect(to).is_open()));

    // networks hold descriptors, too: there are so many and no more, and whoever wants one more is told why
    let namespaces: Vec<Namespace> = (0..32)
        .map(|n| Namespace::new(&format!("more {n}")))
        .collect();
    let more = |(n, namespace): (usize, &Namespace)| {
        lab.attach(namespace, &format!("more-{n}"), policies::NONE)
    };
    let refused = (namespaces.iter().enumerate().map(more)).find(|said| said.code != Some(0));
    let refused = refused.expect("a network that is one too many");
    assert!(refused.err.contains("open files"), "{refused:?}");
    // it was started again with the limit; the one before was sealed when it stopped
    let log = lab.gateway().log();
    let log = log.rsplit("the gateway runs").next().unwrap_or_default();
    for word in [" sealed ", "no descriptor is free", "Too many open files"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    drop((crowd, held));
}
