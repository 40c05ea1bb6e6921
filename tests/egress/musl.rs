//! The resolver of musl against the DNS door: both families at once, no extensions, no streams, search lists of its own.
//!
//! Its rules are not glibc's: what a name is not must be said with NXDOMAIN, or the search ends with an error, and an
//! answer that was cut is taken as it came.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::pace::Pace;
use lab::{Lab, Sandbox, policies};

/// Resolves a name as every program does, for family 4, 6 or any (0).
const ASK: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int count, char **words) {
    int family = atoi(words[1]);
    struct addrinfo wanted = { .ai_socktype = SOCK_STREAM }, *all;
    wanted.ai_family = family == 4 ? AF_INET : family == 6 ? AF_INET6 : AF_UNSPEC;
    int error = getaddrinfo(words[2], "80", &wanted, &all);
    if (error) return printf("%s\n", gai_strerror(error)), 1;
    for (struct addrinfo *one = all; one; one = one->ai_next) {
        char text[64];
        getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
        puts(text);
    }
    return 0;
}
"#;

/// The program, linked against musl.
fn built(lab: &Lab) -> PathBuf {
    let (source, program) = (lab.file("ask.c", ASK), lab.directory().join("ask"));
    let built = Command::new("musl-gcc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("musl-gcc (musl-tools)").success());
    program
}

/// What the program says in a sandbox whose resolv.conf has these lines besides.
fn asked(sandbox: &Sandbox, program: &Path, (resolv, family): (&Path, &str), name: &str) -> String {
    let bind = "mount --bind $0 /etc/resolv.conf && exec $1 $2 $3";
    let (resolv, program) = (resolv.display().to_string(), program.display().to_string());
    let shell = ["unshare", "--mount", "sh", "-c", bind];
    let words = [resolv.as_str(), &program, family, name];
    let out = sandbox.exec(&[&shell[..], &words].concat());
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn musl_finds_what_is_permitted_by_every_family_and_search_list_and_nothing_else() {
    let lab = Lab::builder().gateway_only().start();
    let (sandbox, program) = (lab.sandbox(policies::DOMAINS), built(&lab));
    let plain = lab.file("plain.conf", "nameserver 198.18.0.1\n");
    let searching = lab.file(
        "search.conf",
        "nameserver 198.18.0.1\nsearch other.example sallylab.net\n",
    );
    let ask = |resolv: &Path, family, name| asked(&sandbox, &program, (resolv, family), name);
    let mark = lab.origins.queries.mark();

    let both = ask(&plain, "0", "ok.sallylab.net");
    assert!(both.contains('.') && both.contains(':'), "{both}");
    let (v4, v6) = (
        ask(&plain, "4", "ok.sallylab.net"),
        ask(&plain, "6", "ok.sallylab.net"),
    );
    assert!(
        both.contains(v4.trim()) && both.contains(v6.trim()),
        "{both}"
    );
    assert!(ask(&plain, "0", "four.sallylab.net").contains('.'));

    // the first domain of the list is not permitted; its NXDOMAIN leads on to the second
    assert_eq!(ask(&searching, "4", "ok"), v4);

    // refused: said at once, without a question upstream
    let (pace, began) = (Pace::watch(), Instant::now());
    for (resolv, name) in [
        (&plain, "evil.sallylab.net"),
        (&plain, "sallylab.net"),
        (&plain, "ok"),
        (&searching, "evil"),
    ] {
        let said = ask(resolv, "0", name);
        assert_eq!(said, "Name does not resolve\n", "{name}");
    }
    assert!(
        began.elapsed() < pace.stretches(Duration::from_secs(4)),
        "that was a time-out"
    );
    for name in ["evil.sallylab.net", "other.example"] {
        assert!(!lab.origins.asked(mark, name), "{name} was asked upstream");
    }
}

#[test]
fn musl_has_the_addresses_that_fit_of_an_answer_that_does_not() {
    let lab = Lab::builder().gateway_only().start();
    let many: Vec<String> = (1..=60).map(|n| format!("93.184.216.{n}")).collect();
    let addresses: Vec<&str> = many.iter().map(String::as_str).collect();
    lab.origins.zone.addresses("ok.sallylab.net", &addresses);
    let real = format!("{}names: real\n", policies::DOMAINS);
    let (sandbox, program) = (lab.sandbox(&real), built(&lab));
    let plain = lab.file("plain.conf", "nameserver 198.18.0.1\n");
    let said = asked(&sandbox, &program, (&plain, "4"), "ok.sallylab.net");
    let found: Vec<&str> = said.lines().collect();
    // 512 octets hold 29 addresses of this name
    assert!((25..30).contains(&found.len()), "{said}");
    assert!(found.iter().all(|one| addresses.contains(one)), "{said}");
}
