//! What a commit's files may be: everything in order, or nothing of it is loaded.

use super::lab::*;

/// A good commit first, then one with this tree; the good one stays and the answer is what is said.
async fn after_good(tree: impl FnOnce(&Repository) -> String) -> String {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let bad = lab.remote.commit(&tree(&lab.remote), &[&good]);
    lab.remote.set("main", &bad);
    let said = refused(&sources, Some(&good)).await;
    assert_eq!(research(&sources).as_deref(), Some(OPEN));
    // the permitted twin: the same branch in order again
    let next = lab.remote.push(CLOSED, &[&good]);
    loaded(&sources, &next).await;
    said
}

#[tokio::test]
async fn a_policy_that_is_a_link_is_refused_and_nothing_of_its_target_is_shown() {
    for target in ["/etc/passwd", "../../config.yml", "research.yml"] {
        let said = after_good(|r| {
            let (link, good) = (r.blob(target), r.blob(OPEN));
            let folder = r.raw_tree(&[
                ("120000", b"link.yml", &link),
                ("100644", b"research.yml", &good),
            ]);
            r.raw_tree(&[("40000", b"policies", &folder)])
        })
        .await;
        assert!(
            said.contains("policies/link.yml") && said.contains("symbolic link"),
            "{said}"
        );
        assert!(
            !said.contains("root:")
                && !said.contains(target.trim_start_matches("research.yml").trim())
                || target == "research.yml",
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_folder_that_is_a_link_or_a_submodule_is_refused() {
    let said = after_good(|r| {
        let link = r.blob("../");
        r.raw_tree(&[("120000", b"policies", &link)])
    })
    .await;
    assert!(said.contains("is a symbolic link"), "{said}");
    for module in ["160000"] {
        let said = after_good(|r| {
            let oid = r.git(&["rev-parse", "main"], b"");
            r.raw_tree(&[(module, b"policies", &oid)])
        })
        .await;
        assert!(said.contains("is a submodule"), "{said}");
    }
    let said = after_good(|r| {
        let (oid, good) = (r.git(&["rev-parse", "main"], b""), r.blob(OPEN));
        let folder = r.raw_tree(&[
            ("160000", b"more", &oid),
            ("100644", b"research.yml", &good),
        ]);
        r.raw_tree(&[("40000", b"policies", &folder)])
    })
    .await;
    assert!(
        said.contains("policies/more") && said.contains("a submodule"),
        "{said}"
    );
}

/// A submodule beside the folder, with every trap that its file can hold, is never looked at.
#[tokio::test]
async fn submodules_elsewhere_are_never_initialised() {
    let lab = Lab::new();
    let marker = lab.folder.path().join("marker");
    let traps = format!(
        "[submodule \"a\"]\n\tpath = a\n\turl = ext::sh -c touch% {0}\n\tupdate = !touch {0}\n[submodule \"b\"]\n\tpath = b\n\turl = -u./x\n[submodule \"c\"]\n\tpath = \"c\\r\"\n\turl = file:///etc\n",
        marker.display()
    );
    let r = &lab.remote;
    // what git itself refuses to receive is refused, and what it lets pass is not followed
    let first = r.push(OPEN, &[]);
    let policies = r.git(&["rev-parse", "main:policies"], b"");
    let harmless = r.blob("[submodule \"a\"]\n\tpath = a\n\turl = https://example.com/a\n");
    let tree = r.raw_tree(&[
        ("100644", b".gitmodules", &harmless),
        ("160000", b"a", &first),
        ("40000", b"policies", &policies),
    ]);
    let good = r.commit(&tree, &[&first]);
    r.set("main", &good);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let traps = r.blob(traps);
    let tree = r.raw_tree(&[
        ("100644", b".gitmodules", &traps),
        ("160000", b"a", &first),
        ("40000", b"policies", &policies),
    ]);
    let bad = r.commit(&tree, &[&good]);
    r.set("main", &bad);
    refused(&sources, Some(&good)).await;
    assert!(!marker.exists());
}

#[tokio::test]
async fn names_that_mean_something_else_somewhere_are_refused() {
    for name in [
        ".git",
        "git~1",
        "..",
        "a\\..\\b.yml",
        "a\nb.yml",
        ".GIT",
        "-x.yml",
        "p\u{f6}licy.yml",
    ] {
        after_good(|r| {
            let good = r.blob(OPEN);
            let folder = r.raw_tree(&[
                ("100644", name.as_bytes(), &good),
                ("100644", b"research.yml", &good),
            ]);
            r.raw_tree(&[("40000", b"policies", &folder)])
        })
        .await;
    }
}

#[tokio::test]
async fn two_candidates_for_one_name_are_refused() {
    for pair in [
        ["policy.yaml", "policy.yml"],
        ["Policy.yaml", "policy.yaml"],
        ["A.yml", "a.yml"],
    ] {
        let said = after_good(|r| {
            r.policies(&[
                (pair[0], "policy: a\nnetwork: none\n"),
                (pair[1], "policy: b\nnetwork: none\n"),
            ])
        })
        .await;
        assert!(said.contains("only one of them can be meant"), "{said}");
    }
    let said = after_good(|r| r.policies(&[("a.yml", OPEN), ("b.yml", CLOSED)])).await;
    assert!(
        said.contains("another policy has the name \"research\""),
        "{said}"
    );
}

#[tokio::test]
async fn one_mistake_anywhere_refuses_the_whole_commit_with_every_place() {
    let said = after_good(|r| {
        r.policies(&[
            ("a.yml", "policy: a\nnetwrok: none\n"),
            (
                "b.yml",
                "policy: b\nnetwork: domains\nallow:\n  - host: \"bad domain\"\n",
            ),
            ("research.yml", CLOSED),
        ])
    })
    .await;
    let place = |file: &str, line: u32| {
        said.lines().any(|l| {
            l.split_once(':').is_some_and(|(commit, rest)| {
                commit.len() == 12 && rest.starts_with(&format!("policies/{file}:{line}:"))
            })
        })
    };
    assert!(place("a.yml", 2) && place("b.yml", 4), "{said}");
    for text in [
        "",
        "a: [",
        "policy: x\nnetwork: [internet]\n",
        "policy: x\nnetwork: internet\nworkspace: b\n",
        "[]",
    ] {
        after_good(|r| r.policies(&[("research.yml", OPEN), ("x.yml", text)])).await;
    }
}

#[tokio::test]
async fn deleting_policies_folder_branch_or_repository_is_no_policy() {
    let said = after_good(|r| {
        let readme = r.blob("nothing here");
        let folder = r.raw_tree(&[("100644", b"README.md", &readme)]);
        r.raw_tree(&[("40000", b"policies", &folder)])
    })
    .await;
    assert!(said.contains("no policy is left"), "{said}");
    after_good(|r| {
        let readme = r.blob("nothing here");
        r.raw_tree(&[("100644", b"README.md", &readme)])
    })
    .await;
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    lab.remote
        .git(&["update-ref", "-d", "refs/heads/main"], b"");
    refused(&sources, Some(&good)).await;
    std::fs::rename(&lab.remote.path, lab.folder.path().join("gone")).unwrap();
    refused(&sources, Some(&good)).await;
    // and a restarted gateway still has it, with the remote gone
    let again = lab.open();
    assert_eq!(research(&again).as_deref(), Some(OPEN));
    refused(&again, Some(&good)).await;
    std::fs::rename(lab.folder.path().join("gone"), &lab.remote.path).unwrap();
    let next = lab.remote.push(CLOSED, &[&good]);
    loaded(&again, &next).await;
}

#[tokio::test]
async fn pointers_and_other_encodings_are_refused_and_line_ends_are_not() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let said = after_good(|r| r.policies(&[("research.yml", pointer)])).await;
    assert!(said.contains("Git LFS"), "{said}");
    for bytes in [&b"\xff\xfep\0o\0"[..], b"\xfe\xff\0p", b"policy: \xff\n"] {
        after_good(|r| {
            let blob = r.blob(bytes);
            let folder = r.raw_tree(&[("100644", b"research.yml", &blob)]);
            r.raw_tree(&[("40000", b"policies", &folder)])
        })
        .await;
    }
    for text in [OPEN.replace('\n', "\r\n"), format!("\u{feff}{OPEN}")] {
        let lab = Lab::new();
        let good = lab.remote.push(&text, &[]);
        loaded(&lab.open(), &good).await;
    }
}

#[tokio::test]
async fn a_source_speaks_for_no_other_workspace_and_its_floors_narrow_its_own() {
    let lab = Lab::with("workspaces: [a]\nfloors: floors");
    let r = &lab.remote;
    let with_floor = |name: &str, text: &str| {
        let (policies, floor) = (r.policies(&[("research.yml", OPEN)]), r.blob(text));
        let policies = r.git(&["rev-parse", &format!("{policies}:policies")], b"");
        let floors = r.raw_tree(&[("100644", name.as_bytes(), &floor)]);
        r.raw_tree(&[
            ("40000", b"floors", &floors),
            ("40000", b"policies", &policies),
        ])
    };
    let good = r.commit(&with_floor("a.yml", "policy: floor\nnetwork: none\n"), &[]);
    r.set("main", &good);
    let sources = lab.open();
    // nothing is composed as if there were no floor, before it is known
    assert!(sources.shelf().floors("a").is_err());
    loaded(&sources, &good).await;
    assert_eq!(sources.shelf().floors("a").unwrap().len(), 1);
    assert!(sources.shelf().floors("b").unwrap().is_empty());
    assert!(sources.shelf().find("a", None, "research").is_ok());
    for source in [None, Some("main")] {
        assert!(sources.shelf().find("b", source, "research").is_err());
    }
    let bad = r.commit(
        &with_floor("b.yml", "policy: floor\nnetwork: internet\n"),
        &[&good],
    );
    r.set("main", &bad);
    let said = refused(&sources, Some(&good)).await;
    assert!(said.contains("may not speak for that workspace"), "{said}");
}
