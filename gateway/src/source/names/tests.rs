//! Which texts are remotes, branches, paths and object names, and which never are.

use super::*;

/// GIT-04
#[test]
fn a_remote_is_never_an_option_a_program_a_password_or_another_protocol() {
    for text in [
        "--upload-pack=touch /tmp/x",
        "-u./x",
        "ext::sh -c touch% /tmp/x",
        "ext::x",
        "fd::17",
        "file:///etc",
        "file:/etc",
        "git://example.com/x",
        "http://example.com/x",
        "ftp://example.com/x",
        "rsync://e/x",
        "ssh://-oProxyCommand=x/y",
        "ssh://-oProxyCommand/y",
        "-oProxyCommand=x:y",
        "ssh://user:pass@example.com/x",
        "https://user:tok@example.com/x",
        "https://tok@example.com/x",
        "https://example.com",
        "https://example.com/",
        "https:///x",
        "ssh://git@/x",
        "https://example.com/x?y",
        "https://example.com/x#y",
        "https://example.com/a/../b",
        "https://example.com/%2e%2e/b",
        "https://example.com:0/x",
        "https://example.com:99999/x",
        "https://example.com:+1/x",
        "https://[::1/x",
        "https://[::1]x/y",
        "example.com:x",
        "git@example.com",
        "-git@example.com:x",
        "git@-example.com:x",
        "git@example.com:-x",
        "git@example.com:../x",
        "git@example.com:22:x",
        "relative/x",
        "./x",
        "../x",
        "/",
        "//",
        "/a//b",
        "/a/../b",
        "/a/./b",
        "/a b",
        "/a\nb",
        "/a\0b",
        "/-a",
        "",
        "https://exämple.com/x",
        "ssh://git@example.com/a\\b",
        "https://example.com/a'b",
        "https://example.com/a$b",
    ] {
        assert!(text.parse::<Remote>().is_err(), "{text:?}");
    }
    for (text, transport) in [
        (
            "https://git.example.com/team/policies.git",
            Transport::Https,
        ),
        ("https://git.example.com:8443/policies", Transport::Https),
        ("https://[2001:db8::1]:8443/policies", Transport::Https),
        (
            "ssh://git@git.example.com:2222/srv/policies.git",
            Transport::Ssh,
        ),
        ("ssh://git.example.com/~/policies.git", Transport::Ssh),
        ("git@git.example.com:team/policies.git", Transport::Ssh),
        ("/srv/git/policies.git", Transport::Local),
    ] {
        assert_eq!(
            text.parse::<Remote>().map(|r| r.transport()),
            Ok(transport),
            "{text}"
        );
    }
}

/// GIT-21
#[test]
fn a_branch_is_never_a_revision_an_option_or_a_place_of_proposals() {
    for text in [
        "",
        "-x",
        "--upload-pack=x",
        "a..b",
        "a@{1}",
        "@",
        "@{-1}",
        "HEAD",
        "refs/heads/main",
        "a/",
        "/a",
        "a//b",
        ".a",
        "a/.b",
        "a.lock",
        "a/b.LOCK",
        "a.",
        "a b",
        "a\nb",
        "a~1",
        "a^",
        "a:b",
        "a?b",
        "a*",
        "a[b",
        "a\\b",
        "main\0",
        "mäin",
        "sallyport",
        "sallyport/proposals/x",
        "SallyPort/proposals/x",
        "0123456789012345678901234567890123456789^{tree}",
    ] {
        assert!(text.parse::<Branch>().is_err(), "{text:?}");
    }
    for text in ["main", "team/policies", "v1.2", "release-2026_01"] {
        assert_eq!(
            text.parse::<Branch>().map(|b| b.reference()),
            Ok(format!("refs/heads/{text}"))
        );
    }
}

/// GIT-05
#[test]
fn a_path_never_leaves_the_repository() {
    for text in [
        "",
        "/etc/x",
        "../../x",
        "a/../b",
        "a//b",
        "a/",
        ".",
        "..",
        "a\0b",
        ".git/config",
        ".GIT/config",
        "git~1",
        "a\\..\\b",
        "a\nb",
        "-a",
        "a b",
        "ä",
    ] {
        assert!(text.parse::<TreePath>().is_err(), "{text:?}");
    }
    assert!("policies/team-a/research.yml".parse::<TreePath>().is_ok());
}

#[test]
fn an_object_is_named_by_all_its_digits() {
    for text in [
        "",
        "HEAD",
        "abc",
        &"A".repeat(40),
        &"g".repeat(40),
        &"0".repeat(41),
        &"0".repeat(64),
    ] {
        assert!(text.parse::<Oid>().is_err(), "{text:?}");
    }
    assert_eq!(
        Oid::from_bytes(&[0xab; 20]).unwrap().as_str(),
        "ab".repeat(20)
    );
    assert!(Oid::from_bytes(&[0; 19]).is_none());
}
