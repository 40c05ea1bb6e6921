//! Conversations in which each side waits for the other: a byte that stays anywhere on the way stops them.
//!
//! Server-sent events, `Expect: 100-continue`, trailers of both sides, a WebSocket and a long poll, each through every
//! door: requests judged one by one, TLS passed, bytes passed, a tunnel of the explicit proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use lab::client::{at, connect};
use lab::pace::Pace;
use lab::topology::{PUBLIC4, SERVICE4, ip};
use lab::{Lab, Sandbox};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};

const NAME: &str = "ok.sallylab.net";
const POLICY: &str = "\
policy: streams
network: domains
allow:
  - { host: ok.sallylab.net, ports: [8090], speaks: http }
  - { host: ok.sallylab.net, ports: [8091], speaks: tls }
  - { host: ok.sallylab.net, ports: [8092], speaks: any }
";
/// Longer than any head may take.
const LONG: Duration = Duration::from_secs(11);
/// A peer that delays its acknowledgements waits 40 ms; a relay that gathers bytes would wait for that each time.
const PROMPT: Duration = Duration::from_millis(30);

/// How a conversation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Judged,
    Secure,
    Opaque,
    Tunnel,
}

const WAYS: [Way; 4] = [Way::Judged, Way::Secure, Way::Opaque, Way::Tunnel];

impl Way {
    fn port(self) -> u16 {
        match self {
            Self::Judged => 8090,
            Self::Secure | Self::Tunnel => 8091,
            Self::Opaque => 8092,
        }
    }

    fn is_secure(self) -> bool {
        self.port() == 8091
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Client,
    Server,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// What is said, in its order.
fn script() -> Vec<(By, Vec<u8>)> {
    let mut all = Vec::new();
    let mut say = |by, text: &str| all.push((by, text.as_bytes().to_vec()));
    say(
        By::Client,
        "GET /events HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n",
    );
    say(
        By::Server,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    for number in 10..30 {
        say(By::Server, "a\r\n");
        say(By::Server, &format!("data: {number}\n\n\r\n"));
    }
    say(By::Server, "0\r\nLast-Event: 29\r\n\r\n");
    say(
        By::Client,
        "PUT /up HTTP/1.1\r\nHost: ok.sallylab.net\r\nExpect: 100-continue\r\nTrailer: Sum\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    );
    say(By::Server, "HTTP/1.1 100 Continue\r\n\r\n");
    say(By::Client, "3\r\nabc\r\n");
    say(By::Client, "0\r\nSum: 1\r\n\r\n");
    say(By::Server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    say(
        By::Client,
        "GET /ws HTTP/1.1\r\nHost: ok.sallylab.net\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    say(
        By::Server,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
    for number in 10..30_u8 {
        all.push((By::Client, vec![0x82, 0x81, 1, 2, 3, 4, number ^ 1]));
        all.push((By::Server, vec![0x82, 1, number]));
    }
    all
}

/// Plays one side; how long each thing took that had to be waited for.
fn play(
    stream: &mut dyn Stream,
    me: By,
    script: &[(By, Vec<u8>)],
    heard: &dyn Fn(),
) -> Vec<Duration> {
    let mut waits = Vec::new();
    for (by, bytes) in script {
        if *by == me {
            stream.write_all(bytes).expect("write");
            stream.flush().expect("flush");
            continue;
        }
        let (began, mut got) = (Instant::now(), vec![0; bytes.len()]);
        let read = stream.read_exact(&mut got);
        let shown = String::from_utf8_lossy(bytes).into_owned();
        assert!(
            read.is_ok() && got == *bytes,
            "{me:?} waits for {shown:?}: {read:?}"
        );
        waits.push(began.elapsed());
        heard();
    }
    waits
}

/// The server's side of a stream.
fn serving(lab: &Lab, way: Way, stream: TcpStream) -> Box<dyn Stream> {
    stream.set_nodelay(true).expect("no delay");
    stream.set_read_timeout(Some(2 * LONG)).expect("limit");
    if !way.is_secure() {
        return Box::new(stream);
    }
    let leaf = SingleCertAndKey::from(lab.authority.leaf(NAME));
    let config = ServerConfig::builder_with_provider(lab::tls::provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(leaf));
    let connection = ServerConnection::new(Arc::new(config)).expect("server");
    Box::new(StreamOwned::new(connection, stream))
}

/// The client's side, connected.
fn connected(lab: &Lab, way: Way) -> Box<dyn Stream> {
    let to = match way {
        Way::Tunnel => SocketAddr::new(ip(SERVICE4), 3128),
        _ => at(NAME, way.port()),
    };
    let mut stream = connect(to).expect_open();
    stream.set_nodelay(true).expect("no delay");
    stream.set_read_timeout(Some(2 * LONG)).expect("limit");
    if way == Way::Tunnel {
        let target = format!("{NAME}:{}", way.port());
        write!(
            stream,
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
        )
        .expect("ask");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream
                .read_exact(&mut byte)
                .expect("an answer of the proxy");
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }
    if !way.is_secure() {
        return Box::new(stream);
    }
    let name = ServerName::try_from(NAME).expect("name");
    let connection = ClientConnection::new(lab.authority.client(), name).expect("client");
    Box::new(StreamOwned::new(connection, stream))
}

fn listen(lab: &Lab, way: Way) -> TcpListener {
    let at = SocketAddr::new(ip(PUBLIC4), way.port());
    lab.topology
        .internet
        .run(|| TcpListener::bind(at).expect("listen"))
}

/// Both sides of a conversation in which the server goes on only when the client has heard it.
fn converse(lab: &Lab, sandbox: &Sandbox, way: Way, script: &[(By, Vec<u8>)]) -> Vec<Duration> {
    let listener = listen(lab, way);
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            let mut stream = serving(lab, way, stream);
            for step in script {
                play(&mut *stream, By::Server, std::slice::from_ref(step), &|| {});
                if step.0 == By::Server {
                    told.recv_timeout(LONG).expect("the client heard it");
                }
            }
        });
        let waits = sandbox.run(|| {
            let mut stream = connected(lab, way);
            play(&mut *stream, By::Client, script, &|| {
                tell.send(()).expect("told");
            })
        });
        server.join().expect("server");
        waits
    })
}

#[test]
fn nothing_that_is_said_waits_for_what_comes_after_it() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(POLICY);
    for way in WAYS {
        let pace = Pace::watch();
        let mut waits = converse(&lab, &sandbox, way, &script());
        waits.sort();
        let median = waits[waits.len() / 2];
        let most = pace.stretches(PROMPT);
        assert!(median < most, "{way:?}: {median:?} of {waits:?}");
    }
}

#[test]
fn an_upgrade_to_any_protocol_carries_what_both_sides_say_in_it() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(POLICY);
    let say = |by, text: &str| (by, text.as_bytes().to_vec());
    let mut upgraded = vec![
        // as an engine's client attaches to a container
        say(
            By::Client,
            "POST /attach HTTP/1.1\r\nHost: ok.sallylab.net\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        ),
        say(
            By::Server,
            "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        ),
        // the server speaks first, and nothing of it is HTTP
        say(By::Server, "\0\u{1}hello\r\n\r\n"),
    ];
    for octet in 0..=u8::MAX {
        upgraded.push((By::Client, vec![octet; 3]));
        upgraded.push((By::Server, vec![octet]));
    }
    for way in WAYS {
        converse(&lab, &sandbox, way, &upgraded);
    }
}

#[test]
fn an_answer_may_come_later_than_any_head_may_take() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(POLICY);
    let ask = b"GET /poll HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n".to_vec();
    let news = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnews".to_vec();
    let poll = [(By::Client, ask), (By::Server, news)];
    std::thread::scope(|scope| {
        for way in [Way::Judged, Way::Secure, Way::Opaque] {
            let (lab, sandbox, poll) = (&lab, &sandbox, &poll);
            let listener = listen(lab, way);
            scope.spawn(move || {
                let (stream, _) = listener.accept().expect("accept");
                let mut stream = serving(lab, way, stream);
                play(&mut *stream, By::Server, &poll[..1], &|| {});
                // nobody has news before that
                let (_sender, news) = channel::<()>();
                assert!(news.recv_timeout(LONG).is_err());
                play(&mut *stream, By::Server, &poll[1..], &|| {});
            });
            scope.spawn(move || {
                let waits =
                    sandbox.run(|| play(&mut *connected(lab, way), By::Client, poll, &|| {}));
                assert!(waits[0] >= LONG, "{way:?}: {waits:?}");
            });
        }
    });
}
