//! The network of a run is the gateway's, from its first moment to its last.

use lab::policies;
use lab::topology::{METADATA, OTHER4, PUBLIC4, ip};

use crate::place::{Place, at};
use crate::world::{lab_at, run};

at!(a_permitted_host_is_reached_and_its_twin_is_not: docker podman rootless gvisor);
fn a_permitted_host_is_reached_and_its_twin_is_not(place: Place) {
    let lab = lab_at(place);
    let mark = lab.capture.mark();
    let script =
        "curl -sS -m 10 http://ok.sallylab.net/ && ! curl -sSf -m 10 http://evil.sallylab.net/";
    let said = run(&lab, policies::DOMAINS, &[], script).expect(0);
    assert!(said.out.contains("lab connection"), "{said:?}");
    // libc may ask once for each family, which is one line
    for (begin, then) in [
        ("permitted  ok.sallylab.net:80", ""),
        (
            "denied     look-up of evil.sallylab.net",
            ": name_not_allowed",
        ),
    ] {
        let told = |line: &str| line.contains(begin) && line.contains(then);
        assert!(
            said.err.lines().any(told),
            "{begin} is missing in {}",
            said.err
        );
    }
    lab.capture.none_to(mark, ip(OTHER4));
}

at!(both_families_are_looked_up_at_once_without_a_wait: docker podman rootless gvisor);
fn both_families_are_looked_up_at_once_without_a_wait(place: Place) {
    let lab = lab_at(place);
    // equally long answers that leave together, permitted and denied; libc asks for both, and again after five seconds
    let script = "python3 -c \"
import socket, time
for host in ['ok.sallylab.net', 'evil.sallylab.net'] * 10:
    begun = time.monotonic()
    try:
        socket.getaddrinfo(host, 80)
    except socket.gaierror:
        pass
    print(host, 'slow' if time.monotonic() - begun > 4 else 'quick')
\"";
    let said = run(&lab, policies::DOMAINS, &[], script).expect(0);
    assert_eq!(said.out.matches("quick").count(), 20, "{said:?}");
}

at!(invariant_1_a_run_without_a_policy_sends_nothing_from_its_first_moment: docker podman rootless gvisor);
fn invariant_1_a_run_without_a_policy_sends_nothing_from_its_first_moment(place: Place) {
    let lab = lab_at(place);
    let mark = lab.capture.mark();
    let script = format!(
        "for i in 1 2 3; do (echo x > /dev/udp/8.8.8.8/53; echo x > /dev/tcp/{PUBLIC4}/443) 2> /dev/null; done; true"
    );
    let said = lab.sallyport(&["run", "--", "/bin/bash", "-c", &script]);
    said.expect(0);
    let seen = lab.capture.since(mark);
    assert!(
        seen.is_empty(),
        "{} frames, first {:?}",
        seen.len(),
        seen.first()
    );
}

at!(invariant_4_metadata_is_unreachable_from_a_job: docker podman rootless gvisor);
fn invariant_4_metadata_is_unreachable_from_a_job(place: Place) {
    let lab = lab_at(place);
    let mark = lab.capture.mark();
    let script = METADATA.iter().fold(String::new(), |script, address| {
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            (*address).to_owned()
        };
        script + &format!("curl -sf -g -m 3 http://{host}/ && exit 9\n")
    }) + "exit 0";
    run(&lab, policies::INTERNET_PRIVATE, &["--root"], &script).expect(0);
    for address in METADATA {
        lab.capture.none_to(mark, ip(address));
    }
}

at!(editing_resolv_conf_and_hosts_opens_nothing: docker rootless gvisor);
fn editing_resolv_conf_and_hosts_opens_nothing(place: Place) {
    let lab = lab_at(place);
    let mark = lab.capture.mark();
    let script = format!(
        "(echo nameserver 8.8.8.8 > /etc/resolv.conf; echo {OTHER4} ok.sallylab.net >> /etc/hosts) 2> /dev/null\n\
         curl -sSf -m 5 --resolve ok.sallylab.net:80:{OTHER4} http://ok.sallylab.net/ && exit 9; exit 0"
    );
    run(&lab, policies::DOMAINS, &["--root"], &script).expect(0);
    lab.capture.none_to(mark, ip(OTHER4));
    lab.capture.none_to(mark, ip("8.8.8.8"));
}

at!(a_job_may_ask_why: docker podman rootless gvisor);
fn a_job_may_ask_why(place: Place) {
    let lab = lab_at(place);
    let said = run(
        &lab,
        policies::DOMAINS,
        &["--quiet"],
        "sally net explain evil.sallylab.net:443; true",
    )
    .expect(0);
    assert!(said.out.contains("name_not_allowed"), "{said:?}");
}
