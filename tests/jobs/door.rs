//! A console that the gateway does not know of, on an address of this machine that a policy permits: it tells a sandbox's
//! connection by asking the gateway whose it is, and closes it before it reads a byte.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use lab::topology::{HOST4, ip};
use lab::wait::eventually;
use lab::{Lab, cli};

const CONSOLE: u16 = 8499;
const OTHER: u16 = 8498;

/// A console with a file of its own, which names the lab's gateway.
fn console(lab: &Lab) -> Child {
    let own = lab.directory().join("own");
    let text = std::fs::read_to_string(lab.directory().join("config.yml")).expect("the lab's file");
    let text = format!(
        "{text}\nconsole: {{ listen: \"0.0.0.0:{CONSOLE}\", state_dir: \"{}\" }}\n",
        own.display()
    );
    let file = lab.file("console.yml", &text).display().to_string();
    let mut command = cli::command(&["console", "--config", &file]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    lab.topology.uplink.start(&mut command).expect("start")
}

/// What a server answers to a request, as far as it comes.
fn asked(to: IpAddr, port: u16) -> std::io::Result<String> {
    let limit = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, port), limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET /api/v1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_console_closes_a_sandboxes_connection_unread_and_answers_others() {
    let lab = Lab::builder().gateway_only().start();
    let mut console = console(&lab);
    eventually("the console to answer whoever is no sandbox", || {
        let said = lab
            .topology
            .uplink
            .run(|| asked(ip("127.0.0.1"), CONSOLE).ok());
        said.filter(|text| text.starts_with("HTTP/1.1 200"))
    });
    // another server there, which asks nobody
    let other = lab
        .topology
        .uplink
        .run(|| std::net::TcpListener::bind(("0.0.0.0", OTHER)).expect("listen"));
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a connection");
        // closed over what was not read, the connection would be reset and the answer lost
        let read = stream.read(&mut [0; 1024]).expect("a request");
        assert!(read > 0, "a request");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("answer");
    });
    let policy = format!(
        "policy: near\nnetwork: domains\nprivate: true\nallow:\n  - {{ cidr: {HOST4}/32, ports: [{CONSOLE}, {OTHER}], speaks: any }}\n"
    );
    let sandbox = lab.sandbox(&policy);
    let twin = sandbox
        .run(|| asked(ip(HOST4), OTHER))
        .expect("the other server");
    assert!(twin.starts_with("HTTP/1.1 200"), "{twin}");
    serving.join().expect("it served");
    let refused = sandbox.run(|| asked(ip(HOST4), CONSOLE));
    assert!(
        refused.as_ref().map_or(true, String::is_empty),
        "{refused:?}"
    );
    // while it still answers others
    let said = lab.topology.uplink.run(|| asked(ip(HOST4), CONSOLE));
    assert!(
        said.as_ref()
            .is_ok_and(|text| text.starts_with("HTTP/1.1 200")),
        "{said:?}"
    );
    console.kill().expect("kill");
    console.wait().expect("wait");
}
