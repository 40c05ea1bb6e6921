//! The shipped sets with the programs that they are for: git over HTTPS and ssh under `use: [github]`; pip, npm and apt
//! with the settings of their image under `use: [packages]`.
//!
//! The names of the sets lead to the lab's servers here, so certificates are not theirs: programs are told not to look.
//! What the set permits is what is tested, by name and port, and that a name beside it stays closed.

use std::process::Command;

use lab::topology::{OTHER4, OTHER6, PUBLIC4, PUBLIC6};

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

#[test]
fn git_works_under_the_set_of_its_code_host_and_reaches_no_other() {
    let world = World::start();
    for name in ["github.com", "api.github.com", "raw.githubusercontent.com"] {
        world.lab.origins.zone.addresses(name, &[PUBLIC4, PUBLIC6]);
    }
    for name in [
        "gitlab.com",
        "github.com.evil.sallylab.net",
        "notgithub.com",
    ] {
        world.lab.origins.zone.addresses(name, &[OTHER4, OTHER6]);
    }
    Plan::new(
        &world,
        DEBIAN,
        "  - host: git.sallylab.net\nuse: [github]\n",
    )
    .works(
        "git-https",
        "GIT_SSL_NO_VERIFY=1 git clone -q https://github.com/git/salute.git h && cat h/README",
        "salute from git",
    )
    .works(
        "git-ssh",
        "GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no' git clone -q ssh://lab@github.com/srv/lab/git/salute.git s && cat s/README",
        "salute from git",
    )
    .works(
        "files",
        "curl -sS -k -m 15 https://raw.githubusercontent.com/",
        "salute from the web",
    )
    .works(
        "api",
        "curl -sS -k -m 15 https://api.github.com/",
        "salute from the web",
    )
    .twins(
        "git-elsewhere",
        "git.sallylab.net",
        "git clone -q https://{host}/git/salute.git {host} && cat {host}/README",
        "salute from git",
    )
    .denied(
        "git-other-code-host",
        "GIT_SSL_NO_VERIFY=1 git clone -q https://gitlab.com/git/salute.git g",
        "gitlab.com",
        "name_not_allowed",
    )
    .denied(
        "git-look-alike",
        "GIT_SSL_NO_VERIFY=1 git clone -q https://notgithub.com/git/salute.git n",
        "notgithub.com",
        "name_not_allowed",
    )
    .denied(
        "git-prefix",
        "GIT_SSL_NO_VERIFY=1 git clone -q https://github.com.evil.sallylab.net/git/salute.git p",
        "github.com.evil.sallylab.net",
        "name_not_allowed",
    )
    .denied(
        "port",
        "nc -z -v -w 10 github.com 6379",
        "github.com",
        "port_not_allowed",
    )
    .run();
}

/// The image of the programs with settings of its own, written by the programs themselves; removed with the test.
struct Configured(String);

impl Configured {
    fn new(script: &str) -> Self {
        let name = format!("sallyport/test-settings-{}:latest", std::process::id());
        let made = format!("sallyport-test-settings-{}", std::process::id());
        docker(&[
            "run",
            "--name",
            &made,
            "--network",
            "none",
            "--user",
            "0",
            "--entrypoint",
            "/bin/sh",
            DEBIAN,
            "-ec",
            script,
        ]);
        docker(&["commit", &made, &name]);
        docker(&["rm", &made]);
        Self(name)
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

fn docker(arguments: &[&str]) {
    let said = Command::new("docker")
        .args(arguments)
        .output()
        .expect("docker");
    assert!(said.status.success(), "{arguments:?}: {said:?}");
}

#[test]
fn package_managers_work_with_the_settings_of_their_image_and_with_no_other() {
    let world = World::start();
    let image = Configured::new(
        "pip config --global set global.index-url https://pip.sallylab.net/simple
         npm config set --global registry https://npm.sallylab.net/npm/
         rm -f /etc/apt/sources.list.d/*
         echo 'deb [trusted=yes] http://apt.sallylab.net/debian ./' > /etc/apt/sources.list",
    );
    // `web` is there for the twins only: they run once more where every name of the lab is permitted
    Plan::new(&world, &image.0, "  - host: web.sallylab.net\nuse: [packages]\n")
        .rooted()
        .works(
            "pip",
            "pip install -q --no-cache-dir --retries 0 --timeout 15 --target p salute && PYTHONPATH=p python3 -c 'import salute; print(salute.TEXT)'",
            "salute from pip",
        )
        .works(
            "npm",
            "mkdir n && cd n && NODE_EXTRA_CA_CERTS=/usr/local/share/ca-certificates/lab.crt npm install --silent --no-audit --no-fund \
             --no-update-notifier --fetch-retries=0 --cache /tmp/npm-cache salute@1.0.0 && node -p 'require(\"salute\")'",
            "salute from npm",
        )
        .works(
            "apt",
            "export DEBIAN_FRONTEND=noninteractive; apt-get -o Acquire::Retries=0 --error-on=any update && \
             apt-get install -y --reinstall salute && cat /usr/share/salute/text",
            "salute from apt",
        )
        .twins(
            "pip-elsewhere",
            "web.sallylab.net",
            "curl -sS -m 15 http://{host}/",
            "salute from the web",
        )
        .denied(
            "pip-other-index",
            "pip install -q --no-cache-dir --retries 0 --timeout 15 --target o --index-url https://redis.sallylab.net/simple salute",
            "redis.sallylab.net",
            "name_not_allowed",
        )
        .denied(
            "npm-other-registry",
            "cd /tmp && npm install --silent --no-audit --fetch-retries=0 --registry https://git.sallylab.net/npm/ salute@1.0.0",
            "git.sallylab.net",
            "name_not_allowed",
        )
        .run();
}
