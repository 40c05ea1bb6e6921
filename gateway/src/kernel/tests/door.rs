//! Doors that sandboxes hand over: what is no listener on the proxy's port of a loopback is refused.

use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use super::super::netns::Ns;
use super::super::sockets::loopback_proxy;
use super::super::{KernelError, links};
use crate::kernel::error::Act;
use rtnetlink::LinkUnspec;

#[test]
fn only_a_listener_on_the_proxys_port_of_a_loopback_is_taken_for_a_door() {
    let folder = tempfile::tempdir().unwrap();
    let ns = Ns::anonymous().unwrap();
    ns.route(|handle| async move {
        let lo = links::index_of(&handle, "lo").await?;
        let up = LinkUnspec::new_with_index(lo).up().build();
        handle.link().set(up).execute().await.act("bringing lo up")
    })
    .unwrap();
    let socket = folder.path().join("door");
    ns.run(move || {
        let listen = |at: &str| TcpListener::bind(at).unwrap();
        let other = listen("127.0.0.1:3129");
        let connected = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let wrong: [(&str, OwnedFd); 6] = [
            ("another port", other.into()),
            ("another address", listen("0.0.0.0:3128").into()),
            ("a connection", connected.into()),
            (
                "datagrams",
                UdpSocket::bind("127.0.0.1:3128").unwrap().into(),
            ),
            (
                "another family",
                UnixListener::bind(&socket).unwrap().into(),
            ),
            ("a file", File::open("/proc/self/ns/net").unwrap().into()),
        ];
        for (what, descriptor) in wrong {
            let refused = loopback_proxy(descriptor);
            assert!(matches!(refused, Err(KernelError::Unusable(_))), "{what}");
        }
        loopback_proxy(listen("127.0.0.1:3128").into()).map(drop)
    })
    .unwrap();
}
