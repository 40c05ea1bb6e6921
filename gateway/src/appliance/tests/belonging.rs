//! What a user of the control socket may attach, and where: its own namespaces, never a gateway's, others' by a right of
//! its own; in workspaces that it is bound to, or that have a floor; and so many.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use netpolicy::ids::NetworkId;

use super::lab::*;
use crate::config::{ControlUsers, GatewayConfig};
use crate::control::{AttachRequest, Client};

const CHILD: &str = "SALLYPORT_TEST_BELONGING_CHILD";
const NAME: &str =
    "appliance::tests::belonging::a_user_attaches_its_own_namespaces_and_nobody_a_gateways";
/// May attach.
const TENANT: u32 = 61_011;
/// May attach what is not its own.
const RUNNER: u32 = 61_012;

/// A namespace that the calling user makes, as a user without root does.
struct Own(Child);

impl Own {
    fn make() -> Self {
        let sleep = Command::new("unshare")
            .args(["-Urn", "sleep", "60"])
            .spawn();
        Self(sleep.unwrap())
    }

    fn open(&self) -> OwnedFd {
        let inode = |path: &str| File::open(path).ok()?.metadata().ok().map(|m| m.ino());
        let (own, made) = (
            inode("/proc/self/ns/net"),
            format!("/proc/{}/ns/net", self.0.id()),
        );
        eventually("a namespace of its own", || {
            inode(&made).filter(|inode| Some(*inode) != own)
        });
        File::open(made).unwrap().into()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What becomes of an attach: `ok`, taken back at once, or the problem's code.
fn outcome(client: &Client, namespace: OwnedFd) -> String {
    let (told, made) = outcome_in(client, namespace, "default");
    if let Some(id) = made {
        block(client.detach(&id)).unwrap();
    }
    told
}

fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// What becomes of an attach in a workspace, and the network that was made.
fn outcome_in(client: &Client, namespace: OwnedFd, workspace: &str) -> (String, Option<NetworkId>) {
    let request = AttachRequest {
        workspace: workspace.to_owned(),
        ..request(&far_only())
    };
    match block(client.attach(&request, namespace)) {
        Ok(view) => ("ok".to_owned(), Some(view.id)),
        Err(error) => {
            let code = error.problem().map(|problem| problem.code.clone());
            (code.unwrap_or_else(|| error.to_string()), None)
        }
    }
}

/// In the child, as another user: a namespace of its own in a workspace with a floor, in one without, and in both at once.
fn try_workspaces(socket: &str) {
    let client = Client::new(socket);
    let own: Vec<_> = (0..5).map(|_| Own::make()).collect();
    let attach = |of: usize, workspace: &str| outcome_in(&client, own[of].open(), workspace);
    let detach = |id: Option<NetworkId>| id.map(|id| block(client.detach(&id)).unwrap());
    let (floored, first) = attach(0, "floored");
    detach(first);
    let (bare, second) = attach(1, "bare");
    detach(second);
    let (other, third) = attach(2, "other");
    detach(third);
    let (one, fourth) = attach(3, "floored");
    let (more, fifth) = attach(4, "floored");
    detach(fourth);
    detach(fifth);
    println!("outcomes {floored} {bare} {other} {one} {more}");
}

/// In the child, as another user: as many networks as there may be.
fn try_many(socket: &str) {
    let client = Client::new(socket);
    let own: Vec<_> = (0..12).map(|_| Own::make()).collect();
    let mut ids = Vec::new();
    let mut said = "ok".to_owned();
    for namespace in &own {
        let (outcome, id) = outcome_in(&client, namespace.open(), "default");
        said = outcome;
        match id {
            Some(id) => ids.push(id),
            None => break,
        }
    }
    println!("outcomes {} {said}", ids.len());
    for id in ids {
        block(client.detach(&id)).unwrap();
    }
}

/// In the child, as another user: root's namespace, a gateway's, one of its own.
fn try_all(socket: &str, lab: &str) {
    let client = Client::new(socket);
    let named = |end: &str| File::open(format!("/run/netns/{lab}{end}")).unwrap().into();
    let own = Own::make();
    println!(
        "outcomes {} {} {}",
        outcome(&client, named("o")),
        outcome(&client, named("b")),
        outcome(&client, own.open())
    );
}

fn as_user(exe: &Path, lab: &Lab, uid: u32, test: &str) -> String {
    let out = Command::new(exe)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{} {}", lab.socket().display(), lab.name))
        .current_dir("/")
        .uid(uid)
        .gid(uid)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split_once("outcomes ").map_or_else(
        || panic!("{text}{}", String::from_utf8_lossy(&out.stderr)),
        |(_, rest)| rest.lines().next().unwrap().to_owned(),
    )
}

/// Starts a gateway whose socket others reach; where this program is for them.
fn start(lab: &Lab, config: &GatewayConfig) -> PathBuf {
    lab.start(config.clone());
    for folder in [lab.dir.path(), &config.run_dir] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let exe = lab.dir.path().join("test-binary");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    exe
}

#[test]
fn a_user_attaches_its_own_namespaces_and_nobody_a_gateways() {
    if let Ok(told) = std::env::var(CHILD) {
        let (socket, lab) = told.split_once(' ').unwrap();
        return try_all(socket, lab);
    }
    let lab = Lab::new();
    let mut config = lab.config();
    config.control_users = ControlUsers {
        observe: [TENANT, RUNNER].into(),
        attach: [TENANT, RUNNER].into(),
        attach_any: [RUNNER].into(),
        ..ControlUsers::default()
    };
    let exe = start(&lab, &config);
    ip(&format!("netns add {}o", lab.name));
    // another gateway of the machine, which has ended: it starts again in this namespace
    let dir = tempfile::tempdir().unwrap();
    lab.beside(GatewayConfig {
        namespace: format!("{}b", lab.name),
        uplink: config.uplink,
        resolvers: config.resolvers.clone(),
        ..GatewayConfig::under(&dir.path().join("state"), &dir.path().join("run"))
    });
    let refused = "namespace_refused";
    assert_eq!(
        as_user(&exe, &lab, TENANT, NAME),
        format!("{refused} {refused} ok")
    );
    assert_eq!(
        as_user(&exe, &lab, RUNNER, NAME),
        format!("ok {refused} ok")
    );
    assert_eq!(as_user(&exe, &lab, 0, NAME), format!("ok {refused} ok"));
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
}

#[test]
fn a_user_works_in_its_workspaces_and_in_those_with_a_floor_and_has_so_many_networks() {
    if let Ok(told) = std::env::var(CHILD) {
        return try_workspaces(told.split_once(' ').unwrap().0);
    }
    let name = "appliance::tests::belonging::a_user_works_in_its_workspaces_and_in_those_with_a_floor_and_has_so_many_networks";
    let lab = Lab::new();
    let mut config = lab.config();
    let floors = lab.dir.path().join("floors");
    std::fs::create_dir(&floors).unwrap();
    for name in ["floored", "other"] {
        let path = floors.join(format!("{name}.yaml"));
        write(&path, "policy: floor\nnetwork: none\n");
    }
    config.floors.workspaces = Some(floors);
    config.networks_per_user = 1;
    config.control_users = ControlUsers {
        observe: [TENANT, RUNNER].into(),
        attach: [TENANT, RUNNER].into(),
        workspaces: [(RUNNER, ["other".to_owned()].into())].into(),
        ..ControlUsers::default()
    };
    let exe = start(&lab, &config);
    let told = |uid| as_user(&exe, &lab, uid, name);
    let no = "not_allowed";
    assert_eq!(told(TENANT), format!("ok {no} ok ok full"));
    // bound to one of them
    assert_eq!(told(RUNNER), format!("{no} {no} ok {no} {no}"));
    assert_eq!(told(0), "ok ok ok ok ok");
}

#[test]
fn one_user_cannot_have_every_place_however_few_there_are() {
    let name =
        "appliance::tests::belonging::one_user_cannot_have_every_place_however_few_there_are";
    if let Ok(told) = std::env::var(CHILD) {
        return try_many(told.split_once(' ').unwrap().0);
    }
    let lab = Lab::new();
    let mut config = lab.config();
    // eleven places, beside the gateway's own
    config.pools.sandboxes = "198.18.0.0/28".parse().unwrap();
    config.control_users = ControlUsers {
        observe: [TENANT, RUNNER].into(),
        attach: [TENANT, RUNNER].into(),
        ..ControlUsers::default()
    };
    let exe = start(&lab, &config);
    assert_eq!(as_user(&exe, &lab, TENANT, name), "5 full");
    assert_eq!(as_user(&exe, &lab, 0, name), "11 full");
}
