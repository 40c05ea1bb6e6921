//! A connect tells the truth, in both families; services answer in both postures; the way in needs no rule.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::gate::{Gate, HOST_UNREACHABLE, NO_ROUTE, OPEN, PROHIBITED, REFUSED, SILENT};
use super::lab::{LIMIT, Lab, SERVICE4, SERVICE6, Sandbox, v4, v6};
use crate::kernel::backend::Backend;
use crate::kernel::datagrams::{DatagramDoor, MOST, Reply};
use crate::kernel::enforcer::Posture;
use crate::kernel::sockets::{Doors, dial_in};

pub const FAR4: &str = "192.0.2.80";
pub const FAR6: &str = "2001:db8::80";
/// How long what must stay silent is waited for.
const SHORT: Duration = Duration::from_millis(700);

fn connect(sandbox: &Sandbox, to: SocketAddr) -> Result<String, Option<i32>> {
    connect_within(sandbox, to, LIMIT)
}

fn connect_within(
    sandbox: &Sandbox,
    to: SocketAddr,
    limit: Duration,
) -> Result<String, Option<i32>> {
    sandbox.run(move || {
        let stream = TcpStream::connect_timeout(&to, limit).map_err(|e| e.raw_os_error())?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .map_err(|e| e.raw_os_error())?;
        Ok(line.trim().to_owned())
    })
}

pub fn at(address: &str, port: u16) -> SocketAddr {
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
            connect_within(&sandbox, at(far, SILENT), SHORT),
            Err(None),
            "a time-out of our own"
        );
        assert!(start.elapsed() >= SHORT);
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
        assert_eq!(connect_within(&sandbox, at(far, OPEN), SHORT), Err(None));
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
            connect_within(&sandbox, at(far, 80), SHORT),
            Err(None),
            "port 80 elsewhere is a flow like any other"
        );
    }
    // The doors' own ports on the service address are no way around the queue.
    let door = SocketAddr::from((SERVICE4, lab.enforcer.config().ports.tcp));
    assert_eq!(connect_within(&sandbox, door, SHORT), Err(None));
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
    relay.set_read_timeout(Some(LIMIT)).unwrap();
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
    ask_within(sandbox, to, LIMIT)
}

fn ask_within(sandbox: &Sandbox, to: SocketAddr, patience: Duration) -> io::Result<Vec<u8>> {
    sandbox.run(move || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        // Connected: the kernel takes an answer only from the address that was asked.
        socket.connect(to)?;
        socket.set_read_timeout(Some(patience))?;
        socket.send(b"question")?;
        let mut buffer = [0; 64];
        let n = socket.recv(&mut buffer)?;
        Ok(buffer[..n].to_vec())
    })
}

fn answer_one(door: &DatagramDoor, bytes: &[u8]) -> SocketAddr {
    let mut buffer = [0; 64];
    let mut questions = [None; MOST];
    let start = Instant::now();
    loop {
        match door.receive_many(std::iter::once(&mut buffer[..]), &mut questions) {
            Ok(received) => {
                assert_eq!(received, 1);
                let question = questions[0].unwrap();
                assert_eq!(&buffer[..question.length], b"question");
                let reply = Reply {
                    from: question.to.ip(),
                    to: question.from,
                    bytes,
                };
                assert_eq!(door.send_many(std::iter::once(reply)), 0);
                return question.to;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed() < LIMIT => {
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
fn batch_of_questions_is_answered_each_from_where_it_went() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    for (door, targets) in [
        (0, [at(FAR4, 53), (SERVICE4, 53).into()]),
        (1, [at(FAR6, 53), (SERVICE6, 53).into()]),
    ] {
        // more than one call takes, to two addresses, from one socket each; the last one does not fit
        let asking: Vec<UdpSocket> = sandbox.run(move || {
            let any: IpAddr = if door == 0 {
                [0; 4].into()
            } else {
                [0; 16].into()
            };
            let sockets = (0..MOST + 8).map(|n| {
                let socket = UdpSocket::bind((any, 0)).unwrap();
                socket.connect(targets[n % 2]).unwrap();
                // what does not fit is not answered
                let patience = if n == 3 { SHORT } else { LIMIT };
                socket.set_read_timeout(Some(patience)).unwrap();
                let text = format!("question {n}{}", if n == 3 { " is long" } else { "" });
                socket.send(text.as_bytes()).unwrap();
                socket
            });
            sockets.collect()
        });
        let door = &doors.dns_udp[door];
        let mut seen = 0;
        let start = Instant::now();
        while seen < MOST + 8 {
            assert!(start.elapsed() < LIMIT, "only {seen} arrived");
            let mut buffers = vec![[0; 14]; MOST];
            let mut questions = [None; MOST];
            let all = buffers.iter_mut().map(|b| &mut b[..]);
            let Ok(received) = door.receive_many(all, &mut questions) else {
                std::thread::yield_now();
                continue;
            };
            seen += received;
            let whole = questions[..received].iter().flatten().zip(&buffers);
            let whole = whole.filter(|(question, _)| !question.truncated);
            let replies = whole.map(|(question, bytes)| Reply {
                from: question.to.ip(),
                to: question.from,
                bytes: &bytes[..question.length],
            });
            assert_eq!(door.send_many(replies), 0);
        }
        for (n, socket) in asking.iter().enumerate() {
            let mut buffer = [0; 64];
            match socket.recv(&mut buffer) {
                // connected: only what comes from the address that was asked arrives
                Ok(length) => assert_eq!(buffer[..length], *format!("question {n}").as_bytes()),
                Err(_) => assert_eq!(n, 3, "nothing came back"),
            }
        }
    }
}

#[test]
fn answers_that_were_sent_as_one_piece_arrive_one_by_one() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    for (door, to) in [(0, at(FAR4, 53)), (1, at(FAR6, 53))] {
        let asking = sandbox.run(move || {
            let any: IpAddr = if door == 0 {
                [0; 4].into()
            } else {
                [0; 16].into()
            };
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket.send(b"question").unwrap();
            socket
        });
        let door = &doors.dns_udp[door];
        let (mut buffer, mut questions) = ([0; 64], [None; MOST]);
        let start = Instant::now();
        while door
            .receive_many(std::iter::once(&mut buffer[..]), &mut questions)
            .is_err()
        {
            assert!(start.elapsed() < LIMIT, "nothing arrived");
        }
        let question = questions[0].unwrap();
        // long ones, a shorter one, then others: three pieces, more than one call takes
        let texts: Vec<String> = (0..MOST + 9)
            .map(|n| match n {
                0..12 => format!("a long answer {n:02}"),
                12 => "short".to_owned(),
                _ => format!("another {n:02}"),
            })
            .collect();
        let replies = texts.iter().map(|text| Reply {
            from: question.to.ip(),
            to: question.from,
            bytes: text.as_bytes(),
        });
        assert_eq!(door.send_many(replies), 0);
        for text in &texts {
            let length = asking.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], text.as_bytes());
        }
    }
}

#[test]
fn sealed_rules_tell_other_udp_that_the_port_is_unreachable() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Sealed).unwrap();
    let sandbox = lab.sandbox(0);
    for to in [
        at(FAR4, 443),
        at(FAR6, 443),
        (SERVICE4, 5353).into(),
        at("169.254.169.254", 123),
    ] {
        // where iptables drops it, the answer is waited for in vain
        let (wanted, patience) = match lab.enforcer.backend() {
            Backend::Nftables => (io::ErrorKind::ConnectionRefused, LIMIT),
            Backend::Iptables => (io::ErrorKind::WouldBlock, SHORT),
        };
        let answer = ask_within(&sandbox, to, patience);
        assert_eq!(answer.unwrap_err().kind(), wanted, "{to}");
    }
    assert_eq!(lab.count("reject_udp"), 4);
}

#[test]
fn the_gateway_reaches_into_a_sandbox_without_a_rule() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Sealed).unwrap();
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
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut bytes = [0; 6];
        (&stream).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"inside");
    }
}
