//! Policy text of authors who make mistakes or mean harm, at the size at which it happens. (Cases WEB-39 to WEB-45.)

use std::time::{Duration, Instant};

use lab::cli::{Said, sallyport_in};
use lab::pace::Pace;

use crate::tools::files;

fn check(text: &str) -> Said {
    let directory = files(&[("p.yml", text)]);
    sallyport_in(directory.path(), &["policy", "check", "p.yml"])
}

fn refused(what: &str, text: &str) -> Said {
    let said = check(text);
    assert_eq!(said.code, Some(1), "{what}: {said:?}");
    assert!(
        said.out.starts_with("p.yml:"),
        "{what} has no place: {}",
        said.out
    );
    said
}

/// The check with this much address space for everything, the program itself included (about 40 MiB of a debug build).
fn check_in_little_memory(text: &str) -> Said {
    // what a process writes to; its program's own pages do not count
    const KIBIBYTES: &str = "81920";
    let directory = files(&[("p.yml", text)]);
    let script = format!("ulimit -d {KIBIBYTES} && exec \"$0\" policy check p.yml");
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &script])
        .arg(lab::cli::binary())
        .current_dir(directory.path());
    command.output().expect("start the check").into()
}

#[test]
fn bombs_are_refused_quickly_and_in_little_memory() {
    let laughs = (0..9).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
        let next = n + 1;
        format!(
            "{text}a{next}: &a{next} [{}]\n",
            vec![format!("*a{n}"); 9].join(",")
        )
    });
    let merges = (0..9).fold("m0: &m0 { x: 1 }\n".to_owned(), |text, n| {
        let next = n + 1;
        format!(
            "{text}m{next}: &m{next} {{ <<: [{}] }}\n",
            vec![format!("*m{n}"); 9].join(",")
        )
    });
    for (what, text) in [
        ("nested aliases", laughs),
        (
            "one anchor, many aliases",
            format!(
                "policy: p\nnetwork: none\ndescription: &a {}\nuse: [{}]\n",
                "x".repeat(1000),
                "*a,".repeat(100_000)
            ),
        ),
        ("merge keys", merges),
        (
            "depth",
            format!(
                "policy: p\nnetwork: none\nallow: {}{}\n",
                "[".repeat(100_000),
                "]".repeat(100_000)
            ),
        ),
        (
            "a scalar of 50 MB",
            format!(
                "policy: p\nnetwork: none\ndescription: {}\n",
                "x".repeat(50 << 20)
            ),
        ),
        ("many documents", "---\na: 1\n".repeat(100_000)),
        (
            "many keys",
            (0..100_000).fold(String::new(), |text, n| text + &format!("k{n}: 1\n")),
        ),
    ] {
        let (pace, began) = (Pace::watch(), Instant::now());
        let said = check_in_little_memory(&text);
        assert_eq!(said.code, Some(1), "{what}: {said:?}");
        assert!(said.out.starts_with("p.yml:"), "{what}: {}", said.out);
        // below a second in a release build; this one is neither that nor alone on its machine
        assert!(
            began.elapsed() < pace.stretches(Duration::from_secs(15)),
            "{what} took {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn repeated_and_unknown_keys_are_mistakes_and_never_the_last_one_or_a_default() {
    let twice = refused(
        "a repeated key",
        "policy: p\nnetwork: none\nallow: []\nnetwork: internet\n",
    );
    assert!(
        twice.out.contains("p.yml:4:1") && twice.out.contains("line 2"),
        "{}",
        twice.out
    );
    let typo = refused(
        "a misspelt key",
        "policy: p\nnetwork: domains\nallowed_domain: [a.example.net]\n",
    );
    assert!(typo.out.contains("p.yml:3:1"), "{}", typo.out);
    let entry = refused(
        "a misspelt key of an entry",
        "policy: p\nnetwork: domains\nallow: [{ hots: a.example.net }]\n",
    );
    assert!(entry.out.contains("did you mean `host`?"), "{}", entry.out);
    let directory = files(&[("c.yml", "gateway:\n  egress_filter: requierd\n")]);
    let config = sallyport_in(directory.path(), &["config", "check", "--config", "c.yml"]);
    assert_eq!(config.code, Some(1), "{config:?}");
    assert!(
        format!("{}{}", config.out, config.err).contains("c.yml:2:"),
        "{config:?}"
    );
}

#[test]
fn rules_cannot_hide_behind_merge_keys_and_anchors() {
    let hidden = "x: &base\n  allow: [{ cidr: 0.0.0.0/0, ports: any }]\npolicy: p\nnetwork: domains\n<<: *base\n";
    let said = refused("a merge key", hidden);
    assert!(
        said.out.contains("merge key is not allowed") && said.out.contains("anchor is not allowed"),
        "{}",
        said.out
    );
    refused(
        "an alias in a list",
        "policy: p\nnetwork: domains\nallow:\n  - &a { host: a.example.net }\n  - *a\n",
    );
}

#[test]
fn values_that_yaml_readers_disagree_about_are_typed_mistakes() {
    for port in [
        "22:22", "0o10", "010", "1_000", "1e3", "80.0", "65536", "-1", "0", "0x50", "'80'", "~",
        "true",
    ] {
        refused(
            port,
            &format!(
                "policy: p\nnetwork: domains\nallow: [{{ host: a.example.net, ports: [{port}] }}]\n"
            ),
        );
    }
    for list in [
        "no",
        "off",
        "y",
        "~",
        "null",
        "",
        "'[]'",
        "{}",
        "a.example.net",
    ] {
        refused(
            list,
            &format!("policy: p\nnetwork: domains\nallow: {list}\n"),
        );
    }
    for host in [
        "no",
        "1.0",
        "null",
        "~",
        "2026-01-01",
        "*x",
        "on",
        "0x10",
        "1e3",
        "''",
        "[a]",
        "{}",
    ] {
        refused(
            host,
            &format!("policy: p\nnetwork: domains\nallow: [{{ host: {host} }}]\n"),
        );
    }
    for (flag, key) in [
        ("yes", "private"),
        ("on", "private"),
        ("1", "private"),
        ("'true'", "explain"),
        ("True", "explain"),
    ] {
        refused(
            flag,
            &format!("policy: p\nnetwork: domains\n{key}: {flag}\n"),
        );
    }
    // the twin: the same words where they mean what they say
    let good = "policy: p\nnetwork: domains\nallow: [{ host: no.example.net, ports: [22, 1000-1001] }, { host: '1.example.net' }]\nprivate: true\n";
    assert_eq!(check(good).code, Some(0), "{:?}", check(good));
}

#[test]
fn an_empty_list_permits_nothing_and_nothing_is_no_list() {
    for (what, allow) in [("an empty list", "allow: []\n"), ("no list", "")] {
        let text = format!("policy: p\nnetwork: domains\n{allow}");
        let directory = files(&[("p.yml", &text)]);
        for destination in ["a.example.net:443", "8.8.8.8:443"] {
            let said = sallyport_in(
                directory.path(),
                &["policy", "explain", "p.yml", destination, "--json"],
            )
            .expect(1)
            .json();
            assert_eq!(said["decision"], "deny", "{what}: {said}");
        }
    }
    refused("null", "policy: p\nnetwork: domains\nallow: null\n");
    refused("nothing", "policy: p\nnetwork: domains\nallow:\n");
    refused(
        "an empty text",
        "policy: p\nnetwork: domains\nallow: ['']\n",
    );
    refused(
        "an empty host",
        "policy: p\nnetwork: domains\nallow: [{ host: '' }]\n",
    );
}

#[test]
fn hosts_with_anything_around_them_are_refused_with_a_hint() {
    for host in [
        "https://github.com/",
        "github.com:443",
        "github.com/x",
        "user@github.com",
        "github.com #x",
        " github.com",
        "github.com ",
        "git hub.com",
        "[::1]",
        "1.2.3.4",
    ] {
        let said = refused(
            host,
            &format!("policy: p\nnetwork: domains\nallow:\n  - host: \"{host}\"\n"),
        );
        assert!(said.out.contains("p.yml:4:"), "{host}: {}", said.out);
        assert!(
            said.out.contains("hint") || said.out.contains("no host name"),
            "{host}: {}",
            said.out
        );
    }
    // what a comment hides is not part of the host, and explain shows what is left
    let directory = files(&[(
        "p.yml",
        "policy: p\nnetwork: domains\nallow:\n  - host: GitHub.com #x\n",
    )]);
    let said = sallyport_in(
        directory.path(),
        &["policy", "explain", "p.yml", "github.com:443", "--json"],
    )
    .expect(0)
    .json();
    assert_eq!(said["decision"], "permit");
}
