//! How a branch may move, and what it may point to.

use super::lab::*;
use gateway::source::names::Oid;
use gateway::source::state::Manner;

#[tokio::test]
async fn a_rewritten_branch_is_followed_and_flagged_also_when_it_comes_back() {
    let lab = Lab::new();
    let first = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &first).await;
    let second = lab.remote.push(CLOSED, &[&first]);
    loaded(&sources, &second).await;
    assert!(
        main_of(&sources).view().moves.is_empty(),
        "a branch that grows is nothing to flag"
    );
    let other = lab
        .remote
        .push("policy: research\nnetwork: domains\n", &[&first]);
    loaded(&sources, &other).await;
    lab.remote.set("main", &second);
    loaded(&sources, &second).await;
    let moves = main_of(&sources).view().moves;
    let manners: Vec<_> = moves
        .iter()
        .map(|m| (m.manner, m.followed, m.to.to_string()))
        .collect();
    assert_eq!(
        manners,
        [
            (Manner::Rewritten, true, other),
            (Manner::SetBack, true, second)
        ]
    );
    // remembered across restarts
    assert_eq!(main_of(&lab.open()).view().moves, moves);
}

#[tokio::test]
async fn a_branch_that_was_set_back_is_refused_until_exactly_that_commit_is_accepted() {
    let lab = Lab::with("rewrites: refuse");
    let loose = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &loose).await;
    let tight = lab.remote.push(CLOSED, &[&loose]);
    loaded(&sources, &tight).await;
    lab.remote.set("main", &loose);
    let said = refused(&sources, Some(&tight)).await;
    assert!(said.contains("set back"), "{said}");
    // also after a restart, and with a mirror that knows nothing of before
    std::fs::remove_dir_all(lab.state().join("sources/main/mirror.git")).unwrap();
    let sources = lab.open();
    assert_eq!(research(&sources).as_deref(), Some(CLOSED));
    let said = refused(&sources, Some(&tight)).await;
    assert!(said.contains("set back"), "{said}");
    // another commit's acceptance is not this one's
    let tight_oid: Oid = tight.parse().unwrap();
    main_of(&sources).sync(Some(&tight_oid)).await;
    assert_eq!(
        main_of(&sources).view().commit.as_deref(),
        Some(tight.as_str())
    );
    let loose_oid: Oid = loose.parse().unwrap();
    main_of(&sources).sync(Some(&loose_oid)).await;
    let view = main_of(&sources).view();
    assert_eq!(
        (view.commit.as_deref(), view.problem),
        (Some(loose.as_str()), None)
    );
    assert_eq!(
        view.moves.last().map(|m| (m.manner, m.followed)),
        Some((Manner::SetBack, true))
    );
}

#[tokio::test]
async fn a_branch_that_points_to_a_tag_a_tree_or_a_blob_is_refused() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    let tree = lab.remote.git(&["rev-parse", "main^{tree}"], b"");
    let blob = lab.remote.blob(OPEN);
    let tag = format!(
        "object {good}\ntype commit\ntag x\ntagger A <a@example.com> 1767225600 +0000\n\nx\n"
    );
    let tag = lab.remote.git(
        &["hash-object", "-w", "-t", "tag", "--stdin"],
        tag.as_bytes(),
    );
    for oid in [tree, blob, tag] {
        // what git's own commands would not write, a hostile server has
        std::fs::write(lab.remote.path.join("refs/heads/main"), format!("{oid}\n")).unwrap();
        refused(&sources, Some(&good)).await;
    }
    std::fs::write(lab.remote.path.join("refs/heads/main"), format!("{good}\n")).unwrap();
    let next = lab.remote.push(CLOSED, &[&good]);
    loaded(&sources, &next).await;
}

#[tokio::test]
async fn a_sync_that_was_killed_leaves_nothing_that_the_next_one_reads() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    loaded(&lab.open(), &good).await;
    let folder = lab.state().join("sources/main");
    // what a gateway leaves that was killed in the middle: its marker, locks, half a pack, half a state
    std::fs::write(folder.join("mirror.fetching"), "").unwrap();
    for left in [
        "shallow.lock",
        "packed-refs.lock",
        "config.lock",
        "refs/sallyport/incoming.lock",
        "refs/sallyport/good.lock",
        "objects/pack/tmp_pack_x",
    ] {
        std::fs::write(folder.join("mirror.git").join(left), "half").unwrap();
    }
    std::fs::write(folder.join("kept.new"), "{\"of\":").unwrap();
    let next = lab.remote.push(CLOSED, &[&good]);
    let sources = lab.open();
    assert_eq!(research(&sources).as_deref(), Some(OPEN));
    loaded(&sources, &next).await;
}

#[tokio::test]
async fn a_disk_that_is_full_changes_nothing() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    loaded(&sources, &good).await;
    lab.remote.push(CLOSED, &[&good]);
    // root writes everywhere but where a folder stands in the way
    let folder = lab.state().join("sources/main");
    std::fs::create_dir(folder.join("kept.new")).unwrap();
    let said = refused(&sources, Some(&good)).await;
    assert!(said.contains("could not be kept"), "{said}");
    assert_eq!(
        research(&sources).as_deref(),
        Some(OPEN),
        "what is not kept is not in force"
    );
    std::fs::remove_dir(folder.join("kept.new")).unwrap();
    sync(&sources).await;
    assert_eq!(research(&sources).as_deref(), Some(CLOSED));
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_few_looks() {
    let lab = Lab::new();
    let good = lab.remote.push(OPEN, &[]);
    let sources = lab.open();
    futures_util::future::join_all((0..1000).map(|_| main_of(&sources).sync(None))).await;
    let source = main_of(&sources);
    assert_eq!(source.view().commit.as_deref(), Some(good.as_str()));
    assert!(source.looks() <= 3, "{} looks", source.looks());
    // one that is asked for afterwards is a look of its own
    let before = source.looks();
    source.sync(None).await;
    assert_eq!(source.looks(), before + 1);
}
