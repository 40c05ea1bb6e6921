//! Package managers install a real package from a permitted index and from no other.

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

#[test]
fn pip_and_npm_install_from_the_permitted_index_only() {
    let world = World::start();
    Plan::new(&world, DEBIAN, "  - host: pip.sallylab.net\n  - host: npm.sallylab.net\n")
        .twins(
            "pip",
            "pip.sallylab.net",
            "pip install -q --no-cache-dir --retries 0 --timeout 15 --target pip-{host} --index-url https://{host}/simple salute \
             && PYTHONPATH=pip-{host} python3 -c 'import salute; print(salute.TEXT)'",
            "salute from pip",
        )
        .twins(
            "npm",
            "npm.sallylab.net",
            "mkdir -p npm-{host} && cd npm-{host} && export NODE_EXTRA_CA_CERTS=/usr/local/share/ca-certificates/lab.crt && \
             npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries=0 --cache /tmp/npm-cache-{host} \
             --registry https://{host}/npm/ salute@1.0.0 && node -p 'require(\"salute\")'",
            "salute from npm",
        )
        .run();
}

#[test]
fn apt_installs_from_the_permitted_mirror_only() {
    let world = World::start();
    let command = "export DEBIAN_FRONTEND=noninteractive; rm -f /etc/apt/sources.list.d/*; \
        echo 'deb [trusted=yes] http://{host}/debian ./' > /etc/apt/sources.list; \
        apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=15 --error-on=any update && \
        apt-get install -y --reinstall salute && cat /usr/share/salute/text";
    Plan::new(&world, DEBIAN, "  - host: apt.sallylab.net\n")
        .rooted()
        .twins("apt", "apt.sallylab.net", command, "salute from apt")
        .run();
}
