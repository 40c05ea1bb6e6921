//! A lab whose configuration has a runner too, with folders of its own.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::ops::Deref;
use std::process::{Child, Stdio};

use lab::cli::Said;
use lab::{Builder, Lab, User};

use crate::place::{self, Engine, Place};

/// A lab and the engine that its runs happen on.
#[derive(Debug)]
pub struct Here {
    lab: Lab,
    engine: Engine,
    /// Where.
    pub place: Place,
}

impl Here {
    /// Starts a lab at a place, and describes a runner in its configuration with these further lines.
    pub fn with(place: Place, lines: &str) -> Self {
        Self::on(Lab::builder().gateway_only(), place, lines)
    }

    /// The same on a lab that is described already.
    pub fn on(mut builder: Builder, place: Place, lines: &str) -> Self {
        if place.rootless {
            builder = builder.user(User::prepared());
        }
        let lab = builder.start();
        let engine = Engine::of(place, lab.directory());
        let at = lab.directory().display().to_string();
        let mut text = String::from("runner:\n");
        let _ = write!(
            text,
            "  control: {at}/control.sock\n  socket: {at}/runner.sock\n  state_dir: {at}/runner-state\n  \
             run_dir: {at}/runner-run\n{}{lines}",
            engine.setting()
        );
        let config = lab.directory().join("config.yml");
        let mut file = std::fs::File::options()
            .append(true)
            .open(config)
            .expect("configuration");
        file.write_all(text.as_bytes())
            .expect("the runner's section");
        Self { lab, engine, place }
    }

    /// Ends the lab's own gateway, for a test that starts one in another way.
    pub fn stop_gateway(&mut self) {
        self.lab.gateway_mut().stop();
    }

    /// Kills the lab's own gateway.
    pub fn kill_gateway(&mut self) {
        self.lab.gateway_mut().kill();
    }

    /// Starts it again.
    pub fn start_gateway(&mut self) {
        self.lab.gateway_mut().launch();
    }

    /// The engine's own command line.
    pub fn engine(&self, arguments: &[&str]) -> Said {
        self.engine.tool(arguments)
    }

    /// This installation's word in names of containers; empty before a runner ran.
    pub fn instance(&self) -> String {
        let path = self.lab.directory().join("runner-state/instance");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Starts `sallyport run` with a command that says it is there and then sleeps; back when it has said so.
    pub fn long_run(&self) -> Child {
        let config = self.directory().join("config.yml").display().to_string();
        let script = "echo ready; sleep 600";
        let arguments = ["run", "--config", &config, "--", "/bin/sh", "-c", script];
        let mut command = self.command(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = self.topology.uplink.start(&mut command).expect("start");
        let mut ready = [0; 6];
        let out = child.stdout.as_mut().expect("piped");
        out.read_exact(&mut ready).expect("the command runs");
        child
    }

    /// Containers of this installation that the engine has, by name.
    pub fn containers(&self) -> Vec<String> {
        let instance = self.instance();
        assert!(!instance.is_empty(), "no runner ran here");
        let prefix = format!("sallyport-{instance}-");
        let all = self
            .engine(&["ps", "--all", "--format", "{{.Names}}"])
            .expect(0);
        let ours = all.out.lines().filter(|n| n.starts_with(&prefix));
        ours.map(str::to_owned).collect()
    }
}

impl Deref for Here {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// At Docker; `sallyport run` starts the runner that is described.
pub fn lab() -> Here {
    lab_at(place::docker().expect("always there"))
}

/// The same at a place.
pub fn lab_at(place: Place) -> Here {
    let class = place.class;
    Here::with(
        place,
        &format!("  pool: 0\n  limits: {{ isolation: {class} }}\n"),
    )
}

/// `sallyport run` of a shell script under a policy text or preset.
pub fn run(lab: &Lab, policy: &str, options: &[&str], script: &str) -> Said {
    let policy = if policy.contains(':') {
        lab.file("job.yml", policy).display().to_string()
    } else {
        policy.to_owned()
    };
    let mut arguments = vec!["run", "--policy", &policy];
    arguments.extend_from_slice(options);
    arguments.extend_from_slice(&["--", "/bin/sh", "-c", script]);
    lab.sallyport(&arguments)
}
