//! Which requests are jobs, and that every mistake is told at once.

use super::*;

fn request() -> JobRequest {
    JobRequest::new(PolicySource::Preset("none".to_owned()), ["true"])
}

fn mistakes(change: impl FnOnce(&mut JobRequest)) -> Vec<String> {
    let mut request = request();
    change(&mut request);
    Job::check(request, &Limits::default()).map_or_else(|JobMistakes(all)| all, |_| Vec::new())
}

#[test]
fn plain_request_takes_every_default() {
    let job = Job::check(request(), &Limits::default()).unwrap();
    assert_eq!(job.user, User::Agent);
    assert_eq!(job.timeout_seconds, 900);
    assert_eq!(
        job.resources,
        Resources {
            memory_mib: 1024,
            cpu_millis: 1000,
            pids: 256
        }
    );
    assert_eq!(job.image.to_string(), "sallyport/sandbox:latest");
}

#[test]
fn fields_that_could_be_options_or_lead_elsewhere_are_refused() {
    assert_eq!(
        mistakes(|r| r.image = Some("--privileged".to_owned())).len(),
        1
    );
    assert_eq!(mistakes(|r| r.command = vec!["a\0b".to_owned()]).len(), 1);
    assert_eq!(mistakes(|r| r.command = vec!["x".repeat(2 << 20)]).len(), 2);
    assert_eq!(mistakes(|r| r.command = vec![String::new()]).len(), 1);
    for key in ["A=B", "", "1A", "A B", "A\nB", "LD-X", "SALLYPORT_RUN", "Ä"] {
        assert_eq!(
            mistakes(|r| r.env = vec![(key.to_owned(), "v".to_owned())]).len(),
            1,
            "{key:?}"
        );
    }
    assert_eq!(
        mistakes(|r| r.env = vec![("A".to_owned(), "\u{1b}[2J".to_owned())]).len(),
        1
    );
    assert_eq!(
        mistakes(|r| r.env = vec![("A".to_owned(), "a\0".to_owned())]).len(),
        1
    );
    assert!(
        mistakes(|r| r.env = vec![("PATH_2".to_owned(), "two\nlines\tare fine".to_owned())])
            .is_empty()
    );
    for path in [
        "relative",
        "../../",
        "/a/../b",
        "/proc/self/fd/8",
        "/sys",
        "//proc",
        "/dev/shm",
        "/a\nb",
        ".",
    ] {
        assert_eq!(
            mistakes(|r| r.workdir = Some(path.to_owned())).len(),
            1,
            "{path:?}"
        );
    }
    assert!(mistakes(|r| r.workdir = Some("/home/agent/it works".to_owned())).is_empty());
    assert_eq!(mistakes(|r| r.workspace = "../other".to_owned()).len(), 1);
}

#[test]
fn ceilings_hold_and_all_mistakes_come_at_once() {
    let all = mistakes(|r| {
        r.timeout_seconds = Some(0);
        r.memory_mib = Some(1 << 40);
        r.cpu_millis = Some(1);
        r.pids = Some(1 << 40);
        r.image = Some("x y".to_owned());
    });
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn limits_are_told_in_the_units_that_people_write() {
    let all = mistakes(|r| {
        r.timeout_seconds = Some(90 * 3600);
        r.memory_mib = Some(9999 * 1024);
        r.cpu_millis = Some(5);
        r.pids = Some(1);
    });
    let wanted = [
        "timeout: 90h is not between 1s and 24h",
        "memory: 9999g is not between 6m and 64g",
        "cpus: 0.005 is not between 0.01 and 64",
        "pids: 1 is not between 4 and 32768",
    ];
    assert_eq!(all, wanted);
}
