//! HTTP clients of language runtimes, a WebSocket, gRPC and HTTP/2 by prior knowledge: each with its own resolver habits, TLS stack and proxy rules.

use crate::DEBIAN;
use crate::plan::Plan;
use crate::world::World;

const ALLOW: &str = "  - host: web.sallylab.net\n";
const WEB: &str = "web.sallylab.net";
const SALUTE: &str = "salute from the web";

#[test]
fn python_node_and_go_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    let node =
        "NODE_EXTRA_CA_CERTS=/usr/local/share/ca-certificates/lab.crt node /opt/lab/fetch.mjs";
    Plan::new(&world, DEBIAN, ALLOW)
        .twins(
            "urllib",
            WEB,
            "python3 /opt/lab/fetch.py urllib https://{host}/",
            SALUTE,
        )
        .twins(
            "urllib-http",
            WEB,
            "python3 /opt/lab/fetch.py urllib http://{host}/",
            SALUTE,
        )
        .twins(
            "requests",
            WEB,
            "python3 /opt/lab/fetch.py requests https://{host}/",
            SALUTE,
        )
        .twins(
            "asyncio",
            WEB,
            "python3 /opt/lab/fetch.py asyncio https://{host}/",
            SALUTE,
        )
        .twins("node", WEB, &format!("{node} https://{{host}}/"), SALUTE)
        .twins(
            "node-http",
            WEB,
            &format!("{node} http://{{host}}/"),
            SALUTE,
        )
        .twins(
            "go",
            WEB,
            "fetch-go https://{host}/",
            &format!("HTTP/2.0 200 {SALUTE}"),
        )
        .twins(
            "go-http",
            WEB,
            "fetch-go http://{host}/",
            &format!("HTTP/1.1 200 {SALUTE}"),
        )
        .run();
}

#[test]
fn java_and_websockets_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    Plan::new(&world, DEBIAN, ALLOW)
        .twins(
            "java",
            WEB,
            "java -cp /opt/lab Fetch https://{host}/",
            &format!("HTTP_2 200 {SALUTE}"),
        )
        // offers an upgrade to HTTP/2 in the clear, which the server does not take
        .twins(
            "java-http",
            WEB,
            "java -cp /opt/lab Fetch http://{host}/",
            &format!("HTTP_1_1 200 {SALUTE}"),
        )
        .twins(
            "websocket-tls",
            WEB,
            "java -cp /opt/lab Fetch wss://{host}/ws",
            "salute over a websocket",
        )
        .twins(
            "websocket",
            WEB,
            "java -cp /opt/lab Fetch ws://{host}/ws",
            "salute over a websocket",
        )
        .run();
}

/// What calls and requests in the clear say, each with its denied twin.
fn in_the_clear<'w>(world: &'w World, allow: &'static str) -> Plan<'w> {
    Plan::new(world, DEBIAN, allow)
        .twins(
            "grpc",
            WEB,
            "python3 /opt/lab/grpc-salute.py {host} 50051",
            "salute, grpc farewell 200 20",
        )
        .twins(
            "prior-knowledge",
            WEB,
            "curl -sS -m 15 --http2-prior-knowledge -w '%{http_version}' http://{host}:8082/",
            "salute from the web\n2",
        )
}

#[test]
fn grpc_and_http2_in_the_clear_reach_what_is_permitted_and_nothing_else() {
    let world = World::start();
    let allow = "  - host: web.sallylab.net\n    ports: [50051, 50443, 8082]\n";
    in_the_clear(&world, allow)
        .twins(
            "grpc-tls",
            WEB,
            "python3 /opt/lab/grpc-salute.py {host} 50443",
            "salute, grpc farewell 200 20",
        )
        .run();
}

#[test]
fn grpc_and_http2_in_the_clear_pass_where_each_request_is_judged() {
    let world = World::start();
    let allow = "  - host: web.sallylab.net\n    ports: [50051, 8082]\n    speaks: http\n";
    in_the_clear(&world, allow)
        .denied(
            "fronting",
            "curl -sS -f -m 15 --http2-prior-knowledge -H 'Host: evil.sallylab.net' http://web.sallylab.net:8082/",
            WEB,
            "http_host_mismatch",
        )
        .run();
}
