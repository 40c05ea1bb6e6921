//! What programs in a probe sandbox try, with ordinary sockets: connects, datagrams, names, the explicit proxy.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::sandbox::Sandbox;
use super::watch::wait;
use super::{AT_ONCE, Seen};
use crate::kernel::Ns;
use crate::kernel::echo::Pinger;
use crate::kernel::sessions::Cutting;

/// Port of the explicit proxy.
const PROXY: u16 = netpolicy::ruleset::SERVICE_PROXY;

/// Runs inside, on a thread of its own.
pub fn inside<T: Send + 'static>(
    namespace: &Ns,
    act: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    namespace
        .run(move || Ok(act()))
        .map_err(|e| crate::control::problems::chain(&e))?
}

/// How a denied connect ends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A reset answers it.
    AtOnce,
    /// This kernel has no queue that holds it: it is accepted, and reset when it was decided.
    AfterAccepting,
}

/// A connect that must be refused, and soon.
pub fn is_refused(from: &Ns, to: SocketAddr, refusal: Refusal) -> Seen {
    inside(from, move || {
        let began = Instant::now();
        let reset = match TcpStream::connect_timeout(&to, AT_ONCE) {
            Ok(stream) => Ok(refusal == Refusal::AfterAccepting && was_reset(&stream)),
            // so soon that the connect had not returned
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Ok(refusal == Refusal::AfterAccepting)
            }
            Err(error) => Err(error),
        };
        match reset {
            Ok(true) => Ok(format!(
                "accepted first, reset after {} ms",
                began.elapsed().as_millis()
            )),
            Ok(false) => Err(format!("{to} was reached")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(format!("refused after {} ms", began.elapsed().as_millis()))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let limit = AT_ONCE.as_millis();
                Err(format!("{to} was not refused within {limit} ms"))
            }
            Err(error) => Ok(error.to_string()),
        }
    })
}

fn was_reset(mut stream: &TcpStream) -> bool {
    let read = stream
        .set_read_timeout(Some(AT_ONCE))
        .and_then(|()| stream.read(&mut [0]));
    read.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// A connect that must succeed and carry bytes.
pub fn connects(from: &Ns, to: SocketAddr, bytes: &[u8]) -> Seen {
    let bytes = bytes.to_vec();
    inside(from, move || {
        let mut stream = TcpStream::connect_timeout(&to, AT_ONCE)
            .map_err(|e| format!("connecting to {to}: {e}"))?;
        stream
            .write_all(&bytes)
            .map_err(|e| format!("writing to {to}: {e}"))?;
        Ok(format!("{to} was reached"))
    })
}

/// Sends a datagram, whatever becomes of it.
pub fn sends(from: &Ns, to: SocketAddr, bytes: &[u8]) -> Seen {
    let bytes = bytes.to_vec();
    inside(from, move || {
        let sent = UdpSocket::bind((any(to.ip()), 0)).and_then(|s| s.send_to(&bytes, to));
        sent.map(|_| format!("sent to {to}"))
            .map_err(|e| format!("sending to {to}: {e}"))
    })
}

/// The broker's port on the service address leads to our own socket.
pub fn reaches_broker(sandbox: &Sandbox, service: IpAddr) -> Seen {
    let held = inside(&sandbox.namespace, move || {
        TcpStream::connect_timeout(&(service, 80).into(), AT_ONCE)
            .map_err(|e| format!("connecting to the broker: {e}"))
    })?;
    let due = Instant::now() + AT_ONCE;
    let (mut stream, _) =
        wait(due, || sandbox.broker.accept()).ok_or("the broker got no connection")?;
    let mut line = Vec::new();
    let read = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(AT_ONCE)))
        .and_then(|()| stream.read_to_end(&mut line));
    drop(held);
    let whose: crate::control::Handover = match read.map(|_| serde_json::from_slice(&line)) {
        Ok(Ok(whose)) => whose,
        _ => return Err("the broker got a connection without its owner".to_owned()),
    };
    if whose.network == sandbox.network.id {
        Ok("the broker got it, with this network's name".to_owned())
    } else {
        Err("the broker got another network's name".to_owned())
    }
}

/// A question for a name that nothing permits, over UDP.
pub fn name_is_denied(from: &Ns, service: IpAddr, name: &str) -> Seen {
    let question = question(name);
    inside(from, move || {
        let act = || -> io::Result<(usize, [u8; 512])> {
            let socket = UdpSocket::bind((any(service), 0))?;
            socket.set_read_timeout(Some(AT_ONCE))?;
            socket.connect((service, 53))?;
            socket.send(&question)?;
            let mut answer = [0; 512];
            Ok((socket.recv(&mut answer)?, answer))
        };
        let (length, answer) = act().map_err(|e| format!("asking: {e}"))?;
        denied(answer.get(..length).unwrap_or_default())
    })
}

/// The same over TCP.
pub fn name_is_denied_over_tcp(from: &Ns, service: IpAddr, name: &str) -> Seen {
    let question = question(name);
    inside(from, move || {
        let act = || -> io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&(service, 53).into(), AT_ONCE)?;
            stream.set_read_timeout(Some(AT_ONCE))?;
            let length = u16::try_from(question.len()).map_err(io::Error::other)?;
            stream.write_all(&length.to_be_bytes())?;
            stream.write_all(&question)?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        denied(&act().map_err(|e| format!("asking: {e}"))?)
    })
}

/// What the explicit proxy answers to CONNECT, as a status; what follows is sent through it.
pub fn asks_proxy(from: &Ns, proxy: IpAddr, to: SocketAddr, status: &str, bytes: &[u8]) -> Seen {
    let (bytes, wanted) = (bytes.to_vec(), format!("HTTP/1.1 {status} "));
    inside(from, move || {
        let act = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&(proxy, PROXY).into(), AT_ONCE)?;
            stream.set_read_timeout(Some(AT_ONCE))?;
            write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")?;
            let mut line = vec![0; wanted.len()];
            stream.read_exact(&mut line)?;
            if line == wanted.as_bytes() && !bytes.is_empty() {
                stream.write_all(&bytes)?;
            }
            Ok(String::from_utf8_lossy(&line).into_owned())
        };
        let line = act().map_err(|e| format!("asking the proxy: {e}"))?;
        if line == wanted {
            Ok(format!("the proxy answered {}", line.trim_end()))
        } else {
            Err(format!("the proxy answered {}", line.trim_end()))
        }
    })
}

/// Asks for an echo until it comes: the rate of echoes may be used up for a moment.
pub fn pings(to: IpAddr, bytes: &[u8]) -> Seen {
    const PAUSE: Duration = Duration::from_millis(100);
    let failed = |error: io::Error| format!("asking {to} for an echo: {error}");
    let pinger = Pinger::connect(to, 0x5350, Cutting::Allowed).map_err(failed)?;
    let due = Instant::now() + AT_ONCE;
    for sequence in 0.. {
        // a failure may be what an earlier request was told
        if let Err(error) = pinger.send(sequence, bytes)
            && Instant::now() >= due
        {
            return Err(failed(error));
        }
        let again = Instant::now() + PAUSE;
        if let Some(Some((_, payload))) = wait(again, || pinger.receive())
            && payload == bytes
        {
            return Ok(format!("{to} answered an echo"));
        }
        if Instant::now() >= due {
            break;
        }
    }
    Err(format!("{to} answered no echo"))
}

fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A question for the IPv4 address of a name.
pub fn question(name: &str) -> Vec<u8> {
    let mut question = vec![0x53, 0x50, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap_or(0));
        question.extend_from_slice(label.as_bytes());
    }
    question.extend_from_slice(&[0, 0, 1, 0, 1]);
    question
}

/// RFC 1035 4.1.1: the low four bits of the fourth octet are the code, 3 is NXDOMAIN.
pub fn denied(answer: &[u8]) -> Seen {
    match answer {
        [0x53, 0x50, _, code, ..] if code & 15 == 3 => Ok("NXDOMAIN".to_owned()),
        [_, _, _, code, ..] => Err(format!("code {}", code & 15)),
        _ => Err("no answer".to_owned()),
    }
}
