//! A run without an engine: a backend that notes what it is asked, and does what a test tells it.

#![expect(
    clippy::disallowed_methods,
    reason = "a fake backend of the test runs beside the drive"
)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gateway::control::PolicySource;
use gateway::control::descriptor::send;
use gateway::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::feed::Feeding;
use super::watch::{Over, Watch};
use super::{Runner, drive, unwanted};
use crate::api::STOPPING;
use crate::burial::{self, Remains};
use crate::config::RunnerConfig;
use crate::image::Images;
use crate::job::{ImageName, Job, JobRequest, Takes};
use crate::output::Meter;
use crate::packages::Packages;
use crate::pod::Pods;
use crate::pool::Pool;
use crate::reaper;
use crate::records::Records;
use crate::run::{EndReason, Event, RunId};
use crate::runs::{Ends, Runs};
use crate::sandbox::{
    Asked, Backend, Chunk, Exit, Facts, HolderSpec, ImageFacts, Isolation, Output, Owned, Prepared,
    SandboxError, SandboxId, Streams, WorkloadSpec,
};

/// Of every run here. What ignores the wish to end costs a test the grace of five seconds.
const TIMEOUT: Duration = Duration::from_millis(300);

/// How a workload takes the wish that it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Heeds,
    Ignores,
    /// Is not told: its engine answers nothing that ends or removes.
    Mute,
    /// Heeds it; but its engine answers nothing and reports no end before all output is fetched, as Docker does.
    Fetched,
}

#[derive(Debug)]
struct Fake {
    facts: Facts,
    asked: Mutex<Vec<&'static str>>,
    manner: Manner,
    code: Mutex<Option<i64>>,
    ended: Notify,
}

impl Fake {
    fn new(manner: Manner) -> Arc<Self> {
        let facts = Facts {
            name: "fake".to_owned(),
            isolation: vec![Isolation::Hardened],
            warnings: Vec::new(),
        };
        Arc::new(Self {
            facts,
            asked: Mutex::default(),
            manner,
            code: Mutex::default(),
            ended: Notify::new(),
        })
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().clone()
    }

    /// Until a test lets it answer.
    fn is_mute(&self) -> bool {
        self.manner == Manner::Mute
    }

    fn end(&self, code: i64) {
        self.code.lock().unwrap().get_or_insert(code);
        self.ended.notify_one();
    }
}

impl Backend for Fake {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn image<'a>(&'a self, _name: &'a ImageName) -> Asked<'a, ImageFacts> {
        Box::pin(async {
            Ok(ImageFacts {
                stamp: None,
                id: "sha256:00".to_owned(),
                command: vec!["true".to_owned()],
                workdir: "/".to_owned(),
                volumes: Vec::new(),
            })
        })
    }

    fn hold<'a>(&'a self, spec: &'a HolderSpec) -> Asked<'a, SandboxId> {
        Box::pin(async {
            self.note("hold");
            let host = |source| SandboxError::Host {
                act: "handing a namespace over",
                source,
            };
            let stream = tokio::net::UnixStream::connect(&spec.socket)
                .await
                .map_err(host)?;
            stream.writable().await.map_err(host)?;
            let namespace = std::fs::File::open("/proc/self/ns/net").map_err(host)?;
            send(&stream, b"n", &namespace.into()).map_err(host)?;
            Ok(SandboxId("holder".to_owned()))
        })
    }

    fn prepare<'a>(&'a self, _spec: &'a WorkloadSpec) -> Asked<'a, Prepared> {
        self.note("prepare");
        Box::pin(async {
            Ok(Prepared {
                id: SandboxId("workload".to_owned()),
                unlimited: Vec::new(),
            })
        })
    }

    fn start<'a>(&'a self, _id: &'a SandboxId, _takes: Takes) -> Asked<'a, Streams> {
        self.note("start");
        Box::pin(async {
            Ok(Streams {
                output: silence(),
                input: None,
            })
        })
    }

    fn wait<'a>(&'a self, _id: &'a SandboxId) -> Asked<'a, Exit> {
        Box::pin(async {
            self.ended.notified().await;
            let code = self.code.lock().unwrap().unwrap_or_default();
            Ok(Exit {
                code,
                out_of_memory: false,
            })
        })
    }

    fn ask_to_end<'a>(&'a self, _id: &'a SandboxId) -> Asked<'a, ()> {
        self.note("ask");
        match self.manner {
            Manner::Heeds => self.end(143),
            Manner::Ignores => {}
            Manner::Mute => return Box::pin(std::future::pending()),
            Manner::Fetched => {
                self.code.lock().unwrap().get_or_insert(143);
                return Box::pin(std::future::pending());
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn kill<'a>(&'a self, _id: &'a SandboxId) -> Asked<'a, ()> {
        self.note("kill");
        if self.is_mute() {
            return Box::pin(std::future::pending());
        }
        self.end(137);
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()> {
        self.note(if id.0 == "holder" {
            "remove holder"
        } else {
            "remove workload"
        });
        if self.is_mute() {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { Ok(()) })
    }

    fn owned(&self) -> Asked<'_, Vec<Owned>> {
        let left = self.is_mute().then(|| Owned {
            id: SandboxId("holder".to_owned()),
            run: RunId::allot(),
        });
        Box::pin(async { Ok(left.into_iter().collect()) })
    }

    fn import<'a>(
        &'a self,
        _name: &'a ImageName,
        _file_system: &'a Path,
        _stamp: Option<&'a str>,
    ) -> Asked<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A gateway that says how it is and then acknowledges nothing.
fn says_its_posture_only(socket: &Path) {
    let posture = serde_json::json!({
        "state": "enforcing", "label": "Private networks blocked", "generation": 1, "since_ms": 0, "notes": [],
    });
    let posture = posture.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{posture}",
        posture.len()
    );
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 1 << 16];
            let length = stream.read(&mut request).await.unwrap_or_default();
            if request[..length].starts_with(b"GET /v1/posture ") {
                // A runner that is gone is no failure of this one.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
}

/// A runner over this backend, whose gateway does not answer.
fn runner(backend: Arc<Fake>, folder: &Path) -> Arc<Runner> {
    let config = RunnerConfig {
        pool: 0,
        control: folder.join("no-gateway.sock"),
        state_dir: folder.join("state"),
        run_dir: folder.join("run"),
        ..RunnerConfig::default()
    };
    let records = Arc::new(Records::default());
    let pods = Pods {
        backend,
        gateway: gateway::control::Client::new(&config.control),
        records: records.clone(),
        instance: "0123456789abcdef".to_owned(),
        folder: config.run_dir.join("pods"),
        broker: config.run_dir.join("broker.sock"),
    };
    Arc::new(Runner {
        pool: Pool::new(0),
        runs: Runs::new(4),
        images: Images::new(config.state_dir.join("image")),
        packages: Packages::default(),
        pods,
        records,
        ownerless: Notify::new(),
        probing: tokio::sync::Mutex::default(),
        tasks: Tasks::default(),
        stopping: CancellationToken::new(),
        config,
    })
}

#[tokio::test]
async fn without_an_acknowledged_network_no_workload_is_made_and_the_holder_goes() {
    let folder = tempfile::tempdir().unwrap();
    let backend = Fake::new(Manner::Heeds);
    let runner = runner(backend.clone(), folder.path());
    says_its_posture_only(&runner.config.control);
    let mut request = JobRequest::new(PolicySource::Preset("none".to_owned()), ["true"]);
    request.image = Some("example/image:1".to_owned());
    let job = Job::check(request, &runner.config.limits).unwrap();
    let (events, mut seen) = mpsc::channel(16);
    drive(&runner, job, events).await;
    let mut last = None;
    while let Some(event) = seen.recv().await {
        assert!(!matches!(event, Event::Started(_)), "{event:?}");
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Failed(_))), "{last:?}");
    assert_eq!(backend.asked(), ["hold", "remove holder"]);
    // nor a folder, nor a place in the table, nor a tally
    let pods = std::fs::read_dir(folder.path().join("run/pods")).unwrap();
    assert_eq!(pods.count(), 0);
    assert!(runner.wired_runs().is_empty());
    assert_eq!(runner.records.watched(), 0);
}

/// Watches a workload with this output until it ends.
async fn watched(
    backend: &Arc<Fake>,
    output: Output,
    meanwhile: impl FnOnce(&Ends, mpsc::Receiver<Event>) -> Option<mpsc::Receiver<Event>>,
) -> (Over, EndReason, Option<mpsc::Receiver<Event>>) {
    let folder = tempfile::tempdir().unwrap();
    let runner = runner(backend.clone(), folder.path());
    let (id, ends) = (SandboxId("workload".to_owned()), Ends::default());
    let (events, seen) = mpsc::channel(64);
    let seen = meanwhile(&ends, seen);
    let watch = Watch {
        runner: &runner,
        id: &id,
        ends: &ends,
        events: &events,
        meter: Meter::new(1 << 20),
    };
    let (over, reason) = watch
        .until_end(output, Feeding::new(None, None), TIMEOUT)
        .await
        .unwrap();
    (over, reason, seen)
}

/// The code of what is gone.
fn code(over: Over) -> i64 {
    match over {
        Over::Gone(exit) => exit.code,
        Over::Unanswered => panic!("the engine told no end"),
    }
}

fn silence() -> Output {
    stream::pending().boxed()
}

#[tokio::test]
async fn a_timeout_asks_first_and_kills_what_does_not_go() {
    for (manner, wanted) in [
        (Manner::Heeds, &["ask"][..]),
        (Manner::Ignores, &["ask", "kill"]),
    ] {
        let backend = Fake::new(manner);
        let (_, reason, _) = watched(&backend, silence(), |_, seen| Some(seen)).await;
        assert_eq!(reason, EndReason::TimedOut);
        assert_eq!(backend.asked(), wanted);
    }
}

#[tokio::test]
async fn an_engine_that_never_answers_keeps_no_run_beyond_its_timeout() {
    let backend = Fake::new(Manner::Mute);
    let begun = std::time::Instant::now();
    let (over, reason, _) = watched(&backend, silence(), |_, seen| Some(seen)).await;
    assert_eq!((over, reason), (Over::Unanswered, EndReason::TimedOut));
    assert_eq!(backend.asked(), ["ask", "kill"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{begun:?}");
}

#[tokio::test]
async fn what_an_engine_does_not_remove_is_buried_beside_other_work_and_nobodys_when_the_runner_stops()
 {
    let folder = tempfile::tempdir().unwrap();
    let backend = Fake::new(Manner::Mute);
    let runner = runner(backend.clone(), folder.path());
    let run = RunId::allot();
    let (workload, holder) = ("workload".to_owned(), "holder".to_owned());
    let mut remains = Remains::new(run.clone(), Some(SandboxId(workload)), SandboxId(holder));
    let patience = Duration::from_millis(50);
    let failed = remains.remove(&runner.pods, patience).await;
    // asked for both, whichever hangs; and both are told
    assert_eq!(backend.asked(), ["remove workload", "remove holder"]);
    assert_eq!(failed.len(), 2, "{failed:?}");
    burial::bury(&runner, remains);
    assert!(runner.runs.knows(&run), "it is no leftover of the reaper's");
    runner.tasks.shut_down().await;
    assert!(!runner.runs.knows(&run), "what is left is the next sweep's");
}

#[tokio::test]
async fn an_engine_that_hangs_keeps_no_network_of_nobody_and_no_run_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let backend = Fake::new(Manner::Mute);
    let runner = runner(backend.clone(), folder.path());
    let gateway = tokio::net::UnixListener::bind(&runner.config.control).unwrap();
    let asked = async {
        loop {
            let (mut stream, _) = gateway.accept().await.unwrap();
            let mut request = vec![0; 1 << 12];
            let length = stream.read(&mut request).await.unwrap();
            if request[..length].starts_with(b"GET /v1/networks")
                && backend.asked().contains(&"remove holder")
            {
                break;
            }
        }
    };
    // while the engine has not answered yet
    let again = async {
        while !backend.asked().contains(&"remove holder") {
            tokio::task::yield_now().await;
        }
        runner.ownerless.notify_one();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = reaper::reap(&runner) => panic!("it goes on for ever"),
        () = again => {}
        done = tokio::time::timeout(Duration::from_secs(10), asked) => done.unwrap(),
    }
}

#[tokio::test]
async fn the_first_cause_of_an_end_is_the_one_that_counts() {
    let backend = Fake::new(Manner::Ignores);
    let cancel = |ends: &Ends, seen| {
        ends.end(EndReason::Cancelled);
        ends.end(EndReason::RunnerStopped);
        Some(seen)
    };
    let (over, reason, _) = watched(&backend, silence(), cancel).await;
    assert_eq!((code(over), reason), (137, EndReason::Cancelled));
    assert_eq!(backend.asked(), ["ask", "kill"]);
}

#[tokio::test]
async fn a_runner_that_stops_has_not_cancelled_what_had_not_begun() {
    for (cause, told) in [
        (EndReason::RunnerStopped, STOPPING),
        (EndReason::Cancelled, "cancelled"),
    ] {
        let (events, _listening) = mpsc::channel(1);
        let ends = Ends::default();
        ends.end(cause);
        assert_eq!(unwanted(&ends, &events).await.code, told);
    }
}

#[tokio::test]
async fn a_run_that_nobody_follows_any_more_is_killed() {
    let backend = Fake::new(Manner::Ignores);
    let (_, reason, _) = watched(&backend, silence(), |_, _| None).await;
    assert_eq!(reason, EndReason::Cancelled);
    assert_eq!(backend.asked(), ["kill"]);
}

#[tokio::test]
async fn output_that_is_in_buffers_when_the_workload_ends_still_arrives_and_is_never_believed() {
    let backend = Fake::new(Manner::Heeds);
    backend.end(3);
    let forged = Bytes::from_static(b"{\"event\":\"ended\",\"code\":0}\n");
    let output = stream::iter([Ok(Chunk::Out(forged.clone()))]).boxed();
    let (over, reason, seen) = watched(&backend, output, |_, seen| Some(seen)).await;
    assert_eq!((code(over), reason), (3, EndReason::Exited));
    let event = seen.unwrap().try_recv().unwrap();
    assert!(!matches!(event, Event::Ended { .. }), "{event:?}");
    assert!(backend.asked().is_empty());
}

/// Prints without an end until it shall end, has some more in its pipe then, and its end is known when that is fetched.
fn torrent(backend: &Arc<Fake>) -> Output {
    const IN_THE_PIPE: usize = 500;
    let begun = (backend.clone(), 0, 0);
    let chunks = stream::unfold(begun, |(backend, printed, late)| async move {
        tokio::task::yield_now().await;
        let late = late + usize::from(backend.code.lock().unwrap().is_some());
        if late > IN_THE_PIPE {
            backend.ended.notify_one();
            return None;
        }
        let chunk = Chunk::Out(Bytes::from(format!("{printed}\n")));
        Some((Ok(chunk), (backend, printed + 1, late)))
    });
    chunks.boxed()
}

#[tokio::test]
async fn a_reader_that_stalls_keeps_nothing_beyond_the_timeout() {
    let backend = Fake::new(Manner::Fetched);
    let watching = watched(&backend, torrent(&backend), |_, seen| Some(seen));
    let (over, reason, seen) = tokio::time::timeout(Duration::from_secs(30), watching)
        .await
        .expect("it ends although nobody reads");
    assert_eq!((code(over), reason), (143, EndReason::TimedOut));
    assert_eq!(backend.asked(), ["ask"]);
    assert!(seen.unwrap().len() <= 64, "what was sent is what has room");
}

#[tokio::test]
async fn a_reader_that_keeps_up_gets_everything_that_is_printed_until_the_end() {
    let backend = Fake::new(Manner::Fetched);
    let mut reading = None;
    let (over, reason, _) = watched(&backend, torrent(&backend), |_, mut seen| {
        reading = Some(tokio::spawn(async move {
            let mut text = Vec::new();
            while let Some(event) = seen.recv().await {
                if let Event::Stdout(data) = event {
                    text.extend_from_slice(&data.data);
                }
            }
            String::from_utf8(text).unwrap()
        }));
        None
    })
    .await;
    assert_eq!((code(over), reason), (143, EndReason::TimedOut));
    let text = reading.unwrap().await.unwrap();
    let lines: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.len() > 500, "{}", lines.len());
    assert!(lines.iter().copied().eq(0..lines.len()), "a gap: {lines:?}");
}
