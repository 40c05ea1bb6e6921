//! Few descriptors: flows are denied with their reason, nothing fails, and what was denied passes afterwards.

use lab::client::{Connect, connect};
use lab::{Lab, policies};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::meter;
use crate::server::Mute;

#[test]
fn a_gateway_with_few_descriptors_denies_and_never_fails() {
    // the gateway takes its limit from here; 700 is room for itself and about a hundred flows
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 700.min(hard), 700.min(hard)).expect("a lower limit");
    let lab = Lab::builder().gateway_only().names_only().start();
    let policy = "policy: few\nnetwork: internet\nlimits: { flows: 2000, rate: 100000 }\n";
    let (greedy, other) = (lab.sandbox(policy), lab.sandbox(policies::INTERNET));
    let server = Mute::start(&lab, 24_444);
    let before = meter::descriptors(&lab);
    let (mut open, mut refused) = (Vec::new(), 0);
    greedy.run(|| {
        for _ in 0..200 {
            match connect(server.at) {
                Connect::Open(stream) => open.push(stream),
                Connect::Refused | Connect::Reset => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(open.len() > 20 && refused > 20, "{} {refused}", open.len());
    assert!(other.run(|| connect(server.at)).is_open());
    assert!(meter::enforces(&lab));
    let reasons = |r: &serde_json::Value| {
        r["reason"] == "limit_flows" || r["first"]["reason"] == "limit_flows"
    };
    lab.recorded("the reason", reasons);
    let count = open.len();
    drop(open);
    server.reset_all();
    meter::is_back_at(&lab, before);
    let again: Vec<_> = greedy.run(|| (0..count).map(|_| connect(server.at)).collect());
    assert!(again.iter().all(Connect::is_open));
}
