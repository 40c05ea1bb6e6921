//! Nothing outlives its run: not after kill -9 of the program, not after many short runs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab::wait::within;

use super::world::World;
use crate::place::{Place, at};

/// Everything on this machine that a run makes and that carries our names.
fn traces(world: &World) -> BTreeSet<String> {
    let directory = world.lab.directory();
    let mut found: BTreeSet<String> = world.containers().into_iter().collect();
    found.extend(world.networks().iter().map(ToString::to_string));
    for folder in ["runner-run/pods", "run/networks"] {
        let Ok(entries) = std::fs::read_dir(directory.join(folder)) else {
            continue;
        };
        found.extend(entries.flatten().map(|e| e.path().display().to_string()));
    }
    let gateway = world.lab.gateway().namespace();
    for program in [&["ip", "-o", "link"][..], &["nft", "list", "ruleset"]] {
        let text = gateway.exec(program);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        // link numbers and counters differ, names do not
        found.extend(
            text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_@.:".contains(c)))
                .filter(|w| w.starts_with("sp") && w.len() > 3)
                .map(str::to_owned),
        );
    }
    found
}

// Sixteen whole runs, four of them killed: what the engine and the runner keep of a run is under its own name, so the
// thousandth leaves what the first does. What runs share (rules, sets, links, routes, files of the gateway) is made and
// taken away five hundred times, fifty times by kill -9 and with a restart in between, in the gateway's own tests
// (`appliance/tests/many.rs`); an engine's restart is `restart.rs`.
#[test]
fn net_36_and_04_many_short_runs_leave_nothing() {
    let world = World::start();
    world.run(&[], &["true"]).expect(0);
    let before = traces(&world);
    for round in 0..4 {
        let mut children: Vec<_> = (0..4)
            .map(|_| world.spawn(&["--policy", "internet"], &["true"]))
            .collect();
        // one of them is killed with its caller
        if let Some(killed) = children.get_mut(round) {
            killed.kill().expect("kill");
        }
        for (index, child) in children.iter_mut().enumerate() {
            let code = child.wait().expect("the run ends").code();
            assert!(index == round || code == Some(0), "{code:?}");
        }
    }
    let left = |world: &World| {
        traces(world)
            .difference(&before)
            .cloned()
            .collect::<Vec<_>>()
    };
    let clean = within(Duration::from_secs(30), || {
        left(&world).is_empty().then_some(())
    });
    assert!(clean.is_some(), "left: {:#?}", left(&world));
    // a new run of the same machine begins with nothing of the earlier ones
    let said = world.run(
        &["--policy", "none"],
        &["curl", "-s", "-m", "5", "http://ok.sallylab.net/"],
    );
    assert_ne!(said.code, Some(0));
}

at!(sbx_30_after_a_kill_of_the_runner_its_runs_are_ended_within_a_minute_of_the_next_start: docker podman rootless gvisor);
fn sbx_30_after_a_kill_of_the_runner_its_runs_are_ended_within_a_minute_of_the_next_start(
    place: Place,
) {
    let mut world = World::on(place);
    let before = traces(&world);
    let mut children: Vec<_> = (0..3)
        .map(|_| world.spawn(&["--timeout", "10m"], &["sleep", "500"]))
        .collect();
    let running = within(Duration::from_mins(1), || {
        let names: Vec<_> = world
            .containers()
            .into_iter()
            .filter(|n| n.ends_with("-workload"))
            .collect();
        let live = names.iter().filter(|n| world.runs(n)).count();
        (live == 3).then_some(())
    });
    assert!(running.is_some(), "{:?}", world.containers());
    world.kill_runner();
    for child in &mut children {
        // the caller is told; it neither hangs nor reports success
        assert_eq!(
            child.wait().expect("it ends").code().map(|c| c == 0),
            Some(false)
        );
    }
    assert!(
        !world.containers().is_empty(),
        "the engine keeps them until somebody removes them"
    );
    world.launch_runner();
    let begun = Instant::now();
    let left = |world: &World| {
        traces(world)
            .difference(&before)
            .cloned()
            .collect::<Vec<_>>()
    };
    let clean = within(Duration::from_mins(1), || {
        left(&world).is_empty().then_some(())
    });
    assert!(
        clean.is_some(),
        "after {:?}: {:#?}",
        begun.elapsed(),
        left(&world)
    );
    world.run(&[], &["true"]).expect(0);
}
