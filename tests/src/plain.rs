//! What an ordinary product does: forward packets and relay DNS. Every denial must leak through it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::namespace::Namespace;
use crate::topology::{DNS, SERVICE4, ip};

const SERVICE6: &str = "fd77:5a11::1";

/// A forwarding uplink.
#[derive(Debug)]
pub struct Plain {
    uplink: Namespace,
    stop: Arc<AtomicBool>,
}

impl Plain {
    /// Turns forwarding on and starts the DNS relay.
    pub fn start(uplink: &Namespace) -> Self {
        uplink.sysctl("net/ipv4/ip_forward", "1");
        uplink.sysctl("net/ipv6/conf/all/forwarding", "1");
        for scope in ["all", "default", "up0", "lan0"] {
            uplink.sysctl(&format!("net/ipv4/conf/{scope}/rp_filter"), "0");
        }
        uplink.ip(&[format!("addr add {SERVICE4}/32 dev lo")]);
        let plain = Self {
            uplink: uplink.clone(),
            stop: Arc::default(),
        };
        plain.relay_datagrams();
        plain.relay_streams();
        plain
    }

    /// Connects a sandbox; the addresses are those that a gateway would give.
    pub fn attach(&self, sandbox: &Namespace, number: u32) -> (IpAddr, IpAddr) {
        let v4 =
            std::net::Ipv4Addr::from(u32::from(std::net::Ipv4Addr::new(198, 18, 1, 0)) + number);
        let v6 = Ipv6Addr::from(
            u128::from(SERVICE6.parse::<Ipv6Addr>().expect("literal"))
                + (1 << 16)
                + u128::from(number),
        );
        let link = format!("sb{number}");
        self.uplink.ip(&[
            format!(
                "link add {link} type veth peer name eth0 netns {}",
                sandbox.path().display()
            ),
            format!("addr add {SERVICE6}/128 dev {link} nodad"),
            format!("link set {link} up"),
            format!("route add {v4}/32 dev {link}"),
            format!("route add {v6}/128 dev {link}"),
        ]);
        self.uplink
            .sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0");
        sandbox.ip(&[
            format!("addr add {v4}/32 dev eth0"),
            format!("addr add {v6}/128 dev eth0 nodad"),
            "link set eth0 up".into(),
            format!("route add {SERVICE4} dev eth0"),
            format!("route add default via {SERVICE4} dev eth0 onlink"),
            format!("route add {SERVICE6} dev eth0"),
            format!("route add default via {SERVICE6} dev eth0 onlink"),
        ]);
        (v4.into(), v6.into())
    }

    fn relay_datagrams(&self) {
        let socket = self
            .uplink
            .run(|| UdpSocket::bind((SERVICE4, 53)).expect("DNS relay"));
        let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
        let stop = self.stop.clone();
        self.uplink.spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stop.load(Ordering::Relaxed) {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let Ok(out) = UdpSocket::bind("0.0.0.0:0") else {
                    continue;
                };
                let _ = out.set_read_timeout(Some(Duration::from_secs(2)));
                let _ = out.send_to(&buffer[..length], (DNS, 53));
                if let Ok(answer) = out.recv(&mut buffer) {
                    let _ = socket.send_to(&buffer[..answer], peer);
                }
            }
        });
    }

    fn relay_streams(&self) {
        let listener = self
            .uplink
            .run(|| TcpListener::bind((SERVICE4, 53)).expect("DNS relay"));
        let _ = listener.set_nonblocking(true);
        let (stop, uplink) = (self.stop.clone(), self.uplink.clone());
        self.uplink.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::park_timeout(Duration::from_millis(20));
                    continue;
                };
                let _ = client.set_nonblocking(false);
                let to = SocketAddr::new(ip(DNS), 53);
                let Ok(server) = uplink.run(|| TcpStream::connect(to)) else {
                    continue;
                };
                let (Ok(mut back), Ok(mut forth)) = (server.try_clone(), client.try_clone()) else {
                    continue;
                };
                let (mut client, mut server) = (client, server);
                std::thread::spawn(move || std::io::copy(&mut client, &mut server));
                std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
            }
        });
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
