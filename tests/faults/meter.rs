//! What a gateway's process holds: memory, descriptors.

use lab::Lab;
use lab::wait::eventually;

/// Resident memory, KiB.
pub fn resident_kib(lab: &Lab) -> u64 {
    let pid = lab.gateway().pid().expect("a running gateway");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.and_then(|l| l.split_whitespace().next());
    number.expect("VmRSS").parse().expect("a number")
}

/// Open descriptors.
pub fn descriptors(lab: &Lab) -> usize {
    let pid = lab.gateway().pid().expect("a running gateway");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    open.count()
}

/// Live flows, as the gateway counts them.
pub fn flows(lab: &Lab) -> usize {
    let all = lab.sallyport(&["net", "flows", "--json"]).expect(0);
    all.json().as_array().map_or(0, Vec::len)
}

/// Pipes that are kept for the next flow, both ends, and what a look or a selftest that runs now may hold.
const KEPT: usize = 2 * 64 + 32;

/// Waits until no flow lives and descriptors are down to what they were.
pub fn is_back_at(lab: &Lab, descriptors_before: usize) {
    eventually("the end of all flows", || (flows(lab) == 0).then_some(()));
    eventually("descriptors given back", || {
        (descriptors(lab) < descriptors_before + KEPT).then_some(())
    });
}

/// Whether the gateway enforces.
pub fn enforces(lab: &Lab) -> bool {
    let report = lab.sallyport(&["doctor", "--json"]).json();
    let checks = report.get("checks").and_then(|c| c.as_array());
    let is = |c: &&serde_json::Value| c.get("name").is_some_and(|name| name == "posture");
    let posture = checks.expect("checks").iter().find(is);
    posture.is_some_and(|c| c.get("state").is_some_and(|state| state == "ok"))
}
