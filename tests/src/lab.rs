//! One lab: namespaces, origins, capture and a gateway (or the plain forwarder in its place).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::capture::Capture;
use crate::cli::{self, Said};
use crate::gateway::{Gateway, Launch};
use crate::namespace::Namespace;
use crate::origin::Origins;
use crate::plain::Plain;
use crate::sandbox::Sandbox;
use crate::tls::Authority;
use crate::topology::{OTHER4, OTHER6, PUBLIC4, PUBLIC6, Topology, ip};
use crate::user::User;

/// What stands between sandboxes and the internet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The gateway under test.
    Gateway,
    /// A plain forwarder: denials must fail here.
    Plain,
}

#[derive(Debug)]
enum Way {
    Gateway(Box<Gateway>),
    Plain(Plain),
}

static LABS: AtomicU32 = AtomicU32::new(0);

/// How a lab is to be made.
#[derive(Debug, Default)]
pub struct Builder {
    config: String,
    gateway_only: bool,
    names_only: bool,
    launch: Launch,
}

impl Builder {
    /// Gateway and command line belong to an ordinary user.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.launch.user = Some(user);
        self
    }

    /// The gateway is started with one more argument.
    #[must_use]
    pub fn option(mut self, argument: &str) -> Self {
        self.launch.options.push(argument.to_owned());
        self
    }

    /// The gateway begins where no network namespace can be made; see [`Lab::permit_namespaces`].
    #[must_use]
    pub fn without_namespaces(mut self) -> Self {
        self.launch.without_namespaces = true;
        self
    }

    /// The gateway is an ordinary user's and finds nothing that makes a user namespace for it.
    #[must_use]
    pub fn without_user_namespaces(mut self) -> Self {
        self.launch.without_user_namespaces = true;
        self
    }

    /// The gateway's kernel has no firewall, as far as the gateway can see.
    #[must_use]
    pub fn without_firewall(mut self) -> Self {
        self.launch.without_firewall = true;
        // hidden is nf_tables alone
        self.config("enforcement: nftables")
    }

    /// Adds lines to the `gateway` section of the configuration.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// This test is about the gateway itself; it never runs against the plain forwarder.
    #[must_use]
    pub fn gateway_only(mut self) -> Self {
        self.gateway_only = true;
        self
    }

    /// The internet answers DNS only: the test brings its own servers.
    #[must_use]
    pub fn names_only(mut self) -> Self {
        self.names_only = true;
        self
    }

    /// Makes it. Returns once every origin listens, the capture is bound and the gateway answers.
    pub fn start(self) -> Lab {
        let (directory, name) = crate::sweep::fresh(LABS.fetch_add(1, Ordering::Relaxed));
        let topology = Topology::new();
        let authority = Authority::new();
        let origins = if self.names_only {
            Origins::names_only(&topology.internet)
        } else {
            Origins::start(&topology.internet, &topology.lan, &authority)
        };
        well_known_names(&origins);
        let capture = Capture::start(&topology.uplink, &["up0", "lan0"]);
        let plain = std::env::var_os("LAB_PLAIN").is_some_and(|v| v == "1") && !self.gateway_only;
        let way = if plain {
            Way::Plain(Plain::start(&topology.uplink))
        } else {
            Way::Gateway(Box::new(Gateway::start(
                &topology.uplink,
                &directory,
                &name,
                (&self.config, self.launch.clone()),
            )))
        };
        Lab {
            way,
            origins,
            capture,
            topology,
            authority,
            directory,
            user: self.launch.user,
            sandboxes: AtomicU32::new(0),
        }
    }
}

/// Names that most tests use.
fn well_known_names(origins: &Origins) {
    let zone = &origins.zone;
    zone.addresses("ok.sallylab.net", &[PUBLIC4, PUBLIC6]);
    zone.addresses("a.ok.sallylab.net", &[PUBLIC4]);
    zone.addresses("b.ok.sallylab.net", &[PUBLIC4]);
    zone.addresses("four.sallylab.net", &[PUBLIC4]);
    zone.addresses("six.sallylab.net", &[PUBLIC6]);
    zone.addresses("other.sallylab.net", &[OTHER4, OTHER6]);
    zone.addresses("evil.sallylab.net", &[OTHER4]);
}

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    way: Way,
    /// The servers, with their logs.
    pub origins: Origins,
    /// The uplink's links.
    pub capture: Capture,
    /// The namespaces.
    pub topology: Topology,
    /// Signs the TLS origins.
    pub authority: Authority,
    directory: PathBuf,
    user: Option<User>,
    sandboxes: AtomicU32,
}

impl Lab {
    /// Starts describing a lab.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What stands between.
    pub fn mode(&self) -> Mode {
        match self.way {
            Way::Gateway(_) => Mode::Gateway,
            Way::Plain(_) => Mode::Plain,
        }
    }

    /// The gateway; a test that asks for it in plain mode fails.
    pub fn gateway(&self) -> &Gateway {
        match &self.way {
            Way::Gateway(gateway) => gateway,
            Way::Plain(_) => panic!("this lab has no gateway: build it with `gateway_only`"),
        }
    }

    /// The gateway, to kill and start it.
    pub fn gateway_mut(&mut self) -> &mut Gateway {
        match &mut self.way {
            Way::Gateway(gateway) => gateway,
            Way::Plain(_) => panic!("this lab has no gateway: build it with `gateway_only`"),
        }
    }

    /// Lets a gateway make namespaces that began [without](Builder::without_namespaces).
    pub fn permit_namespaces(&self) {
        let pid = self.gateway().pid().expect("the gateway runs").to_string();
        let script = "echo 1000 > /proc/sys/user/max_net_namespaces";
        let done = Command::new("nsenter")
            .args(["--user", "--target", &pid, "/bin/sh", "-c", script])
            .output()
            .expect("start nsenter");
        assert!(done.status.success(), "{done:?}");
    }

    /// A directory of this lab, for files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Runs the binary with this lab's configuration.
    pub fn sallyport(&self, arguments: &[&str]) -> Said {
        let config = self.directory.join("config.yml").display().to_string();
        let mut all = arguments.to_vec();
        // before `--`, so that it belongs to sallyport and not to a command
        let at = all.iter().position(|a| *a == "--").unwrap_or(all.len());
        all.splice(at..at, ["--config", config.as_str()]);
        let output = self.topology.uplink.run(|| self.command(&all).output());
        output.expect("start sallyport").into()
    }

    /// Runs the binary as this user of the machine, who has nothing else to do with the lab.
    pub fn sallyport_as(&self, uid: u32, arguments: &[&str]) -> Said {
        let own = self.directory.join("sallyport");
        if !own.exists() {
            // the folder of the build may be shut to others
            let binary = cli::binary();
            std::fs::hard_link(&binary, &own)
                .or_else(|_| std::fs::copy(&binary, &own).map(drop))
                .expect("a binary for others");
        }
        let config = self.directory.join("config.yml");
        let mut command = Command::new(own);
        command
            .args(arguments)
            .arg("--config")
            .arg(config)
            .env_clear()
            .env("NO_COLOR", "1")
            .env("HOME", "/")
            .current_dir("/")
            .uid(uid)
            .gid(uid);
        let output = self.topology.uplink.run(|| command.output());
        output.expect("start sallyport").into()
    }

    /// A command line of the binary, of this lab's user.
    pub fn command(&self, arguments: &[&str]) -> Command {
        match &self.user {
            None => cli::command(arguments),
            Some(user) => cli::command_of(user, arguments),
        }
    }

    /// A new sandbox under a policy text (or the name of a preset).
    pub fn sandbox(&self, policy: &str) -> Sandbox {
        let number = self.sandboxes.fetch_add(1, Ordering::Relaxed) + 1;
        let namespace = Namespace::new(&format!("sandbox {number}"));
        let name = format!("sb{number}");
        let (v4, v6) = match &self.way {
            Way::Plain(plain) => plain.attach(&namespace, number),
            Way::Gateway(_) => addresses(&self.attach(&namespace, &name, policy).expect(0).json()),
        };
        let sandbox = Sandbox {
            namespace,
            name,
            v4,
            v6,
        };
        sandbox.warm();
        sandbox
    }

    /// A new sandbox that is a service of an app.
    pub fn member(&self, group: &str, service: &str, needs: &str, policy: &str) -> Sandbox {
        let namespace = Namespace::new(&format!("{service} of {group}"));
        let attached = self
            .attach_member(&namespace, (group, service, needs), policy)
            .expect(0)
            .json();
        let (v4, v6) = addresses(&attached);
        let name = attached["id"].as_str().unwrap_or_default().to_owned();
        let sandbox = Sandbox {
            namespace,
            name,
            v4,
            v6,
        };
        sandbox.warm();
        sandbox
    }

    /// Tries to attach a namespace as a service of an app (group, service, needs).
    pub fn attach_member(
        &self,
        namespace: &Namespace,
        member: (&str, &str, &str),
        policy: &str,
    ) -> Said {
        let (group, service, needs) = member;
        // a name of its own each time: one that was just given back is free only when its link is gone
        let number = self.sandboxes.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{group}-{service}-{number}");
        let netns = namespace.path().display().to_string();
        let policy = self.policy_argument(&name, policy);
        let mut arguments = vec![
            "net", "attach", "--netns", &netns, "--policy", &policy, "--name", &name, "--json",
        ];
        arguments.extend(["--group", group, "--service", service]);
        if !needs.is_empty() {
            arguments.extend(["--needs", needs]);
        }
        self.sallyport(&arguments)
    }

    /// Tries to attach a namespace; what the CLI said.
    pub fn attach(&self, namespace: &Namespace, name: &str, policy: &str) -> Said {
        let netns = namespace.path().display().to_string();
        let policy = self.policy_argument(name, policy);
        self.sallyport(&[
            "net", "attach", "--netns", &netns, "--policy", &policy, "--name", name, "--json",
        ])
    }

    /// Replaces a sandbox's policy.
    pub fn replace_policy(&self, sandbox: &Sandbox, policy: &str) -> Said {
        let policy = self.policy_argument(sandbox.name(), policy);
        self.sallyport(&["net", "policy", sandbox.name(), &policy])
    }

    /// Ends a sandbox's network.
    pub fn detach(&self, sandbox: &Sandbox) -> Said {
        self.sallyport(&["net", "detach", sandbox.name()])
    }

    fn policy_argument(&self, name: &str, policy: &str) -> String {
        if policy.contains(':') {
            self.file(&format!("{name}.yml"), policy)
                .display()
                .to_string()
        } else {
            policy.to_owned()
        }
    }

    /// Waits for a record entry: who is refused may hear of it a moment before it is written down.
    pub fn recorded(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        crate::wait::eventually(what, || self.records().into_iter().find(&fits))
    }

    /// Every record entry so far, oldest first.
    pub fn records(&self) -> Vec<Value> {
        let said = self.sallyport(&["record", "export", "--json"]).expect(0);
        said.out
            .lines()
            .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}")))
            .collect()
    }
}

impl Lab {
    /// Prints the end of the record of a test that failed: it says why each flow was denied.
    fn tell_record(&self) {
        const LAST: usize = 100;
        let mut command = self.command(&["record", "export", "--json", "--config"]);
        command.arg(self.directory.join("config.yml"));
        match self.topology.uplink.run(|| command.output()) {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                let lines: Vec<&str> = text.lines().collect();
                let from = lines.len().saturating_sub(LAST);
                eprintln!("--- end of the record ---\n{}", lines[from..].join("\n"));
            }
            Err(error) => eprintln!("--- no record: {error} ---"),
        }
    }
}

fn addresses(attached: &Value) -> (std::net::IpAddr, std::net::IpAddr) {
    let field = |key: &str| {
        ip(attached[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {attached}")))
    };
    (field("v4"), field("v6"))
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.origins.stop();
        if std::thread::panicking() && matches!(self.way, Way::Gateway(_)) {
            self.tell_record();
        }
        if let Way::Gateway(gateway) = &mut self.way {
            gateway.kill();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}
