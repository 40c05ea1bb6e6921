//! Signing in by a code: a person lets a program in, in a browser that the test plays.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use lab::cli::Said;
use serde_json::json;

use crate::world::Console;

/// `auth login`, up to where it shows its code.
fn asking(console: &Console, arguments: &[&str]) -> (Child, String) {
    let mut child = console
        .stranger(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let err = child.stderr.as_mut().expect("piped");
    let code = BufReader::with_capacity(1, err)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| {
            let code = line.trim();
            (code.len() == 9 && code.contains('-')).then(|| code.to_owned())
        });
    (child, code.expect("a code"))
}

fn said(mut child: Child) -> Said {
    // what was read of it is gone; the rest is said
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut out)
        .expect("text");
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut err)
        .expect("text");
    Said {
        code: child.wait().expect("it ends").code(),
        out,
        err,
    }
}

#[test]
fn a_person_lets_the_command_line_in_and_signing_out_revokes_it() {
    let console = Console::start();
    let url = console.url();
    let (child, code) = asking(
        &console,
        &["auth", "login", "--url", &url, "--name", "laptop"],
    );
    let seen = console.owner("POST", "/api/v1/codes/look", Some(&json!({ "code": code })));
    assert_eq!(
        (&seen["name"], &seen["scope"], &seen["address"]),
        (&json!("laptop"), &json!("write"), &json!("127.0.0.1"))
    );
    let yes = json!({ "code": code, "scope": "write", "expires_in_days": 7 });
    console.owner("POST", &console.path("codes"), Some(&yes));
    let answer = said(child).expect(0);
    assert!(
        answer.out.contains("signed in to the workspace"),
        "{answer:?}"
    );
    let run = |arguments: &[&str]| Said::from(console.stranger(arguments).output().expect("start"));
    run(&["job", "create", "j", "--", "true"]).expect(0);
    let tokens = run(&["token", "list", "-o", "json"]).expect(0).json();
    assert_eq!(tokens[0]["name"], "laptop");
    assert_eq!(
        run(&["workspace", "list", "--json"]).expect(0).json()[0]["id"],
        console.workspace.as_str()
    );
    assert_eq!(
        run(&["workspace", "members", "--json"]).expect(0).json()[0]["email"],
        "ada@example.com"
    );
    run(&["auth", "logout"]).expect(0);
    assert_eq!(
        console.owner("GET", &console.path("tokens"), None)["items"],
        json!([])
    );
    run(&["job", "list"]).expect(3);
}

#[test]
fn what_a_person_refuses_gets_nothing() {
    let console = Console::start();
    let url = console.url();
    let (child, code) = asking(
        &console,
        &["token", "create", "ci", "--read-only", "--url", &url],
    );
    console.owner(
        "POST",
        "/api/v1/codes/refuse",
        Some(&json!({ "code": code })),
    );
    let answer = said(child).expect(1);
    assert!(
        answer.err.contains("it was refused") && answer.out.is_empty(),
        "{answer:?}"
    );
    // its permitted twin prints the token and nothing else
    let (child, code) = asking(
        &console,
        &["token", "create", "ci", "--read-only", "--url", &url],
    );
    console.owner(
        "POST",
        &console.path("codes"),
        Some(&json!({ "code": code, "scope": "read" })),
    );
    let token = said(child).expect(0).out;
    assert!(
        token.starts_with("spt_") && token.trim().len() == 47,
        "{token}"
    );
}
