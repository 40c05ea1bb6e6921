//! TLS of the people port, asked by the runner's own client.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use runner::protocol::Claim;
use runner::pull::line::{Address, AskError, Identity, Line};
use runner::pull::trust;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::listen::{self, Door};
use super::testing::Console;
use super::tls::{self, TlsError};
use crate::settings::TlsFiles;
use crate::store::testing::each;

/// A certificate for a name, and its key, as files.
fn files(folder: &Path, name: &str) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    mode(&files.key, 0o600);
    files
}

fn mode(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Asks with a token that nobody has.
async fn ask(console: &Console, origin: &str, authority: Option<&Path>) -> AskError {
    let trust = authority.map(|file| trust::client(file).unwrap());
    let identity = Identity {
        token: "none".into(),
        session: "s".into(),
    };
    let address = Address::parse(origin).unwrap();
    let mut line = Line::new(address, trust, identity, console.app.tasks.clone());
    let claim = Claim {
        holding: Vec::new(),
    };
    let answer = line.ask::<()>("/runner/v1/claim", &claim).await;
    answer.unwrap_err()
}

#[tokio::test]
async fn a_runner_speaks_tls_to_the_console_that_it_means_and_to_no_other() {
    each(async |store| {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (
            files(folder.path(), "localhost"),
            files(folder.path(), "other.example"),
        );
        let console = Console::on(store);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let door = Door::People(Some(tls::acceptor(&own).unwrap()));
        let served = listen::serve(
            listener,
            super::router(&console.app),
            console.app.clone(),
            door,
        );
        console.app.tasks.spawn("people", served);
        let secure = format!("https://localhost:{port}");
        // it is reached and answers, so its token was read
        let answer = ask(&console, &secure, Some(&own.certificate)).await;
        assert!(matches!(answer, AskError::Unknown), "{answer}");
        // another authority, another name, none at all
        let answer = ask(&console, &secure, Some(&other.certificate)).await;
        assert!(matches!(answer, AskError::Away(_)), "{answer}");
        let by_address = format!("https://127.0.0.1:{port}");
        let answer = ask(&console, &by_address, Some(&own.certificate)).await;
        assert!(matches!(answer, AskError::Away(_)), "{answer}");
        let answer = ask(&console, &secure, None).await;
        assert!(matches!(answer, AskError::Away(_)), "{answer}");
        // this machine itself may speak plainly
        let plain = format!("http://localhost:{port}");
        let answer = ask(&console, &plain, None).await;
        assert!(matches!(answer, AskError::Unknown), "{answer}");
        console.app.stop.cancel();
    })
    .await;
}

#[tokio::test]
async fn plain_http_from_another_machine_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let own = files(folder.path(), "localhost");
    let acceptor = tls::acceptor(&own).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let elsewhere: SocketAddr = "203.0.113.7:4711".parse().unwrap();
    let here: SocketAddr = "192.0.2.1:8420".parse().unwrap();
    let connected = async || {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        (client, listener.accept().await.unwrap().0)
    };
    let (_client, stream) = connected().await;
    let opened = tls::open(Some(&acceptor), stream, elsewhere, here).await;
    assert!(opened.is_err());
    // this machine's own address, and a console without TLS
    let (_client, stream) = connected().await;
    assert!(tls::open(Some(&acceptor), stream, here, here).await.is_ok());
    let (_client, stream) = connected().await;
    assert!(tls::open(None, stream, elsewhere, here).await.is_ok());
}

#[test]
fn a_key_that_everybody_reads_or_that_is_anothers_makes_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let own = files(folder.path(), "localhost");
    let other = files(folder.path(), "other.example");
    assert!(tls::acceptor(&own).is_ok());
    mode(&own.key, 0o644);
    assert!(matches!(tls::acceptor(&own), Err(TlsError::Open(_))));
    let mixed = TlsFiles {
        key: other.key,
        ..own
    };
    assert!(matches!(tls::acceptor(&mixed), Err(TlsError::Pair(_))));
    let none = TlsFiles {
        certificate: folder.path().join("none"),
        ..mixed
    };
    assert!(matches!(tls::acceptor(&none), Err(TlsError::File { .. })));
    assert!(trust::client(&none.key).is_err(), "no authority is in it");
}
