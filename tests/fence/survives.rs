//! What is done to the gateway opens nothing: kill, flush, sysctls, restart. (Invariants 2 and 8.)

use std::net::SocketAddr;
use std::time::Duration;

use lab::client::{End, connect, connect_within, read_to_end};
use lab::frame::Frame;
use lab::origin::port;
use lab::topology::{OTHER4, PUBLIC4, ip};
use lab::wait::{eventually, promised};
use lab::{Lab, Sandbox, policies};

const SHORT: Duration = Duration::from_millis(600);

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

/// Attacks with everything that a bare forwarder would let out; none of it may show on the uplink.
fn nothing_leaves(lab: &Lab, sandbox: &Sandbox) {
    let mark = lab.capture.mark();
    for port in [443, 80, port::ECHO] {
        sandbox.run(|| drop(connect_within(SocketAddr::new(ip(OTHER4), port), SHORT)));
    }
    let _ =
        sandbox.run(|| lab::client::datagram(SocketAddr::new(ip("8.8.8.8"), 53), b"leak", SHORT));
    // what ends of earlier flows is no leak; what begins is
    let begins = |f: &Frame| {
        f.is_syn() || f.protocol == 17 || f.touches(ip(OTHER4)) || f.touches(ip("8.8.8.8"))
    };
    let seen: Vec<Frame> = lab.capture.since(mark).into_iter().filter(begins).collect();
    assert!(
        seen.is_empty(),
        "{} frames on the uplink, first {:?}",
        seen.len(),
        seen.first()
    );
}

fn echoes(sandbox: &Sandbox, to: &str) -> bool {
    sandbox.run(|| connect(SocketAddr::new(ip(to), port::ECHO)).is_open())
}

#[test]
fn invariant_2_killing_the_gateway_opens_nothing_and_a_restart_adopts_the_network() {
    let mut lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    assert!(echoes(&sandbox, PUBLIC4), "the permitted twin");
    lab.gateway_mut().kill();
    nothing_leaves(&lab, &sandbox);
    lab.gateway_mut().launch();
    eventually("the adopted network to work again", || {
        echoes(&sandbox, PUBLIC4).then_some(())
    });
}

#[test]
fn invariant_2_flushing_the_gateway_rules_opens_nothing_and_is_repaired() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    lab.gateway().namespace().exec(&["nft", "flush", "ruleset"]);
    nothing_leaves(&lab, &sandbox);
    let gateway = lab.gateway().namespace();
    eventually("the rules to come back", || {
        let rules = gateway.exec(&["nft", "list", "ruleset"]);
        String::from_utf8_lossy(&rules.stdout)
            .contains("tproxy")
            .then_some(())
    });
    nothing_leaves(&lab, &sandbox);
}

#[test]
fn invariant_2_forwarding_switched_on_in_the_gateway_namespace_opens_nothing_and_is_put_back() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let gateway = lab.gateway().namespace();
    gateway.sysctl("net/ipv4/ip_forward", "1");
    nothing_leaves(&lab, &sandbox);
    eventually("forwarding to be switched off again", || {
        (gateway.read_sysctl("net/ipv4/ip_forward") == "0").then_some(())
    });
}

#[test]
fn invariant_2_flushing_the_host_firewall_opens_nothing() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    lab.topology.uplink.exec(&["nft", "flush", "ruleset"]);
    nothing_leaves(&lab, &sandbox);
}

#[test]
fn invariant_8_a_detached_network_has_no_flow_left() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.origins.ended.mark();
    let mut stream =
        sandbox.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::MUTE)).expect_open());
    std::io::Write::write_all(&mut stream, b"x").expect("write");
    lab.detach(&sandbox).expect(0);
    let ended = promised(Duration::from_secs(2), || {
        lab.origins.ended.since(mark).first().copied()
    });
    assert!(
        ended.is_some(),
        "the upstream connection outlived its network"
    );
    let (_, end) = read_to_end(&mut stream);
    assert_ne!(end, End::Closed);
    nothing_leaves(&lab, &sandbox);
}

#[test]
fn forged_neighbours_change_nothing() {
    let lab = lab();
    let (liar, victim) = (
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::INTERNET),
    );
    let gateway = [0x02, 0x53, 0x50, 0, 0, 1];
    let octets = |ip: std::net::IpAddr| {
        if let std::net::IpAddr::V4(ip) = ip {
            ip.octets()
        } else {
            [0; 4]
        }
    };
    let before = neighbours(&lab);
    let claimed = [
        victim.v4(),
        ip(lab::topology::SERVICE4),
        ip(PUBLIC4),
        liar.v4(),
    ]
    .map(octets);
    liar.run(|| {
        for (claimed, operation) in claimed.iter().flat_map(|c| [(c, 1), (c, 2)]) {
            // Ethernet, IPv4, sender and target the same: gratuitous, to the gateway and to everyone
            let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation, 2, 0xba, 0xd0, 0, 0, 1];
            packet.extend(claimed);
            packet.extend([0; 6]);
            packet.extend(claimed);
            for to in [gateway, [0xff; 6]] {
                for _ in 0..8 {
                    lab::raw::send_frame("eth0", to, 0x0806, &packet).expect("send");
                }
            }
        }
    });
    assert!(echoes(&victim, PUBLIC4), "the other sandbox lost its way");
    assert!(echoes(&liar, PUBLIC4), "its own way is fixed, too");
    assert_eq!(neighbours(&lab), before);
}

/// What the gateway believes about its neighbours.
fn neighbours(lab: &Lab) -> String {
    let table = lab
        .gateway()
        .namespace()
        .exec(&["ip", "-4", "neigh", "show"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        text.contains("PERMANENT") && !text.contains("ba:d0"),
        "{text}"
    );
    text
}
