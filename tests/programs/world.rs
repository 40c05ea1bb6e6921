//! One lab with servers for real programs: who is permitted, who is the denied twin.

use std::fmt::Write as _;
use std::io::Write as _;

use lab::Lab;
use lab::cli::Said;
use lab::topology::{OTHER4, OTHER6, PUBLIC4, PUBLIC6};

use crate::servers::Servers;

/// Names that policies of these tests permit; all lead to the same servers.
pub const PERMITTED: [&str; 9] = [
    "web", "git", "apt", "pip", "npm", "redis", "ssh", "db", "time",
];

/// The lab and what runs in it.
#[derive(Debug)]
pub struct World {
    /// Namespaces, gateway, capture.
    pub lab: Lab,
    // after the lab: the gateway goes first
    _servers: Servers,
}

impl World {
    /// Starts it.
    pub fn start() -> Self {
        let lab = Lab::builder().gateway_only().names_only().start();
        for name in PERMITTED {
            lab.origins
                .zone
                .addresses(&format!("{name}.sallylab.net"), &[PUBLIC4, PUBLIC6]);
        }
        let servers = Servers::start(&lab.topology.internet);
        configure_runner(&lab);
        Self {
            lab,
            _servers: servers,
        }
    }

    /// A name that resolves, whose servers answer, and that no policy here permits.
    pub fn forbidden(&self, label: &str) -> String {
        let name = format!("evil-{label}.sallylab.net");
        self.lab.origins.zone.addresses(&name, &[OTHER4, OTHER6]);
        name
    }

    /// `sallyport run` of a shell script.
    pub fn run(&self, image: &str, root: bool, policy: &str, script: &str) -> Said {
        let policy = self.lab.file("policy.yml", policy).display().to_string();
        let mut arguments = vec![
            "run",
            "--image",
            image,
            "--policy",
            &policy,
            "--timeout",
            "4m",
            "--cpus",
            "2",
        ];
        if root {
            arguments.push("--root");
        }
        arguments.extend(["--", "/bin/sh", "-c", script]);
        self.lab.sallyport(&arguments)
    }
}

/// The lab's configuration knows a gateway only; runs need a runner with directories of its own.
fn configure_runner(lab: &Lab) {
    let at = lab.directory().display().to_string();
    let mut text = String::new();
    let _ = write!(
        text,
        "runner:\n  pool: 0\n  control: {at}/control.sock\n  socket: {at}/runner.sock\n  state_dir: {at}/runner-state\n  \
         run_dir: {at}/runner-run\n  limits: {{ isolation: hardened }}\n"
    );
    let path = lab.directory().join("config.yml");
    let mut file = std::fs::File::options()
        .append(true)
        .open(&path)
        .expect("the lab's configuration");
    file.write_all(text.as_bytes())
        .expect("write the runner's section");
}
