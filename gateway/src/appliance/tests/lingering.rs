//! Descriptors whose last close waits, sent to the control socket in every way: neither doors nor the socket itself wait.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::lab::*;

/// Longer than everything here waits for.
const LINGER: Duration = Duration::from_secs(20);
/// More than the gateway of a lab has threads.
const EACH: usize = 4;

/// A connection with unsent bytes whose close lingers, and its far end, which never reads.
fn stuck(lab: &Lab) -> (OwnedFd, TcpStream) {
    let uplink = std::fs::File::open(format!("/run/netns/{}u", lab.name)).unwrap();
    inside(&uplink.into(), || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_linger(&near, Some(LINGER)).unwrap();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 4096]).is_ok() {}
        (near.into(), far)
    })
    .join()
    .unwrap()
}

/// Sends bytes with a descriptor, or without it where the kernel refuses that; the descriptor is not ours any more.
fn send(stream: &UnixStream, bytes: &str, descriptor: OwnedFd) {
    let fds = [descriptor.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
    let parts = [IoSlice::new(bytes.as_bytes())];
    let flags = rustix::net::SendFlags::empty();
    if rustix::net::sendmsg(stream, &parts, &mut control, flags).is_err() {
        // Nobody has it then but us; it is not to hold the test up.
        rustix::net::sockopt::set_socket_linger(&descriptor, None).unwrap();
        let _ = (&*stream).write_all(bytes.as_bytes());
    }
    drop(descriptor);
}

/// A Unix socket in which a descriptor waits.
fn wrapped(descriptor: OwnedFd) -> OwnedFd {
    let (from, to) = UnixStream::pair().unwrap();
    send(&from, "x", descriptor);
    to.into()
}

#[test]
fn descriptors_that_do_not_close_hold_neither_a_door_nor_the_control_socket_up() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    // the means: the last close waits as long as the far end does not read
    let (near, far) = stuck(&lab);
    let (closed, told) = channel();
    std::thread::spawn(move || {
        drop(near);
        closed.send(()).unwrap();
    });
    assert!(told.recv_timeout(Duration::from_millis(300)).is_err());
    drop(far);
    told.recv_timeout(Duration::from_secs(5)).unwrap();

    let get = "GET /v1/health HTTP/1.1\r\nHost: g\r\n\r\n";
    let body = serde_json::to_string(&request(&far_only())).unwrap();
    let post = format!(
        "POST /v1/networks HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (first, rest) = get.split_at(5);
    let mut held = Vec::new();
    for way in 0..6 * EACH {
        let stream = UnixStream::connect(lab.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let (near, far) = stuck(&lab);
        match way % 6 {
            0 => send(&stream, get, near),
            1 => send(&stream, &post, near),
            2 => send(&stream, get, wrapped(near)),
            3 => {
                // the second lies there before the first is read, or is sent to a request that has begun
                let (second, its) = stuck(&lab);
                send(&stream, first, near);
                send(&stream, rest, second);
                held.push((stream.try_clone().unwrap(), its));
            }
            4 => {
                (&stream).write_all(first.as_bytes()).unwrap();
                send(&stream, rest, near);
            }
            _ => {
                // unread when the connection ends: what follows a head that is none is not read
                send(&stream, "nonsense\r\n\r\n", near);
                let (second, its) = stuck(&lab);
                send(&stream, get, second);
                held.push((stream.try_clone().unwrap(), its));
            }
        }
        if way % 6 < 5 {
            let mut answer = [0; 9];
            (&stream).read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 ", "way {way}");
        }
        held.push((stream, far));
    }
    sandbox.echoes(FAR).unwrap();
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
    // and what should come still comes
    lab.attach(&far_only()).echoes(FAR).unwrap();
    drop(held);
}
