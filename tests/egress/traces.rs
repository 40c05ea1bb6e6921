//! traceroute and tracepath: the gateway is the one hop before every destination, and what is denied stays denied.

use lab::topology::{OTHER4, OTHER6, PUBLIC4, PUBLIC6, SERVICE4, ip};
use lab::{Lab, Sandbox, policies};

/// One name, everything about it.
const NAMED: &str = "\
policy: named
network: domains
allow:
  - { host: ok.sallylab.net, ports: any, speaks: any }
  - { host: ok.sallylab.net, ports: any, protocol: udp }
  - { host: ok.sallylab.net, protocol: icmp }
";

/// UDP to high ports, ICMP echoes, SYNs.
const WAYS: [&[&str]; 3] = [&[], &["-I"], &["-T", "-p", "80"]];

fn said(sandbox: &Sandbox, argv: &[&str]) -> String {
    let output = sandbox.exec(argv);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Who answered at each hop, first to last.
fn hops(sandbox: &Sandbox, way: &[&str], to: &str) -> (Vec<String>, String) {
    let family = if to.contains(':') { "-6" } else { "-4" };
    let mut argv = vec!["traceroute", family, "-n", "-q", "1", "-w", "5", "-m", "4"];
    argv.extend(way);
    argv.push(to);
    let text = said(sandbox, &argv);
    let answered = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u8>().ok()?;
        words.next().map(str::to_owned)
    };
    (text.lines().filter_map(answered).collect(), text)
}

/// The gateway's address as the sandbox sees it.
fn gateway(sandbox: &Sandbox, to: &str) -> String {
    if !to.contains(':') {
        return SERVICE4.to_owned();
    }
    let route = said(sandbox, &["ip", "-6", "route", "show", "default"]);
    let hop = route.split_whitespace().nth(2);
    hop.expect("a default route").to_owned()
}

#[test]
fn every_kind_of_probe_meets_the_gateway_and_then_the_destination() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in [PUBLIC4, PUBLIC6] {
        let before = gateway(&sandbox, to);
        for way in WAYS {
            let (hops, text) = hops(&sandbox, way, to);
            assert_eq!(hops, [before.as_str(), to], "{way:?}: {text}");
        }
        let text = said(&sandbox, &["tracepath", "-n", "-m", "4", to]);
        assert!(text.contains(&before), "{text}");
        assert!(text.contains("pmtu 1500 hops 2"), "{text}");
    }
}

#[test]
fn a_name_is_two_hops_away_by_its_lease() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(NAMED);
    for way in WAYS {
        let (hops, text) = hops(&sandbox, way, "ok.sallylab.net");
        assert_eq!(hops.len(), 2, "{way:?}: {text}");
        assert!(hops[1].starts_with("198.19."), "{way:?}: {text}");
    }
}

#[test]
fn a_probe_without_a_hop_left_leaves_nothing_on_the_uplink() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in [PUBLIC4, PUBLIC6] {
        let before = gateway(&sandbox, to);
        let mark = lab.capture.mark();
        for way in WAYS {
            let mut one = way.to_vec();
            one.extend(["-m", "1"]);
            let (hops, text) = hops(&sandbox, &one, to);
            assert_eq!(hops, [before.as_str()], "{text}");
        }
        lab.capture.none_to(mark, ip(to));
        // with one more the same probes arrive
        for way in WAYS {
            let mark = lab.capture.mark();
            hops(&sandbox, way, to);
            assert!(!lab.capture.touching(mark, ip(to)).is_empty(), "{way:?}");
        }
    }
}

#[test]
fn probes_towards_what_is_denied_are_refused_and_nothing_is_sent() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(NAMED);
    for to in [OTHER4, OTHER6] {
        let mark = lab.capture.mark();
        for way in WAYS {
            let (hops, text) = hops(&sandbox, way, to);
            // refused by the second hop at the latest: nobody waits
            assert_eq!(hops.len(), 2, "{way:?}: {text}");
            assert!(!text.contains('*'), "{way:?}: {text}");
        }
        said(&sandbox, &["tracepath", "-n", "-m", "4", to]);
        lab.capture.none_to(mark, ip(to));
    }
}
