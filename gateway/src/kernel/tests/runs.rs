//! What the gateway sends in runs is read off the sandbox's link as datagrams: a network stack of the sandbox's own, which
//! knows nothing of runs, reads just that.

use std::net::IpAddr;
use std::time::Instant;

use super::lab::{LIMIT, Lab, SERVICE4, SERVICE6, Sandbox, v4, v6};
use crate::kernel::cutting::are_cut;
use crate::kernel::datagrams::Reply;
use crate::kernel::{Doors, Ns, Posture, Tap};

/// The payloads of datagrams that leave port 53, as a packet socket on the sandbox's own end sees them.
fn seen(tap: &Tap, head: usize, wanted: usize) -> Vec<Vec<u8>> {
    let (began, mut frame, mut found) = (Instant::now(), vec![0; 70_000], Vec::new());
    // octets, not frames: a piece that was not cut has as many
    while found.iter().map(Vec::len).sum::<usize>() < wanted {
        assert!(began.elapsed() < LIMIT, "{found:?}");
        match tap.receive(&mut frame) {
            Ok(seen) => {
                let bytes = &frame[..seen.captured];
                if bytes.len() > head && bytes[head - 8..head - 6] == 53_u16.to_be_bytes() {
                    found.push(bytes[head..].to_vec());
                }
            }
            Err(_) => std::thread::yield_now(),
        }
    }
    found
}

#[test]
fn a_run_reaches_the_link_as_datagrams() {
    let lab = Lab::open();
    let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let Sandbox { ns } = lab.sandbox(0);
    assert!(are_cut(), "or nothing here is sent in runs");
    let tap = Tap::open(&Ns::from_fd(ns).unwrap(), "eth0").unwrap();
    // Ethernet, IP, UDP
    let families: [(usize, IpAddr, IpAddr, usize); 2] = [
        (0, SERVICE4.into(), v4(0).into(), 14 + 20 + 8),
        (1, SERVICE6.into(), v6(0).into(), 14 + 40 + 8),
    ];
    for (door, from, to, head) in families {
        let mut said: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
        said.push(vec![99; 60]);
        let replies = said.iter().map(|bytes| Reply {
            from,
            to: (to, 5353).into(),
            bytes,
        });
        assert_eq!(doors.dns_udp[door].send_many(replies), 0);
        assert_eq!(seen(&tap, head, 20 * 100 + 60), said);
    }
}
