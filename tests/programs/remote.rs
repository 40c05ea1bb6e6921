//! Protocols where the server speaks first, and those with no name on the wire: ssh, git over ssh, redis, PostgreSQL,
//! `nc -z`.

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

const ALLOW: &str = "  - { host: ssh.sallylab.net, ports: [22], speaks: any }
  - { host: redis.sallylab.net, ports: [6379, 6380], speaks: any }
  - { host: db.sallylab.net, ports: [5432], speaks: any }
";

#[test]
fn ssh_git_redis_psql_and_port_probes_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    Plan::new(&world, DEBIAN, ALLOW)
        .twins(
            "ssh",
            "ssh.sallylab.net",
            "ssh -o BatchMode=yes lab@{host} echo salute over ssh",
            "salute over ssh",
        )
        .twins(
            "git-ssh",
            "ssh.sallylab.net",
            "git clone -q ssh://lab@{host}/srv/lab/git/salute.git {host} && cat {host}/README",
            "salute from git",
        )
        .twins(
            "redis",
            "redis.sallylab.net",
            "redis-cli -h {host} ping",
            "PONG",
        )
        .twins(
            "nc",
            "redis.sallylab.net",
            "nc -z -v -w 10 {host} 6379",
            "succeeded",
        )
        .twins(
            "psql",
            "db.sallylab.net",
            "psql -h {host} -U lab -d lab -At -c 'select salute'",
            "salute from postgres",
        )
        .denied(
            "psql-address",
            "psql -h 142.250.74.110 -U lab -d lab -At -c 'select salute'",
            "142.250.74.110",
            "address_not_allowed",
        )
        .denied(
            "ssh-port",
            "ssh -o BatchMode=yes -p 2222 lab@ssh.sallylab.net true",
            "ssh.sallylab.net",
            "port_not_allowed",
        )
        .denied(
            "nc-address",
            "nc -z -v -w 10 142.250.74.110 5433",
            "142.250.74.110",
            "address_not_allowed",
        )
        .denied(
            "redis-address",
            "redis-cli -h 142.250.74.110 -p 5433 ping",
            "142.250.74.110",
            "address_not_allowed",
        )
        .works(
            "nc-closed",
            "nc -z -v -w 10 redis.sallylab.net 6380 || echo closed",
            "refused",
        )
        .run();
}
