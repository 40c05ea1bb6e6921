//! Tests of the store run on both engines: a fresh SQLite file, and a fresh database of a PostgreSQL server that the
//! test process starts itself, as an unprivileged user, in a folder of its own, on a Unix socket.
//!
//! The server ends with the test process, whatever ends that: the kernel tells its keeper (prctl(2), PR_SET_PDEATHSIG).

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Store;
use crate::settings::{Database, Redacted};

/// `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
/// A server on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// One server.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    made: AtomicU32,
}

/// Ends the server and removes its folder when told to; whoever started this shell tells it by dying.
const KEEPER: &str = r#"
trap 'kill -INT $server; wait $server; rm -rf "$1"; exit 0' TERM
"$2" -D "$1/data" -k "$1" -c listen_addresses= -c fsync=off -c max_connections=300 > "$1/log" 2>&1 &
server=$!
wait $server
"#;

/// Runs a test on a fresh store of each engine.
pub async fn each(test: impl AsyncFn(Store)) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Store::open(&Database::Sqlite(folder.path().join("console.db")))
        .await
        .unwrap();
    test(sqlite.clone()).await;
    sqlite.close().await;
    let postgres = Store::open(&Postgres::shared().database()).await.unwrap();
    test(postgres.clone()).await;
    postgres.close().await;
}

/// A record of the gateway: a name was denied.
pub fn record(seq: u64, name: &str) -> gateway::record::Line {
    serde_json::from_value(serde_json::json!({
        "seq": seq, "t": 1_000 + seq, "prev": "", "hash": "", "kind": "denial",
        "subject": { "network": "n", "door": "dns", "direction": "egress", "protocol": "udp",
            "source": "198.18.0.2:40000", "name": name, "port": 0 },
        "reason": "name_not_allowed",
        "by": { "layer": "job", "policy": "p", "at": { "file": "p.yaml", "line": 3, "column": 1 } },
        "policy": "0".repeat(64), "generation": 1,
    }))
    .unwrap()
}

/// A workspace, with an owner of its own.
pub async fn workspace(store: &Store) -> String {
    let new = super::users::NewUser {
        email: format!("{}@example.com", crate::clock::id()),
        name: "Ada".into(),
        password: None,
        instance_admin: false,
    };
    let owner = store
        .add_user(&new, super::users::Home::Personal, 1)
        .await
        .unwrap();
    store.add_workspace("W", &owner, 1).await.unwrap()
}

impl Postgres {
    /// The server of this process.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    fn start() -> Self {
        let bin = programs();
        let folder = std::env::temp_dir().join(format!("sallyport-pg-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let root = nix::unistd::geteuid().is_root();
        if root {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let made = plain(&bin.join("initdb"), root)
            .args([
                "--auth=trust",
                "--username=sallyport",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .expect("initdb of the package postgresql");
        assert!(made.success(), "initdb: {made}");
        let mut keeper = plain(Path::new("/usr/bin/setpriv"), false);
        keeper.args(["--pdeathsig", "TERM"]);
        if root {
            let nobody = NOBODY.to_string();
            keeper.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        }
        keeper
            .args(["/bin/sh", "-c", KEEPER, "sh"])
            .arg(&folder)
            .arg(bin.join("postgres"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // the parent whose death is told is the thread, so this one lives as long as the process
        std::thread::spawn(move || {
            let mut keeper = keeper.spawn().expect("setpriv of util-linux");
            keeper.wait().ok();
        });
        let this = Self {
            folder,
            made: AtomicU32::new(0),
        };
        this.await_ready(&bin, root);
        this
    }

    fn await_ready(&self, bin: &Path, root: bool) {
        let begun = Instant::now();
        let ready = || {
            plain(&bin.join("pg_isready"), root)
                .args(["-q", "-t", "1", "-h"])
                .arg(&self.folder)
                .status()
                .is_ok_and(|s| s.success())
        };
        while !ready() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(
                begun.elapsed() < PATIENCE,
                "PostgreSQL does not come up: {log}"
            );
        }
    }

    /// A folder that goes when the test process does.
    pub fn scratch(&self) -> PathBuf {
        self.folder.clone()
    }

    /// An empty database of it.
    pub fn database(&self) -> Database {
        let name = format!("t{}", self.made.fetch_add(1, Ordering::Relaxed));
        let created = plain(
            &programs().join("createdb"),
            nix::unistd::geteuid().is_root(),
        )
        .args(["-U", "sallyport", "-h"])
        .arg(&self.folder)
        .arg(&name)
        .status()
        .unwrap();
        assert!(created.success());
        let host = self.folder.display();
        Database::Postgres(Redacted::new(format!(
            "postgres://sallyport@localhost/{name}?host={host}"
        )))
    }
}

/// Where Debian keeps the programs of the newest release.
fn programs() -> PathBuf {
    let mut releases: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|e| e.path().join("bin")).collect())
        .unwrap_or_default();
    releases.sort();
    releases
        .pop()
        .expect("the package postgresql is not installed; `./dev test` installs it")
}

fn plain(program: &Path, root: bool) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null());
    if root {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
