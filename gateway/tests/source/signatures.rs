//! Required signatures: only a listed signer's, on exactly this commit and on all that come in with it.

use std::os::unix::fs::PermissionsExt;
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

/// An author with OpenPGP keys, and a keyring with some of them.
struct Author(Lab);

impl Author {
    fn new(keys: &[&str]) -> Self {
        let lab = Lab::new();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(lab.remote.home(), private).unwrap();
        for key in keys {
            gpg(&lab, &["--quick-gen-key", key, "ed25519", "sign", "never"]);
        }
        Self(lab)
    }

    fn fingerprint(&self, key: &str) -> String {
        let listed = gpg(&self.0, &["--with-colons", "--list-keys", key]);
        let line = listed.lines().find_map(|l| l.strip_prefix("fpr:"));
        line.unwrap().trim_matches(':').to_owned()
    }

    fn commit(&self, key: &str, text: &str, parents: &[&str]) -> String {
        let tree = self.0.remote.policies(&[("research.yml", text)]);
        let key = format!("user.signingkey={}!", self.fingerprint(key));
        let options = ["-c", "gpg.format=openpgp", "-c", &key];
        self.0.remote.commit_with(&options, &tree, parents)
    }

    fn revoke(&self, key: &str) {
        let (home, print) = (self.0.remote.home().display(), self.fingerprint(key));
        let file = format!("{home}/openpgp-revocs.d/{print}.rev");
        // gpg spoils the file so that nobody imports it by mistake
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(":-----BEGIN", "-----BEGIN")).unwrap();
        gpg(&self.0, &["--import", &file]);
    }

    /// The lab that lists these keys.
    fn listing(mut self, keys: &[&str]) -> Self {
        let keyring = self.0.folder.path().join("signers.gpg");
        let mut arguments = vec!["--output", keyring.to_str().unwrap(), "--export"];
        arguments.extend(keys);
        gpg(&self.0, &arguments);
        std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(0o644)).unwrap();
        self.0.extra = format!("signatures: {{ openpgp: {} }}\n", keyring.display());
        self
    }
}

impl Drop for Author {
    fn drop(&mut self) {
        stop_agent(&self.0);
    }
}

/// OpenPGP through gpgv and a fixed keyring: listed, unlisted and revoked.
#[tokio::test]
async fn openpgp_signatures_count_by_keyring_and_status_alone() {
    let author = Author::new(&["good@example.com", "other@example.com", "gone@example.com"]);
    let good = author.commit("good@example.com", OPEN, &[]);
    let other = author.commit("other@example.com", CLOSED, &[&good]);
    let gone = author.commit("gone@example.com", CLOSED, &[&good]);
    author.revoke("gone@example.com");
    let author = author.listing(&["good@example.com", "gone@example.com"]);
    let lab = &author.0;
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
    let signer = main_of(&sources).view().signer.unwrap();
    assert!(signer.starts_with("openpgp:"), "{signer}");
}

#[tokio::test]
async fn an_openpgp_signature_of_other_bytes_or_of_another_kind_does_not_count() {
    let author = Author::new(&["good@example.com"]).listing(&["good@example.com"]);
    let lab = &author.0;
    let good = author.commit("good@example.com", OPEN, &[]);
    lab.remote.set("main", &good);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let next = author.commit("good@example.com", CLOSED, &[&good]);
    let text = lab.remote.git(&["cat-file", "commit", &next], b"");
    let tampered = text.replace("words", "Words");
    let bad = lab.remote.raw_commit(format!("{tampered}\n").as_bytes());
    lab.remote.set("main", &bad);
    let said = refused(&sources, Some(&good)).await;
    assert!(said.contains("does not fit"), "{said}");
    // an SSH signature does not count where only OpenPGP signers are listed
    let keys = Keys::new(&[("alice", NEVER)], "");
    let tree = lab.remote.policies(&[("research.yml", CLOSED)]);
    let key = keys.lab.remote.home().join("alice");
    let key = format!("user.signingkey={}", key.display());
    let options = ["-c", "gpg.format=ssh", "-c", &key];
    let ssh = lab.remote.commit_with(&options, &tree, &[&good]);
    lab.remote.set("main", &ssh);
    let said = refused(&sources, Some(&good)).await;
    assert!(said.contains("no signer is listed"), "{said}");
    lab.remote.set("main", &next);
    loaded(&sources, &next).await;
}

fn stop_agent(lab: &Lab) {
    let mut command = Command::new("gpgconf");
    command
        .args(["--kill", "all"])
        .env("GNUPGHOME", lab.remote.home());
    run(command, b"");
}
