//! curl, wget, git over HTTPS and a static program: names and addresses, both families, HTTP/1.1 and HTTP/2, the
//! explicit proxy.

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

const ALLOW: &str = "  - host: web.sallylab.net\n  - host: git.sallylab.net\n";
const WEB: &str = "web.sallylab.net";

#[test]
fn curl_reaches_what_is_permitted_and_nothing_else() {
    let world = World::start();
    Plan::new(&world, DEBIAN, ALLOW)
        .twins(
            "curl-http",
            WEB,
            "curl -sS -m 15 http://{host}/",
            "salute from the web",
        )
        .twins(
            "curl-http1",
            WEB,
            "curl -sS -m 15 --http1.1 -w '%{http_version}' https://{host}/",
            "salute from the web\n1.1",
        )
        .twins(
            "curl-http2",
            WEB,
            "curl -sS -m 15 --http2 -w '%{http_version}' https://{host}/",
            "salute from the web\n2",
        )
        .twins(
            "curl-ipv6",
            WEB,
            "curl -sS -m 15 -6 https://{host}/",
            "salute from the web",
        )
        .twins(
            "curl-proxy",
            WEB,
            "curl -sS -m 15 -f -x http://198.18.0.1:3128 https://{host}/",
            "salute from the web",
        )
        .twins(
            "curl-proxy-http",
            WEB,
            "curl -sS -m 15 -f -x http://198.18.0.1:3128 http://{host}/",
            "salute from the web",
        )
        .denied(
            "curl-address",
            "curl -sS -m 15 -k https://142.250.74.110:8443/",
            "142.250.74.110",
            "address_not_allowed",
        )
        .denied(
            "curl-port",
            "curl -sS -m 15 http://web.sallylab.net:8080/",
            WEB,
            "port_not_allowed",
        )
        .denied(
            "curl-metadata",
            "curl -sS -m 15 http://169.254.169.254/latest/meta-data/",
            "169.254.169.254",
            "address_metadata",
        )
        .run();
}

#[test]
fn wget_git_and_a_static_program_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    Plan::new(&world, DEBIAN, ALLOW)
        .twins(
            "wget-http",
            WEB,
            "wget -q -T 15 -t 1 -O - http://{host}/",
            "salute from the web",
        )
        .twins(
            "wget-https",
            WEB,
            "wget -q -T 15 -t 1 -O - https://{host}/",
            "salute from the web",
        )
        .twins(
            "static",
            WEB,
            "fetch-static {host} 80 /",
            "salute from the web",
        )
        .twins(
            "git-https",
            "git.sallylab.net",
            "git clone -q https://{host}/git/salute.git {host} && cat {host}/README",
            "salute from git",
        )
        .twins(
            "git-ls-remote",
            "git.sallylab.net",
            "git ls-remote https://{host}/git/salute.git",
            "refs/heads/main",
        )
        .run();
}

#[test]
fn a_name_led_to_a_forbidden_address_by_the_client_is_denied() {
    let world = World::start();
    let evil = world.forbidden("resolve");
    let resolve = format!("curl -sS -m 15 --resolve {evil}:443:142.250.74.110 https://{evil}/");
    let plain = format!("curl -sS -f -m 15 --resolve {evil}:80:142.250.74.110 http://{evil}/");
    Plan::new(&world, DEBIAN, ALLOW)
        .works(
            "permitted",
            "curl -sS -m 15 https://web.sallylab.net/",
            "salute from the web",
        )
        .denied("tls", &resolve, &evil, "name_not_allowed")
        .denied("http", &plain, &evil, "name_not_allowed")
        .run();
}
