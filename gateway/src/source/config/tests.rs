//! What a source may be, and every mistake with its place.

use super::*;
use crate::config::GatewayConfig;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti a@example.com";

fn parse(text: &str) -> Result<Vec<SourceConfig>, Vec<String>> {
    let text = format!("gateway:\n  sources:\n{text}");
    let config = GatewayConfig::parse("c.yml", &text);
    config
        .map(|c| c.sources)
        .map_err(|found| found.iter().map(ToString::to_string).collect())
}

#[test]
fn a_remote_alone_is_a_source_with_the_defaults_that_are_safe() {
    let found = parse("    main:\n      remote: /srv/policies.git\n").unwrap();
    let source = &found[0];
    assert_eq!(
        (
            source.name.as_str(),
            source.branch.as_str(),
            source.folder.as_str()
        ),
        ("main", "main", "policies")
    );
    assert_eq!(
        (source.rewrites, source.proposals, source.poll),
        (Rewrites::Follow, false, Duration::from_mins(1))
    );
    assert!(source.serves("any") && source.signatures.is_none() && source.floors.is_none());
}

#[test]
fn required_signatures_refuse_rewritten_history_unless_told_otherwise() {
    let signed = format!(
        "    a:\n      remote: /srv/a\n      signatures:\n        ssh: [{{ key: {KEY:?}, until: 2027-01-31 }}]\n"
    );
    let source = &parse(&signed).unwrap()[0];
    assert_eq!(source.rewrites, Rewrites::Refuse);
    assert_eq!(source.signatures.as_ref().unwrap().ssh.len(), 1);
    let told = parse(&format!("{signed}      rewrites: follow\n")).unwrap();
    assert_eq!(told[0].rewrites, Rewrites::Follow);
}

/// GIT-04 GIT-05 GIT-21
#[test]
fn all_mistakes_come_at_once_with_their_places() {
    let found = parse(
        "    A b:\n      remote: /srv/a\n    b:\n      remote: \"--upload-pack=x\"\n      branch: a..b\n      folder: ../x\n      ssh_key: \"/a b\"\n    c:\n      remote: ssh://git@git.example/x\n    d:\n      remote: https://u:p@h/x\n    e:\n      remote: /srv/e\n      known_hosts: /etc/k\n      signatures: {}\n      floors: policies/floors\n    f:\n      branch: main\n",
    )
    .unwrap_err();
    for wanted in [
        "c.yml:3:",
        "c.yml:6:",
        "c.yml:7:",
        "c.yml:8:",
        "c.yml:9:",
        "c.yml:11:",
        "c.yml:13:",
        "c.yml:16:",
        "c.yml:17:",
        "c.yml:15:",
        "c.yml:20:",
    ] {
        assert!(
            found.iter().any(|m| m.starts_with(wanted)),
            "{wanted} is missing in {found:#?}"
        );
    }
}

/// GIT-08
#[test]
fn keys_that_would_never_be_judged_are_refused_at_once() {
    for key in [
        "ssh-ed25519 AAAA",
        "no key",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC8 x",
    ] {
        let text = format!(
            "    a:\n      remote: /srv/a\n      signatures: {{ ssh: [{{ key: {key:?} }}] }}\n"
        );
        assert!(parse(&text).is_err(), "{key}");
    }
}
