//! A lab whose configuration has a runner too, with folders of its own.

use std::fmt::Write as _;
use std::io::Write as _;

use lab::Lab;
use lab::cli::Said;

/// Starts a lab and describes a runner in its configuration; `sallyport run` starts that runner.
pub fn lab() -> Lab {
    let lab = Lab::builder().gateway_only().start();
    let at = lab.directory().display().to_string();
    let mut text = String::new();
    let _ = write!(
        text,
        "runner:\n  pool: 0\n  socket: {at}/runner.sock\n  state_dir: {at}/runner-state\n  run_dir: {at}/runner-run\n  \
         limits: {{ isolation: hardened }}\n"
    );
    let config = lab.directory().join("config.yml");
    let mut file = std::fs::File::options()
        .append(true)
        .open(config)
        .expect("configuration");
    file.write_all(text.as_bytes())
        .expect("the runner's section");
    lab
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
