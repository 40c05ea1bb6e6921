//! An engine that is not on this kernel is recognised by what it says of itself, and refused with what to do.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use lab::Lab;
use serde_json::{Value, json};

/// An engine that knows its version and says this of itself; it serves until the test ends.
fn engine(folder: &Path, info: Value) -> PathBuf {
    let socket = folder.join("engine.sock");
    let listener = UnixListener::bind(&socket).expect("bind");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = Vec::new();
            let mut byte = [0];
            while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                asked.extend_from_slice(&byte);
            }
            let asked = String::from_utf8_lossy(&asked).into_owned();
            let line = asked.lines().next().unwrap_or_default();
            let answer = if line.contains("/info") {
                info.clone()
            } else {
                json!({ "Version": "27.3.1", "ApiVersion": "1.41", "MinAPIVersion": "1.24", "Components": [] })
            };
            let body = answer.to_string();
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    socket
}

fn said_of(info: Value) -> String {
    let lab = Lab::builder().gateway_only().start();
    let socket = engine(lab.directory(), info);
    let at = lab.directory().display();
    let mut text = std::fs::read_to_string(lab.gateway().config()).expect("configuration");
    let _ = writeln!(
        text,
        "runner: {{ engine: {}, control: {at}/control.sock, socket: {at}/runner.sock, state_dir: {at}/rs, run_dir: {at}/rr }}",
        socket.display()
    );
    std::fs::write(lab.gateway().config(), text).expect("configuration");
    lab.sallyport(&["run", "--", "true"]).expect(125).err
}

#[test]
fn docker_desktop_is_refused_and_says_where_to_go() {
    let said = said_of(json!({
        "OperatingSystem": "Docker Desktop", "Name": "docker-desktop", "KernelVersion": "6.10.14-linuxkit",
        "Runtimes": { "runc": { "path": "runc" } }, "DefaultRuntime": "runc", "SecurityOptions": ["name=seccomp"],
    }));
    assert!(
        said.contains("Docker Desktop and runs its containers in a virtual machine"),
        "{said}"
    );
    assert!(
        said.contains("run Sallyport where the engine's kernel is"),
        "{said}"
    );
}

#[test]
fn orbstack_is_refused_and_says_where_to_go() {
    let said = said_of(json!({
        "OperatingSystem": "OrbStack", "Name": "orbstack", "KernelVersion": "6.14.10-orbstack",
        "Runtimes": { "runc": { "path": "runc" } }, "DefaultRuntime": "runc", "SecurityOptions": ["name=seccomp"],
    }));
    assert!(
        said.contains("OrbStack and runs its containers in a virtual machine"),
        "{said}"
    );
}

#[test]
fn rootless_docker_is_refused_and_says_what_to_use() {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("kernel");
    let said = said_of(json!({
        "OperatingSystem": "Debian", "Name": "here", "KernelVersion": kernel.trim(), "DefaultRuntime": "runc",
        "Runtimes": { "runc": { "path": "runc" } }, "SecurityOptions": ["name=seccomp", "name=rootless"],
    }));
    assert!(
        said.contains("rootless mode") && said.contains("rootless Podman"),
        "{said}"
    );
}
