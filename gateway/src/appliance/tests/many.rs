//! Many short networks, one after the other and side by side: what they share is as it was when the last has gone.

use std::time::Duration;

use super::lab::*;

/// What the gateway's namespace holds: links, addresses, routes, rules, neighbours and the elements of sets.
fn held(lab: &Lab) -> Vec<String> {
    let namespace = lab.config().namespace;
    let lines = |words: &str| {
        let out = std::process::Command::new("ip")
            .args(["netns", "exec", &namespace])
            .args(words.split(' '))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        // indexes of links and counters differ, whatever carries an address or a name of ours does not
        let ours =
            |line: &&str| line.contains("sp") || line.contains("198.18.") || line.contains("fd");
        text.lines()
            .filter(ours)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let words = [
        "ip -o link",
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip neigh",
    ];
    let mut all: Vec<_> = words.into_iter().flat_map(lines).collect();
    let rules = lab.block(async |c| c.rules().await.unwrap());
    let elements = rules.lines().filter(|line| line.contains("elements"));
    all.extend(elements.map(str::to_owned));
    all
}

#[test]
fn net_36_five_hundred_short_networks_fifty_of_whose_sandboxes_are_killed_leave_nothing() {
    let lab = Lab::started();
    let before = held(&lab);
    let live = |first: usize| {
        for round in first..first + 25 {
            let sandbox = lab.attach(&far_only());
            let id = sandbox.view.id.clone();
            if round % 10 == 0 {
                // killed; who attached it says so, or a restart finds that nobody keeps the namespace any more
                drop(sandbox);
                if round < 250 {
                    continue;
                }
            }
            lab.block(async |c| c.detach(&id).await.unwrap());
        }
    };
    for half in 0..2 {
        // ten at a time
        std::thread::scope(|scope| {
            for lane in 0..10 {
                scope.spawn(move || live((half * 10 + lane) * 25));
            }
        });
        if half == 0 {
            lab.kill();
            lab.start(lab.config());
        }
    }
    // The kernel takes namespaces down one batch after the other, for the whole machine.
    eventually_within("the last network to go", Duration::from_mins(2), || {
        let left = lab.block(async |c| c.networks().await.unwrap());
        left.is_empty().then_some(())
    });
    eventually("everything else to go", || {
        (held(&lab) == before).then_some(())
    });
    let left = std::fs::read_dir(lab.config().run_dir.join("networks"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
    let health = lab.block(async |c| c.health().await.unwrap());
    assert!(health.open);
    // and the next one is as good as the first
    lab.attach(&far_only()).echoes(FAR).unwrap();
}
