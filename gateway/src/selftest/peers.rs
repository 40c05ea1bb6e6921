//! Whose end of a local connection is the other one: another process's, or this one's.
//!
//! Read from what the kernel prints about sockets (proc_pid_net(5)), in the namespace of the calling thread. A connection
//! that is closed already is nobody's.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Column of the socket's number.
const INODE: usize = 9;

/// Whether the end at `from` of a connection to `to` is open and held by another process.
pub fn is_anothers(from: SocketAddr, to: SocketAddr) -> io::Result<bool> {
    let held = match inode(from, to)? {
        Some(inode) => format!("socket:[{inode}]"),
        None => return Ok(false),
    };
    for entry in fs::read_dir("/proc/self/fd")? {
        // a descriptor that was closed meanwhile
        let Ok(link) = fs::read_link(entry?.path()) else {
            continue;
        };
        if link.as_os_str() == held.as_str() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of the socket at `from`, while it is open.
fn inode(from: SocketAddr, to: SocketAddr) -> io::Result<Option<u64>> {
    let mut forms = Vec::new();
    if let (IpAddr::V4(a), IpAddr::V4(b)) = (from.ip(), to.ip()) {
        forms.push(("tcp", text(from), text(to)));
        // a socket of the other family that speaks this one
        let mapped = |v4: Ipv4Addr, port| SocketAddr::from((v4.to_ipv6_mapped(), port));
        let (a, b) = (mapped(a, from.port()), mapped(b, to.port()));
        forms.push(("tcp6", text(a), text(b)));
    } else {
        forms.push(("tcp6", text(from), text(to)));
    }
    for (file, from, to) in forms {
        let table = match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
            Ok(table) => table,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in table.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ends = (words.get(1).copied(), words.get(2).copied());
            if ends == (Some(&*from), Some(&*to)) {
                let inode = words.get(INODE).and_then(|word| word.parse().ok());
                return Ok(inode.filter(|inode| *inode != 0));
            }
        }
    }
    Ok(None)
}

/// An end as the kernel prints it: each word of the address as the machine reads it, then the port.
fn text(end: SocketAddr) -> String {
    let octets = match end.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| {
        let word = word.try_into().unwrap_or_default();
        format!("{:08X}", u32::from_ne_bytes(word))
    });
    format!("{}:{:04X}", words.collect::<String>(), end.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_end_of_this_process_is_found_in_every_form_and_is_not_anothers() {
        for (at, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let stream = TcpStream::connect((to.parse::<IpAddr>().unwrap(), port)).unwrap();
            let (_accepted, from) = listener.accept().unwrap();
            let end = listener.local_addr().unwrap();
            assert!(inode(from, end).unwrap().is_some(), "{to}");
            assert!(!is_anothers(from, end).unwrap());
            drop(stream);
        }
    }
}
