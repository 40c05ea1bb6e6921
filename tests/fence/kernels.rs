//! Kernels that lack nf_tables, or every kind of rules: iptables is taken, or operators are told. No promise changes.

use std::net::SocketAddr;

use lab::client::{Connect, connect};
use lab::namespace::Namespace;
use lab::origin::port;
use lab::topology::{PUBLIC4, PUBLIC6, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

use crate::iptables::{echoes, nothing_leaves, reaches};

/// Executes a command on a kernel that lacks one kind of socket, as far as the command can see: nf_tables is spoken to
/// over netlink, the tables of iptables over a raw socket.
const WITHOUT: &str = "
import ctypes, os, platform, struct, sys
number = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
AF_NETLINK, NETLINK_NETFILTER, AF_INET, IPPROTO_RAW, EPROTONOSUPPORT = 16, 12, 2, 255, 93
op = lambda code, yes, no, k: struct.pack('HBBI', code, yes, no, k)
both = sys.argv[1] == 'both'
no = op(0x06, 0, 0, 0x00050000 | EPROTONOSUPPORT)
yes = op(0x06, 0, 0, 0x7fff0000)
program = b''.join([
    op(0x20, 0, 0, 0), op(0x15, 1, 0, number), yes,
    op(0x20, 0, 0, 16), op(0x15, 0, 3, AF_NETLINK),
    op(0x20, 0, 0, 32), op(0x15, 0, 1, NETLINK_NETFILTER), no,
    op(0x20, 0, 0, 16), op(0x15, 0, 3, AF_INET if both else 999),
    op(0x20, 0, 0, 32), op(0x15, 0, 1, IPPROTO_RAW), no,
    yes])
buffer = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
filters = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(program) // 8, ctypes.addressof(buffer)))
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn auto_takes_iptables_on_a_kernel_without_nf_tables_and_still_lets_nothing_else_out() {
    let mut lab = Lab::builder()
        .gateway_only()
        .config("enforcement: auto")
        .start();
    lab.gateway_mut().stop();
    // a kernel that never had nf_tables holds none of its rules
    let flushed = lab.gateway().namespace();
    let flushed = flushed.exec(&["nft", "flush", "ruleset"]);
    assert!(flushed.status.success(), "{flushed:?}");
    lab.gateway_mut()
        .launch_through(&["python3", "-c", WITHOUT, "nf_tables"]);
    let first = Namespace::new("first");
    eventually("the gateway to enforce", || {
        let said = lab.attach(&first, "first", policies::NONE);
        (said.code == Some(0)).then_some(())
    });
    let rules = lab.sallyport(&["gateway", "rules"]).expect(0).out;
    assert!(rules.starts_with("# enforcement: iptables\n"), "{rules}");
    assert!(
        !rules.contains("NFQUEUE"),
        "nobody can read a queue here: {rules}"
    );
    let (open, narrow) = (
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::DOMAINS),
    );
    eventually("the permitted twin", || {
        echoes(&open, PUBLIC4).then_some(())
    });
    assert!(reaches(&open, PUBLIC6));
    nothing_leaves(&lab, &narrow);
    // accepted first, and reset when it fails
    let to = SocketAddr::new(ip(PUBLIC4), port::CLOSED);
    let end = open.run(|| match connect(to) {
        Connect::Open(mut stream) => lab::client::read_to_end(&mut stream).1,
        Connect::Reset => lab::client::End::Reset,
        other => panic!("{other:?}"),
    });
    assert_eq!(end, lab::client::End::Reset);
}

#[test]
fn a_kernel_without_either_is_told_in_the_words_that_operators_know() {
    let mut lab = Lab::builder()
        .gateway_only()
        .config("enforcement: auto")
        .start();
    lab.gateway_mut().stop();
    lab.gateway_mut()
        .launch_through(&["python3", "-c", WITHOUT, "both"]);
    let report = lab.sallyport(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().expect("checks");
    let posture = checks.iter().find(|check| check["name"] == "posture");
    let posture = posture.expect("the posture").to_string();
    for words in ["Not enforced", "there is no iptables either"] {
        assert!(posture.contains(words), "{words}: {posture}");
    }
    let first = Namespace::new("first");
    let refused = lab.attach(&first, "first", policies::NONE);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(
        refused.err.contains("required but not installed"),
        "{refused:?}"
    );
}
