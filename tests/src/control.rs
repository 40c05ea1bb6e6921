//! One exchange on the control socket itself: quicker than any program could start, and with what no program would send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Asks, and returns the status.
pub fn ask(control: &Path, method: &str, path: &str, body: &str) -> u16 {
    let mut stream = UnixStream::connect(control).expect("connect to the control socket");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: sallyport\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("ask");
    stream.write_all(body.as_bytes()).expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.expect("a status")
}
