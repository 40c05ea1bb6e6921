//! Engines that stop answering: no run and no network outlives its timeout for them, and what they have is removed
//! when they answer again, by the same runner or by the next.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::attacks::world::World;

/// What ends and removes containers: `POST .../kill`, `POST .../wait`, `DELETE ...`.
const ENDINGS: [&str; 3] = ["/kill?", "/wait?", "DELETE /"];
const DOCKER: &str = "/var/run/docker.sock";

/// Docker's socket at another place, deaf to what it is told to be deaf to.
pub struct Relay {
    folder: tempfile::TempDir,
    deaf: Arc<Mutex<Deaf>>,
    live: Arc<Mutex<Vec<UnixStream>>>,
}

#[derive(Default)]
struct Deaf {
    to: Vec<&'static str>,
    held: VecDeque<UnixStream>,
}

impl Relay {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("engine.sock")).expect("a socket");
        let deaf = Arc::<Mutex<Deaf>>::default();
        let live = Arc::<Mutex<Vec<UnixStream>>>::default();
        let (shared, all) = (deaf.clone(), live.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = shared.clone();
                let end = client.try_clone().expect("clone");
                all.lock().expect("unpoisoned").push(end);
                thread::spawn(move || relay(client, &shared));
            }
        });
        Self { folder, deaf, live }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Ends every conversation, as an engine that restarts does.
    pub fn hang_up(&self) {
        for client in self.live.lock().expect("unpoisoned").drain(..) {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }

    /// From now on requests with one of these in their first line are taken and never answered.
    fn ignore(&self, to: &[&'static str]) {
        self.deaf.lock().expect("unpoisoned").to = to.to_vec();
    }

    /// Answers everything, and hangs up on who waits.
    fn heed(&self) {
        let mut deaf = self.deaf.lock().expect("unpoisoned");
        deaf.to.clear();
        for client in deaf.held.drain(..) {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Carries one connection. A client writes the head of a request at once, so a request is known by its first bytes.
fn relay(mut client: UnixStream, deaf: &Mutex<Deaf>) {
    let Ok(mut engine) = UnixStream::connect(Path::new(DOCKER)) else {
        return;
    };
    let (mut answers, mut to) = (
        engine.try_clone().expect("clone"),
        client.try_clone().expect("clone"),
    );
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let mut piece = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut piece) {
        let bytes = piece.get(..length).expect("what was read");
        let head = String::from_utf8_lossy(bytes);
        let line = head.lines().next().unwrap_or_default();
        let mut deaf = deaf.lock().expect("unpoisoned");
        if line.ends_with("HTTP/1.1") && deaf.to.iter().any(|word| line.contains(word)) {
            deaf.held.push_back(client);
            return;
        }
        drop(deaf);
        if engine.write_all(bytes).is_err() {
            return;
        }
    }
    let _ = engine.shutdown(std::net::Shutdown::Write);
}

fn world(relay: &Relay) -> World {
    let socket = relay.socket();
    World::with(&format!("  pool: 0\n  engine: {}\n", socket.display()))
}

fn emptied(world: &World) {
    let gone = within(Duration::from_secs(45), || {
        world.containers().is_empty().then_some(())
    });
    assert!(gone.is_some(), "{}", world.runner_log());
}

#[test]
fn an_engine_that_answers_no_kill_wait_or_removal_keeps_no_run_and_no_network() {
    let relay = Relay::start();
    let mut world = world(&relay);
    for dies in [false, true] {
        relay.ignore(&ENDINGS);
        let begun = Instant::now();
        let said = world.run(&["--timeout", "2s"], &["sleep", "600"]);
        assert_eq!(said.code, Some(124), "{said:?}");
        assert!(said.err.contains("not cleaned up yet"), "{said:?}");
        assert!(begun.elapsed() < Duration::from_secs(25), "{begun:?}");
        assert!(world.networks().is_empty(), "{:?}", world.networks());
        assert_eq!(world.containers().len(), 2, "{:?}", world.containers());
        let log = world.runner_log();
        assert!(log.contains("removing it goes on"), "{log}");
        if dies {
            world.kill_runner();
            relay.heed();
            world.launch_runner();
        } else {
            relay.heed();
        }
        emptied(&world);
    }
    world.run(&[], &["true"]).expect(0);
}

#[test]
fn a_run_whose_sandbox_an_engine_never_makes_can_be_cancelled() {
    let relay = Relay::start();
    let world = world(&relay);
    for word in ["/containers/create?", "/start"] {
        relay.ignore(&[word]);
        let mut child = world.spawn(&[], &["true"]);
        eventually("the engine to be asked", || {
            (!relay.deaf.lock().expect("unpoisoned").held.is_empty()).then_some(())
        });
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid"));
        kill(pid, Signal::SIGINT).expect("signal");
        let status = within(Duration::from_secs(20), || child.try_wait().expect("wait"));
        assert_eq!(status.and_then(|s| s.code()), Some(130), "{word}");
        assert!(world.networks().is_empty(), "{:?}", world.networks());
        relay.heed();
        emptied(&world);
    }
}
