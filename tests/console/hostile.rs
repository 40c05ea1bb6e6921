//! What answers is no console, or one that wants to harm: garbage, without end, without haste, redirecting, lying.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::cli::Said;
use serde_json::json;
use tempfile::TempDir;

use crate::world::at_home;

/// Answers every connection in one way, and keeps what it heard.
pub struct Recorder {
    port: u16,
    heard: Arc<Mutex<String>>,
}

impl Recorder {
    /// With these bytes.
    pub fn answering(bytes: &'static [u8]) -> Self {
        Self::with(move |stream, _| {
            let _ = stream.write_all(bytes);
        })
    }

    /// In whatever way; the request's head is given.
    pub fn with(answer: impl Fn(&mut TcpStream, &str) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heard = Arc::new(Mutex::new(String::new()));
        let (kept, answer) = (heard.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || {
                    let head = head(&mut stream);
                    kept.lock().expect("unpoisoned").push_str(&head);
                    answer(&mut stream, &head);
                });
            }
        });
        Self { port, heard }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn heard(&self) -> String {
        self.heard.lock().expect("unpoisoned").clone()
    }
}

fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length > 0) {
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

const RUN: &str = "0199f3a2-7d1c-7000-8a51-3c2b9d7e4f10";

fn ask(recorder: &Recorder, arguments: &[&str]) -> Said {
    let folder = TempDir::new().expect("a folder");
    let mut command = at_home(folder.path(), arguments);
    command
        .env("SALLYPORT_URL", recorder.url())
        .env("SALLYPORT_TOKEN", format!("spt_{}", "a".repeat(43)));
    command.output().expect("start").into()
}

/// An answer of a console.
fn json_answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// Its token is of this workspace, and everything else is answered so.
fn lying(body: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Recorder {
    Recorder::with(move |stream, head| {
        let mine = json!({ "items": [{ "id": "w1", "name": "W" }], "next": null }).to_string();
        let answer = if head.starts_with("GET /api/v1/workspaces?") {
            json_answer(&mine)
        } else {
            body(head)
        };
        let _ = stream.write_all(&answer);
    })
}

#[test]
fn what_is_no_console_is_told_in_a_line() {
    for (bytes, words) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "speaks no HTTP"),
        (b"", "nobody answers|broke off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "answered with no JSON"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "a list without `items`"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\n<h1>", "answered with 502 and no reason"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n[[[[", "broke off"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n{\"code\":\"x\",\"detail\":\"\\u001b]0;evil\\u0007no\",\"fields\":3,\"help\":[]}", "\\u{1b}]0;evil\\u{7}no"),
    ] {
        let said = ask(&Recorder::answering(bytes), &["ps"]).expect(3);
        assert!(words.split('|').any(|words| said.err.contains(words)), "{words}: {said:?}");
        assert!(!said.err.contains('\u{1b}') && said.err.len() < 2000, "{said:?}");
    }
}

#[test]
fn a_redirect_takes_no_token_elsewhere() {
    let other = Recorder::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let to = other.url();
    let first = Recorder::with(move |stream, _| {
        let _ = stream.write_all(format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}/api/v1\r\ncontent-length: 0\r\n\r\n").as_bytes());
    });
    let said = ask(&first, &["ps"]).expect(3);
    assert!(
        said.err.contains("sends on to") && first.heard().contains("Bearer spt_"),
        "{said:?}"
    );
    assert_eq!(other.heard(), "");
}

#[test]
fn an_answer_without_end_ends_and_takes_no_more_memory_than_an_answer_has() {
    let endless = Recorder::with(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let piece = [b"10000\r\n".as_slice(), &vec![b'['; 65536], b"\r\n"].concat();
        while stream.write_all(&piece).is_ok() {}
    });
    let said = ask(&endless, &["ps"]).expect(3);
    assert!(said.err.contains("too large"), "{said:?}");
    let head = Recorder::with(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream
            .write_all(b"x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
            .is_ok()
        {}
    });
    ask(&head, &["ps"]).expect(3);
}

#[test]
fn lists_and_output_without_end_end() {
    let cursor = std::sync::atomic::AtomicUsize::new(0);
    let lists = lying(move |_| {
        let next = cursor.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        json_answer(&json!({ "items": [], "next": format!("n{next}") }).to_string())
    });
    assert!(
        ask(&lists, &["job", "list"])
            .expect(3)
            .err
            .contains("does not end")
    );
    for (entries, code) in [(200, 0), (201, 3)] {
        let page = json!({ "items": vec![json!({}); entries], "next": null }).to_string();
        let long = lying(move |_| json_answer(&page));
        let said = ask(&long, &["job", "list"]);
        assert_eq!(said.code, Some(code), "{entries}: {}", said.err);
    }
    // output that says there is more and gives none
    let output = lying(|_| {
        json_answer(
            &json!({ "pieces": [], "next": 0, "total": 99, "over": true, "truncated": false })
                .to_string(),
        )
    });
    ask(&output, &["logs", RUN]).expect(0);
    let backwards = lying(|_| {
        json_answer(&json!({ "pieces": [{ "starts": -9_i64, "stream": "x", "data": "!" }], "next": -1, "total": 1 }).to_string())
    });
    assert!(
        ask(&backwards, &["logs", RUN])
            .expect(3)
            .err
            .contains("cannot be read")
    );
}

#[test]
fn names_and_ids_of_a_console_that_lies_go_into_no_path_and_onto_no_terminal() {
    let evil = "\u{1b}[2J\u{202e}".repeat(50_000);
    let body = json!({ "items": [{ "id": "../../session", "name": evil, "state": evil, "version": 1, "spec": 3 }], "next": null });
    let lies = lying(move |_| json_answer(&body.to_string()));
    for form in ["table", "json", "yaml"] {
        let said = ask(&lies, &["ps", "-o", form]).expect(0);
        assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{form}");
        assert!(
            form != "table" || said.out.len() < 40_000,
            "{}",
            said.out.len()
        );
    }
    let named = lying(|_| {
        json_answer(&json!({ "items": [{ "id": "../../session", "name": "x", "version": 1 }], "next": null }).to_string())
    });
    assert!(
        ask(&named, &["job", "delete", "x"])
            .expect(3)
            .err
            .contains("is no id")
    );
    assert!(!named.heard().contains("DELETE"), "{}", named.heard());
    assert!(
        ask(&named, &["job", "show", "x"])
            .expect(3)
            .err
            .contains("cannot be read")
    );
}

#[test]
fn who_does_not_answer_is_given_up() {
    let silent = Recorder::with(|stream, _| {
        // until the other side is gone
        let _ = stream.read(&mut [0]);
    });
    let begun = Instant::now();
    let said = ask(&silent, &["ps"]).expect(3);
    assert!(said.err.contains("did not answer in time"), "{said:?}");
    assert!(
        begun.elapsed() < Duration::from_mins(1),
        "{:?}",
        begun.elapsed()
    );
}
