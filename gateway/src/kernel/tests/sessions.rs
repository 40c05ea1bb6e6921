//! Datagrams between a sandbox, the UDP door and the reply socket of a session.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use super::connect::{FAR4, FAR6, at};
use super::lab::{LIMIT, Lab, Sandbox};
use crate::kernel::Posture;
use crate::kernel::arrivals::Arrivals;
use crate::kernel::batch::Batch;
use crate::kernel::icmp::{About, Errors, Sent, Trouble};
use crate::kernel::sessions::{UdpDoor, reply_socket};

/// What a door got: from, to, hops, bytes.
type Got = (SocketAddr, SocketAddr, u8, Vec<u8>);

fn next(door: &UdpDoor) -> Got {
    let mut arrivals = Arrivals::default();
    let began = Instant::now();
    loop {
        if arrivals.receive(door.socket.as_fd()).is_ok()
            && let Some(got) = arrivals.all().next()
        {
            return (got.from, got.to, got.hops, got.bytes.to_vec());
        }
        assert!(began.elapsed() < LIMIT, "nothing arrived");
        std::thread::yield_now();
    }
}

fn client_of(sandbox: &Sandbox, to: SocketAddr) -> UdpSocket {
    sandbox.run(move || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    })
}

#[test]
fn the_door_gets_the_first_datagram_and_the_session_gets_the_rest() {
    let lab = Lab::open();
    let doors = UdpDoor::all(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let (one, two) = (lab.sandbox(0), lab.sandbox(1));
    for (door, to) in [(0, at(FAR4, 4433)), (1, at(FAR6, 4433))] {
        let client = client_of(&one, to);
        client.send(b"first").unwrap();
        let (from, asked, hops, bytes) = next(&doors[door]);
        assert_eq!((asked, hops, bytes.as_slice()), (to, 64, &b"first"[..]));
        let reply = reply_socket(lab.enforcer.ns(), "sp0", from, to).unwrap();
        reply.send(b"answer").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
        for length in [0, 100, 1400] {
            client.send(&vec![7; length]).unwrap();
        }
        let (mut batch, mut lengths) = (Batch::default(), Vec::new());
        let began = Instant::now();
        while lengths.len() < 3 && began.elapsed() < LIMIT {
            if batch.receive(reply.as_fd()).is_ok() {
                lengths.extend(batch.datagrams().map(<[u8]>::len));
            }
        }
        assert_eq!(lengths, [0, 100, 1400]);
        // the same address and port in another sandbox is another session
        let other = client_of(&two, to);
        other.send(b"other").unwrap();
        let (stranger, _, _, bytes) = next(&doors[door]);
        assert_eq!(
            (stranger.ip() == from.ip(), bytes),
            (false, b"other".to_vec())
        );
        // sealed: the session goes on, others are refused
        lab.enforcer.apply(Posture::Sealed).unwrap();
        client.send(b"still").unwrap();
        let began = Instant::now();
        while batch.receive(reply.as_fd()).is_err() && began.elapsed() < LIMIT {}
        assert_eq!(batch.datagrams().next(), Some(&b"still"[..]));
        lab.enforcer.apply(Posture::Enforcing).unwrap();
    }
}

#[test]
fn errors_reach_the_socket_that_sent_and_no_other() {
    let lab = Lab::open();
    let doors = UdpDoor::all(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    let service = (
        lab.enforcer.config().service4,
        lab.enforcer.config().service6,
    );
    let errors = Errors::open(lab.enforcer.ns(), service).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let sandbox = lab.sandbox(0);
    for (door, to) in [(0, at(FAR4, 4434)), (1, at(FAR6, 4434))] {
        let (refused, other) = (client_of(&sandbox, to), client_of(&sandbox, to));
        refused.send(b"denied").unwrap();
        let (from, asked, _, bytes) = next(&doors[door]);
        let about = About {
            from,
            to: asked,
            sent: Sent::Udp,
            bytes: &bytes,
        };
        errors.tell(about, Trouble::PortUnreachable);
        let mut buffer = [0; 8];
        let told = refused.recv(&mut buffer).unwrap_err();
        assert_eq!(told.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(other.take_error().unwrap().is_none());
    }
}
