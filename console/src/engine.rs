//! The few questions that doctor and uninstall ask a container engine directly, so that they work without a runner.
//!
//! HTTP/1.0 over the engine's own Unix socket; Docker and Podman answer the same paths. Owns nothing that runs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner::config::EngineChoice;
use serde_json::Value;

/// Where engines listen.
const SOCKETS: [&str; 4] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/var/run/podman/podman.sock",
];

/// Every container of Sallyport carries it.
const LABEL: &str = "sallyport.instance";

/// An answer longer than this is no list of containers.
const MOST_BYTES: u64 = 16 << 20;

/// An engine that listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Engine {
    socket: PathBuf,
}

/// A container that Sallyport made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// Identity.
    pub id: String,
    /// The instance that made it.
    pub instance: String,
    /// What it is for.
    pub role: String,
}

impl Engine {
    /// Every engine that answers on this machine, the one that `runner.engine` names first.
    pub fn all(choice: &EngineChoice) -> Vec<Self> {
        let named = named(choice).map(Path::to_path_buf);
        let own = gateway::ordinary::podman_socket();
        let usual = own.into_iter().chain(SOCKETS.map(PathBuf::from));
        Self::answering(named.into_iter().chain(usual))
    }

    /// The engines that a runner with this configuration may use: the named one alone, or those at their usual sockets.
    pub fn usable(choice: &EngineChoice) -> Vec<Self> {
        match named(choice) {
            Some(socket) => Self::answering(std::iter::once(socket.to_path_buf())),
            None => Self::all(choice),
        }
    }

    fn answering(sockets: impl Iterator<Item = PathBuf>) -> Vec<Self> {
        let mut engines: Vec<Self> = Vec::new();
        for socket in sockets {
            let Ok(socket) = socket.canonicalize() else {
                continue;
            };
            let engine = Self { socket };
            if !engines.contains(&engine) && engine.version().is_some() {
                engines.push(engine);
            }
        }
        engines
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its version, if it answers.
    pub fn version(&self) -> Option<String> {
        Some(
            self.ask("GET", "/version")
                .ok()?
                .get("Version")?
                .as_str()?
                .to_owned(),
        )
    }

    /// Where it is, if it is not on this machine's kernel.
    pub fn elsewhere(&self) -> Option<runner::Elsewhere> {
        let info = self.ask("GET", "/info").ok()?;
        let text = |key: &str| info.get(key).and_then(Value::as_str);
        runner::elsewhere(text("OperatingSystem"), text("Name"), text("KernelVersion"))
    }

    /// Containers that carry Sallyport's label.
    pub fn leftovers(&self) -> std::io::Result<Vec<Leftover>> {
        let filter = format!("%7B%22label%22%3A%5B%22{LABEL}%22%5D%7D");
        let list = self.ask("GET", &format!("/containers/json?all=1&filters={filter}"))?;
        let text = |c: &Value, path: &str| {
            c.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let leftover = |c: &Value| Leftover {
            id: text(c, "/Id"),
            instance: text(c, "/Labels/sallyport.instance"),
            role: text(c, "/Labels/sallyport.role"),
        };
        let all = list.as_array().into_iter().flatten().map(leftover);
        // an engine that ignores the filter must not make us remove what is not ours
        Ok(all
            .filter(|l| !l.instance.is_empty() && l.id.bytes().all(|b| b.is_ascii_hexdigit()))
            .collect())
    }

    /// Removes one, running or not.
    pub fn remove(&self, leftover: &Leftover) -> std::io::Result<()> {
        self.ask(
            "DELETE",
            &format!("/containers/{}?force=1&v=1", leftover.id),
        )
        .map(drop)
    }

    fn ask(&self, method: &str, path: &str) -> std::io::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: engine\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut answer)?;
        parse(&answer)
            .ok_or_else(|| std::io::Error::other("the engine's answer is not understood"))?
    }
}

/// The socket that the configuration names.
pub fn named(choice: &EngineChoice) -> Option<&Path> {
    match choice {
        EngineChoice::Socket(path) => Some(path),
        EngineChoice::Auto | EngineChoice::Docker | EngineChoice::Podman => None,
    }
}

fn parse(answer: &[u8]) -> Option<std::io::Result<Value>> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let status: u16 = head.split_whitespace().nth(1)?.parse().ok()?;
    let body = answer.get(end + 4..)?;
    let value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).unwrap_or_default()
    };
    if (200..300).contains(&status) {
        return Some(Ok(value));
    }
    let message = value
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or("no reason given");
    Some(Err(std::io::Error::other(format!(
        "the engine answered {status}: {message}"
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_refusals_name_their_reason() {
        let ok = parse(
            b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"Version\":\"20.10\"}",
        )
        .unwrap()
        .unwrap();
        assert_eq!(ok["Version"], "20.10");
        assert!(parse(b"HTTP/1.0 204 No Content\r\n\r\n").unwrap().is_ok());
        let refused = parse(b"HTTP/1.0 409 Conflict\r\n\r\n{\"message\":\"in use\"}")
            .unwrap()
            .unwrap_err();
        assert!(refused.to_string().contains("in use"), "{refused}");
        assert!(parse(b"nonsense").is_none());
    }

    #[test]
    fn the_named_engine_is_the_one_that_a_runner_uses() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("p.sock");
        let choice = EngineChoice::Socket(socket.clone());
        // none listens there: no other one is taken for it
        assert!(Engine::usable(&choice).is_empty());
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.extend(byte);
                }
                stream
                    .write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"Version\":\"4.3.1\"}")
                    .unwrap();
            }
        });
        let expected = socket.canonicalize().unwrap();
        let usable = Engine::usable(&choice);
        assert_eq!(
            usable.iter().map(Engine::socket).collect::<Vec<_>>(),
            [expected.as_path()]
        );
        // leftovers are looked for there, too
        let all = Engine::all(&choice);
        assert_eq!(all.first().map(Engine::socket), Some(expected.as_path()));
        server.join().unwrap();
    }
}
