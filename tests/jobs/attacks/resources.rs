//! One run takes its own share and no more: processes, memory, shared memory, and trees that are hard to remove.

use std::time::{Duration, Instant};

use lab::wait::within;

use super::world::World;
use crate::place::{Place, at};

at!(sbx_12_a_fork_bomb_is_bounded_and_can_be_stopped: docker gvisor);
fn sbx_12_a_fork_bomb_is_bounded_and_can_be_stopped(place: Place) {
    let world = World::on(place);
    let bomb = "bomb() { bomb | bomb & }; bomb; while :; do :; done";
    let begun = Instant::now();
    let said = world.run(
        &["--timeout", "4s", "--pids", "64"],
        &["/bin/bash", "-c", bomb],
    );
    // the shell may also give up by itself once it cannot fork
    assert!(
        said.code.is_some_and(|c| c != 0 && c != 125),
        "{:?}",
        said.code
    );
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert!(world.networks().is_empty(), "{:?}", world.networks());
    if place.has_own_kernel() {
        sbx_12_a_kernel_of_ones_own_has_room_for_what_was_asked_and_ends(&world);
        // engines need minutes to bury the hundreds of processes that a kernel in user space leaves when it dies
        let buried = within(Duration::from_mins(4), || {
            world.containers().is_empty().then_some(())
        });
        assert!(buried.is_some(), "{}", world.runner_log());
        return;
    }
    assert!(world.containers().is_empty());
    let program = "\
import json, os, time
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
print(json.dumps(made))
";
    let made = world
        .probe(&["--pids", "64"], program)
        .as_u64()
        .expect("a number");
    assert!(
        (30..64).contains(&made),
        "{made} children under a limit of 64"
    );
}

/// What was asked for is had, all of it at work at the same time, which costs the most of the machine's threads. Beyond
/// it the machine's limit ends the sandbox: each process takes two threads of 4 * 64 + 128 at least.
fn sbx_12_a_kernel_of_ones_own_has_room_for_what_was_asked_and_ends(world: &World) {
    let busy = "\
import json, os, time
end = time.monotonic() + 3
for _ in range(60):
    if os.fork() == 0:
        while time.monotonic() < end: pass
        os._exit(0)
ended = [os.wait()[1] for _ in range(60)]
print(json.dumps(ended.count(0)))
";
    assert_eq!(world.probe(&["--pids", "64"], busy), 60);
    let all = "\
import os, time
for made in range(1000):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print(made, flush=True)
";
    let begun = Instant::now();
    let options = ["--pids", "64", "--timeout", "20s"];
    let said = world.run(&options, &["python3", "-c", all]);
    assert!(said.code.is_some_and(|c| c != 0 && c != 125), "{said:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(50),
        "{:?}",
        begun.elapsed()
    );
    let made = said.out.lines().count();
    assert!(
        (60..192).contains(&made),
        "{made} children under a limit of 64: {said:?}"
    );
}

at!(sbx_13_memory_is_bounded_and_running_out_is_told_as_such: docker podman gvisor);
fn sbx_13_memory_is_bounded_and_running_out_is_told_as_such(place: Place) {
    let world = World::on(place);
    let heap = "held = []\nwhile True: held.append(bytearray(1 << 20))";
    let said = world.run(&["--memory", "96m"], &["python3", "-c", heap]);
    assert!(said.err.contains("memory"), "{said:?}");
    if place.has_own_kernel() {
        // its kernel died, and had no time for a code
        assert!(said.code.is_some_and(|c| c != 0), "{said:?}");
    } else {
        assert_eq!(said.code, Some(137), "{said:?}");
    }
    // shared memory counts as memory
    let shared = "\
import os
with open('/dev/shm/held', 'wb') as held:
    for _ in range(200): held.write(bytes(1 << 20)); held.flush()
";
    let said = world.run(&["--memory", "96m"], &["python3", "-c", shared]);
    assert!(
        said.code != Some(0),
        "200 MiB of shared memory under a limit of 96 MiB: {said:?}"
    );
    if place.has_own_kernel() {
        world
            .run(
                &["--memory", "128m"],
                &["python3", "-c", "bytearray(48 << 20)"],
            )
            .expect(0);
        return;
    }
    // and the twin: what fits is had; the score says who dies first
    let program = "import json; held = bytearray(48 << 20); print(json.dumps(int(open('/proc/self/oom_score_adj').read())))";
    assert_eq!(world.probe(&["--memory", "128m"], program), 900);
}

#[test]
fn sbx_11_hostile_trees_do_not_outlive_their_run() {
    let world = World::start();
    let program = r"
import json, os
os.chdir('/tmp')
for n in range(20000): open('f%d' % n, 'w').close()
for name in [b'new\nline', b'\xff\xfe', b'-rf', b'--', b'*', b' ']:
    open(b'/tmp/' + name, 'w').close()
depth = 0
while depth < 2000:
    os.mkdir('d' * 200); os.chdir('d' * 200); depth += 1
os.mkdir('/tmp/closed'); open('/tmp/closed/x', 'w').close(); os.chmod('/tmp/closed', 0)
print(json.dumps(depth))
";
    assert_eq!(world.probe(&[], program), 2000);
    assert!(world.containers().is_empty(), "{:?}", world.containers());
    world.run(&[], &["ls", "/tmp"]).expect(0);
}
