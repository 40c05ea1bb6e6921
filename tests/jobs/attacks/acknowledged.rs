//! A workload starts only when the gateway has acknowledged its network for exactly the policy that was asked for.
//!
//! Between runner and gateway stands one who passes everything on and changes one word of the acknowledgement. What the
//! runner must then not do is start anything, or leave anything: the gateway itself did attach the network.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::control::descriptor::{Carrier, Received};
use lab::wait::{eventually, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::net::UnixStream;

use super::world::World;
use crate::place;

/// What becomes of an acknowledgement. The length stays, so that the head stays true.
type Change = fn(&str) -> String;

/// Takes the gateway's place at its socket.
fn stand_between(socket: &Path, change: Change) {
    let real = socket.with_extension("real");
    std::fs::rename(socket, &real).expect("move the gateway's socket");
    let listener = UnixListener::bind(socket).expect("take its place");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let real = real.clone();
            // A connection that breaks is one that the runner sees break.
            std::thread::spawn(move || pass_on(client, &real, change));
        }
    });
}

fn pass_on(
    client: std::os::unix::net::UnixStream,
    real: &PathBuf,
    change: Change,
) -> std::io::Result<()> {
    client.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut client, came) = Carrier::receiving(UnixStream::from_std(client)?);
        let mut first = vec![0; 1 << 16];
        let length = client.read(&mut first).await?;
        first.truncate(length);
        let along = match came.take() {
            Received::One(descriptor) => descriptor.keep(),
            Received::Nothing | Received::TooMany => None,
        };
        let mut gateway = Carrier::sending(UnixStream::connect(real).await?, along);
        gateway.write_all(&first).await?;
        let (mut asked, mut answers) = split(client);
        let (mut answered, mut asks) = split(gateway);
        let upward = async {
            copy(&mut asked, &mut asks).await?;
            asks.shutdown().await
        };
        let downward = async {
            if acknowledges(&first) {
                let answer = whole_answer(&mut answered).await?;
                answers.write_all(change(&answer).as_bytes()).await?;
            }
            copy(&mut answered, &mut answers).await?;
            answers.shutdown().await
        };
        tokio::try_join!(upward, downward).map(|_| ())
    })
}

/// Whether the answer to this request is an acknowledgement.
fn acknowledges(request: &[u8]) -> bool {
    let line = String::from_utf8_lossy(request);
    let line = line.lines().next().unwrap_or_default();
    line.starts_with("POST /v1/networks HTTP")
        || line.starts_with("PUT ") && line.contains("/policy HTTP")
}

/// An answer with a body of known length.
async fn whole_answer(gateway: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<String> {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        let length = gateway.read(&mut piece).await?;
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
        let wanted = text.split_once("\r\n\r\n").and_then(|(head, body)| {
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "))?;
            Some((length.parse::<usize>().ok()?, body.len()))
        });
        if length == 0 || wanted.is_some_and(|(wanted, had)| had >= wanted) {
            return Ok(text);
        }
    }
}

fn unchanged(answer: &str) -> String {
    answer.to_owned()
}

/// The first digit of the job policy's hash.
fn other_hash(answer: &str) -> String {
    let (before, after) = answer
        .split_once("\"job_policy\":\"")
        .expect("an acknowledgement");
    let digit = if after.starts_with('0') { "1" } else { "0" };
    format!("{before}\"job_policy\":\"{digit}{}", &after[1..])
}

fn no_hash(answer: &str) -> String {
    answer.replace("\"job_policy\"", "\"jobspolicy\"")
}

fn other_network(answer: &str) -> String {
    answer.replacen("\"id\":\"run-", "\"id\":\"ran-", 1)
}

fn first_generation(answer: &str) -> String {
    assert!(answer.contains("\"generation\":2"), "{answer}");
    answer.replace("\"generation\":2", "\"generation\":1")
}

/// Waits until this many pods are ready: their networks are there a moment before.
fn pool_is_full(world: &World, pool: usize) {
    let runner = runner::Client::new(world.lab.directory().join("runner.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    eventually("a full pool", || {
        let health = runtime.block_on(runner.health()).ok()?;
        (health.pooled == pool).then_some(())
    });
}

/// Names of workloads that the engine has made for this installation, gone ones included.
fn workloads_made(world: &World) -> Vec<String> {
    let said = world
        .engine(&[
            "events",
            "--since",
            "10m",
            "--until",
            "-1s",
            "--filter",
            "event=create",
            "--format",
            "{{.Actor.Attributes.name}}",
        ])
        .expect(0);
    let prefix = format!("sallyport-{}-", world.instance());
    let ours = said
        .out
        .lines()
        .filter(|n| n.starts_with(&prefix) && n.ends_with("-workload"));
    ours.map(str::to_owned).collect()
}

fn refused(pool: usize, change: Change, why: &str) {
    let world = World::at(
        place::docker().expect("always there"),
        &format!("  pool: {pool}\n"),
    );
    pool_is_full(&world, pool);
    let pooled: Vec<_> = world.networks().iter().map(|n| n["id"].clone()).collect();
    stand_between(&world.lab.directory().join("control.sock"), change);
    let said = world.run(&["--policy", "internet"], &["echo", "started"]);
    assert_eq!(said.code, Some(125), "{said:?}");
    assert!(said.err.contains(why), "{why}: {said:?}");
    assert!(
        said.err.contains("nothing was started") || why.contains("reading"),
        "{said:?}"
    );
    assert!(!said.out.contains("started"), "{said:?}");
    assert_eq!(workloads_made(&world), Vec::<String>::new());
    if pool == 0 {
        // gone by the time the run is refused
        assert_eq!(world.containers(), Vec::<String>::new());
        assert_eq!(world.networks(), Vec::<serde_json::Value>::new());
    } else {
        // its pod is not given to anybody else
        let gone = within(Duration::from_secs(20), || {
            let live = world.networks();
            (!live.iter().any(|n| pooled.contains(&n["id"]))).then_some(())
        });
        assert!(gone.is_some(), "{:?}", world.networks());
    }
}

#[test]
fn invariant_1_an_acknowledgement_of_another_policy_starts_nothing() {
    refused(0, other_hash, "acknowledged policy ");
}

#[test]
fn invariant_1_an_acknowledgement_without_a_policy_starts_nothing() {
    refused(
        0,
        no_hash,
        "reading the gateway's answer: missing field `job_policy`",
    );
}

#[test]
fn invariant_1_an_acknowledgement_of_another_network_starts_nothing() {
    refused(0, other_network, "acknowledged network ran-");
}

#[test]
fn invariant_1_a_pooled_pod_starts_nothing_under_another_policy_or_an_older_generation() {
    refused(1, other_hash, "acknowledged policy ");
    refused(1, first_generation, "acknowledged generation 1 ");
}

#[test]
fn invariant_1_an_acknowledgement_of_exactly_what_was_asked_for_starts_the_workload() {
    for pool in [0, 1] {
        let world = World::at(
            place::docker().expect("always there"),
            &format!("  pool: {pool}\n"),
        );
        pool_is_full(&world, pool);
        stand_between(&world.lab.directory().join("control.sock"), unchanged);
        let said = world
            .run(&["--policy", "internet"], &["echo", "started"])
            .expect(0);
        assert_eq!(said.out, "started\n");
        assert_eq!(workloads_made(&world).len(), 1);
    }
}
