//! A small HTTP/1.1 client for the console's rows: one connection, one request at a time, JSON both ways.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A console that does not answer for so long fails the bench.
const PATIENCE: Duration = Duration::from_mins(1);

/// A connection to a console.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    port: u16,
    /// Lines of the head that every request has.
    head: String,
}

impl Client {
    /// To a port of loopback.
    pub fn new(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            port,
            head: String::new(),
        })
    }

    /// Another one that is the same person.
    pub fn again(&self) -> Result<Self> {
        let mut other = Self::new(self.port)?;
        other.head.clone_from(&self.head);
        Ok(other)
    }

    /// Adds a line to the head of every request.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:{}\r\ncontent-type: application/json\r\n{}content-length: {}\r\n\r\n{body}",
            self.port,
            self.head,
            body.len()
        );
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Reads the head of an answer: its status and fields.
    fn answered(&mut self) -> Result<(u16, Vec<(String, String)>)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).context("a status")?.parse()?;
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                return Ok((status, fields));
            };
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// Asks; the answer must be a good one.
    pub fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.send(method, path, body)?;
        let (status, fields) = self.answered()?;
        let field = |name: &str| fields.iter().find(|(known, _)| known == name);
        let length: usize = match field("content-length") {
            Some((_, length)) => length.parse()?,
            None if status == 204 => 0,
            None => bail!("{method} {path}: an answer without a length"),
        };
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        if !(200..300).contains(&status) {
            bail!(
                "{method} {path}: {status} {}",
                String::from_utf8_lossy(&bytes)
            );
        }
        if let Some((_, cookie)) = field("set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let _ = write!(self.head, "cookie: {pair}\r\n");
        }
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Follows the event stream until the console goes; gives the number of lines.
    pub fn follow(mut self, path: &str) -> Result<u64> {
        self.send("GET", path, None)?;
        let (status, _) = self.answered()?;
        if status != 200 {
            bail!("{path}: {status}");
        }
        let (mut lines, mut line) = (0, Vec::new());
        while self.stream.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            lines += 1;
            line.clear();
        }
        Ok(lines)
    }
}
