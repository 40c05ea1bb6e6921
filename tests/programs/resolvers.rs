//! What a machine runs beside its programs: a resolver of its own (unbound, with and without DNSSEC) and a time client
//! (chrony over UDP).
//!
//! A resolver that validates wants signatures from the root down, and gets none: the gateway's answers are leases, which
//! nobody signed. It says so instead of handing out what it cannot prove. Told that a zone is not signed (unbound's
//! `domain-insecure`), or not to validate, it works.

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

const ALLOW: &str = "  - { host: time.sallylab.net, protocol: udp, ports: [123] }
  - host: web.sallylab.net
";
const WEB: &str = "web.sallylab.net";

/// With the root's keys, as Debian's own configuration has them.
const ANCHOR: &str = r#"trust-anchor-file: "/usr/share/dns/root.key""#;

/// Has an unbound that forwards to the gateway asked for the address of `{host}`, prints its answer and fetches a page
/// from that address. Fails unless both come.
fn unbound(options: &[&str]) -> String {
    let options = options.join("\\n ");
    format!(
        r#"printf 'server:\n directory: "/tmp"\n username: ""\n chroot: ""\n pidfile: ""\n use-syslog: no\n interface: 127.0.0.1@5300\n do-not-query-localhost: no\n {options}\nforward-zone:\n name: "."\n forward-addr: 198.18.0.1\nremote-control:\n control-enable: no\n' > unbound.conf
unbound-checkconf unbound.conf > /dev/null || exit 2
unbound -d -c unbound.conf 2> unbound.log & trap "kill $!" EXIT TERM
for try in $(seq 20); do dig +tries=1 +time=1 @127.0.0.1 -p 5300 version.bind CH TXT > /dev/null && break; sleep 0.2; done
dig +tries=1 +time=8 @127.0.0.1 -p 5300 {{host}} A | tee answer
address=$(grep -o '198[.]19[.][0-9.]*' answer | head -n 1)
[ -n "$address" ] && curl -sS -m 15 --resolve "{{host}}:80:$address" http://{{host}}/"#
    )
}

/// Takes the time of a server once, as anybody and without setting the clock.
fn chrony(server: &str) -> String {
    format!(
        "chronyd -U -x -Q -t 4 -u agent 'pidfile /tmp/chrony.pid' 'bindcmdaddress /' 'cmdport 0' \
         'server {server} iburst maxsamples 1'"
    )
}

#[test]
fn a_resolver_and_a_time_client_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    let told = unbound(&[ANCHOR, r#"domain-insecure: "sallylab.net""#]);
    let validates = unbound(&[ANCHOR]).replace("{host}", WEB);
    Plan::new(&world, DEBIAN, ALLOW)
        .twins("unbound", WEB, &unbound(&[]), "salute from the web")
        .twins("unbound-insecure", WEB, &told, "salute from the web")
        .works(
            "unbound-validates",
            &format!("{validates} || cat unbound.log; ! grep 198.19 answer"),
            "status: SERVFAIL",
        )
        .twins(
            "chrony",
            "time.sallylab.net",
            &chrony("{host}"),
            "System clock wrong by",
        )
        .denied(
            "chrony-address",
            &chrony("142.250.74.110"),
            "142.250.74.110",
            "address_not_allowed",
        )
        .run();
}
