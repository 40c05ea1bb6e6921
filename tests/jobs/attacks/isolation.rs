//! The class of isolation that is asked for by name is the one that is had, or nothing runs.

use super::world::{World, docker};

fn has_gvisor() -> bool {
    docker(&["info", "--format", "{{json .Runtimes}}"])
        .expect(0)
        .out
        .contains("\"runsc\"")
}

#[test]
fn sbx_32_a_required_runtime_is_had_or_the_run_is_refused() {
    let world = World::start();
    let said = world.run(&["--isolation", "gvisor"], &["cat", "/proc/version"]);
    if has_gvisor() {
        assert_eq!(said.code, Some(0), "{said:?}");
        let machine = std::fs::read_to_string("/proc/version").expect("version");
        assert_ne!(
            said.out, machine,
            "the class gvisor shows the machine's own kernel"
        );
        let probe = world.probe(
            &["--isolation", "gvisor", "--root"],
            include_str!("probes/network.py"),
        );
        assert_eq!(probe["links"], serde_json::json!(["eth0", "lo"]));
        assert_eq!(probe["resolved"], serde_json::json!([]));
    } else {
        assert_eq!(
            said.code,
            Some(125),
            "a run of another class than the required: {said:?}"
        );
        assert!(
            said.err.contains("gvisor") || said.err.contains("gVisor"),
            "{}",
            said.err
        );
        assert_eq!(said.out, "");
        assert_eq!(world.containers(), Vec::<String>::new());
    }
    // the permitted twin: what the engine has is had under its name
    let said = world
        .run(&["--isolation", "hardened"], &["cat", "/proc/version"])
        .expect(0);
    assert_eq!(
        said.out,
        std::fs::read_to_string("/proc/version").expect("version")
    );
}
