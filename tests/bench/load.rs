//! Load generators: a bulk stream, short connections, DNS questions. Each runs on its own threads inside a namespace.
//!
//! Streams open with a real ClientHello, so that a gateway judges them as TLS; what follows is filler, because the
//! cost of encryption at both ends is not what is measured.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::topology::Ns;

/// Bytes of one write and one read of the bulk stream.
const CHUNK: usize = 256 * 1024;
/// Answer of the short-connection server.
const SHORT: &[u8] = b"x";

/// A TLS 1.2-shaped ClientHello with one server name and nothing unusual.
pub fn client_hello(name: &str) -> Vec<u8> {
    let host = name.as_bytes();
    let mut sni = Vec::new();
    push16(&mut sni, host.len() + 3);
    sni.push(0);
    push16(&mut sni, host.len());
    sni.extend(host);
    let mut extensions = Vec::new();
    for (kind, body) in [
        (0u16, sni.as_slice()),
        (10, &[0, 2, 0, 29]),
        (13, &[0, 2, 4, 3]),
        (43, &[2, 3, 4]),
    ] {
        extensions.extend(kind.to_be_bytes());
        push16(&mut extensions, body.len());
        extensions.extend(body);
    }
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend([0, 2, 0x13, 1, 1, 0]);
    push16(&mut hello, extensions.len());
    hello.extend(extensions);
    let mut record = vec![22, 3, 1];
    push16(&mut record, hello.len() + 4);
    record.extend([1, 0]);
    push16(&mut record, hello.len());
    record.extend(hello);
    record
}

fn push16(out: &mut Vec<u8>, value: usize) {
    out.extend(u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
}

/// Origins of the bench: bulk (sends until the client leaves), short (one byte and FIN), DNS (one address for any name).
#[derive(Debug)]
pub struct Origins {
    stop: Arc<AtomicBool>,
}

impl Origins {
    /// Port of the bulk server.
    pub const BULK: u16 = 443;
    /// Port of the short-connection server.
    pub const SHORT: u16 = 8443;

    /// Starts all origins in `ns`; `address` is what DNS answers.
    pub fn start(ns: &Ns, address: std::net::Ipv4Addr) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (bulk, short, dns) = ns.run(move || -> Result<_> {
            // bound to the address itself: a reply from another one is no reply
            let dns = UdpSocket::bind((address, 53)).context("binding the DNS origin")?;
            Ok((listen(Self::BULK)?, listen(Self::SHORT)?, dns))
        })??;
        std::thread::spawn(move || {
            for peer in bulk.incoming().flatten() {
                std::thread::spawn(move || send_until_closed(peer));
            }
        });
        for _ in 0..2 {
            let listener = short.try_clone()?;
            std::thread::spawn(move || {
                for peer in listener.incoming().flatten() {
                    answer_short(peer);
                }
            });
        }
        let ended = stop.clone();
        std::thread::spawn(move || serve_dns(&dns, address, &ended));
        Ok(Self { stop })
    }
}

impl Drop for Origins {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn send_until_closed(mut peer: TcpStream) {
    let mut hello = [0; 2048];
    if !matches!(peer.read(&mut hello), Ok(1..)) {
        return;
    }
    let chunk = vec![0x17; CHUNK];
    while peer.write_all(&chunk).is_ok() {}
}

fn answer_short(mut peer: TcpStream) {
    let mut hello = [0; 2048];
    let _ = peer.set_read_timeout(Some(Duration::from_secs(5)));
    if matches!(peer.read(&mut hello), Ok(1..)) {
        let _ = peer.write_all(SHORT);
    }
}

/// Answers A with `address`, anything else with no data; copies the question byte for byte.
fn serve_dns(socket: &UdpSocket, address: std::net::Ipv4Addr, stop: &AtomicBool) {
    let mut buffer = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let Some(reply) = buffer
            .get(..length)
            .and_then(|query| dns_reply(query, address))
        else {
            continue;
        };
        let _ = socket.send_to(&reply, peer);
    }
}

fn dns_reply(query: &[u8], address: std::net::Ipv4Addr) -> Option<Vec<u8>> {
    let mut at = 12;
    loop {
        match *query.get(at)? {
            0 => break,
            length => at += usize::from(length) + 1,
        }
    }
    let question = query.get(12..at + 5)?;
    let is_a = query.get(at + 1..at + 3)? == [0, 1];
    let mut reply = query.get(..2)?.to_vec();
    reply.extend([0x85, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    reply.extend(question);
    if is_a {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

/// One stream for `duration`; returns Gbit/s that the client read.
pub fn bulk(ns: &Ns, to: SocketAddr, name: &str, duration: Duration) -> Result<f64> {
    let hello = client_hello(name);
    ns.run(move || -> Result<f64> {
        let mut stream = TcpStream::connect(to).context("connecting the bulk stream")?;
        stream.write_all(&hello)?;
        let mut chunk = vec![0; CHUNK];
        let (start, mut bytes) = (Instant::now(), 0u64);
        while start.elapsed() < duration {
            match stream.read(&mut chunk)? {
                0 => bail!("the bulk stream ended early after {bytes} bytes"),
                n => bytes += n as u64,
            }
        }
        Ok(bytes as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9)
    })?
}

/// Short TLS-shaped connections on `parallel` threads for `duration`; returns (per second, median connect-to-byte us,
/// failures).
pub fn connections(
    ns: &Ns,
    to: SocketAddr,
    name: &str,
    parallel: usize,
    duration: Duration,
) -> Result<(f64, f64, u64)> {
    let hello = Arc::new(client_hello(name));
    let failed = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let workers: Vec<_> = (0..parallel)
        .map(|_| {
            let (hello, failed) = (hello.clone(), failed.clone());
            ns.spawn(move || {
                let mut times = Vec::new();
                while start.elapsed() < duration {
                    let began = Instant::now();
                    match one_connection(to, &hello) {
                        Ok(()) => times.push(began.elapsed()),
                        Err(_) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a load thread panicked"))??,
        );
    }
    let elapsed = start.elapsed().as_secs_f64();
    times.sort();
    let median = times
        .get(times.len() / 2)
        .context("no connection succeeded")?
        .as_secs_f64()
        * 1e6;
    Ok((
        times.len() as f64 / elapsed,
        median,
        failed.load(Ordering::Relaxed),
    ))
}

fn one_connection(to: SocketAddr, hello: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(hello)?;
    let mut byte = [0; 8];
    if stream.read(&mut byte)? != SHORT.len() || stream.read(&mut byte)? != 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// A DNS question for the A record of `name`.
pub fn question(id: u16, name: &str) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}

/// One look-up of an IPv4 address through `server`.
pub fn look_up(ns: &Ns, server: IpAddr, name: &str) -> Result<std::net::Ipv4Addr> {
    let query = question(7, name);
    ns.run(move || -> Result<std::net::Ipv4Addr> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        socket.connect((server, 53))?;
        socket.send(&query)?;
        let mut buffer = [0; 1500];
        let length = socket.recv(&mut buffer).context("no DNS answer")?;
        let answer: [u8; 4] = buffer
            .get(length.saturating_sub(4)..length)
            .context("short answer")?
            .try_into()?;
        if buffer.get(6..8) == Some(&[0, 0]) {
            bail!("the DNS answer is empty");
        }
        // an OPT record after the answer would hide the address: the question asked for none
        Ok(answer.into())
    })?
}

/// Questions over `names` with `window` outstanding on each of two sockets; returns answers a second.
pub fn questions(
    ns: &Ns,
    server: IpAddr,
    names: &[String],
    window: usize,
    duration: Duration,
) -> Result<f64> {
    let queries: Arc<Vec<Vec<u8>>> = Arc::new(
        names
            .iter()
            .zip(0..)
            .map(|(name, id)| question(id, name))
            .collect(),
    );
    let start = Instant::now();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queries = queries.clone();
            ns.spawn(move || ask_for(server, &queries, window, duration))
        })
        .collect();
    let mut answers = 0;
    for worker in workers {
        answers += worker
            .join()
            .map_err(|_| anyhow::anyhow!("a DNS load thread panicked"))???;
    }
    Ok(answers as f64 / start.elapsed().as_secs_f64())
}

fn ask_for(server: IpAddr, queries: &[Vec<u8>], window: usize, duration: Duration) -> Result<u64> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut next = queries.iter().cycle();
    let mut buffer = [0; 1500];
    let (start, mut answers) = (Instant::now(), 0);
    let mut outstanding = 0;
    while start.elapsed() < duration {
        while outstanding < window {
            socket.send(next.next().context("no queries")?)?;
            outstanding += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => {
                answers += 1;
                outstanding -= 1;
            }
            // lost ones are given up: a dropped packet must not stop the run
            Err(_) => outstanding = 0,
        }
    }
    Ok(answers)
}
