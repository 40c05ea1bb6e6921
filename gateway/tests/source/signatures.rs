//! Required signatures: only a listed signer's, on exactly this commit and on all that come in with it.

use std::process::Command;

use super::lab::*;

const NEVER: &str = "";

struct Keys {
    lab: Lab,
}

impl Keys {
    /// `ssh` are the listed keys: name and further settings.
    fn new(ssh: &[(&str, &str)], more: &str) -> Self {
        let mut lab = Lab::new();
        for name in ["alice", "mallory", "p256"] {
            let kind = if name == "p256" { "ecdsa" } else { "ed25519" };
            let mut command = Command::new("ssh-keygen");
            command
                .args(["-q", "-t", kind, "-N", "", "-C", name, "-f"])
                .arg(lab.remote.home().join(name));
            run(command, b"");
        }
        let mut extra = "signatures:\n  ssh:\n".to_owned();
        for (name, settings) in ssh {
            let key =
                std::fs::read_to_string(lab.remote.home().join(format!("{name}.pub"))).unwrap();
            extra = format!("{extra}    - {{ key: {:?}{settings} }}\n", key.trim());
        }
        lab.extra = if ssh.is_empty() {
            format!("signatures:\n{more}")
        } else {
            format!("{extra}{more}")
        };
        Self { lab }
    }

    fn options(&self, who: &str) -> Vec<String> {
        let key = self.lab.remote.home().join(who);
        vec![
            "-c".into(),
            "gpg.format=ssh".into(),
            "-c".into(),
            format!("user.signingkey={}", key.display()),
        ]
    }

    /// A commit of this text, signed.
    fn signed(&self, who: &str, text: &str, parents: &[&str]) -> String {
        let tree = self.lab.remote.policies(&[("research.yml", text)]);
        let options = self.options(who);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let oid = self.lab.remote.commit_with(&options, &tree, parents);
        self.lab.remote.set("main", &oid);
        oid
    }

    /// A commit with a signature that ssh-keygen makes over these bytes, in this namespace.
    fn forged(&self, who: &str, namespace: &str, over: &[u8], head: &str) -> String {
        let mut command = Command::new("ssh-keygen");
        command
            .args(["-q", "-Y", "sign", "-n", namespace, "-f"])
            .arg(self.lab.remote.home().join(who));
        let signature = run(command, over).replace('\n', "\n ");
        let (before, after) = head.split_once("\n\n").unwrap();
        let oid = self
            .lab
            .remote
            .raw_commit(format!("{before}\ngpgsig {signature}\n\n{after}").as_bytes());
        self.lab.remote.set("main", &oid);
        oid
    }

    fn unsigned_object(&self, text: &str, parent: &str) -> String {
        let tree = self.lab.remote.policies(&[("research.yml", text)]);
        format!(
            "tree {tree}\nparent {parent}\nauthor A <a@example.com> 1767225600 +0000\ncommitter A <a@example.com> 1767225600 +0000\n\nwords\n"
        )
    }
}

#[tokio::test]
async fn a_listed_signers_commit_is_loaded_with_its_signer() {
    let keys = Keys::new(&[("alice", NEVER), ("p256", NEVER)], "");
    let first = keys.signed("alice", OPEN, &[]);
    let sources = keys.lab.open();
    loaded(&sources, &first).await;
    assert!(
        main_of(&sources)
            .view()
            .signer
            .unwrap()
            .starts_with("ssh:SHA256:")
    );
    let second = keys.signed("p256", CLOSED, &[&first]);
    loaded(&sources, &second).await;
}

#[tokio::test]
async fn unsigned_and_unlisted_commits_are_refused_first_and_later() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let sources = keys.lab.open();
    keys.lab.remote.push(OPEN, &[]);
    let said = refused(&sources, None).await;
    assert!(said.contains("not signed"), "{said}");
    let first = keys.signed("alice", CLOSED, &[]);
    loaded(&sources, &first).await;
    keys.lab.remote.push(OPEN, &[&first]);
    refused(&sources, Some(&first)).await;
    keys.signed("mallory", OPEN, &[&first]);
    let said = refused(&sources, Some(&first)).await;
    assert!(said.contains("not listed"), "{said}");
}

#[tokio::test]
async fn a_listed_key_whose_time_is_over_signs_nothing_new() {
    let keys = Keys::new(&[("alice", ", until: 2026-01-31"), ("p256", "")], "");
    let sources = keys.lab.open();
    keys.signed("alice", OPEN, &[]);
    let said = refused(&sources, None).await;
    assert!(said.contains("time is over"), "{said}");
    let good = keys.signed("p256", OPEN, &[]);
    loaded(&sources, &good).await;
}

#[tokio::test]
async fn a_signature_for_other_bytes_or_another_purpose_is_refused() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let sources = keys.lab.open();
    let first = keys.signed("alice", CLOSED, &[]);
    loaded(&sources, &first).await;
    let object = keys.unsigned_object(OPEN, &first);
    for (namespace, over) in [("file", object.as_str()), ("git", "other bytes"), ("", "")] {
        if namespace.is_empty() {
            continue;
        }
        keys.forged("alice", namespace, over.as_bytes(), &object);
        let said = refused(&sources, Some(&first)).await;
        assert!(
            said.contains(if namespace == "file" {
                "not for git"
            } else {
                "does not fit"
            }),
            "{said}"
        );
    }
    // the signed object with one byte changed
    let good = keys.signed("alice", OPEN, &[&first]);
    let text = keys.lab.remote.git(&["cat-file", "commit", &good], b"");
    let tampered = keys
        .lab
        .remote
        .raw_commit(text.replace("words", "Words").as_bytes());
    keys.lab.remote.set("main", &tampered);
    refused(&sources, Some(&first)).await;
    // the permitted twin, forged in the same way but over its own bytes
    let right = keys.forged("alice", "git", object.as_bytes(), &object);
    loaded(&sources, &right).await;
}

#[tokio::test]
async fn two_signatures_are_none() {
    let keys = Keys::new(&[("alice", NEVER), ("mallory", NEVER)], "");
    let sources = keys.lab.open();
    let first = keys.signed("alice", CLOSED, &[]);
    loaded(&sources, &first).await;
    let good = keys.signed("alice", OPEN, &[&first]);
    let text = format!(
        "{}\n",
        keys.lab.remote.git(&["cat-file", "commit", &good], b"")
    );
    let from = text.find("gpgsig ").unwrap();
    let to =
        text.find("-----END SSH SIGNATURE-----").unwrap() + "-----END SSH SIGNATURE-----\n".len();
    let signature = &text[from..to];
    for doubled in [
        text.replace(signature, &format!("{signature}{signature}")),
        text.replace(
            signature,
            &format!(
                "{signature}{}",
                signature.replace("gpgsig ", "gpgsig-sha256 ")
            ),
        ),
    ] {
        let oid = keys.lab.remote.raw_commit(doubled.as_bytes());
        keys.lab.remote.set("main", &oid);
        refused(&sources, Some(&first)).await;
    }
}

#[tokio::test]
async fn a_merge_brings_nothing_unsigned_in() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let sources = keys.lab.open();
    let base = keys.signed("alice", CLOSED, &[]);
    loaded(&sources, &base).await;
    let side = keys.lab.remote.push(OPEN, &[&base]);
    let merge = keys.signed("alice", CLOSED, &[&base, &side]);
    let said = refused(&sources, Some(&base)).await;
    assert!(
        said.contains(&side) && said.contains("not signed"),
        "{said}"
    );
    // and neither does a signed commit on top of an unsigned one
    keys.signed("alice", CLOSED, &[&side]);
    refused(&sources, Some(&base)).await;
    let side = keys.signed("alice", OPEN, &[&base]);
    let good = keys.signed("alice", OPEN, &[&base, &side]);
    loaded(&sources, &good).await;
    assert_ne!(merge, good);
}

#[tokio::test]
async fn a_signed_tag_says_nothing_about_its_commit() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let commit = keys.lab.remote.push(OPEN, &[]);
    let options = keys.options("alice");
    let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    arguments.extend(["tag", "-s", "-m", "x", "v1", commit.as_str()]);
    keys.lab.remote.git(&arguments, b"");
    let said = refused(&keys.lab.open(), None).await;
    assert!(said.contains("not signed"), "{said}");
}

/// An old commit is signed as well as a new one.
#[tokio::test]
async fn an_older_signed_commit_is_no_way_back() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let sources = keys.lab.open();
    let loose = keys.signed("alice", OPEN, &[]);
    loaded(&sources, &loose).await;
    let tight = keys.signed("alice", CLOSED, &[&loose]);
    loaded(&sources, &tight).await;
    keys.lab.remote.set("main", &loose);
    let said = refused(&sources, Some(&tight)).await;
    assert!(said.contains("set back"), "{said}");
    assert_eq!(research(&sources).as_deref(), Some(CLOSED));
}

#[tokio::test]
async fn whoever_is_taken_off_the_list_vouches_for_nothing() {
    let keys = Keys::new(&[("alice", NEVER)], "");
    let good = keys.signed("alice", OPEN, &[]);
    loaded(&keys.lab.open(), &good).await;
    assert!(research(&keys.lab.open()).is_some());
    let mut other = Keys::new(&[("mallory", NEVER)], "");
    std::mem::swap(&mut other.lab.extra, &mut Lab::new().extra);
    let key = std::fs::read_to_string(keys.lab.remote.home().join("mallory.pub")).unwrap();
    let lab = Lab {
        extra: format!("signatures:\n  ssh:\n    - {{ key: {:?} }}\n", key.trim()),
        ..keys.lab
    };
    assert!(research(&lab.open()).is_none());
    // required later: what was loaded without a signature does not count either
    let plain = Lab::new();
    let good = plain.remote.push(OPEN, &[]);
    loaded(&plain.open(), &good).await;
    let signed = Lab {
        extra: lab.extra.clone(),
        ..plain
    };
    assert!(research(&signed.open()).is_none());
}

fn gpg(lab: &Lab, arguments: &[&str]) -> String {
    let mut command = Command::new("gpg");
    command.args([
        "--batch",
        "--quiet",
        "--no-tty",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
    ]);
    command.args(arguments).env("GNUPGHOME", lab.remote.home());
    run(command, b"")
}

/// OpenPGP through gpgv and a fixed keyring: listed, unlisted, expired, revoked, and the wrong class.
#[tokio::test]
async fn openpgp_signatures_count_by_keyring_and_status_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mut lab = Lab::new();
    std::fs::set_permissions(lab.remote.home(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let fingerprint = |who: &str| {
        let listed = gpg(&lab, &["--with-colons", "--list-keys", who]);
        listed
            .lines()
            .find_map(|l| l.strip_prefix("fpr:"))
            .unwrap()
            .trim_matches(':')
            .to_owned()
    };
    for (who, life) in [
        ("good@example.com", "never"),
        ("other@example.com", "never"),
        ("short@example.com", "seconds=1"),
        ("gone@example.com", "never"),
    ] {
        gpg(&lab, &["--quick-gen-key", who, "ed25519", "sign", life]);
    }
    let commit = |who: &str, text: &str, parents: &[&str]| {
        let tree = lab.remote.policies(&[("research.yml", text)]);
        let key = format!("user.signingkey={}!", fingerprint(who));
        let oid = lab
            .remote
            .commit_with(&["-c", "gpg.format=openpgp", "-c", &key], &tree, parents);
        lab.remote.set("main", &oid);
        oid
    };
    // signed while it could; by the time it is judged it cannot, or is not listed, or is revoked
    let good = commit("good@example.com", OPEN, &[]);
    let other = commit("other@example.com", CLOSED, &[&good]);
    let gone = commit("gone@example.com", CLOSED, &[&good]);
    let revocation = format!(
        "{}/openpgp-revocs.d/{}.rev",
        lab.remote.home().display(),
        fingerprint("gone@example.com")
    );
    let text = std::fs::read_to_string(&revocation)
        .unwrap()
        .replace(":-----BEGIN", "-----BEGIN");
    std::fs::write(&revocation, text).unwrap();
    gpg(&lab, &["--import", &revocation]);
    let keyring = lab.folder.path().join("signers.gpg");
    gpg(
        &lab,
        &[
            "--output",
            keyring.to_str().unwrap(),
            "--export",
            "good@example.com",
            "short@example.com",
            "gone@example.com",
        ],
    );
    std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(0o644)).unwrap();
    lab.extra = format!("signatures: {{ openpgp: {} }}\n", keyring.display());
    let sources = lab.open();
    lab.remote.set("main", &other);
    let said = refused(&sources, None).await;
    assert!(
        said.contains("NO_PUBKEY") || said.contains("ERRSIG"),
        "{said}"
    );
    lab.remote.set("main", &gone);
    let said = refused(&sources, None).await;
    assert!(said.contains("REVKEYSIG"), "{said}");
    lab.remote.set("main", &good);
    loaded(&sources, &good).await;
    assert!(
        main_of(&sources)
            .view()
            .signer
            .unwrap()
            .starts_with("openpgp:")
    );
    // tampered with
    let text = lab
        .remote
        .git(&["cat-file", "commit", &good], b"")
        .replace("words", "Words");
    let bad = lab.remote.raw_commit(format!("{text}\n").as_bytes());
    lab.remote.set("main", &bad);
    let said = refused(&sources, Some(&good)).await;
    assert!(!said.is_empty());
    // an SSH signature does not count where only OpenPGP signers are listed
    let keys = Keys::new(&[("alice", NEVER)], "");
    let tree = lab.remote.policies(&[("research.yml", CLOSED)]);
    let key = format!(
        "user.signingkey={}",
        keys.lab.remote.home().join("alice").display()
    );
    let ssh = lab
        .remote
        .commit_with(&["-c", "gpg.format=ssh", "-c", &key], &tree, &[&good]);
    lab.remote.set("main", &ssh);
    let said = refused(&sources, Some(&good)).await;
    assert!(said.contains("no signer is listed"), "{said}");
    stop_agent(&lab);
}

fn stop_agent(lab: &Lab) {
    let mut command = Command::new("gpgconf");
    command
        .args(["--kill", "all"])
        .env("GNUPGHOME", lab.remote.home());
    run(command, b"");
}
