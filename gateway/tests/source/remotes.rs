//! Hostile remotes and a hostile environment: nothing runs, nothing grows, nothing waits for ever.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::lab::*;

/// Settings of a repository that run programs when somebody works in it as its owner.
#[tokio::test]
async fn nothing_that_a_repository_says_is_run() {
    let lab = Lab::new();
    let marker = lab.folder.path().join("marker");
    let script = lab.file(
        "trap",
        0o755,
        format!("#!/bin/sh\ntouch {}\n", marker.display()).as_bytes(),
    );
    let trap = script.display().to_string();
    let good = lab.remote.push(OPEN, &[]);
    let included = lab.file(
        "included",
        0o644,
        format!("[core]\n\tsshCommand = {trap}\n").as_bytes(),
    );
    let included = included.display().to_string();
    // in the remote
    for (key, value) in [
        ("core.fsmonitor", trap.as_str()),
        ("core.sshCommand", &trap),
        ("alias.fetch", &format!("!{trap}")),
        ("uploadpack.packObjectsHook", &trap),
        ("filter.x.smudge", &trap),
        ("include.path", &included),
    ] {
        lab.remote.git(&["config", key, value], b"");
    }
    for hook in [
        "pre-upload",
        "post-checkout",
        "reference-transaction",
        "post-update",
    ] {
        let path = lab.remote.path.join("hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&script, &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // in the mirror, as if somebody had put them there; and attributes in the tree
    let attributes = lab.remote.blob("* filter=x diff=x merge=x\n");
    let policies = lab.remote.git(&["rev-parse", "main:policies"], b"");
    let tree = lab.remote.raw_tree(&[
        ("100644", b".gitattributes", &attributes),
        ("40000", b"policies", &policies),
    ]);
    let second = lab.remote.commit(&tree, &[&good]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let hooks = lab.state().join("sources/main/mirror.git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in ["reference-transaction", "post-merge", "pre-auto-gc"] {
        std::fs::copy(&script, hooks.join(hook)).unwrap();
    }
    lab.remote.set("main", &second);
    let _ = std::fs::remove_file(&marker);
    loaded(&sources, &second).await;
    assert!(!marker.exists());
    // the trap is one: the same hook runs for whoever uses git without these settings
    std::fs::copy(&script, lab.remote.path.join("hooks/reference-transaction")).unwrap();
    lab.remote.set("other", &second);
    assert!(marker.exists());
}

#[tokio::test]
async fn a_fetch_beyond_its_limit_is_refused_and_the_next_one_in_order_is_loaded() {
    let lab = Lab::with("limits: { fetch: 1MiB }");
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    // bytes that do not compress
    let mut bytes = vec![0; 3 << 20];
    let mut state = 1_u64;
    for byte in &mut bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *byte = state.to_be_bytes()[0];
    }
    let big = lab.remote.blob(&bytes);
    let policies = lab.remote.git(&["rev-parse", "main:policies"], b"");
    let tree = lab
        .remote
        .raw_tree(&[("100644", b"big", &big), ("40000", b"policies", &policies)]);
    let bad = lab.remote.commit(&tree, &[&good]);
    lab.remote.set("main", &bad);
    refused(&sources, Some(&good)).await;
    let next = lab.remote.push(CLOSED, &[&good]);
    loaded(&sources, &next).await;
}

#[tokio::test]
async fn too_many_files_and_too_large_ones_are_refused() {
    let lab = Lab::with("limits: { files: 10, file: 4KiB, total: 6KiB }");
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let long = |name: &str, bytes: usize| {
        format!(
            "policy: {name}\nnetwork: none\ndescription: {}\n",
            "x".repeat(bytes)
        )
    };
    let names: Vec<String> = (0..20).map(|n| format!("p{n}.yml")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let (a, b, large) = (long("a", 3500), long("b", 3500), long("large", 5000));
    for (files, word) in [
        (many, "more than 10 files"),
        (vec![("large.yml", large.as_str())], "bytes"),
        (vec![("a.yml", a.as_str()), ("b.yml", b.as_str())], "bytes"),
    ] {
        let bad = lab.remote.commit(&lab.remote.policies(&files), &[&good]);
        lab.remote.set("main", &bad);
        let said = refused(&sources, Some(&good)).await;
        assert!(said.contains(word), "{said}");
    }
    let next = lab.remote.push(CLOSED, &[&good]);
    loaded(&sources, &next).await;
}

/// Only the branch is asked for, however many references there are.
#[tokio::test]
async fn a_hundred_thousand_references_and_a_zip_bomb_cost_little() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let mut packed = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for number in 0..100_000 {
        let _ = writeln!(packed, "{good} refs/heads/x{number:06}");
    }
    std::fs::write(lab.remote.path.join("packed-refs"), packed).unwrap();
    let sources = lab.open();
    loaded(&sources, &good).await;
    let mirror = lab.state().join("sources/main/mirror.git");
    assert!(!mirror.join("refs/heads/x000000").exists() && !mirror.join("packed-refs").exists());
    // two hundred megabytes of nothing in a few kilobytes: streamed, and outside the folder never read
    let bomb = lab.remote.blob(vec![0; 200 << 20]);
    let policies = lab.remote.git(&["rev-parse", "main:policies"], b"");
    let tree = lab.remote.raw_tree(&[
        ("100644", b"bomb", &bomb),
        ("40000", b"policies", &policies),
    ]);
    let next = lab.remote.commit(&tree, &[&good]);
    lab.remote.set("main", &next);
    loaded(&sources, &next).await;
    let inside = lab.remote.raw_tree(&[("100644", b"bomb.yml", &bomb)]);
    let bad = lab.remote.commit(
        &lab.remote.raw_tree(&[("40000", b"policies", &inside)]),
        &[&next],
    );
    lab.remote.set("main", &bad);
    let said = refused(&sources, Some(&next)).await;
    assert!(
        said.contains("policies/bomb.yml") && said.contains("209715200 bytes"),
        "{said}"
    );
}

/// A server that accepts and says nothing, beside one that answers.
#[tokio::test]
async fn a_remote_that_says_nothing_is_given_up_and_others_go_on() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut lab = Lab::with("limits: { seconds: 2 }");
    lab.file("ca.pem", 0o644, b"");
    let good = lab.remote.push(OPEN, &[]);
    let working = lab.open();
    lab.extra.push_str("\nbranch: main");
    let began = Instant::now();
    let other = Lab {
        folder: tempfile::tempdir().unwrap(),
        remote: Repository::new(lab.folder.path().join("o").as_path()),
        extra: lab.extra.clone(),
    };
    let stuck = other.open_at(&format!("https://127.0.0.1:{port}/x"));
    let (_, ()) = tokio::join!(sync(&stuck), loaded(&working, &good));
    let view = main_of(&stuck).view();
    assert!(view.problem.is_some() && view.commit.is_none());
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    drop(silent);
}

#[tokio::test]
async fn files_of_the_configuration_that_others_could_write_are_not_used() {
    let mut lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let keyring = lab.file("keys.gpg", 0o666, b"");
    let plain = lab.open();
    loaded(&plain, &good).await;
    lab.extra = format!("signatures: {{ openpgp: {} }}", keyring.display());
    let said = refused(&lab.open(), None).await;
    assert!(said.contains("cannot be used"), "{said}");
}
