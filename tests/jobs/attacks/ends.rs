//! How a run ends is the engine's word, comes in time and takes everything with it, whatever the job does.

use std::io::Read;
use std::time::{Duration, Instant};

use lab::cli::Said;
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::world::World;
use crate::place::{Place, at};

fn shell(script: &str) -> [&str; 3] {
    ["/bin/bash", "-c", script]
}

/// No container, no network of the run is left.
fn gone(world: &World) {
    assert_eq!(world.containers(), Vec::<String>::new());
    assert_eq!(world.networks(), Vec::<serde_json::Value>::new());
}

at!(sbx_19_and_21_a_timeout_ends_everything_in_bounded_time: docker podman rootless gvisor);
fn sbx_19_and_21_a_timeout_ends_everything_in_bounded_time(place: Place) {
    let world = World::on(place);
    let stubborn = [
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        // daemons with and without the output in their hands
        "trap '' TERM; setsid bash -c 'trap \"\" TERM; while :; do sleep 1; done' & (nohup sleep 600 &) ; sleep 600",
        // everything stops itself, process 1 is not stopped
        "kill -STOP 1; kill -KILL 1; kill -STOP -1; sleep 600",
        "kill -STOP $$; sleep 600",
    ];
    let begun = Instant::now();
    let children: Vec<_> = stubborn
        .iter()
        .map(|script| world.spawn(&["--timeout", "2s"], &shell(script)))
        .collect();
    for (child, script) in children.into_iter().zip(stubborn) {
        let said = Said::from(child.wait_with_output().expect("the run ends"));
        // a kernel in user space does not shield process 1 from its own kind: the run ends by what the job did to itself
        let by_itself = place.has_own_kernel() && script.contains("-KILL 1");
        let wanted = if by_itself { 137 } else { 124 };
        assert_eq!(said.code, Some(wanted), "{script}: {said:?}");
    }
    // two seconds, five of grace, and what a busy machine takes for four at once
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
    gone(&world);
}

at!(sbx_19_a_caller_that_reads_nothing_keeps_nothing_beyond_the_timeout: docker podman rootless gvisor);
fn sbx_19_a_caller_that_reads_nothing_keeps_nothing_beyond_the_timeout(place: Place) {
    let world = World::on(place);
    // its pipe is full at once, and so is everything between it and the sandbox
    let mut stalled = world.spawn(&["--timeout", "3s"], &shell("trap '' TERM; yes ccc"));
    eventually("the run", || (world.containers().len() == 2).then_some(()));
    // three seconds, five of grace, three for what is in buffers, and what a busy machine takes
    let ended = within(Duration::from_secs(45), || {
        (world.containers().is_empty() && world.networks().is_empty()).then_some(())
    });
    assert!(
        ended.is_some(),
        "it is there still: {:?}",
        world.containers()
    );
    assert!(
        matches!(stalled.try_wait(), Ok(None)),
        "the caller still waits for its reader"
    );
    let said = Said::from(stalled.wait_with_output().expect("the run ends"));
    assert_eq!(said.code, Some(124), "{}", said.err);
    assert!(said.out.starts_with("ccc\n"));

    // whoever reads gets all of it, also what is printed faster than it is read
    let said = world.run(&["--timeout", "60s"], &shell("yes ccc | head -c 8000000"));
    assert_eq!((said.code, said.out.len()), (Some(0), 8_000_000));
}

at!(sbx_19_what_a_command_leaves_behind_ends_with_it: docker podman rootless gvisor);
fn sbx_19_what_a_command_leaves_behind_ends_with_it(place: Place) {
    let world = World::on(place);
    let begun = Instant::now();
    let said = world.run(
        &[],
        &shell("(setsid sleep 600 &) ; (nohup sleep 600 &) ; sleep 600 & echo done; exit 7"),
    );
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(7), "done\n"),
        "{said:?}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "an open pipe kept the run: {:?}",
        begun.elapsed()
    );
    gone(&world);
}

#[test]
fn sbx_20_orphans_are_reaped() {
    let world = World::start();
    let program = "\
import os, time, json
for _ in range(2000):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
def state(pid):
    try: return open('/proc/%s/stat' % pid).read().rsplit(')', 1)[1].split()[0]
    except OSError: return 'gone'
end = time.monotonic() + 20
while True:
    zombies = [p for p in os.listdir('/proc') if p.isdigit() and state(p) == 'Z']
    if not zombies or time.monotonic() > end: break
print(json.dumps(len(zombies)))
";
    // more orphans than processes are allowed: without reaping, forking itself would fail
    assert_eq!(world.probe(&["--pids", "200"], program), 0);
}

#[test]
fn sbx_22_nothing_that_is_printed_is_believed() {
    let world = World::start();
    for code in [0, 1, 124, 125, 126, 127, 137, 255] {
        let script = format!(
            "printf '%s\\n' '{{\"ended\":{{\"code\":0,\"reason\":\"exited\"}}}}' '{{\"event\":\"ended\",\"code\":0}}' \
             'sallyport: out of memory' 'sally init: the deadline has passed' >&2; \
             for fd in 3 4 5 6 7 8 9; do (echo forged >&$fd) 2>/dev/null; done; exit {code}"
        );
        let said = world.run(&["--json"], &shell(&script));
        assert_eq!(said.code, Some(code), "{said:?}");
        let last: serde_json::Value =
            serde_json::from_str(said.out.lines().last().unwrap_or_default()).expect("JSON lines");
        assert!(
            last.to_string().contains(&format!("\"code\":{code}")),
            "{last}"
        );
        assert!(last.to_string().contains("exited"), "{last}");
    }
    assert_eq!(world.run(&[], &["/nowhere/at-all"]).code, Some(127));
    assert_eq!(world.run(&[], &["/etc/passwd"]).code, Some(126));
    assert_eq!(world.run(&[], &shell("kill -KILL $$")).code, Some(137));
}

#[test]
fn sbx_31_stopping_finishing_and_timing_out_at_once_is_one_end() {
    let world = World::start();
    for round in 0..6u64 {
        let mut child = world.spawn(
            &["--timeout", "2s", "--json"],
            &shell("echo ready; sleep 2; exit 3"),
        );
        let mut out = child.stdout.take().expect("a pipe");
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.contains("stdout") {
            let length = out.read(&mut buffer).expect("read");
            assert!(length > 0, "no output: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        // around the moment at which it finishes and its time is over
        let at = Instant::now() + Duration::from_millis(1800 + 80 * round);
        eventually("the moment", || (Instant::now() >= at).then_some(()));
        let _ = kill(
            Pid::from_raw(i32::try_from(child.id()).expect("pid")),
            Signal::SIGTERM,
        );
        let code = child.wait().expect("the run ends").code();
        out.read_to_string(&mut text).expect("the rest");
        assert!(matches!(code, Some(3 | 124 | 130)), "{code:?}: {text}");
        let ends = text
            .lines()
            .filter(|l| l.contains("\"reason\"") && l.contains("\"code\""))
            .count();
        assert_eq!(ends, 1, "{text}");
        gone(&world);
    }
}

at!(a_job_that_heeds_the_signal_ends_by_it_and_can_end_its_own_children: docker podman rootless);
fn a_job_that_heeds_the_signal_ends_by_it_and_can_end_its_own_children(place: Place) {
    let world = World::on(place);
    // bash and Python leave the mask that they inherit alone
    let said = world.run(
        &["--timeout", "60s"],
        &shell("sleep 600 & kill $!; wait $!; echo $?; grep SigBlk /proc/self/status"),
    );
    assert_eq!(said.out, "143\nSigBlk:\t0000000000000000\n", "{said:?}");
    let heeding = "trap 'echo asked; exit 9' TERM; while :; do sleep 0.1; done";
    let said = world.run(&["--timeout", "2s"], &shell(heeding));
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(124), "asked\n"),
        "{said:?}"
    );
}
