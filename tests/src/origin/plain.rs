//! Origins without a protocol: echo, a server that speaks first, one that says nothing, one that floods, UDP echo.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, UdpSocket};
use std::time::Duration;

use super::{BANNER, Origins, port};
use crate::namespace::Namespace;

pub(super) fn start(origins: &Origins, namespace: &Namespace) {
    origins.serve(namespace, port::ECHO, |o, id, stream| {
        echo(o, id, stream, b"");
    });
    origins.serve(namespace, port::BANNER, |o, id, stream| {
        echo(o, id, stream, BANNER.as_bytes());
    });
    origins.serve(namespace, port::MUTE, |o, id, mut stream| {
        let mut buffer = [0; 4096];
        read_all(o, id, &mut stream, &mut buffer, |_, _| true);
    });
    origins.serve(namespace, port::FLOOD, |o, id, mut stream| {
        let mut first = [0];
        let block = [b'x'; 16_384];
        if stream.read(&mut first).is_ok_and(|n| n > 0) {
            while stream.write_all(&block).is_ok() && !o.stopped() {}
        }
        o.ended.push((id, false));
    });
    datagrams(origins, namespace);
}

fn echo(origins: &Origins, id: u64, mut stream: TcpStream, first: &[u8]) {
    if stream.write_all(first).is_err() {
        return;
    }
    let mut buffer = [0; 16_384];
    read_all(origins, id, &mut stream, &mut buffer, |stream, bytes| {
        stream.write_all(bytes).is_ok()
    });
    let _ = stream.shutdown(Shutdown::Write);
}

/// Reads to the end, logs what came and how it ended.
fn read_all(
    origins: &Origins,
    id: u64,
    stream: &mut TcpStream,
    buffer: &mut [u8],
    mut each: impl FnMut(&mut TcpStream, &[u8]) -> bool,
) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(45)));
    let reset = loop {
        match stream.read(buffer) {
            Ok(0) => break false,
            Ok(length) => {
                let bytes = &buffer[..length];
                origins.received.push((id, bytes.to_vec()));
                if !each(stream, bytes) {
                    break false;
                }
            }
            Err(error) => break error.kind() == ErrorKind::ConnectionReset,
        }
    };
    origins.ended.push((id, reset));
}

/// One socket per address, so that the answer comes from the address that was asked.
fn datagrams(origins: &Origins, namespace: &Namespace) {
    let sockets: Vec<UdpSocket> = namespace.run(|| {
        let own = nix::ifaddrs::getifaddrs()
            .map(Iterator::collect::<Vec<_>>)
            .unwrap_or_default();
        own.iter()
            .filter_map(|i| {
                let address = i.address?;
                let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
                let v6 = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
                UdpSocket::bind((v4.or(v6)?, port::UDP_ECHO)).ok()
            })
            .collect()
    });
    for socket in sockets {
        let origins = origins.clone();
        let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
        namespace.spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !origins.stopped() {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let bytes = &buffer[..length];
                origins.datagrams.push((peer, bytes.to_vec()));
                let _ = socket.send_to(bytes, peer);
            }
        });
    }
}
