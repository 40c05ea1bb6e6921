//! Any bytes as what a git remote sends: a commit, a tree, names in both and in configuration. No panic; what is accepted
//! has one form, names are plain, and nothing that was signed is lost or added.

use gateway::source::commit;
use gateway::source::names::{Branch, Oid, Remote, TreePath};
use gateway::source::tree::{self, Kind};

/// One run: the first byte says as what.
pub fn run(bytes: &[u8]) {
    let Some((what, rest)) = bytes.split_first() else {
        return;
    };
    match what % 3 {
        0 => tree(rest),
        1 => commit(rest),
        _ => names(rest),
    }
}

fn tree(bytes: &[u8]) {
    let Some(listing) = tree::read(bytes) else {
        assert!(tree::find(bytes, "policies").is_none());
        return;
    };
    for (name, why) in &listing.refused {
        assert!(!why.is_empty());
        // for people's eyes: nothing that a terminal would obey
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
    for item in &listing.items {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        assert!(
            !item.name.is_empty() && item.name.bytes().all(plain),
            "{}",
            item.name
        );
        assert!(!item.name.contains("..") || !item.name.starts_with('.'));
        let again = tree::find(bytes, &item.name)
            .expect("a tree")
            .expect("there");
        // twice of one name is refused by both readers
        match again {
            Ok(found) => assert_eq!((found.oid, found.kind), (item.oid.clone(), item.kind)),
            Err(_) => assert!(listing.refused.iter().any(|(name, _)| *name == item.name)),
        }
        if item.kind == Kind::File {
            let _ = tree::is_policy(&item.name);
        }
    }
}

fn commit(bytes: &[u8]) {
    let Ok(read) = commit::read(bytes) else {
        return;
    };
    assert!(!bytes.contains(&0));
    // what was signed is the object without its signature: never longer, and without one the object itself
    assert!(read.payload.len() <= bytes.len());
    if read.signature.is_none() {
        assert_eq!(read.payload, bytes);
    }
    let unsigned = commit::read(&read.payload).expect("a commit without its signature is one");
    assert_eq!((unsigned.tree, unsigned.parents), (read.tree, read.parents));
    assert_eq!((unsigned.signature, unsigned.payload), (None, read.payload));
}

fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let harmless = |kept: &str| {
        assert_eq!(kept, text);
        // an argument of a program, never one of its options, and no second line of a configuration
        assert!(
            !kept.starts_with('-') && !kept.chars().any(char::is_control),
            "{kept:?}"
        );
    };
    if let Ok(branch) = text.parse::<Branch>() {
        harmless(branch.as_str());
        assert!(!branch.as_str().contains("..") && branch.reference().starts_with("refs/heads/"));
    }
    if let Ok(path) = text.parse::<TreePath>() {
        harmless(path.as_str());
        assert!(
            path.parts()
                .all(|part| tree::odd_name(part.as_bytes()).is_none() || part.is_empty())
        );
    }
    if let Ok(remote) = text.parse::<Remote>() {
        harmless(remote.as_str());
        let _ = remote.transport();
    }
    if let Ok(oid) = text.parse::<Oid>() {
        assert!(matches!(oid.as_str().len(), 40 | 64) && oid.as_str() == text);
    }
}
