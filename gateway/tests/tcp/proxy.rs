//! The explicit proxy.

use std::net::Ipv4Addr;

use netpolicy::reason::Reason;

use crate::lab::{Lab, SILENT, accept, eventually, hello, nothing_reached, read, rest, run, write};
use tokio::net::TcpStream;

const POLICY: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n  - host: api.ok.net\n  - host: closed.net\n";
const SERVICE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

fn proxy(lab: &Lab) -> TcpStream {
    lab.connect(SERVICE, 3128)
}

fn serve(lab: &Lab) {
    gateway::listen::serve_proxy(&lab.ctx, lab.inside_listener(3128));
}

async fn answer(lab: &Lab, request: &[u8]) -> String {
    let mut client = proxy(lab);
    write(&mut client, request).await;
    String::from_utf8(rest(&mut client).await.unwrap()).unwrap()
}

#[test]
fn connect_opens_a_tunnel_whose_bytes_are_still_judged() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(443).await;
        serve(&lab);
        let mut client = proxy(&lab);
        // the hello sent ahead is not lost
        write(
            &mut client,
            &[
                &b"CONNECT ok.net:443 HTTP/1.1\r\nHost: ok.net:443\r\n\r\n"[..],
                &hello("ok.net"),
            ]
            .concat(),
        )
        .await;
        assert_eq!(
            read(&mut client, 39).await,
            b"HTTP/1.1 200 Connection Established\r\n\r\n"
        );
        let mut server = accept(&origin).await;
        assert_eq!(
            read(&mut server, hello("ok.net").len()).await,
            hello("ok.net")
        );
        write(&mut server, b"hi").await;
        assert_eq!(read(&mut client, 2).await, b"hi");
        drop((client, server));
        lab.ends(1).await;
        for inner in [
            hello("evil.net"),
            b"GET / HTTP/1.1\r\nHost: ok.net\r\n\r\n".to_vec(),
        ] {
            let mut client = proxy(&lab);
            write(
                &mut client,
                b"CONNECT ok.net:443 HTTP/1.1\r\nHost: ok.net:443\r\n\r\n",
            )
            .await;
            read(&mut client, 39).await;
            write(&mut client, &inner).await;
            let mut server = accept(&origin).await;
            assert!(!matches!(rest(&mut server).await, Ok(bytes) if !bytes.is_empty()));
        }
        assert_eq!(
            lab.ends(3).await[1..],
            ["tls_name_mismatch", "tls_malformed"]
        );
    });
}

#[test]
fn http_18_connects_that_are_not_permitted_get_403_and_no_dial() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(443).await;
        serve(&lab);
        for (target, reason) in [
            ("evil.net:443", "name_not_allowed"),
            ("10.0.0.5:22", "address_private"),
            ("169.254.169.254:80", "address_metadata"),
            ("127.0.0.1:3128", "address_loopback"),
            ("198.18.0.1:3128", "address_gateway"),
            ("198.19.9.9:443", "lease_unknown"),
            ("ok.net:22", "port_not_allowed"),
            ("[::1]:443", "address_loopback"),
        ] {
            let said = answer(
                &lab,
                format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes(),
            )
            .await;
            assert!(said.starts_with("HTTP/1.1 403 "), "{target}: {said}");
            assert!(
                said.contains(&format!("Sallyport-Reason: {reason}\r\n")),
                "{target}: {said}"
            );
            assert!(
                said.contains(target.trim_matches(['[', ']'])),
                "{target}: {said}"
            );
        }
        nothing_reached(&origin).await;
    });
}

#[test]
fn what_is_no_proxy_request_gets_400() {
    run(POLICY, |lab| async move {
        serve(&lab);
        for request in [
            &b"GET / HTTP/1.1\r\nHost: ok.net\r\n\r\n"[..],
            b"CONNECT ok.net HTTP/1.1\r\nHost: ok.net\r\n\r\n",
            b"CONNECT ok.net:0 HTTP/1.1\r\nHost: ok.net\r\n\r\n",
            b"CONNECT user@ok.net:443 HTTP/1.1\r\nHost: ok.net\r\n\r\n",
            b"GET https://ok.net/ HTTP/1.1\r\nHost: ok.net\r\n\r\n",
            b"GET http://evil.net/ HTTP/1.1\r\nHost: ok.net\r\n\r\n",
            b"CONNECT ok.net:443 HTTP/1.1\r\nHost: evil.net:443\r\n\r\n",
            b"\x05\x01\x00\r\n\r\n",
        ] {
            let said = answer(&lab, request).await;
            assert!(
                said.starts_with("HTTP/1.1 400 "),
                "{}: {said}",
                request.escape_ascii()
            );
        }
        assert!(lab.network.leases.is_empty(), "nothing was looked up");
    });
}

#[test]
fn requests_are_forwarded_in_origin_form_without_hop_by_hop_fields() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(80).await;
        serve(&lab);
        let mut client = proxy(&lab);
        write(&mut client, b"GET http://OK.net/a?b HTTP/1.1\r\nHost: ok.net\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nConnection: X-Gone\r\nX-Gone: 1\r\nTE: trailers\r\nX-Kept: 2\r\n\r\n").await;
        let mut server = accept(&origin).await;
        let expected = b"GET /a?b HTTP/1.1\r\nhost: ok.net\r\nx-kept: 2\r\n\r\n";
        assert_eq!(read(&mut server, expected.len()).await, expected);
        write(
            &mut server,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        )
        .await;
        read(&mut client, 40).await;
        // the same host over the same connection
        write(
            &mut client,
            b"GET http://ok.net/2 HTTP/1.1\r\nHost: ok.net\r\n\r\n",
        )
        .await;
        let again = b"GET /2 HTTP/1.1\r\nhost: ok.net\r\n\r\n";
        assert_eq!(read(&mut server, again.len()).await, again);
        write(
            &mut server,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        )
        .await;
        read(&mut client, 40).await;
        // another host over another one
        write(
            &mut client,
            b"GET http://api.ok.net/3 HTTP/1.1\r\nHost: api.ok.net\r\n\r\n",
        )
        .await;
        let mut other = accept(&origin).await;
        let third = b"GET /3 HTTP/1.1\r\nhost: api.ok.net\r\n\r\n";
        assert_eq!(read(&mut other, third.len()).await, third);
        assert_eq!(rest(&mut server).await.unwrap(), b"", "the first is closed");
        write(
            &mut other,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        )
        .await;
        read(&mut client, 40).await;
        // and a denied one ends it
        write(
            &mut client,
            b"GET http://evil.net/ HTTP/1.1\r\nHost: evil.net\r\n\r\n",
        )
        .await;
        let said = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
        assert!(
            said.contains("Sallyport-Reason: name_not_allowed"),
            "{said}"
        );
        assert_eq!(lab.ends(2).await.len(), 2);
        eventually(|| (lab.network.ledger.flows() == 0).then_some(())).await;
    });
}

#[test]
fn a_host_that_only_the_target_names_goes_on_as_host() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(80).await;
        serve(&lab);
        for (asked, expected) in [
            (
                "GET http://OK.net/a?b HTTP/1.0\r\nX: 1\r\n\r\n",
                "GET /a?b HTTP/1.0\r\nhost: ok.net\r\nx: 1\r\n\r\n",
            ),
            (
                "GET http://ok.net:80/ HTTP/1.0\r\n\r\n",
                "GET / HTTP/1.0\r\nhost: ok.net:80\r\n\r\n",
            ),
            // who names it twice has said it already
            (
                "GET http://ok.net/ HTTP/1.0\r\nHost: OK.net\r\n\r\n",
                "GET / HTTP/1.0\r\nhost: OK.net\r\n\r\n",
            ),
        ] {
            let mut client = proxy(&lab);
            write(&mut client, asked.as_bytes()).await;
            let mut server = accept(&origin).await;
            let got = read(&mut server, expected.len()).await;
            assert_eq!(String::from_utf8_lossy(&got), expected, "{asked:?}");
            write(&mut server, b"HTTP/1.0 204 No Content\r\n\r\n").await;
            drop(server);
            let said = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
            assert!(said.starts_with("HTTP/1.0 204 "), "{said}");
        }
    });
}

#[test]
fn upstream_failures_are_502_with_their_reason() {
    run(POLICY, |lab| async move {
        serve(&lab);
        let said = answer(
            &lab,
            b"GET http://closed.net/ HTTP/1.1\r\nHost: closed.net\r\n\r\n",
        )
        .await;
        assert!(
            said.starts_with("HTTP/1.1 502 ") && said.contains("upstream_refused"),
            "{said}"
        );
        let said = answer(
            &lab,
            b"CONNECT closed.net:443 HTTP/1.1\r\nHost: closed.net:443\r\n\r\n",
        )
        .await;
        assert!(
            said.starts_with("HTTP/1.1 502 ") && said.contains("upstream_refused"),
            "{said}"
        );
    });
}

#[test]
fn a_sealed_gateway_answers_403() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(443).await;
        serve(&lab);
        lab.seal.send_replace(false);
        let said = answer(
            &lab,
            b"CONNECT ok.net:443 HTTP/1.1\r\nHost: ok.net:443\r\n\r\n",
        )
        .await;
        assert!(said.contains("Sallyport-Reason: gateway_sealed"), "{said}");
        nothing_reached(&origin).await;
    });
}

#[test]
fn an_ended_run_closes_its_tunnels_requests_and_dials_and_records_it() {
    let policy = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n  - cidr: 93.184.217.0/24\n    ports: [443]\n";
    run(policy, |lab| async move {
        let (tls, http) = (lab.origin(443).await, lab.origin(80).await);
        serve(&lab);
        let mut tunnel = proxy(&lab);
        write(
            &mut tunnel,
            b"CONNECT ok.net:443 HTTP/1.1\r\nHost: ok.net:443\r\n\r\n",
        )
        .await;
        let _tunnelled = accept(&tls).await;
        let mut request = proxy(&lab);
        write(
            &mut request,
            b"GET http://ok.net/ HTTP/1.1\r\nHost: ok.net\r\n\r\n",
        )
        .await;
        let _requested = accept(&http).await;
        lab.flows(2).await;
        let mut dialling = proxy(&lab);
        write(
            &mut dialling,
            format!("CONNECT {SILENT}:443 HTTP/1.1\r\nHost: {SILENT}:443\r\n\r\n").as_bytes(),
        )
        .await;
        let mut idle = proxy(&lab);
        eventually(|| (lab.network.ledger.flows() == 4).then_some(())).await;
        lab.network.ended.cancel();
        lab.network.flows.end_all(Reason::RunEnded);
        assert_eq!(lab.ends(2).await, ["run_ended", "run_ended"]);
        for client in [&mut tunnel, &mut request, &mut dialling, &mut idle] {
            drop(rest(client).await);
        }
        eventually(|| (lab.network.ledger.flows() == 0).then_some(())).await;
        assert_eq!(lab.denials(), ["run_ended"], "the dial");
    });
}
