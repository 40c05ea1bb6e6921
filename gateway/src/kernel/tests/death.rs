//! A gateway that is killed leaves rules and links, and nothing passes until the next one has adopted them.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::gate::{Gate, OPEN};
use super::lab::{Lab, SERVICE4, Sandbox, v4};
use crate::kernel::enforcer::{Config, Enforcer, Posture};
use crate::kernel::sockets::Doors;

const CHILD: &str = "SALLYPORT_TEST_GATEWAY";
const SANDBOX: &str = "SALLYPORT_TEST_SANDBOX";

/// Not a promise: the process that the test below kills. Without the variable it has nothing to do.
#[test]
fn gateway_process() {
    let (Ok(name), Ok(path)) = (std::env::var(CHILD), std::env::var(SANDBOX)) else {
        return;
    };
    let lab = Lab::named(name);
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    lab.attach(0, std::fs::File::open(path).unwrap().into())
        .unwrap();
    let _gate = Gate::start(&lab, &doors);
    println!("ready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_gateway_lets_nothing_out() {
    let name = format!("spkern-{}-killed", std::process::id());
    let ns: OwnedFd = super::lab::fresh_ns();
    let sandbox = Sandbox {
        ns: ns.as_fd().try_clone_to_owned().unwrap(),
    };
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&ns)
    );
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "kernel::tests::death::gateway_process",
            "--nocapture",
        ])
        .envs([(CHILD, name.as_str()), (SANDBOX, path.as_str())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")));
    let far = SocketAddr::from(([192, 0, 2, 80], OPEN));
    let broker = SocketAddr::from((SERVICE4, 80));
    assert!(
        sandbox.reaches(far) && sandbox.reaches(broker),
        "the permitted twin"
    );
    let relay = sandbox.run(move || TcpStream::connect(far).unwrap());

    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert!(
        !sandbox.reaches_soon(far),
        "a flow got through after the gateway died"
    );
    assert!(!sandbox.reaches_soon(broker));
    let asked = sandbox.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        socket.send_to(b"question", "192.0.2.53:53").unwrap();
        socket.recv(&mut [0; 64]).is_ok()
    });
    assert!(!asked, "DNS was answered by nobody");
    drop(relay);

    let second = Enforcer::open(Config {
        name: name.clone(),
        ..Config::new(SERVICE4, super::lab::SERVICE6)
    })
    .unwrap();
    assert_eq!(second.verify().unwrap(), Ok(()));
    let live = second.live_links().unwrap();
    assert_eq!(
        live.iter()
            .map(|l| l.v4.map(IpAddr::V4))
            .collect::<Vec<_>>(),
        [Some(IpAddr::V4(v4(0)))]
    );
    assert!(
        !sandbox.reaches_soon(far),
        "a new gateway is sealed until it has adopted what is there"
    );
    second.remove().unwrap();
}
