//! Whose namespaces a user of the control socket may attach: its own, never a gateway's, and others' by a right of its own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use super::lab::*;
use crate::config::{ControlUsers, GatewayConfig};
use crate::control::Client;

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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match client.attach(&request(&far_only()), namespace).await {
            Ok(view) => {
                client.detach(&view.id).await.unwrap();
                "ok".to_owned()
            }
            Err(error) => error
                .problem()
                .map_or_else(|| error.to_string(), |p| p.code.clone()),
        }
    })
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

fn as_user(exe: &Path, lab: &Lab, uid: u32) -> String {
    let out = Command::new(exe)
        .args(["--exact", NAME, "--nocapture"])
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
        operate: [].into(),
    };
    lab.start(config.clone());
    for folder in [lab.dir.path(), &config.run_dir] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let exe = lab.dir.path().join("test-binary");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
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
        as_user(&exe, &lab, TENANT),
        format!("{refused} {refused} ok")
    );
    assert_eq!(as_user(&exe, &lab, RUNNER), format!("ok {refused} ok"));
    assert_eq!(as_user(&exe, &lab, 0), format!("ok {refused} ok"));
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
}
