//! Proposals: a branch of their own, never the followed one, never over something that is there.

use gateway::source::propose::ProposeError;
use gateway::source::view::{ProposalRequest, ProposedFile};

use super::lab::*;

fn request(name: &str, file: &str, text: &str) -> ProposalRequest {
    let files = vec![ProposedFile {
        file: file.to_owned(),
        text: text.to_owned(),
    }];
    ProposalRequest {
        name: name.to_owned(),
        title: "Close it".to_owned(),
        files,
    }
}

#[tokio::test]
async fn a_proposal_is_a_branch_beside_the_followed_one_and_is_written_once() {
    let lab = Lab::with("proposals: allowed");
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let source = main_of(&sources);
    let proposed = source
        .propose(&request("close-it", "policies/research.yml", CLOSED), 1000)
        .await
        .unwrap();
    assert_eq!(
        (proposed.branch.as_str(), proposed.base.as_str()),
        ("sallyport/proposals/close-it", good.as_str())
    );
    let show = |what: &str| lab.remote.git(&["show", what], b"");
    assert_eq!(
        format!(
            "{}\n",
            show(&format!(
                "refs/heads/{}:policies/research.yml",
                proposed.branch
            ))
        ),
        CLOSED
    );
    assert_eq!(
        lab.remote.git(&["rev-parse", "main"], b""),
        good,
        "the followed branch is as it was"
    );
    assert_eq!(
        lab.remote
            .git(&["rev-parse", &format!("{}^", proposed.commit)], b""),
        good
    );
    assert!(
        lab.remote
            .git(&["log", "-1", "--format=%B", &proposed.commit], b"")
            .contains("the user 1000")
    );
    // not in force before somebody merges it
    sync(&sources).await;
    assert_eq!(research(&sources).as_deref(), Some(OPEN));
    let again = source
        .propose(&request("close-it", "policies/research.yml", OPEN), 0)
        .await;
    assert!(matches!(again, Err(ProposeError::Exists(_))), "{again:?}");
    // nor the very same one
    let same = source
        .propose(&request("close-it", "policies/research.yml", CLOSED), 1000)
        .await;
    assert!(
        matches!(&same, Err(error) if error.to_string() == "the proposal close-it exists already"),
        "{same:?}"
    );
    assert_eq!(
        lab.remote.git(
            &["rev-parse", "refs/heads/sallyport/proposals/close-it"],
            b""
        ),
        proposed.commit
    );
    lab.remote.set("main", &proposed.commit);
    loaded(&sources, &proposed.commit).await;
    assert_eq!(research(&sources).as_deref(), Some(CLOSED));
}

#[tokio::test]
async fn what_could_hit_another_branch_another_file_or_could_never_be_merged_is_refused() {
    let lab = Lab::with("proposals: allowed");
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let source = main_of(&sources);
    for name in [
        "",
        "../main",
        "main:refs/heads/main",
        "a/b",
        "+main",
        "-x",
        "x-",
        "A",
        "a b",
        "a\nb",
        "x.lock",
    ] {
        let said = source
            .propose(&request(name, "policies/research.yml", CLOSED), 0)
            .await;
        assert!(
            matches!(said, Err(ProposeError::Request(_))),
            "{name:?}: {said:?}"
        );
    }
    for file in [
        "research.yml",
        "../x.yml",
        "/etc/x.yml",
        "policies/../x.yml",
        "policies/.git/x.yml",
        "policies/README.md",
        "policies/Research.yml",
        "policies/research.yaml",
        "policies2/x.yml",
        "policies",
    ] {
        let said = source
            .propose(&request("x", file, "policy: x\nnetwork: none\n"), 0)
            .await;
        assert!(
            matches!(said, Err(ProposeError::Path { .. })),
            "{file:?}: {said:?}"
        );
    }
    for text in [
        "policy: x\nnetwrok: none\n",
        "policy: research\nnetwork: none\n",
    ] {
        let said = source
            .propose(&request("x", "policies/x.yml", text), 0)
            .await;
        assert!(matches!(said, Err(ProposeError::Mistakes(_))), "{said:?}");
    }
    let branches = lab
        .remote
        .git(&["for-each-ref", "--format=%(refname)"], b"");
    assert_eq!(branches, "refs/heads/main");
    assert!(
        source
            .propose(
                &request("x", "policies/x.yml", "policy: x\nnetwork: none\n"),
                0
            )
            .await
            .is_ok()
    );
    // and where the configuration does not say so, nothing is pushed
    let closed = Lab {
        extra: String::new(),
        ..lab
    };
    let said = main_of(&closed.open())
        .propose(
            &request("y", "policies/y.yml", "policy: y\nnetwork: none\n"),
            0,
        )
        .await;
    assert!(matches!(said, Err(ProposeError::NotAllowed)), "{said:?}");
}
