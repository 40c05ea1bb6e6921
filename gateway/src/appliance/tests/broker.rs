//! The broker of a network gets its connections, and nobody can have them sent to another's socket.

use std::io::{Read, Write};

use super::lab::*;

#[test]
fn the_broker_gets_the_connection_with_its_network_and_others_cannot_lend_their_socket() {
    let lab = Lab::started();
    let broker = lab.dir.path().join("broker.sock");
    let listener = std::os::unix::net::UnixListener::bind(&broker).unwrap();
    let with = |path: &std::path::Path| {
        lab.try_attach(&crate::control::AttachRequest {
            broker: Some(path.to_owned()),
            ..request("policy: none\nnetwork: none\n")
        })
    };
    let file = lab.dir.path().join("file");
    write(&file, "x");
    for path in [
        file.as_path(),
        std::path::Path::new("relative"),
        std::path::Path::new("/nowhere"),
    ] {
        assert_eq!(
            with(path).err().unwrap().problem().unwrap().status,
            400,
            "{path:?}"
        );
    }
    let sandbox = with(&broker).unwrap();
    let service = sandbox.view.service_v4;
    let asking = inside(&sandbox.namespace, move || {
        let mut stream = std::net::TcpStream::connect((service, 80)).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nX-Network: other\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let whose = runtime.block_on(async {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (whose, descriptor) =
            crate::control::handover::receive(tokio::net::UnixStream::from_std(stream).unwrap())
                .await
                .unwrap();
        let mut stream = std::net::TcpStream::from(descriptor);
        stream.set_nonblocking(false).unwrap();
        let mut request = [0; 36];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"hello").unwrap();
        whose
    });
    assert_eq!(
        (whose.network, whose.source.ip()),
        (
            sandbox.view.id.clone(),
            std::net::IpAddr::V4(sandbox.view.v4)
        )
    );
    assert_eq!(asking.join().unwrap(), "hello");
}
