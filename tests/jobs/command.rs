//! What a command gets and what comes back from it.

use crate::place::{Place, at};
use crate::world::{lab, lab_at, run};

at!(the_exit_code_is_the_commands_and_its_streams_stay_apart: docker gvisor);
fn the_exit_code_is_the_commands_and_its_streams_stay_apart(place: Place) {
    let lab = lab_at(place);
    for code in [0, 1, 42, 125] {
        let said = run(
            &lab,
            "none",
            &["--quiet"],
            &format!("echo out; echo err >&2; exit {code}"),
        );
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (Some(code), "out\n", "err\n"),
            "{said:?}"
        );
    }
}

at!(what_cannot_be_executed_is_told_as_a_shell_tells_it: docker podman rootless gvisor);
fn what_cannot_be_executed_is_told_as_a_shell_tells_it(place: Place) {
    let lab = lab_at(place);
    lab.sallyport(&["run", "--", "/no/such/program"])
        .expect(127);
    lab.sallyport(&["run", "--", "/etc/passwd"]).expect(126);
}

at!(an_image_that_the_engine_has_not_and_a_mistaken_policy_are_125: docker podman rootless);
fn an_image_that_the_engine_has_not_and_a_mistaken_policy_are_125(place: Place) {
    let lab = lab_at(place);
    let said = lab
        .sallyport(&["run", "--image", "sallyport/none-such:1", "--", "true"])
        .expect(125);
    assert!(said.err.contains("none-such"), "{said:?}");
    run(&lab, "policy: p\nnetwork: domain\n", &[], "true").expect(125);
}

#[test]
fn a_timeout_ends_everything_with_124() {
    let lab = lab();
    let script =
        "trap '' TERM INT; (trap '' TERM; while :; do sleep 1; done) & while :; do sleep 1; done";
    run(&lab, "none", &["--timeout", "2s"], script).expect(124);
}

at!(a_job_is_an_agent_without_powers_unless_root_is_asked_for: docker podman rootless);
fn a_job_is_an_agent_without_powers_unless_root_is_asked_for(place: Place) {
    let lab = lab_at(place);
    let script =
        "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'";
    let agent = run(&lab, "none", &["--quiet"], script).expect(0).out;
    let wanted =
        "1000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n";
    assert!(
        agent.starts_with("1000\n") && agent.contains("CapEff:0000000000000000"),
        "{agent}"
    );
    assert!(wanted.lines().all(|line| agent.contains(line)), "{agent}");
    let root = run(&lab, "none", &["--quiet", "--root"], script)
        .expect(0)
        .out;
    assert!(
        root.starts_with("0\n") && root.contains("NoNewPrivs:1"),
        "{root}"
    );
}

at!(variables_and_directory_are_as_asked: docker podman rootless gvisor);
fn variables_and_directory_are_as_asked(place: Place) {
    let lab = lab_at(place);
    let said = run(
        &lab,
        "none",
        &["--quiet", "--env", "A=b c", "--workdir", "/tmp"],
        "echo \"$A\"; pwd",
    )
    .expect(0);
    assert_eq!(said.out, "b c\n/tmp\n");
}

#[test]
fn a_mistyped_option_starts_nothing_and_options_of_the_command_are_its_own() {
    let lab = lab();
    for (wrong, near) in [
        ("--polcy", Some("--policy")),
        ("-polcy", None),
        ("--i-accept-open-networks", None),
    ] {
        let said = lab
            .sallyport(&["run", wrong, "none", "--", "true"])
            .expect(2);
        assert!(
            said.err.contains(wrong.get(..2).unwrap_or(wrong)),
            "{said:?}"
        );
        assert!(near.is_none_or(|near| said.err.contains(near)), "{said:?}");
    }
    assert!(
        !lab.directory().join("runner-state").exists(),
        "nothing was started"
    );
    let said = lab
        .sallyport(&["run", "--quiet", "--", "printf", "%s", "--policy"])
        .expect(0);
    assert_eq!(said.out, "--policy");
}
