//! Nothing outlives its run. (Invariant 8.)

use std::process::{Command, Stdio};
use std::time::Duration;

use lab::cli;
use lab::policies;
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{lab, run};

/// Containers that the runner of this lab made.
fn containers(lab: &lab::Lab) -> String {
    let instance =
        std::fs::read_to_string(lab.directory().join("runner-state/instance")).unwrap_or_default();
    let filter = format!("label=sallyport.instance={}", instance.trim());
    let listed = Command::new("docker")
        .args(["ps", "-aq", "--filter", &filter])
        .output()
        .expect("docker");
    assert!(
        listed.status.success() && !instance.is_empty(),
        "{listed:?}"
    );
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

#[test]
fn invariant_8_a_run_leaves_no_container_network_or_process() {
    let lab = lab();
    run(&lab, policies::DOMAINS, &[], "setsid sleep 600 & exit 0").expect(0);
    assert_eq!(containers(&lab), "");
    assert_eq!(
        lab.sallyport(&["net", "ls", "--json"]).expect(0).json(),
        serde_json::json!([])
    );
    let children = lab.directory().join("run/on-demand/children.json");
    assert!(
        !children.exists(),
        "the runner that the run started is stopped"
    );
}

#[test]
fn an_interrupt_cancels_the_run_and_cleans_up() {
    let lab = lab();
    let config = lab.directory().join("config.yml").display().to_string();
    let mut command = cli::command(&[
        "run",
        "--config",
        &config,
        "--",
        "/bin/sh",
        "-c",
        "echo ready; sleep 600",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = lab.topology.uplink.start(&mut command).expect("start");
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready)
        .expect("the command runs");
    kill(
        Pid::from_raw(i32::try_from(child.id()).expect("pid")),
        Signal::SIGINT,
    )
    .expect("signal");
    let status = within(Duration::from_secs(30), || child.try_wait().expect("wait"));
    assert_eq!(status.and_then(|s| s.code()), Some(130));
    eventually("its containers to be gone", || {
        containers(&lab).is_empty().then_some(())
    });
}
