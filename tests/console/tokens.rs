//! Tokens: kept where nobody else reads them, sent to the console they are for and never in the clear to another machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use lab::cli::Said;
use serde_json::json;

use crate::hostile::Recorder;
use crate::world::Console;

/// `auth login --with-token`.
fn login(console: &Console, token: &str) -> Said {
    login_at(console, &console.url(), token)
}

/// The same at whatever answers there.
fn login_at(console: &Console, url: &str, token: &str) -> Said {
    let mut command = console.stranger(&["auth", "login", "--with-token", "--url", url]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(token.as_bytes())
        .expect("write");
    child.wait_with_output().expect("it ends").into()
}

fn stranger(console: &Console, arguments: &[&str]) -> Said {
    console.stranger(arguments).output().expect("start").into()
}

#[test]
fn a_token_is_kept_for_its_owner_alone_and_used_from_then_on() {
    let console = Console::start();
    assert!(
        stranger(&console, &["ps"])
            .expect(3)
            .err
            .contains("auth login")
    );
    stranger(&console, &["auth", "status"]).expect(1);
    let token = console.token("write");
    login(&console, "spt_wrong").expect(3);
    let wrong = format!("spt_{}", "a".repeat(43));
    assert!(login(&console, &wrong).expect(3).err.contains("not known"));
    login(&console, &format!("{token}\n")).expect(0);
    let kept = console
        .folder
        .path()
        .join("home/.config/sallyport/logins.json");
    let mode = |path: &std::path::Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode(&kept), mode(kept.parent().expect("a folder"))),
        (0o600, 0o700)
    );
    assert_eq!(
        stranger(&console, &["ps", "--json"]).expect(0).json(),
        json!([])
    );
    let status = stranger(&console, &["auth", "status", "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&status[0]["person"], &status[0]["state"]),
        (&json!("ada@example.com"), &json!("valid"))
    );
    assert!(
        !stranger(&console, &["auth", "status"])
            .expect(0)
            .out
            .contains(&token)
    );
    // others can read it: it is not used any more
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).expect("mode");
    let refused = stranger(&console, &["ps"]).expect(3);
    assert!(
        refused.err.contains("others can read") && refused.err.contains("chmod 600"),
        "{}",
        refused.err
    );
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).expect("mode");
    stranger(&console, &["auth", "logout"]).expect(0);
    stranger(&console, &["ps"]).expect(3);
}

#[test]
fn a_token_that_another_takes_the_place_of_is_revoked() {
    let console = Console::start();
    let (first, second) = (console.token("write"), console.token("read"));
    let lives = |token: &str| {
        let mut command = console.stranger(&["ps"]);
        command
            .env("SALLYPORT_URL", console.url())
            .env("SALLYPORT_TOKEN", token);
        Said::from(command.output().expect("start")).code == Some(0)
    };
    login(&console, &first).expect(0);
    // once more the same one: nothing takes its place
    login(&console, &first).expect(0);
    assert!(lives(&first));
    let said = login(&console, &second).expect(0);
    assert!(said.err.contains("is revoked"), "{said:?}");
    assert!(!lives(&first) && lives(&second));
}

#[test]
fn signing_out_says_revoked_only_of_a_token_that_is() {
    let console = Console::start();
    for (code, revoked) in [("bad_token", true), ("unconfirmed", false)] {
        let other = Recorder::with(move |stream, head| {
            let (status, body) = if head.starts_with("DELETE") {
                ("401 Unauthorized", json!({ "code": code, "detail": "no" }))
            } else {
                let mine = json!([{ "id": "w1", "name": "W" }]);
                ("200 OK", json!({ "items": mine, "next": null }))
            };
            let _ = write!(stream, "HTTP/1.1 {status}\r\n\r\n{body}");
        });
        let url = other.url();
        login_at(&console, &url, &console.token("read")).expect(0);
        let said = stranger(&console, &["auth", "logout", "--url", &url]);
        let told = said.err.contains("is revoked and forgotten");
        assert_eq!((said.code == Some(0), told), (revoked, revoked), "{said:?}");
        assert!(
            revoked || said.err.contains("could not be revoked"),
            "{said:?}"
        );
    }
}

#[test]
fn a_file_that_others_can_read_gives_no_token() {
    let console = Console::start();
    let file = console.folder.path().join("token");
    fs::write(&file, console.token("read")).expect("write");
    let shown = file.display().to_string();
    let url = console.url();
    let ask = || {
        stranger(
            &console,
            &["ps", "--json", "--url", &url, "--token-file", &shown],
        )
    };
    for (mode, code) in [(0o644, 3), (0o640, 3), (0o602, 3), (0o600, 0), (0o400, 0)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
        let said = ask();
        assert_eq!(said.code, Some(code), "{mode:o}: {said:?}");
    }
    assert!(
        stranger(
            &console,
            &["ps", "--url", &url, "--token-file", "/dev/zero"]
        )
        .expect(3)
        .err
        .contains("is no file")
    );
}

#[test]
fn a_kept_token_goes_to_no_other_console() {
    let console = Console::start();
    login(&console, &console.token("write")).expect(0);
    let other = Recorder::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let refused = stranger(&console, &["ps", "--url", &other.url()]).expect(3);
    assert!(
        refused.err.contains("nobody is signed in at"),
        "{}",
        refused.err
    );
    assert_eq!(other.heard(), "");
    // its permitted twin: the same console by its own address
    stranger(&console, &["ps", "--url", &console.url()]).expect(0);
}

#[test]
fn a_token_without_a_console_goes_to_nobody() {
    let console = Console::start();
    let here = Recorder::with(|stream, _| {
        let mine = json!({ "items": [{ "id": "w1", "name": "W" }], "next": null });
        let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{mine}");
    });
    login_at(&console, &here.url(), &console.token("write")).expect(0);
    let other = console.token("read");
    let file = console.folder.path().join("token");
    fs::write(&file, &other).expect("write");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("mode");
    let file = file.display().to_string();
    let by_variable = |arguments: &[&str]| {
        let mut command = console.stranger(arguments);
        Said::from(
            command
                .env("SALLYPORT_TOKEN", &other)
                .output()
                .expect("start"),
        )
    };
    for said in [
        by_variable(&["ps"]),
        stranger(&console, &["ps", "--token-file", &file]),
    ] {
        let refused = said.expect(3).err;
        assert!(
            refused.contains("a token is given and no console"),
            "{refused}"
        );
    }
    assert!(!here.heard().contains(&other));
    // its permitted twin: the console that it is of is named
    by_variable(&["ps", "--url", &console.url()]).expect(0);
}

#[test]
fn a_token_is_not_sent_in_the_clear_to_another_machine() {
    let console = Console::start();
    let ask = |extra: &[&str]| {
        // an address of documentation: nothing answers, and nothing must be tried
        let arguments = [&["ps", "--url", "http://console.invalid:1"][..], extra].concat();
        let mut command = console.stranger(&arguments);
        Said::from(
            command
                .env("SALLYPORT_TOKEN", console.token("read"))
                .output()
                .expect("start"),
        )
        .expect(3)
        .err
    };
    assert!(ask(&[]).contains("in the clear"));
    assert!(ask(&["--insecure"]).contains("nobody answers"));
}

#[test]
fn a_token_reads_its_own_workspace_and_what_it_may_not_is_said() {
    let console = Console::start();
    let other = console.owner(
        "POST",
        "/api/v1/workspaces",
        Some(&json!({ "name": "Other" })),
    );
    let mut command = console.stranger(&["job", "create", "x", "--", "true"]);
    command
        .env("SALLYPORT_URL", console.url())
        .env("SALLYPORT_TOKEN", console.token("read"));
    let refused = Said::from(command.output().expect("start")).expect(3);
    assert!(
        refused
            .err
            .contains("a token with this scope cannot do this"),
        "{}",
        refused.err
    );
    let elsewhere = console
        .run(&["ps", "--workspace", other["id"].as_str().expect("an id")])
        .expect(3);
    assert!(
        elsewhere.err.contains("of another workspace"),
        "{}",
        elsewhere.err
    );
    console
        .run(&["ps", "--workspace", &console.workspace])
        .expect(0);
}
