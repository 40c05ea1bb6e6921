//! The console under load: API reads beside flows and readers, and a hundred runs that are queued at once.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Figure, Row, Table};
use crate::Options;
use crate::client::Client;

/// Accounts that follow the event stream, each as often as one may.
const ACCOUNTS: usize = 7;
const STREAMS: usize = 30;
/// Flows of one request of a runner; so many requests a second.
const FLOWS: u64 = 40;
const TELLS: u32 = 25;
/// How long it is measured.
const LONG: Duration = Duration::from_secs(10);
/// Between reads: what one account may keep up.
const PAUSE: Duration = Duration::from_millis(25);
const RUNS: usize = 100;
const PASSWORD: &str = "a long password";

/// The rows on the console.
pub fn console(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["console"]) {
        return Ok(());
    }
    let files = tempfile::tempdir()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let here = Here::start(&options.binary, files.path(), port)?;
    let mut owner = here.owner()?;
    // a shared one: those who read beside the owner are members of it
    let made = owner.ask(
        "POST",
        "/api/v1/workspaces",
        Some(&json!({ "name": "Bench" })),
    )?;
    let place = text(&made, "/id")?;
    let mut runner = here.runner(&mut owner)?;
    table.add(queued(&mut owner, &mut runner, &place)?);
    table.add(reads(&here, &mut owner, runner, &place)?);
    Ok(())
}

fn text(value: &Value, at: &str) -> Result<String> {
    let found = value.pointer(at).and_then(Value::as_str);
    Ok(found
        .with_context(|| format!("{at} of {value}"))?
        .to_owned())
}

/// A console that runs.
struct Here {
    child: Child,
    binary: std::path::PathBuf,
    config: std::path::PathBuf,
    port: u16,
}

impl Here {
    fn start(binary: &Path, folder: &Path, port: u16) -> Result<Self> {
        let config = folder.join("config.yml");
        let dir = folder.display();
        let text = format!(
            "gateway: {{ control: {dir}/control.sock, state_dir: {dir}/state, run_dir: {dir}/run }}\n\
             console: {{ listen: \"127.0.0.1:{port}\" }}\n"
        );
        std::fs::write(&config, text)?;
        let child = Command::new(binary)
            .args(["console", "--config"])
            .arg(&config)
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let here = Self {
            child,
            binary: binary.to_owned(),
            config,
            port,
        };
        let begun = Instant::now();
        while Client::new(port).is_err() {
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(30), "no console");
            std::thread::yield_now();
        }
        Ok(here)
    }

    fn owner(&self) -> Result<Client> {
        let link = Command::new(&self.binary)
            .args(["console", "owner-link", "--config"])
            .arg(&self.config)
            .output()?;
        let link = String::from_utf8(link.stdout)?;
        let link = link.trim().rsplit_once("#owner=").context("a link")?.1;
        let who =
            json!({ "link": link, "email": "o@example.com", "name": "O", "password": PASSWORD });
        let mut owner = Client::new(self.port)?;
        owner.ask("POST", "/api/v1/owner", Some(&who))?;
        Ok(owner)
    }

    /// A runner that has said hello.
    fn runner(&self, owner: &mut Client) -> Result<Client> {
        let made = owner.ask("POST", "/api/v1/runners", Some(&json!({ "name": "bench" })))?;
        let token = text(&made, "/token")?;
        let mut runner = Client::new(self.port)?
            .with("authorization", &format!("Bearer {token}"))
            .with(runner::protocol::SESSION, "bench");
        let key = runner::sealed::OwnKey::fresh()?.public().text();
        let hello = json!({ "version": "1", "session": "bench", "key": key, "engine": "none", "isolation": [], "most": 1000 });
        runner.ask("POST", "/runner/v1/hello", Some(&hello))?;
        Ok(runner)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn submit(owner: &mut Client, place: &str) -> Result<()> {
    let run = json!({ "name": "r", "spec": { "command": ["true"] } });
    owner.ask(
        "POST",
        &format!("/api/v1/workspaces/{place}/runs"),
        Some(&run),
    )?;
    Ok(())
}

/// Takes a run: its path and the fence.
fn claim(runner: &mut Client) -> Result<(String, Value)> {
    let work = runner.ask("POST", "/runner/v1/claim", Some(&json!({ "holding": [] })))?;
    let fence = work.get("fence").context("a run waits")?.clone();
    let path = format!("/runner/v1/runs/{}", text(&work, "/run")?);
    runner.ask(
        "POST",
        &format!("{path}/begin"),
        Some(&json!({ "fence": fence })),
    )?;
    Ok((path, fence))
}

/// Submits runs at once from ten connections, and takes and ends them all.
fn queued(owner: &mut Client, runner: &mut Client, place: &str) -> Result<Row> {
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for _ in 0..10 {
            let mut other = owner.again()?;
            threads.push(
                scope.spawn(move || (0..RUNS / 10).try_for_each(|_| submit(&mut other, place))),
            );
        }
        for _ in 0..RUNS {
            let (path, fence) = claim(runner)?;
            let end =
                json!({ "fence": fence, "end": { "ended": { "code": 0, "reason": "exited" } } });
            runner.ask("POST", &format!("{path}/finish"), Some(&end))?;
        }
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a submitter"))??;
        }
        Ok(())
    })?;
    Ok(Row {
        title: "console: 100 runs queued at once, until the last was taken and ended",
        unit: "seconds",
        aim: "printed",
        figures: vec![Figure {
            who: "sallyport console, SQLite",
            median: begun.elapsed().as_secs_f64(),
        }],
    })
}

/// Another reader's account.
fn reader(here: &Here, owner: &mut Client, place: &str, number: usize) -> Result<Client> {
    let email = format!("r{number}@example.com");
    let user = json!({ "email": email, "name": "R", "password": PASSWORD });
    owner.ask("POST", "/api/v1/users", Some(&user))?;
    let member = json!({ "email": email, "role": "member" });
    owner.ask(
        "POST",
        &format!("/api/v1/workspaces/{place}/members"),
        Some(&member),
    )?;
    let mut reader = Client::new(here.port)?;
    let who = json!({ "email": email, "password": PASSWORD });
    reader.ask("POST", "/api/v1/session", Some(&who))?;
    Ok(reader)
}

/// Reads of the API while a runner tells a thousand flows a second and more than two hundred follow events.
fn reads(here: &Here, owner: &mut Client, mut runner: Client, place: &str) -> Result<Row> {
    let mut readers = Vec::new();
    for number in 0..ACCOUNTS {
        readers.push(reader(here, owner, place, number)?);
    }
    submit(owner, place)?;
    let (path, fence) = claim(&mut runner)?;
    let over = AtomicBool::new(false);
    let (mut times, told) = std::thread::scope(|scope| -> Result<_> {
        for reader in &readers {
            for _ in 0..STREAMS {
                let stream = reader.again()?;
                // ends with the console
                std::thread::spawn(move || stream.follow("/api/v1/events"));
            }
        }
        let ingest = scope.spawn(|| ingest(&mut runner, &path, &fence, &over));
        let mut times = Vec::new();
        let begun = Instant::now();
        let measured = (|| -> Result<()> {
            while begun.elapsed() < LONG {
                for what in ["runs?limit=50", "now", "jobs"] {
                    let asked = Instant::now();
                    owner.ask("GET", &format!("/api/v1/workspaces/{place}/{what}"), None)?;
                    times.push(asked.elapsed().as_secs_f64() * 1e3);
                    wait(asked + PAUSE);
                }
            }
            Ok(())
        })();
        over.store(true, Ordering::Relaxed);
        let told = ingest.join().map_err(|_| anyhow::anyhow!("the runner"))??;
        measured?;
        Ok((times, told as f64 / begun.elapsed().as_secs_f64()))
    })?;
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len() * share / 100).copied();
    Ok(Row {
        title: "console: API reads beside 1,000 flows a second and 210 readers of events",
        unit: "milliseconds",
        aim: "99 of 100 under 100",
        figures: vec![
            Figure {
                who: "99th of 100",
                median: at(99).unwrap_or(f64::NAN),
            },
            Figure {
                who: "the middle one",
                median: at(50).unwrap_or(f64::NAN),
            },
            Figure {
                who: "(flows a second that were taken)",
                median: told,
            },
        ],
    })
}

/// Waits for a time, in the kernel.
fn wait(until: Instant) {
    std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
}

/// Tells flows until it is over; returns how many.
fn ingest(runner: &mut Client, path: &str, fence: &Value, over: &AtomicBool) -> Result<u64> {
    let mut seq = 0;
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let flows: Vec<Value> = (0..FLOWS).map(|n| flow(seq + n)).collect();
        let tell = json!({ "fence": fence, "starts": 0, "flows": flows });
        runner.ask("POST", &format!("{path}/tell"), Some(&tell))?;
        seq += FLOWS;
        next += Duration::from_secs(1) / TELLS;
        wait(next);
    }
    Ok(seq)
}

fn flow(seq: u64) -> Value {
    json!({
        "seq": seq + 1, "t": 1_700_000_000_000_u64 + seq, "prev": "", "hash": "", "kind": "denial",
        "subject": { "network": "n", "door": "dns", "direction": "egress", "protocol": "udp",
            "source": "198.18.0.2:40000", "name": format!("h{}.example.com", seq % 500), "port": 0 },
        "reason": "name_not_allowed",
        "by": { "layer": "job", "policy": "p", "at": { "file": "p.yaml", "line": 3, "column": 1 } },
        "policy": "0".repeat(64), "generation": 1,
    })
}
