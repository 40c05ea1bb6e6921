//! Remotes over HTTPS and SSH on loopback: real clients against servers of the test, hostile ones and their twins.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::lab::*;

/// The distribution's own: paramiko is one of its packages.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/source/servers.py");

struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(lab: &Lab, arguments: &[&str]) -> Server {
    let file = lab.folder.path().join(format!(
        "port-{}",
        arguments.last().unwrap().replace('/', "_")
    ));
    let mut command = Command::new(PYTHON);
    command
        .arg(SCRIPT)
        .arg(arguments[0])
        .arg(&file)
        .args(&arguments[1..])
        .stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(&file) {
            return Server {
                child,
                port: text.parse().unwrap(),
            };
        }
        assert!(
            began.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none(),
            "the server does not start"
        );
        std::thread::yield_now();
    }
}

/// A certificate for 127.0.0.1, as the configuration names it.
fn certificate(lab: &Lab) -> (PathBuf, PathBuf) {
    let (cert, key) = (
        lab.folder.path().join("cert.pem"),
        lab.folder.path().join("key.pem"),
    );
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
    ]);
    command.arg(&key).arg("-out").arg(&cert);
    run(command, b"");
    (cert, key)
}

fn https(lab: &Lab, mode: &str) -> (Server, String) {
    let (cert, key) = (
        lab.folder.path().join("cert.pem"),
        lab.folder.path().join("key.pem"),
    );
    let (cert, key) = if cert.exists() {
        (cert, key)
    } else {
        certificate(lab)
    };
    let root = lab.folder.path().display().to_string();
    let server = start(
        lab,
        &[
            "https",
            &root,
            cert.to_str().unwrap(),
            key.to_str().unwrap(),
            mode,
        ],
    );
    let remote = format!("https://127.0.0.1:{}/remote.git", server.port);
    (server, remote)
}

fn trusting(mut lab: Lab, more: &str) -> Lab {
    certificate(&lab);
    lab.extra = format!(
        "ca: {}\n{more}",
        lab.folder.path().join("cert.pem").display()
    );
    lab
}

#[tokio::test]
async fn https_is_followed_with_the_configured_certificate_and_not_without() {
    let lab = trusting(Lab::new(), "");
    let good = lab.remote.push(OPEN, &[]);
    let (_server, remote) = https(&lab, "plain");
    loaded(&lab.open_at(&remote), &good).await;
    let strangers = Lab {
        extra: String::new(),
        ..Lab::new()
    };
    let said = refused(&strangers.open_at(&remote), None).await;
    assert!(
        said.to_lowercase().contains("certificate") || said.to_lowercase().contains("ssl"),
        "{said}"
    );
}

#[tokio::test]
async fn a_token_goes_to_its_remote_and_into_no_message() {
    let lab = trusting(Lab::new(), "");
    let good = lab.remote.push(OPEN, &[]);
    let (_server, remote) = https(&lab, "auth");
    let with = |token: &str, lab: Lab| {
        let file = lab.file("token", 0o600, format!("{token}\n").as_bytes());
        Lab {
            extra: format!(
                "ca: {}\ntoken: {}",
                lab.folder.path().join("cert.pem").display(),
                file.display()
            ),
            ..lab
        }
    };
    let said = refused(&lab.open_at(&remote), None).await;
    assert!(!said.is_empty());
    let lab = with("user:sesame-wrong", lab);
    let said = refused(&lab.open_at(&remote), None).await;
    assert!(!said.contains("sesame"), "{said}");
    let lab = with("user:token", lab);
    loaded(&lab.open_at(&remote), &good).await;
}

#[tokio::test]
async fn a_redirect_is_followed_nowhere() {
    let lab = trusting(Lab::new(), "limits: { seconds: 20 }");
    let good = lab.remote.push(OPEN, &[]);
    let (_target, direct) = https(&lab, "plain");
    let elsewhere = direct.strip_suffix("/remote.git").unwrap();
    for mode in [
        &format!("redirect={elsewhere}"),
        "redirect=https://169.254.169.254",
        "redirect=file://",
        "loop",
    ] {
        let (_server, remote) = https(&lab, mode);
        refused(&lab.open_at(&remote), None).await;
    }
    loaded(&lab.open_at(&direct), &good).await;
}

#[tokio::test]
async fn a_byte_a_second_is_given_up() {
    let lab = trusting(Lab::new(), "limits: { seconds: 4 }");
    let (_server, remote) = https(&lab, "trickle");
    let began = Instant::now();
    refused(&lab.open_at(&remote), None).await;
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

fn keygen(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.folder.path().join(name);
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
        .arg(&path);
    run(command, b"");
    path
}

#[tokio::test]
async fn ssh_is_followed_with_the_configured_keys_of_host_and_gateway_only() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let [host, other, client, stranger] =
        ["host", "other", "client", "stranger"].map(|name| keygen(&lab, name));
    let public = format!("{}.pub", client.display());
    let root = lab.folder.path().display().to_string();
    let server = start(&lab, &["ssh", &root, host.to_str().unwrap(), &public]);
    let remote = format!("ssh://git@127.0.0.1:{}/remote.git", server.port);
    let known = |key: &PathBuf| {
        let text = std::fs::read_to_string(format!("{}.pub", key.display())).unwrap();
        format!("[127.0.0.1]:{} {text}", server.port)
    };
    let with = |lab: Lab, hosts: String, key: &PathBuf| {
        let hosts = lab.file("known_hosts", 0o644, hosts.as_bytes());
        Lab {
            extra: format!(
                "known_hosts: {}\nssh_key: {}",
                hosts.display(),
                key.display()
            ),
            ..lab
        }
    };
    let lab = with(lab, known(&other), &client);
    let said = refused(&lab.open_at(&remote), None).await;
    assert!(!said.is_empty(), "another host's key");
    let lab = with(lab, String::new(), &client);
    refused(&lab.open_at(&remote), None).await;
    let lab = with(lab, known(&host), &stranger);
    refused(&lab.open_at(&remote), None).await;
    let lab = with(lab, known(&host), &client);
    loaded(&lab.open_at(&remote), &good).await;
}
