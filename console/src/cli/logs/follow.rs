//! Follows a run: its output from byte to byte, woken by its events, until it is over.

use std::io::IsTerminal;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::terminal::Terminal;
use super::write;
use crate::cli::remote::{CallError, Events, Form, Said, Session, text};
use crate::exit::Failure;
use crate::show;

/// A console that is away may be back: an update, a restart, a cut connection.
const PATIENCE: Duration = Duration::from_mins(5);
/// Between two attempts at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Bytes of output at once: a quarter of what a console gives, so that a slow connection brings a page in time.
const PAGE: u32 = 256 << 10;

/// Where output goes.
pub struct Printer {
    form: Form,
    out: Option<Terminal>,
    err: Option<Terminal>,
}

impl Printer {
    /// As the two streams of this process are.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            out: std::io::stdout().is_terminal().then(Terminal::default),
            err: std::io::stderr().is_terminal().then(Terminal::default),
        }
    }

    fn print(&mut self, piece: &Value, bytes: &[u8]) -> Result<(), Failure> {
        if self.form != Form::Table {
            let stream = if is_error(piece) { "stderr" } else { "stdout" };
            let at = piece.get("at").cloned().unwrap_or_default();
            let said = json!({ "kind": "output", "stream": stream, "at": at, "data": STANDARD.encode(bytes) });
            return self.form.line(&said, String::new);
        }
        if is_error(piece) {
            let mut to = std::io::stderr().lock();
            match &mut self.err {
                Some(terminal) => write(&mut to, terminal.take(bytes).as_bytes()),
                None => write(&mut to, bytes),
            }
        } else {
            let mut to = std::io::stdout().lock();
            match &mut self.out {
                Some(terminal) => write(&mut to, terminal.take(bytes).as_bytes()),
                None => write(&mut to, bytes),
            }
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self) -> Result<(), Failure> {
        if let Some(terminal) = &mut self.out {
            write(&mut std::io::stdout().lock(), terminal.end().as_bytes())?;
        }
        if let Some(terminal) = &mut self.err {
            write(&mut std::io::stderr().lock(), terminal.end().as_bytes())?;
        }
        Ok(())
    }
}

fn is_error(piece: &Value) -> bool {
    piece.get("stream").and_then(Value::as_str) == Some("stderr")
}

/// One run that is followed.
pub struct Follow<'a> {
    session: &'a Session,
    run: String,
    next: i64,
    told: bool,
    /// Where its output goes.
    pub printer: Printer,
}

/// Whether more may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Perhaps,
    Never,
}

impl<'a> Follow<'a> {
    /// From its first byte.
    pub fn new(session: &'a Session, run: &str, printer: Printer) -> Self {
        Self {
            session,
            run: run.to_owned(),
            next: 0,
            told: false,
            printer,
        }
    }

    /// Prints what is there. A console that has no time for this caller is asked again when it says so, as long as it gives
    /// something now and then.
    pub async fn read_on(&mut self) -> Result<(), Failure> {
        let (mut since, mut before) = (Instant::now(), self.next);
        loop {
            let Err(error) = self.drain().await else {
                return Ok(());
            };
            if self.next > before {
                (since, before) = (Instant::now(), self.next);
            }
            match error.again_after() {
                Some(after) if since.elapsed() + after <= PATIENCE => sleep(after).await,
                _ => return Err(error.into()),
            }
        }
    }

    /// Prints what there is and what comes, until the run is over; comes to the run.
    pub async fn until_over(&mut self) -> Result<Value, Failure> {
        let topic = format!("workspace/{}/run/{}", self.session.workspace, self.run);
        let mut events = Events::new(&self.session.client, &topic);
        let (mut pause, mut since) = (PAUSES.0, Instant::now());
        loop {
            match self.listen(&mut events).await {
                Ok(()) => {
                    self.printer.end()?;
                    let path = self.session.path(&format!("runs/{}", self.run));
                    let answer = self.session.client.get(&path).await?.body;
                    return Ok(answer.get("run").cloned().unwrap_or_default());
                }
                Err(Broken::Gone(failure)) => return Err(failure),
                Err(Broken::Away {
                    failure,
                    heard,
                    after,
                }) => {
                    if heard {
                        (pause, since) = (PAUSES.0, Instant::now());
                    }
                    if since.elapsed() > PATIENCE {
                        return Err(failure);
                    }
                    sleep(after.map_or(pause, |after| after.clamp(pause, PATIENCE))).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Until the run is over, or the stream is.
    async fn listen(&mut self, events: &mut Events<'_>) -> Result<(), Broken> {
        events.open().await.map_err(|error| broken(error, false))?;
        // a stream that opens while output cannot be had is no console that is back
        let (before, mut heard) = (self.next, false);
        loop {
            // after the stream began: what is printed from now on wakes it
            match self.drain().await {
                Ok(More::Never) => return Ok(()),
                Ok(More::Perhaps) => heard = true,
                Err(error) => return Err(broken(error, heard || self.next > before)),
            }
            if events.next().await != Said::Something {
                let failure =
                    Failure::new(format!("{} ended the stream", self.session.client.origin()));
                return Err(Broken::Away {
                    failure,
                    heard: true,
                    after: None,
                });
            }
        }
    }

    /// Reads and prints all that is new.
    async fn drain(&mut self) -> Result<More, CallError> {
        loop {
            let path = self.session.path(&format!(
                "runs/{}/output?from={}&limit={PAGE}",
                self.run, self.next
            ));
            let answer = self.session.client.get(&path).await?.body;
            let number = |key: &str| answer.get(key).and_then(Value::as_i64);
            let (Some(next), Some(total)) = (number("next"), number("total")) else {
                return Err(self.session.client.odd("output without a place to go on"));
            };
            // pieces move the place as they are printed
            let before = self.next;
            let pieces = answer.get("pieces").and_then(Value::as_array);
            for piece in pieces.into_iter().flatten() {
                self.piece(piece).map_err(CallError::Odd)?;
            }
            self.next = self.next.max(next);
            let went = self.next > before;
            if answer.get("truncated") == Some(&Value::Bool(true))
                && !std::mem::replace(&mut self.told, true)
            {
                show::note("sallyport: some of what it printed was not kept");
            }
            if !went || self.next >= total {
                let over = answer.get("over") == Some(&Value::Bool(true));
                return Ok(if over { More::Never } else { More::Perhaps });
            }
        }
    }

    /// Prints what is new of a piece, which is given whole also if it began before.
    fn piece(&mut self, piece: &Value) -> Result<(), Failure> {
        let bytes = STANDARD.decode(text(piece, "data"));
        let bytes = bytes.map_err(|_| Failure::new("output that cannot be read"))?;
        let starts = piece
            .get("starts")
            .and_then(Value::as_i64)
            .unwrap_or(self.next);
        let known = usize::try_from(self.next.saturating_sub(starts)).unwrap_or(0);
        let new = bytes.get(known..).unwrap_or_default();
        if new.is_empty() {
            return Ok(());
        }
        self.next = starts.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.printer.print(piece, new)
    }
}

/// Why listening ended.
enum Broken {
    /// For good.
    Gone(Failure),
    /// For now; `heard`: the console had given output, or said that there is none yet.
    Away {
        failure: Failure,
        heard: bool,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
}

fn broken(error: CallError, heard: bool) -> Broken {
    let (waits, after) = (error.may_pass(), error.again_after());
    let failure = Failure::from(error);
    if waits {
        Broken::Away {
            failure,
            heard,
            after,
        }
    } else {
        Broken::Gone(failure)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use ::console::settings::AppUrl;

    use super::*;
    use crate::cli::remote::Client;

    /// Plays a console whose stream opens and whose output comes this often before it fails.
    fn failing_after(mut answers: usize) -> AppUrl {
        answering(move || {
            if answers > 0 {
                answers -= 1;
                "200 OK\r\n\r\n{\"pieces\":[],\"next\":0,\"total\":0,\"over\":false}"
            } else {
                "500 Internal Server Error\r\n\r\n{\"code\":\"internal\"}"
            }
        })
    }

    /// Plays a console whose stream opens and that answers so about output.
    fn answering(mut output: impl FnMut() -> &'static str + Send + 'static) -> AppUrl {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head) = (stream.unwrap(), Vec::new());
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.extend(byte);
                }
                let answer = if String::from_utf8_lossy(&head).contains("/output?") {
                    output()
                } else {
                    "200 OK\r\ncontent-type: text/event-stream\r\n\r\n: here\n\n"
                };
                let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes());
            }
        });
        AppUrl::parse(&format!("http://127.0.0.1:{port}")).unwrap()
    }

    async fn heard(answers: usize) -> bool {
        let session = Session {
            client: Client::new(failing_after(answers), None, None).unwrap(),
            workspace: "w".to_owned(),
        };
        let mut events = Events::new(&session.client, "t");
        let mut follow = Follow::new(&session, "r", Printer::new(Form::Json));
        match follow.listen(&mut events).await {
            Err(Broken::Away { heard, .. }) => heard,
            Err(Broken::Gone(failure)) => panic!("{failure}"),
            Ok(()) => panic!("the run is not over"),
        }
    }

    #[tokio::test]
    async fn a_console_that_streams_and_gives_no_output_is_not_heard() {
        assert!(!heard(0).await);
        // its twin: output was answered for once, and failed after that
        assert!(heard(1).await);
    }

    #[tokio::test]
    async fn a_console_without_time_is_asked_again_when_it_says_and_one_that_refuses_is_not() {
        const NOT_NOW: &str =
            "429 Too Many Requests\r\nretry-after: 1\r\n\r\n{\"code\":\"too_many_requests\"}";
        let read = async |answers: &'static [&'static str]| {
            let mut answers = answers.iter();
            let console = answering(move || {
                answers.next().unwrap_or(
                    &"200 OK\r\n\r\n{\"pieces\":[],\"next\":0,\"total\":0,\"over\":true}",
                )
            });
            let session = Session {
                client: Client::new(console, None, None).unwrap(),
                workspace: "w".to_owned(),
            };
            let begun = Instant::now();
            let mut follow = Follow::new(&session, "r", Printer::new(Form::Json));
            (follow.read_on().await, begun.elapsed())
        };
        let (done, took) = read(&[NOT_NOW, NOT_NOW]).await;
        done.unwrap();
        assert!(took >= Duration::from_secs(2), "{took:?}");
        let never = "429 Too Many Requests\r\nretry-after: 86400\r\n\r\n{\"code\":\"too_many_requests\",\"detail\":\"later\"}";
        let refused =
            "403 Forbidden\r\nretry-after: 1\r\n\r\n{\"code\":\"forbidden\",\"detail\":\"no\"}";
        for (answer, says) in [(never, "later"), (refused, "no")] {
            let failure = read(Box::leak(Box::new([answer]))).await.0.unwrap_err();
            assert_eq!(failure.message, says);
        }
    }
}
