//! Namespaces made by a test: an uplink that a gateway runs in, and an internet behind it. Gone when dropped.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::appliance::{BuildError, build};
use crate::config::{GatewayConfig, Uplink};
use crate::control::api::NetworkView;
use crate::control::{AttachRequest, Client, ClientError, PolicySource};
use crate::record::Line;

pub use super::machine::*;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A public address of the lab's internet.
pub const FAR: &str = "93.184.216.34";
/// Another one, which no policy here names.
pub const ELSEWHERE: &str = "93.184.216.35";
/// The uplink's own address.
pub const HOST: &str = "192.168.77.1";

pub struct Lab {
    pub name: String,
    pub dir: tempfile::TempDir,
    pub uplink: OwnedFd,
    /// Bytes that arrived at the far end.
    pub arrived: Arc<AtomicUsize>,
    /// Connections that arrived there.
    pub connections: Arc<AtomicUsize>,
    /// What the next gateway's selftest meets.
    pub hole: Mutex<Option<crate::selftest::tests::Hole>>,
    gateway: Mutex<Option<Running>>,
}

struct Running {
    inside: Inside,
    stop: oneshot::Sender<()>,
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Handles of a running gateway, for tests that break it from within.
#[derive(Clone)]
pub struct Inside {
    pub ctx: crate::context::Context,
    pub posture: Arc<crate::posture::Posture>,
    pub selftest: Arc<crate::selftest::Selftest>,
    pub runtime: tokio::runtime::Handle,
}

impl Lab {
    /// Namespaces and an echo service at port 7 of both far addresses; no gateway yet.
    pub fn new() -> Self {
        let name = format!(
            "sprec{}x{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let (up, far) = (format!("{name}u"), format!("{name}f"));
        for ns in [&up, &far] {
            ip(&format!("netns add {ns}"));
            ip(&format!("-n {ns} link set lo up"));
        }
        ip(&format!(
            "-n {up} link add up0 type veth peer name far0 netns {far}"
        ));
        for line in [
            format!("-n {up} addr add {HOST}/24 dev up0"),
            format!("-n {up} link set up0 up"),
            format!("-n {far} addr add 192.168.77.2/24 dev far0"),
            format!("-n {far} link set far0 up"),
            format!("-n {far} addr add {FAR}/32 dev lo"),
            format!("-n {far} addr add {ELSEWHERE}/32 dev lo"),
            format!("-n {up} route add default via 192.168.77.2"),
        ] {
            ip(&line);
        }
        let open = |ns: &str| -> OwnedFd {
            std::fs::File::open(format!("/run/netns/{ns}"))
                .unwrap()
                .into()
        };
        let lab = Self {
            uplink: open(&up),
            dir: tempfile::tempdir().unwrap(),
            arrived: Arc::default(),
            connections: Arc::default(),
            hole: Mutex::default(),
            gateway: Mutex::default(),
            name,
        };
        let (arrived, connections) = (lab.arrived.clone(), lab.connections.clone());
        let listener = inside(&open(&far), || TcpListener::bind("0.0.0.0:7").unwrap())
            .join()
            .unwrap();
        std::thread::spawn(move || echo(&listener, &arrived, &connections));
        lab
    }

    pub fn config(&self) -> GatewayConfig {
        let (state, run) = (self.dir.path().join("state"), self.dir.path().join("run"));
        GatewayConfig {
            namespace: format!("{}g", self.name),
            uplink: Uplink::This,
            resolvers: crate::config::Resolvers::Fixed(crate::resolve::Upstreams {
                default: vec![SocketAddr::from(([192, 168, 77, 2], 53))],
                domains: Vec::new(),
            }),
            ..GatewayConfig::under(&state, &run)
        }
    }

    pub fn started() -> Self {
        let lab = Self::new();
        lab.start(lab.config());
        lab
    }

    /// Starts a gateway in the uplink namespace and waits until it is enforcing.
    pub fn start(&self, config: GatewayConfig) {
        // A killed one's tasks may hold its sockets for a moment longer.
        let mut tries = std::iter::repeat(config);
        eventually("a gateway that can be built", || {
            self.try_start(tries.next()?)
                .inspect_err(|error| eprintln!("not built yet: {error:?}"))
                .ok()
        });
        eventually("an enforcing gateway", || {
            self.block(async |c| c.health().await)
                .ok()
                .filter(|h| h.open)
        });
    }

    /// Starts a gateway, whatever its posture becomes.
    pub fn try_start(&self, config: GatewayConfig) -> Result<(), BuildError> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (kill, killed) = oneshot::channel::<()>();
        let (built, outcome) = std::sync::mpsc::channel();
        let hole = self.hole.lock().unwrap().take();
        let thread = inside(&self.uplink, move || {
            // Worker threads inherit the namespace of the thread that makes the runtime.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                match build(config) {
                    Err(error) => built.send(Err(error)).unwrap(),
                    Ok(appliance) => {
                        *appliance.selftest().hole.lock().unwrap() = hole;
                        let inside = Inside {
                            ctx: appliance.context().clone(),
                            posture: appliance.posture().clone(),
                            selftest: appliance.selftest().clone(),
                            runtime: tokio::runtime::Handle::current(),
                        };
                        built.send(Ok(inside)).unwrap();
                        tokio::select! {
                            () = appliance.run(async { let _ = stopped.await; }) => {}
                            _ = killed => {}
                        }
                    }
                }
            });
            // Like a kill: nothing is told that it ends.
            runtime.shutdown_background();
        });
        let inside = outcome.recv().unwrap()?;
        *self.gateway.lock().unwrap() = Some(Running {
            inside,
            stop,
            kill,
            thread,
        });
        Ok(())
    }

    /// The running gateway from within.
    pub fn within(&self) -> Inside {
        self.gateway
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .inside
            .clone()
    }

    /// Starts a second gateway beside the first, and stops it again once it enforces.
    pub fn beside(&self, config: GatewayConfig) {
        let first = self.gateway.lock().unwrap().take();
        let socket = config.control.clone();
        self.try_start(config).unwrap();
        eventually("the second gateway", || {
            Self::block_on(&socket, async |c| c.health().await)
                .ok()
                .filter(|h| h.open)
        });
        self.stop();
        *self.gateway.lock().unwrap() = first;
    }

    /// Stops cleanly.
    pub fn stop(&self) {
        let running = self.gateway.lock().unwrap().take().unwrap();
        running.stop.send(()).unwrap();
        running.thread.join().unwrap();
    }

    /// Ends without any farewell.
    pub fn kill(&self) {
        let running = self.gateway.lock().unwrap().take().unwrap();
        running.kill.send(()).unwrap();
        running.thread.join().unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.config().control
    }

    /// Asks the gateway something.
    pub fn block<T>(&self, ask: impl AsyncFnOnce(Client) -> T) -> T {
        Self::block_on(&self.socket(), ask)
    }

    fn block_on<T>(socket: &Path, ask: impl AsyncFnOnce(Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(ask(Client::new(socket.to_owned())))
    }

    pub fn try_attach(&self, request: &AttachRequest) -> Result<Sandbox, ClientError> {
        let namespace = fresh_namespace();
        let copy = namespace.try_clone().unwrap();
        let view = self.block(async |c| c.attach(request, copy).await)?;
        Ok(Sandbox { namespace, view })
    }

    pub fn attach(&self, policy: &str) -> Sandbox {
        self.try_attach(&request(policy)).unwrap()
    }

    /// Runs a program in the gateway's own namespace.
    pub fn in_gateway(&self, program: &str) {
        let out = Command::new("ip")
            .args(["netns", "exec", &self.config().namespace])
            .args(program.split(' '))
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(running) = self.gateway.lock().unwrap().take() {
            let _ = running.kill.send(());
            let _ = running.thread.join();
        }
        for end in ["u", "f", "g", "b", "o"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &format!("{}{end}", self.name)])
                .output();
        }
    }
}

pub fn document(text: &str) -> PolicySource {
    PolicySource::Document {
        file: "job.yaml".to_owned(),
        text: text.to_owned(),
        packages: None,
    }
}

pub fn request(policy: &str) -> AttachRequest {
    AttachRequest {
        via: crate::control::api::Via::Link,
        id: None,
        run: None,
        workspace: "default".to_owned(),
        policy: document(policy),
        broker: None,
        member: None,
        labels: [].into(),
    }
}

/// Permits the echo service, by address.
pub fn far_only() -> String {
    format!(
        "policy: far\nnetwork: domains\nallow:\n  - cidr: {FAR}/32\n    ports: [7]\n    speaks: any\n"
    )
}

pub struct Sandbox {
    pub namespace: OwnedFd,
    pub view: NetworkView,
}

impl Sandbox {
    pub fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        inside(&self.namespace, act).join().unwrap()
    }

    /// Connects and echoes once.
    pub fn echoes(&self, to: &str) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 7);
        self.run(move || {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(30))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(b"hello")?;
            let mut back = [0; 5];
            stream.read_exact(&mut back)?;
            assert_eq!(&back, b"hello");
            Ok(stream)
        })
    }

    pub fn connects(&self, to: &str, within: Duration) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 7);
        self.run(move || TcpStream::connect_timeout(&to, within))
    }
}

fn echo(listener: &TcpListener, arrived: &Arc<AtomicUsize>, connections: &Arc<AtomicUsize>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        connections.fetch_add(1, Ordering::Relaxed);
        let arrived = arrived.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 || stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
                arrived.fetch_add(count, Ordering::Relaxed);
            }
        });
    }
}

/// Everything that a lab has recorded so far.
pub fn records(lab: &Lab) -> Vec<Line> {
    lab.block(async |c| {
        let mut lines = c.records(0).await.unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    })
}
