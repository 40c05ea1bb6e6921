//! One push, a thousand networks: how long a tightening takes to be in force everywhere, and where its generation is shown.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gateway::control::api::{Via, default_workspace};
use gateway::control::{AttachRequest, Client, PolicySource};
use gateway::source::view::SyncRequest;
use lab::client::{SURELY, connect};
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, Sandbox};
use netpolicy::ids::Generation;
use nix::sched::{CloneFlags, unshare};

use super::repository::Repository;

const MANY: usize = 1000;
/// A fetch by git, a commit read and checked, and a thousand policies composed and put in force: on a machine of its own
/// less than a second, and two cores may be shared by many tests.
const LIMIT: Duration = Duration::from_secs(10);
const FILE: &str = "policies/research.yml";
const OPEN: &str = "policy: research\nnetwork: internet\n";
const CLOSED: &str = "policy: research\nnetwork: domains\nallow:\n  - host: ok.sallylab.net\n";

/// A namespace that nobody names.
fn fresh() -> OwnedFd {
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        File::open("/proc/thread-self/ns/net").expect("its descriptor")
    });
    made.join().expect("a thread").into()
}

async fn attach_many(client: &Client) {
    for number in 0..MANY {
        let request = AttachRequest {
            via: Via::Link,
            id: Some(format!("many-{number}").parse().expect("a name")),
            run: None,
            workspace: default_workspace(),
            policy: PolicySource::Git {
                source: Some("main".into()),
                policy: "research".into(),
                hash: None,
                packages: None,
            },
            broker: None,
            member: None,
            labels: BTreeMap::new(),
        };
        let attached = client.attach(&request, fresh()).await;
        attached.expect("a network");
    }
}

/// Flows that end when their network may no longer have them, and are cut within the same time as everything else.
fn flows(lab: &Lab) -> Vec<(Sandbox, std::net::TcpStream)> {
    let to = std::net::SocketAddr::new(ip(PUBLIC4), port::MUTE);
    (0..3)
        .map(|_| {
            let sandbox = lab.sandbox("research");
            let mut stream = sandbox.run(|| connect(to).expect_open());
            stream.write_all(b"alive").expect("write");
            stream.set_read_timeout(Some(SURELY)).expect("limit");
            (sandbox, stream)
        })
        .collect()
}

#[test]
fn invariant_7_a_push_is_in_force_in_a_thousand_networks_and_each_shows_its_generation() {
    let repository = Repository::new();
    repository.push(&[(FILE, OPEN)]);
    let lab = Lab::builder()
        .gateway_only()
        .config(&repository.source(""))
        .start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let control = lab.gateway().control();
    let client = runtime.block_on(async {
        let client = Client::connect(control).await.expect("the control socket");
        attach_many(&client).await;
        client
    });
    let mut flows = flows(&lab);
    let tight = repository.push(&[(FILE, CLOSED)]);
    let (pace, began) = (Pace::watch(), Instant::now());
    let synced = runtime.block_on(client.sync_source("main", &SyncRequest::default()));
    let took = began.elapsed();
    assert_eq!(synced.expect("a sync").commit, Some(tight.clone()));
    println!("policy sync to enforcement in {MANY} networks: {took:?}");
    assert!(took < pace.stretches(LIMIT), "{took:?}");
    for (_, stream) in &mut flows {
        let ended = stream.read(&mut [0; 16]);
        assert!(ended.is_err() || ended.is_ok_and(|count| count == 0));
    }
    let closed = began.elapsed();
    assert!(
        closed < took + pace.stretches(Duration::from_secs(2)),
        "{closed:?} after {took:?}"
    );
    let networks = runtime.block_on(client.networks()).expect("networks");
    assert_eq!(networks.len(), MANY + flows.len());
    for network in &networks {
        assert_eq!(network.generation, Generation(2), "{}", network.id);
        let stamp = serde_json::to_value(&network.stamp).expect("a stamp");
        assert!(stamp.to_string().contains(&tight), "{stamp}");
    }
    // in the list that people read, in one network, in the record
    let listed = lab.sallyport(&["net", "ls"]).expect(0).out;
    let second = |line: &&str| line.starts_with("many-") && line.contains(" research  2 ");
    assert_eq!(listed.lines().filter(second).count(), MANY, "{listed}");
    let shown = lab.sallyport(&["net", "show", "many-7"]).expect(0).out;
    assert!(shown.contains("generation 2"), "{shown}");
    let replaced = lab.records().into_iter().filter(|r| {
        let name = r["network"].as_str();
        // the gateway's own probes change their policy, too
        r["kind"] == "network"
            && r["generation"] == 2
            && name.is_some_and(|n| !n.starts_with("selftest-"))
    });
    assert_eq!(replaced.count(), networks.len());
}
