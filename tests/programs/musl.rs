//! A musl userland: its resolver asks A and AAAA at once and takes the first answer that fits, and none of these
//! programs knows of proxies.
//!
//! `fetch-musl` is linked against musl dynamically, `fetch-static` against musl statically, `fetch-go` brings its own
//! resolver, and the shell, `wget`, `nc` and `nslookup` are a static busybox (which is no musl program).

use crate::MUSL;
use crate::plan::Plan;
use crate::world::World;

const ALLOW: &str =
    "  - host: web.sallylab.net\n  - { host: redis.sallylab.net, ports: [6379], speaks: any }\n";
const WEB: &str = "web.sallylab.net";
const SALUTE: &str = "salute from the web";

#[test]
fn musl_and_static_programs_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    Plan::new(&world, MUSL, ALLOW)
        .twins("musl", WEB, "fetch-musl {host} 80 /", SALUTE)
        .twins("musl-static", WEB, "fetch-static {host} 80 /", SALUTE)
        .twins("go", WEB, "fetch-go https://{host}/", SALUTE)
        .twins("busybox-wget", WEB, "wget -q -O - http://{host}/", SALUTE)
        .twins("busybox-nslookup", WEB, "nslookup {host}", "Address")
        .twins(
            "busybox-nc",
            "redis.sallylab.net",
            "printf \"PING\\r\\nQUIT\\r\\n\" | nc -w 10 {host} 6379 | grep PONG",
            "PONG",
        )
        .denied(
            "musl-address",
            "fetch-musl 142.250.74.110 8443 /",
            "142.250.74.110",
            "address_not_allowed",
        )
        .denied(
            "musl-port",
            "fetch-musl web.sallylab.net 8080 /",
            WEB,
            "port_not_allowed",
        )
        .run();
}
