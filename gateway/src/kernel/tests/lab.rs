//! Namespaces made by a test: a gateway's, and sandboxes that are attached to it. Gone when dropped.

use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

use crate::kernel::attach::{AttachPlan, Attached};
use crate::kernel::backend::Enforcement;
use crate::kernel::enforcer::{Config, Enforcer};
use crate::kernel::error::KernelError;
use crate::kernel::netns::Ns;
use crate::member::Membership;

/// How long what has to come is waited for: several retransmissions, on a machine that is busy with other tests.
pub const LIMIT: Duration = Duration::from_secs(30);
/// How long what must not come is waited for.
const SHORT: Duration = Duration::from_millis(300);

pub const SERVICE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SERVICE6: Ipv6Addr = Ipv6Addr::new(0xfd5a, 0, 0, 0, 0, 0, 0, 1);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A gateway namespace with the enforcer in it.
pub struct Lab {
    pub enforcer: Enforcer,
    name: String,
}

impl Lab {
    pub fn open() -> Self {
        let name = format!(
            "spkern-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self::named(name)
    }

    pub fn named(name: String) -> Self {
        // What the whole module may be run on, beside the tests that choose for themselves.
        let enforcement = match std::env::var("LAB_ENFORCEMENT").as_deref() {
            Ok("iptables") => Enforcement::Iptables,
            _ => Enforcement::Nftables,
        };
        Self::with(name, enforcement)
    }

    /// With rules that go through iptables.
    pub fn of_iptables() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("spkern-{}-{number}", std::process::id());
        Self::with(name, Enforcement::Iptables)
    }

    fn with(name: String, enforcement: Enforcement) -> Self {
        let config = Config {
            name: name.clone(),
            enforcement,
            ..Config::new(SERVICE4, SERVICE6)
        };
        Self {
            enforcer: Enforcer::open(config).expect("the tests need root and network namespaces"),
            name,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attaches a fresh sandbox as `sp{n}` with addresses ending in n + 1.
    pub fn sandbox(&self, n: u16) -> Sandbox {
        let ns = fresh_ns();
        self.attach(n, ns.try_clone().unwrap()).unwrap();
        Sandbox { ns }
    }

    pub fn attach(&self, n: u16, sandbox: OwnedFd) -> Result<Attached, KernelError> {
        self.attach_as(n, sandbox, None)
    }

    /// Attaches a fresh sandbox as a service of the group `shop`.
    pub fn member(&self, n: u16, service: &str, needs: &[&str]) -> Sandbox {
        let ns = fresh_ns();
        let membership = Membership {
            group: "shop".parse().unwrap(),
            service: service.parse().unwrap(),
            needs: needs.iter().map(|need| need.parse().unwrap()).collect(),
        };
        self.attach_as(n, ns.try_clone().unwrap(), Some(membership))
            .unwrap();
        Sandbox { ns }
    }

    /// Asks for a member of the group `shop` without needs.
    pub fn try_member(&self, n: u16, service: &str) -> Result<Attached, KernelError> {
        let membership = Membership {
            group: "shop".parse().unwrap(),
            service: service.parse().unwrap(),
            needs: [].into(),
        };
        self.attach_as(n, fresh_ns(), Some(membership))
    }

    fn attach_as(
        &self,
        n: u16,
        sandbox: OwnedFd,
        membership: Option<Membership>,
    ) -> Result<Attached, KernelError> {
        self.enforcer.attach(AttachPlan {
            network: format!("net-{n}").parse().unwrap(),
            link: format!("sp{n}").parse().unwrap(),
            sandbox,
            v4: v4(n),
            v6: v6(n),
            membership,
        })
    }

    /// Runs a program inside the gateway namespace.
    pub fn exec(&self, program: &str, args: &[&str]) -> Output {
        exec_in(
            self.enforcer.ns().fd().try_clone_to_owned().unwrap(),
            program,
            args,
        )
    }

    pub fn nft(&self, script: &str) {
        let words: Vec<&str> = script.split(' ').collect();
        let out = self.exec("nft", &words);
        assert!(
            out.status.success(),
            "nft {script}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    pub fn count(&self, name: &str) -> u64 {
        let counters = self.enforcer.counters().unwrap();
        counters
            .into_iter()
            .find(|(n, _)| n == name)
            .unwrap()
            .1
            .packets
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Ns::unlink("/run/netns".as_ref(), &self.name);
    }
}

/// An attached sandbox.
pub struct Sandbox {
    pub ns: OwnedFd,
}

impl Sandbox {
    /// Whether what must be reached is.
    pub fn reaches(&self, to: SocketAddr) -> bool {
        self.run(move || TcpStream::connect_timeout(&to, LIMIT).is_ok())
    }

    /// Whether what must not be reached is.
    pub fn reaches_soon(&self, to: SocketAddr) -> bool {
        self.run(move || TcpStream::connect_timeout(&to, SHORT).is_ok())
    }

    /// Runs a closure inside.
    pub fn run<T: Send + 'static>(&self, inside: impl FnOnce() -> T + Send + 'static) -> T {
        let fd = self.ns.try_clone().unwrap();
        std::thread::spawn(move || {
            setns(fd, CloneFlags::CLONE_NEWNET).unwrap();
            inside()
        })
        .join()
        .unwrap()
    }

    pub fn exec(&self, program: &str, args: &[&str]) -> Output {
        exec_in(self.ns.try_clone().unwrap(), program, args)
    }
}

pub fn v4(n: u16) -> Ipv4Addr {
    let [high, low] = (n + 2).to_be_bytes();
    Ipv4Addr::new(198, 18, high, low)
}

pub fn v6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd5a, 0, 0, 0, 0, 0, 0, n + 2)
}

/// A namespace that nobody has named.
pub fn fresh_ns() -> OwnedFd {
    std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        File::open("/proc/thread-self/ns/net").unwrap().into()
    })
    .join()
    .unwrap()
}

fn exec_in(ns: OwnedFd, program: &str, args: &[&str]) -> Output {
    let (program, args): (String, Vec<String>) = (
        program.into(),
        args.iter().map(ToString::to_string).collect(),
    );
    std::thread::spawn(move || {
        setns(ns, CloneFlags::CLONE_NEWNET).unwrap();
        Command::new(program).args(args).output().unwrap()
    })
    .join()
    .unwrap()
}
