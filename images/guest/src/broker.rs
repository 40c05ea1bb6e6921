//! Asks the run's broker over the one address that every sandbox reaches: plain HTTP/1.1, no TLS, no proxy.
//!
//! The broker knows who asks from the connection itself, so no credential exists here. The answer is untrusted only
//! in size: at most 64 KiB are read.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use crate::say;

/// The broker's name; the runner puts it into the sandbox's hosts file.
const NAME: &str = "broker.sallyport.internal";
/// Where the broker listens unless the hosts file says otherwise.
const DEFAULT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
/// A broker that does not answer in this time is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// How the answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Prints whether a destination would be permitted.
pub fn explain(destination: &str, form: Form) -> ExitCode {
    match ask(destination, form) {
        Ok(answer) => {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            if !head.starts_with("HTTP/1.1 200 ") {
                say::note(format_args!(
                    "sally: the broker did not answer the question: {}",
                    body.trim()
                ));
                return ExitCode::from(2);
            }
            say::out(body.trim_end());
            let permitted = head
                .lines()
                .any(|l| l.eq_ignore_ascii_case("sallyport-decision: permit"));
            ExitCode::from(u8::from(!permitted))
        }
        Err(error) => {
            say::note(format_args!("sally: cannot ask the broker: {error}"));
            ExitCode::from(2)
        }
    }
}

fn ask(destination: &str, form: Form) -> std::io::Result<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let address = address_of(NAME, &hosts).unwrap_or(DEFAULT);
    let way = if address.is_loopback() {
        Way::Proxy
    } else {
        Way::Link
    };
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, way.port()), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request(destination, form, way).as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// How the broker is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At its own address.
    Link,
    /// Through the proxy on this sandbox's loopback, where it has no network.
    Proxy,
}

impl Way {
    const fn port(self) -> u16 {
        match self {
            Self::Link => 80,
            Self::Proxy => 3128,
        }
    }

    /// What stands before the path of a request.
    const fn before(self) -> &'static str {
        match self {
            Self::Link => "",
            Self::Proxy => "http://broker.sallyport.internal",
        }
    }
}

fn request(destination: &str, form: Form, way: Way) -> String {
    let accept = match form {
        Form::Text => "text/plain",
        Form::Json => "application/json",
    };
    let destination = escape(destination);
    format!(
        "GET {}/v1/net/explain?dest={destination} HTTP/1.1\r\nHost: {NAME}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n",
        way.before()
    )
}

/// Percent-encodes everything but unreserved characters (RFC 3986, 2.3), so that no text can end the request line.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// The first address that a hosts file gives a name.
fn address_of(name: &str, hosts: &str) -> Option<IpAddr> {
    hosts.lines().find_map(|line| {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word == name).then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_cannot_add_a_header() {
        let request = request("x HTTP/1.1\r\nHost: evil", Form::Text, Way::Link);
        assert_eq!(request.lines().count(), 5);
        assert!(request.starts_with(
            "GET /v1/net/explain?dest=x%20HTTP%2F1.1%0D%0AHost%3A%20evil HTTP/1.1\r\n"
        ));
    }

    #[test]
    fn without_a_network_the_broker_is_asked_through_the_proxy() {
        let request = request("a.example", Form::Json, Way::Proxy);
        let line = request.lines().next();
        let wanted = "GET http://broker.sallyport.internal/v1/net/explain?dest=a.example HTTP/1.1";
        assert_eq!(line, Some(wanted));
    }

    #[test]
    fn hosts_file_names_the_broker() {
        let hosts = "127.0.0.1 localhost\n# 10.0.0.1 broker.sallyport.internal\n198.18.9.1\tx broker.sallyport.internal\n";
        assert_eq!(address_of(NAME, hosts), Some("198.18.9.1".parse().unwrap()));
        assert_eq!(address_of("other", hosts), None);
    }
}
