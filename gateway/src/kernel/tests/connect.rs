//! A connect tells the truth, in both families; services answer in both postures; the way in needs no rule.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::gate::{Gate, HOST_UNREACHABLE, NO_ROUTE, OPEN, PROHIBITED, REFUSED, SILENT};
use super::lab::{Lab, SERVICE4, SERVICE6, Sandbox, v4, v6};
use crate::kernel::enforcer::Posture;
use crate::kernel::sockets::{DatagramDoor, Doors, dial_in};

const FAR4: &str = "192.0.2.80";
const FAR6: &str = "2001:db8::80";

fn connect(sandbox: &Sandbox, to: SocketAddr) -> Result<String, Option<i32>> {
    sandbox.run(move || {
        let stream = TcpStream::connect_timeout(&to, Duration::from_millis(700))
            .map_err(|e| e.raw_os_error())?;
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .map_err(|e| e.raw_os_error())?;
        Ok(line.trim().to_owned())
    })
}

fn at(address: &str, port: u16) -> SocketAddr {
    (address.parse::<IpAddr>().unwrap(), port).into()
}

#[test]
fn a_connect_ends_as_the_verdict_says() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    let gate = Gate::start(&lab, &doors);
    for far in [FAR4, FAR6] {
        let four = far == FAR4;
        let open = at(far, OPEN);
        assert_eq!(
            connect(&sandbox, open),
            Ok(open.to_string()),
            "the door sees the destination asked for"
        );
        assert_eq!(
            connect(&sandbox, at(far, REFUSED)),
            Err(Some(libc::ECONNREFUSED))
        );
        assert_eq!(
            connect(&sandbox, at(far, HOST_UNREACHABLE)),
            Err(Some(libc::EHOSTUNREACH))
        );
        assert_eq!(
            connect(&sandbox, at(far, NO_ROUTE)),
            Err(Some(libc::ENETUNREACH))
        );
        let prohibited = if four {
            libc::EHOSTUNREACH
        } else {
            libc::EACCES
        };
        assert_eq!(
            connect(&sandbox, at(far, PROHIBITED)),
            Err(Some(prohibited))
        );
        let start = Instant::now();
        assert_eq!(
            connect(&sandbox, at(far, SILENT)),
            Err(None),
            "a time-out of our own"
        );
        assert!(start.elapsed() >= Duration::from_millis(700));
    }
    assert_eq!(
        gate.accepted.load(Ordering::Relaxed),
        2,
        "only what was dialled is accepted"
    );
    let seen = gate.seen.lock().unwrap();
    assert!(
        seen.iter()
            .all(|syn| [IpAddr::V4(v4(0)), IpAddr::V6(v6(0))].contains(&syn.from.ip()))
    );
    assert_eq!(lab.count("drop_no_verdict"), 0);
}

#[test]
fn nobody_reading_the_queue_means_nothing_passes() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    for far in [FAR4, FAR6] {
        assert_eq!(connect(&sandbox, at(far, OPEN)), Err(None));
    }
    for listener in &doors.tcp {
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}

#[test]
fn services_are_reached_on_the_service_address_only_and_dns_anywhere() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    let gate = Gate::start(&lab, &doors);
    for service in [IpAddr::V4(SERVICE4), IpAddr::V6(SERVICE6)] {
        for port in [80, 3128, 53] {
            let to = SocketAddr::from((service, port));
            assert_eq!(connect(&sandbox, to), Ok(to.to_string()));
        }
    }
    assert!(
        gate.seen.lock().unwrap().is_empty(),
        "services are not queued"
    );
    for far in [FAR4, FAR6] {
        assert_eq!(connect(&sandbox, at(far, 53)), Ok(at(far, 53).to_string()));
        assert_eq!(
            connect(&sandbox, at(far, 80)),
            Err(None),
            "port 80 elsewhere is a flow like any other"
        );
    }
    // The doors' own ports on the service address are no way around the queue.
    let door = SocketAddr::from((SERVICE4, lab.enforcer.config().ports.tcp));
    assert_eq!(connect(&sandbox, door), Err(None));
    assert!(gate.seen.lock().unwrap().iter().any(|syn| syn.to == door));
}

#[test]
fn sealed_rules_reset_new_flows_and_keep_relays_and_services() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    let _gate = Gate::start(&lab, &doors);
    let mut relay = sandbox.run(|| TcpStream::connect(at(FAR4, OPEN)).unwrap());
    relay
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut greeting = vec![0; at(FAR4, OPEN).to_string().len() + 1];
    relay.read_exact(&mut greeting).unwrap();
    lab.enforcer.apply(Posture::Sealed).unwrap();
    for far in [FAR4, FAR6] {
        assert_eq!(
            connect(&sandbox, at(far, OPEN)),
            Err(Some(libc::ECONNREFUSED))
        );
    }
    assert_eq!(lab.count("reject_sealed"), 2);
    let broker = SocketAddr::from((SERVICE4, 80));
    assert_eq!(connect(&sandbox, broker), Ok(broker.to_string()));
    relay.write_all(b"still here").unwrap();
    let mut bytes = [0; 10];
    relay.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
}

fn ask(sandbox: &Sandbox, to: SocketAddr) -> io::Result<Vec<u8>> {
    sandbox.run(move || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        // Connected: the kernel takes an answer only from the address that was asked.
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.send(b"question")?;
        let mut buffer = [0; 64];
        let n = socket.recv(&mut buffer)?;
        Ok(buffer[..n].to_vec())
    })
}

fn answer_one(door: &DatagramDoor, bytes: &[u8]) -> SocketAddr {
    let mut buffer = [0; 64];
    let start = Instant::now();
    loop {
        match door.receive(&mut buffer) {
            Ok(question) => {
                assert_eq!(&buffer[..question.length], b"question");
                door.answer(&question, bytes).unwrap();
                return question.to;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed().as_secs() < 5 => {
                std::thread::yield_now();
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_dns_answer_comes_from_the_address_that_was_asked() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    let sandbox = lab.sandbox(0);
    for (door, to) in [
        (0, at(FAR4, 53)),
        (0, (SERVICE4, 53).into()),
        (1, at(FAR6, 53)),
        (1, (SERVICE6, 53).into()),
    ] {
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| answer_one(&doors.dns_udp[door], b"answer"));
            let answer = ask(&sandbox, to).unwrap();
            assert_eq!(asked.join().unwrap(), to);
            answer
        });
        assert_eq!(answer, b"answer");
    }
}

#[test]
fn other_udp_is_told_that_the_port_is_unreachable() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    for to in [
        at(FAR4, 443),
        at(FAR6, 443),
        (SERVICE4, 5353).into(),
        at("169.254.169.254", 123),
    ] {
        assert_eq!(
            ask(&sandbox, to).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused,
            "{to}"
        );
    }
    assert_eq!(lab.count("reject_udp"), 4);
}

#[test]
fn the_gateway_reaches_into_a_sandbox_without_a_rule() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    for (service, inside) in [
        (IpAddr::V4(SERVICE4), IpAddr::V4(v4(0))),
        (SERVICE6.into(), v6(0).into()),
    ] {
        let to = SocketAddr::from((inside, 8080));
        let listener = sandbox.run(move || TcpListener::bind(to).unwrap());
        let stream = dial_in(lab.enforcer.ns(), service, to).unwrap();
        let (mut served, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), service);
        served.write_all(b"inside").unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut bytes = [0; 6];
        (&stream).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"inside");
    }
}
