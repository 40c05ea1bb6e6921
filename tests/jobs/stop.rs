//! Nothing outlives its run. (Invariant 8.)

use std::time::Duration;

use lab::policies;
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::place::{Place, at};
use crate::world::{lab_at, run};

at!(invariant_8_a_run_leaves_no_container_network_or_process: docker podman rootless gvisor);
fn invariant_8_a_run_leaves_no_container_network_or_process(place: Place) {
    let lab = lab_at(place);
    run(&lab, policies::DOMAINS, &[], "setsid sleep 600 & exit 0").expect(0);
    assert_eq!(lab.containers(), Vec::<String>::new());
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

at!(an_interrupt_cancels_the_run_and_cleans_up: docker podman rootless gvisor);
fn an_interrupt_cancels_the_run_and_cleans_up(place: Place) {
    let lab = lab_at(place);
    let mut child = lab.long_run();
    kill(
        Pid::from_raw(i32::try_from(child.id()).expect("pid")),
        Signal::SIGINT,
    )
    .expect("signal");
    let status = within(Duration::from_secs(30), || child.try_wait().expect("wait"));
    assert_eq!(status.and_then(|s| s.code()), Some(130));
    eventually("its containers to be gone", || {
        lab.containers().is_empty().then_some(())
    });
}
