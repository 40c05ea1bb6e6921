//! A gateway whose rules go through iptables keeps the same promises: one test of each that packets can break.
//!
//! The rest of this binary and the kernel tests of the gateway run once more on such a gateway (`./dev test`).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lab::client::{Connect, SURELY, connect, connect_within, datagram, reads, resolve4};
use lab::frame::Frame;
use lab::namespace::Namespace;
use lab::origin::port;
use lab::raw::{self, protocol};
use lab::topology::{LAN4, METADATA, OTHER4, PUBLIC4, PUBLIC6, SILENT4, UNREACHABLE4, ip};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

const SHORT: Duration = Duration::from_millis(600);

fn lab() -> Lab {
    let lab = Lab::builder().gateway_only();
    lab.config("enforcement: iptables").start()
}

/// Whether it carries bytes. The first dial after an uplink came up may take a second.
fn carries(stream: Connect) -> bool {
    match stream {
        Connect::Open(mut stream) => {
            stream.write_all(b"hello").is_ok() && reads(&mut stream, b"hello")
        }
        _ => false,
    }
}

/// The same with patience.
pub fn reaches(sandbox: &Sandbox, to: &str) -> bool {
    let to = SocketAddr::new(ip(to), port::ECHO);
    sandbox.run(|| carries(connect(to)))
}

/// Whether an echo server answers at once.
pub fn echoes(sandbox: &Sandbox, to: &str) -> bool {
    let to = SocketAddr::new(ip(to), port::ECHO);
    sandbox.run(|| carries(connect_within(to, SHORT)))
}

/// Attacks with everything that a bare forwarder would let out; none of it may show on the uplink.
pub fn nothing_leaves(lab: &Lab, sandbox: &Sandbox) {
    let mark = lab.capture.mark();
    for port in [443, port::ECHO] {
        let to = SocketAddr::new(ip(OTHER4), port);
        sandbox.run(|| drop(connect_within(to, SHORT)));
        let _ = sandbox.run(|| datagram(to, b"leak", SHORT));
    }
    let begins = |f: &Frame| f.is_syn() || f.protocol == 17 || f.touches(ip(OTHER4));
    let seen: Vec<Frame> = lab.capture.since(mark).into_iter().filter(begins).collect();
    assert!(
        seen.is_empty(),
        "first of {} frames: {:?}",
        seen.len(),
        seen.first()
    );
}

fn legacy(lab: &Lab, words: &[&str]) {
    // whoever else holds the lock of the programs on this machine lets go of it
    let words = [words, &["-w"]].concat();
    let out = lab.gateway().namespace().exec(&words);
    assert!(
        out.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn v4(address: IpAddr) -> std::net::Ipv4Addr {
    match address {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
    }
}

#[test]
fn a_connect_tells_the_truth_in_both_families() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    assert!(
        reaches(&sandbox, PUBLIC4) && reaches(&sandbox, PUBLIC6),
        "the permitted twin"
    );
    let ends = |to: &str, port| sandbox.run(|| connect(SocketAddr::new(ip(to), port)));
    for closed in [PUBLIC4, PUBLIC6] {
        let end = ends(closed, port::CLOSED);
        assert!(end.is_refused(), "a closed port of {closed}: {end:?}");
    }
    let end = ends(UNREACHABLE4, 443);
    assert!(
        matches!(end, Connect::Unreachable(_)),
        "no such host: {end:?}"
    );
    let silent = SocketAddr::new(ip(SILENT4), 443);
    let end = sandbox.run(|| connect_within(silent, SHORT));
    assert!(matches!(end, Connect::Silence), "a silent host: {end:?}");
    let mark = lab.capture.mark();
    for denied in METADATA.iter().chain([&LAN4]) {
        let end = ends(denied, 80);
        assert!(!end.is_open(), "{denied}");
        assert!(
            end.is_refused() || denied.starts_with("fe80"),
            "{denied} at once: {end:?}"
        );
        lab.capture.none_to(mark, ip(denied));
    }
}

#[test]
fn datagrams_pass_where_a_policy_says_so_and_names_are_answered() {
    let lab = lab();
    let open = lab.sandbox(policies::INTERNET);
    for address in [PUBLIC4, PUBLIC6] {
        let to = SocketAddr::new(ip(address), port::UDP_ECHO);
        let said = open.run(|| datagram(to, b"ping", SURELY));
        assert_eq!(said.expect("an echo"), b"ping", "{address}");
    }
    let narrow = lab.sandbox(policies::DOMAINS);
    let (good, bad) = narrow.run(|| (resolve4("ok.sallylab.net"), resolve4("evil.sallylab.net")));
    assert!(!good.is_empty() && bad.is_empty(), "{good:?} {bad:?}");
    nothing_leaves(&lab, &narrow);
}

#[test]
fn odd_packets_never_leave_and_are_counted_by_kind() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    assert!(reaches(&sandbox, PUBLIC4), "the permitted twin");
    let (from, to) = (v4(sandbox.v4()), v4(ip(PUBLIC4)));
    let mark = lab.capture.mark();
    let whole = raw::udp(from.into(), to.into(), (4000, 7), &[b'f'; 64]);
    let spoofed = v4(ip("198.18.7.7"));
    let foreign = raw::udp(spoofed.into(), to.into(), (4000, 7), b"spoofed");
    let packets = [
        raw::ipv4(from, to, protocol::UDP, 0x2000, &whole[..32]),
        raw::ipv4(from, to, protocol::UDP, 4, &whole[32..]),
        raw::ipv4(spoofed, to, protocol::UDP, 0, &foreign),
        raw::ipv4(from, to, protocol::GRE, 0, b"odd"),
        raw::ipv4(from, to, protocol::SCTP, 0, b"odd"),
    ];
    for packet in packets {
        sandbox.run(|| raw::send4(&packet)).expect("send");
    }
    for (kind, least) in [
        ("drop_fragment", 2),
        ("drop_spoofed", 1),
        ("drop_protocol", 2),
    ] {
        eventually(kind, || (counted(&lab, kind) >= least).then_some(()));
    }
    // what ends of the twin's flow is no leak
    let mut seen = lab.capture.touching(mark, to.into());
    seen.retain(|frame| frame.protocol != 6);
    assert!(seen.is_empty(), "{:?}", seen.first());
    let held = lab.gateway().namespace();
    assert_eq!(held.read_sysctl("net/ipv4/ipfrag_high_thresh"), "0");
    assert_eq!(
        held.read_sysctl("net/netfilter/nf_conntrack_frag6_high_thresh"),
        "0"
    );
}

fn counted(lab: &Lab, kind: &str) -> u64 {
    let mut stream = UnixStream::connect(lab.gateway().control()).expect("control socket");
    let request = "GET /v1/counters HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("ask");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    let (_, body) = said.split_once("\r\n\r\n").expect("a body");
    let counters: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let packets = counters.pointer(&format!("/kernel/{kind}/packets"));
    packets.and_then(serde_json::Value::as_u64).unwrap_or(0)
}

#[test]
fn flushed_tables_open_nothing_and_come_back() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let gateway = lab.gateway().namespace();
    for (program, table, reads_back) in [
        ("iptables-legacy", "raw", "-j NFQUEUE"),
        ("iptables-legacy", "mangle", "-j TPROXY"),
        ("ip6tables-legacy", "raw", "-j NFQUEUE"),
        ("ip6tables-legacy", "filter", "-g drop_other"),
    ] {
        legacy(&lab, &[program, "-t", table, "-F"]);
        legacy(&lab, &[program, "-t", "filter", "-P", "FORWARD", "ACCEPT"]);
        nothing_leaves(&lab, &sandbox);
        eventually("the rules to come back", || {
            let save = format!("{program}-save");
            let out = gateway.exec(&[&save, "-t", table]);
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            text.contains(reads_back).then_some(())
        });
    }
    let open = lab.sandbox(policies::INTERNET);
    eventually("the gateway to enforce again", || {
        echoes(&open, PUBLIC4).then_some(())
    });
    nothing_leaves(&lab, &sandbox);
}

#[test]
fn a_killed_gateway_lets_nothing_out_and_a_new_one_adopts_the_network() {
    let mut lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    assert!(reaches(&sandbox, PUBLIC4), "the permitted twin");
    lab.gateway_mut().kill();
    nothing_leaves(&lab, &sandbox);
    lab.gateway_mut().launch();
    eventually("the adopted network to work again", || {
        echoes(&sandbox, PUBLIC4).then_some(())
    });
}

#[test]
fn rules_change_hands_across_a_restart_without_a_window_and_without_leftovers() {
    let mut lab = lab();
    let (open, narrow) = (
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::DOMAINS),
    );
    let printed = |lab: &Lab, words: &[&str]| {
        let out = lab.gateway().namespace().exec(words);
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let config = lab.gateway().config();
    for (from, to) in [("iptables", "nftables"), ("nftables", "iptables")] {
        eventually("the permitted twin", || {
            echoes(&open, PUBLIC4).then_some(())
        });
        let text = std::fs::read_to_string(&config).expect("a configuration");
        let changed = text.replace(
            &format!("enforcement: {from}"),
            &format!("enforcement: {to}"),
        );
        assert_ne!(text, changed);
        std::fs::write(&config, changed).expect("write");
        lab.gateway_mut().kill();
        let mark = lab.capture.mark();
        nothing_leaves(&lab, &narrow);
        lab.gateway_mut().launch();
        nothing_leaves(&lab, &narrow);
        lab.capture.none_to(mark, ip(OTHER4));
        let rules = lab.sallyport(&["gateway", "rules"]).expect(0).out;
        assert!(
            rules.starts_with(&format!("# enforcement: {to}\n")),
            "{rules}"
        );
        let nft = printed(&lab, &["nft", "list", "tables"]);
        assert_eq!(nft.is_empty(), to == "iptables", "{nft}");
        for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
            let tables = printed(&lab, &[program]);
            let held = tables.contains("-A ") || tables.contains(" DROP ");
            assert_eq!(held, to == "iptables", "{tables}");
        }
    }
    eventually("the permitted twin", || {
        (echoes(&open, PUBLIC4) && echoes(&open, PUBLIC6)).then_some(())
    });
}

#[test]
fn a_narrower_policy_and_a_detach_shut_a_network_and_no_other() {
    let lab = lab();
    let (changed, gone, other) = (
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::INTERNET),
    );
    for sandbox in [&changed, &gone, &other] {
        assert!(
            reaches(sandbox, PUBLIC4) && reaches(sandbox, PUBLIC6),
            "the permitted twin"
        );
    }
    lab.replace_policy(&changed, policies::NONE).expect(0);
    lab.detach(&gone).expect(0);
    for sandbox in [&changed, &gone] {
        assert!(!echoes(sandbox, PUBLIC4) && !echoes(sandbox, PUBLIC6));
        nothing_leaves(&lab, sandbox);
    }
    assert!(reaches(&other, PUBLIC4) && reaches(&other, PUBLIC6));
}

#[test]
fn what_holds_the_rules_is_said_and_groups_are_refused_with_the_reason() {
    let lab = lab();
    let rules = lab.sallyport(&["gateway", "rules"]).expect(0).out;
    assert!(rules.starts_with("# enforcement: iptables\n"), "{rules}");
    assert!(
        rules.contains("-A PREROUTING") && rules.contains("# IPv6"),
        "{rules}"
    );
    let report = lab.sallyport(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().expect("checks");
    let says = |name: &str, text: &str| {
        let of_name = checks.iter().filter(|c| c["name"] == name);
        let mut seen = of_name.filter_map(|c| c["seen"].as_str());
        assert!(
            seen.any(|seen| seen.contains(text)),
            "{name} {text}: {report}"
        );
    };
    says("kernel rules", "iptables");
    says("posture", "through iptables");
    let namespace = Namespace::new("refused");
    let refused = lab.attach_member(&namespace, ("shop", "web", ""), policies::NONE);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("a group needs nf_tables"),
        "{refused:?}"
    );
    let report = lab.sallyport(&["selftest", "--json"]).expect(0).json();
    let checks = report["checks"].as_array().expect("checks");
    // containers are tried where a runner answers, and say so where none does
    let (own, others): (Vec<_>, Vec<_>) = checks.iter().partition(|c| c["variant"] == "namespace");
    assert!(own.iter().all(|c| c["outcome"] == "passed"), "{report}");
    assert!(own.len() > 200, "{report}");
    assert!(others.iter().all(|c| c["check"] == "container"), "{report}");
}

#[test]
fn uninstall_leaves_no_table_and_no_namespace() {
    let mut lab = lab();
    let _sandbox = lab.sandbox(policies::DOMAINS);
    let namespace = lab.gateway().namespace();
    lab.gateway_mut().kill();
    let done = lab.sallyport(&["uninstall"]).expect(0);
    assert!(done.out.contains("removed namespace"), "{done:?}");
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        let out = namespace.exec(&[program]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(!text.contains("-A ") && !text.contains(" DROP "), "{text}");
    }
}

#[test]
fn a_gateways_own_namespace_is_attached_to_no_gateway() {
    let lab = lab();
    let refused = lab.attach(&lab.gateway().namespace(), "itself", policies::NONE);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.err.contains("a gateway's own"), "{refused:?}");
    let first = Namespace::new("first");
    lab.attach(&first, "first", policies::NONE).expect(0);
}
