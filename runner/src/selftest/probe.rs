//! One probe sandbox in a container: a run like any other, under a policy that permits one listener of this machine.
//!
//! Owns what stands ready outside, and the run. Failure stance: what could not be tried is an error that says why, and
//! what the probe does not say has failed ([`attempts`]).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use gateway::control::PolicySource;
use gateway::control::api::{Check, Family, Variant};
use gateway::kernel::witness::{LONGEST, Witness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::attempts::{self, Attempt, Ends, Outside};
use super::skipped;
use crate::Runner;
use crate::drive;
use crate::job::{IsolationChoice, Job, JobRequest};
use crate::run::Event;

const PROBE: &str = include_str!("probe.py");
/// The whole selftest is to take less than a minute.
const LIMIT: Duration = Duration::from_secs(25);
const LIMIT_SECONDS: u64 = 25;
/// Its container is made before that and removed after it.
const MARGIN: Duration = Duration::from_secs(20);
const EVENTS_WAITING: usize = 8;
/// More than all lines of a probe.
const MOST_BYTES: usize = 64 << 10;

/// Listeners of one family.
struct Outer {
    ends: Ends,
    permitted: Option<tokio::net::TcpListener>,
    denied: Option<TcpListener>,
}

impl Outer {
    fn open(family: Family) -> io::Result<Self> {
        let mut outer = Self {
            ends: Ends {
                family,
                host: None,
                mark: uuid::Uuid::new_v4().simple().to_string(),
            },
            permitted: None,
            denied: None,
        };
        if let Some(address) = own(family) {
            let (permitted, denied) = (
                TcpListener::bind((address, 0))?,
                TcpListener::bind((address, 0))?,
            );
            permitted.set_nonblocking(true)?;
            denied.set_nonblocking(true)?;
            let ports = (permitted.local_addr()?.port(), denied.local_addr()?.port());
            outer.ends.host = Some((address, ports.0, ports.1));
            outer.permitted = Some(tokio::net::TcpListener::from_std(permitted)?);
            outer.denied = Some(denied);
        }
        Ok(outer)
    }

    /// Answers whoever is permitted, until dropped.
    async fn answer(&self) {
        let Some(listener) = &self.permitted else {
            return std::future::pending().await;
        };
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return std::future::pending().await;
            };
            let mut buffer = [0; 64];
            // whoever goes away early shows in the probe's row
            if let Ok(Ok(length)) = tokio::time::timeout(LIMIT, stream.read(&mut buffer)).await {
                let got = buffer.get(..length).unwrap_or_default();
                drop(stream.write_all(got).await);
            }
        }
    }
}

/// The address that this machine would leave with; nothing is sent for a connected datagram socket.
fn own(family: Family) -> Option<IpAddr> {
    let (any, far): (SocketAddr, SocketAddr) = if family == Family::Ipv6 {
        (
            ([0_u16; 8], 0).into(),
            (gateway::selftest::frames::NOBODY6, 9).into(),
        )
    } else {
        (
            ([0_u8; 4], 0).into(),
            (gateway::selftest::frames::NOBODY4, 9).into(),
        )
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

fn policy(outers: &[Outer]) -> PolicySource {
    use std::fmt::Write as _;
    let mut text = String::from("policy: selftest\nnetwork: domains\nprivate: true\nallow:");
    let hosts: Vec<_> = outers.iter().filter_map(|outer| outer.ends.host).collect();
    if hosts.is_empty() {
        text.push_str(" []");
    }
    for (address, permitted, _) in hosts {
        let _ = write!(
            text,
            "\n  - cidr: {address}\n    ports: [{permitted}]\n    speaks: any"
        );
    }
    text.push('\n');
    PolicySource::Document {
        file: "selftest.yaml".to_owned(),
        text,
        packages: None,
    }
}

/// Rows of one class, or why it could not be tried.
pub async fn one(
    runner: &Arc<Runner>,
    (choice, variant): (IsolationChoice, Variant),
    console: &[u16],
) -> Result<Vec<Check>, String> {
    let said = |error: io::Error| format!("opening listeners: {error}");
    let outers = [
        Outer::open(Family::Ipv4).map_err(said)?,
        Outer::open(Family::Ipv6).map_err(said)?,
    ];
    let [four, six] = &outers;
    let witness = Witness::open();
    let ends = [four.ends.clone(), six.ends.clone()];
    let list = attempts::all(&ends, console);
    let plan = serde_json::to_string(&list).map_err(|error| error.to_string())?;
    let request = JobRequest {
        isolation: Some(choice),
        timeout_seconds: Some(LIMIT_SECONDS),
        ..JobRequest::new(policy(&outers), ["python3", "-c", PROBE, &plan])
    };
    let job = Job::check(request, &runner.config.limits).map_err(|error| error.0.join("; "))?;
    let output = tokio::select! {
        output = output(runner, job) => output?,
        () = four.answer() => String::new(),
        () = six.answer() => String::new(),
    };
    let frames = witness.as_ref().map(frames);
    let outside = |attempt: &Attempt| {
        let (check, family) = attempt.row();
        let outer = if family == Family::Ipv6 { six } else { four };
        match (check, &outer.denied, &frames) {
            ("host_tcp", Some(denied), _) if denied.accept().is_ok() => {
                Outside::Came("a connection arrived".to_owned())
            }
            ("udp_denied", _, Err(error)) => Outside::Blind(format!(
                "the uplink cannot be watched: {}",
                gateway::control::problems::chain(*error)
            )),
            ("udp_denied", _, Ok(frames)) => {
                let mark = outer.ends.mark.as_bytes();
                let carries = |frame: &Vec<u8>| frame.windows(mark.len()).any(|w| w == mark);
                if frames.iter().any(carries) {
                    Outside::Came("it was seen in the uplink".to_owned())
                } else {
                    Outside::Quiet
                }
            }
            _ => Outside::Quiet,
        }
    };
    let mut rows = attempts::rows(&list, &output, variant, outside);
    for outer in outers.iter().filter(|outer| outer.ends.host.is_none()) {
        rows.push(Check {
            check: "permitted_tcp".to_owned(),
            family: outer.ends.family,
            ..skipped(variant, "this machine has no address of this family")
        });
    }
    Ok(rows)
}

/// Frames that a witness has seen.
fn frames(witness: &Witness) -> Vec<Vec<u8>> {
    let mut buffer = [0; LONGEST];
    let mut seen = Vec::new();
    while let Ok(frame) = witness.receive(&mut buffer) {
        seen.push(frame.to_vec());
    }
    seen
}

/// What a run prints.
async fn output(runner: &Arc<Runner>, job: Job) -> Result<String, String> {
    let (events, mut waiting) = mpsc::channel(EVENTS_WAITING);
    let driven = runner.clone();
    // a task of its own, as for every run: it cleans up whatever becomes of this one
    let drives = async move { drive::drive(&driven, job, events).await };
    runner.tasks.spawn("selftest run", drives);
    let mut bytes = Vec::new();
    let mut said = Vec::new();
    let reading = async {
        while let Some(event) = waiting.recv().await {
            match event {
                Event::Stdout(data) if bytes.len() < MOST_BYTES => {
                    bytes.extend_from_slice(&data.data);
                }
                Event::Stderr(data) if said.len() < MOST_BYTES => {
                    said.extend_from_slice(&data.data);
                }
                Event::Failed(failure) => return Err(failure.message),
                Event::Ended { .. } => break,
                _ => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(LIMIT + MARGIN, reading)
        .await
        .map_err(|_| "it took too long".to_owned())??;
    // an image without Python tries nothing
    if bytes.is_empty() {
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        return Err(format!("the probe printed nothing: {said}"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use gateway::control::api::Outcome;

    use super::*;

    /// The probe's program on this machine itself, where there is something to be reached and powers to be had.
    fn probed(ends: &[Ends]) -> Vec<Check> {
        let mut list = attempts::all(ends, &[]);
        // the other ones are sent to addresses that this machine may wait long for
        list.retain(|attempt| {
            matches!(
                attempt.row().0,
                "host_tcp" | "permitted_tcp" | "no_capabilities"
            )
        });
        let plan = serde_json::to_string(&list).unwrap();
        let out = std::process::Command::new("python3")
            .args(["-c", PROBE, &plan])
            .output()
            .unwrap();
        let output = String::from_utf8(out.stdout).unwrap();
        attempts::rows(&list, &output, Variant::Hardened, |_| Outside::Quiet)
    }

    #[test]
    fn the_probe_says_what_it_reaches_and_what_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let rows = probed(&[Ends {
            family: Family::Ipv4,
            // nobody listens on port 1, so what is permitted is not reached
            host: Some(([127, 0, 0, 1].into(), 1, port)),
            mark: "m".to_owned(),
        }]);
        let of = |check: &str| {
            let row = rows.iter().find(|c| c.check == check).unwrap();
            (row.outcome, row.detail.as_str())
        };
        assert_eq!(of("host_tcp").0, Outcome::Failed);
        assert!(of("host_tcp").1.contains("was reached"));
        assert_eq!(of("permitted_tcp").0, Outcome::Failed);
        // tests run with capabilities, which the probe must not have
        assert_eq!(of("no_capabilities").0, Outcome::Failed);
        drop(listener);
        let rows = probed(&[Ends {
            family: Family::Ipv4,
            host: Some(([127, 0, 0, 1].into(), 1, port)),
            mark: "m".to_owned(),
        }]);
        let row = rows.iter().find(|c| c.check == "host_tcp").unwrap();
        assert_eq!(
            (row.outcome, row.detail.as_str()),
            (Outcome::Passed, "refused")
        );
    }
}
