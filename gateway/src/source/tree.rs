//! A tree object as git wrote it: entries with mode, name and object. Every oddity is a mistake of the commit.
//!
//! Nothing is ever checked out, so a name cannot become a file; but a reviewer on another system must see the same names
//! that the gateway reads. So names are plain ASCII, links and submodules are refused, and two names that some file
//! system takes for one are a mistake. Pure. Failure stance: what is not plainly a file or a folder is refused.

use super::names::Oid;

/// Longest name of an entry.
const LONGEST: usize = 100;
/// Files that tools leave in folders and that mean nothing here.
const IGNORED: [&str; 4] = [".gitkeep", ".gitattributes", ".gitignore", ".editorconfig"];

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file.
    File,
}

/// One entry that is in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its object.
    pub oid: Oid,
}

/// A tree with what is wrong in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Entries in order.
    pub items: Vec<Item>,
    /// Entries that are not: name for people, and why.
    pub refused: Vec<(String, String)>,
}

/// Reads a tree; `None` when the bytes are none.
pub fn read(bytes: &[u8]) -> Option<Listing> {
    let mut listing = Listing::default();
    for (mode, name, oid) in raw(bytes)? {
        let shown: String = String::from_utf8_lossy(name)
            .escape_debug()
            .take(LONGEST)
            .collect();
        let refusal = match mode {
            b"120000" => Some("a symbolic link"),
            b"160000" => Some("a submodule"),
            b"40000" | b"100644" | b"100755" => odd_name(name),
            _ => Some("an entry of an odd mode"),
        };
        if let Some(why) = refusal {
            listing
                .refused
                .push((shown, format!("{why} cannot stand in a folder of policies")));
            continue;
        }
        let kind = if mode == b"40000" {
            Kind::Folder
        } else {
            Kind::File
        };
        listing.items.push(Item {
            kind,
            name: shown,
            oid,
        });
    }
    for twin in twins(&listing.items) {
        listing.refused.push(twin);
    }
    Some(listing)
}

/// The entry of one name, whatever the others are; `None` when the bytes are no tree.
pub fn find(bytes: &[u8], wanted: &str) -> Option<Option<Result<Item, &'static str>>> {
    let mut found = raw(bytes)?
        .into_iter()
        .filter(|(_, name, _)| *name == wanted.as_bytes());
    let Some((mode, _, oid)) = found.next() else {
        return Some(None);
    };
    if found.next().is_some() {
        return Some(Some(Err("stands there twice")));
    }
    let kind = match mode {
        b"40000" => Kind::Folder,
        b"100644" | b"100755" => Kind::File,
        b"120000" => return Some(Some(Err("is a symbolic link"))),
        b"160000" => return Some(Some(Err("is a submodule"))),
        _ => return Some(Some(Err("has an odd mode"))),
    };
    Some(Some(Ok(Item {
        kind,
        name: wanted.to_owned(),
        oid,
    })))
}

type Raw<'a> = (&'a [u8], &'a [u8], Oid);

/// `MODE SP NAME NUL 20 bytes`, as gitformat-pack(5) has it.
fn raw(mut bytes: &[u8]) -> Option<Vec<Raw<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ')?;
        let (mode, rest) = bytes.split_at_checked(space)?;
        let rest = rest.get(1..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        let (name, rest) = rest.split_at_checked(end)?;
        let (oid, rest) = rest.get(1..)?.split_at_checked(20)?;
        all.push((mode, name, Oid::from_bytes(oid)?));
        bytes = rest;
    }
    Some(all)
}

/// Why a name is not plain, if it is not.
pub fn odd_name(name: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Some("a name that is no text");
    };
    if text.is_empty() || text.len() > LONGEST {
        return Some("a name without length, or of more than 100 bytes,");
    }
    if IGNORED.contains(&text) {
        return None;
    }
    if text.starts_with(['.', '-']) {
        return Some("a name that begins with '.' or '-'");
    }
    // NTFS and HFS+ take names with such endings and signs for others (`git~1` is `.git`); '~' and blanks are not plain
    // anyway.
    if text.ends_with('.')
        || !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        return Some("a name with other characters than letters, digits and -._");
    }
    None
}

/// Whether a file in a folder of policies is to be read, ignored or refused by its name.
pub fn is_policy(name: &str) -> Result<bool, &'static str> {
    match name.rsplit_once('.') {
        _ if IGNORED.contains(&name) => Ok(false),
        Some((_, "yml" | "yaml")) => Ok(true),
        Some((_, end)) if end.eq_ignore_ascii_case("yml") || end.eq_ignore_ascii_case("yaml") => {
            Err("a policy's file ends with .yml or .yaml in small letters")
        }
        _ => Ok(false),
    }
}

/// Names that some file system, or some person, takes for one: equal but for case, or for `.yml` and `.yaml`.
fn twins(items: &[Item]) -> Vec<(String, String)> {
    let key = |item: &Item| {
        let small = item.name.to_ascii_lowercase();
        let stem = small
            .strip_suffix(".yml")
            .or_else(|| small.strip_suffix(".yaml"));
        stem.map_or(small.clone(), |stem| format!("{stem}.yml"))
    };
    let mut seen: std::collections::HashMap<String, &str> = std::collections::HashMap::new();
    let mut found = Vec::new();
    for item in items {
        if let Some(other) = seen.insert(key(item), &item.name) {
            found.push((
                item.name.clone(),
                format!("has the same name as {other}, or nearly: only one of them can be meant"),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (mode, name) in entries {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend_from_slice(&[7; 20]);
        }
        bytes
    }

    fn refused(mode: &str, name: &[u8]) -> bool {
        !read(&tree(&[(mode, name)])).unwrap().refused.is_empty()
    }

    /// GIT-01 GIT-02 GIT-03
    #[test]
    fn links_submodules_and_odd_modes_are_refused_and_files_and_folders_are_not() {
        for mode in [
            "120000", "160000", "100664", "100600", "0", "040000", "100000", "140000", "1",
        ] {
            assert!(refused(mode, b"a.yml"), "{mode}");
        }
        for mode in ["100644", "100755", "40000"] {
            assert!(!refused(mode, b"a.yml"), "{mode}");
        }
        assert_eq!(
            find(&tree(&[("120000", b"policies")]), "policies"),
            Some(Some(Err("is a symbolic link")))
        );
        assert_eq!(
            find(&tree(&[("160000", b"policies")]), "policies"),
            Some(Some(Err("is a submodule")))
        );
        assert!(matches!(
            find(
                &tree(&[("40000", b"policies"), ("40000", b"policies")]),
                "policies"
            ),
            Some(Some(Err(_)))
        ));
        assert_eq!(
            find(&tree(&[("40000", b"Policies")]), "policies"),
            Some(None)
        );
    }

    /// GIT-05
    #[test]
    fn names_that_could_mean_something_else_anywhere_are_refused() {
        let odd: [&[u8]; 20] = [
            b"",
            b".",
            b"..",
            b".git",
            b".GIT",
            b".Git ",
            b"git~1",
            b"a\\..\\b",
            b"a/b",
            b"../x",
            b"a\nb.yml",
            b"a\rb",
            b"-x.yml",
            b"a b.yml",
            b"a.yml.",
            b".hidden.yml",
            "p\u{f6}licy.yml".as_bytes(),
            "polic\u{443}.yml".as_bytes(),
            b"\xff.yml",
            b"con:.yml",
        ];
        for name in odd {
            assert!(refused("100644", name), "{name:?}");
        }
        assert!(refused("100644", &[b'a'; 101]));
        assert!(!refused("100644", b"research-2_a.v1.yml") && !refused("100644", b".gitkeep"));
    }

    /// GIT-17
    #[test]
    fn two_candidates_for_one_name_are_a_mistake() {
        for pair in [
            ["policy.yml", "policy.yaml"],
            ["Policy.yaml", "policy.yaml"],
            ["A.yml", "a.yaml"],
            ["dir", "DIR"],
            ["x.yml", "x.yml"],
        ] {
            let listing = read(&tree(&pair.map(|name| ("100644", name.as_bytes())))).unwrap();
            assert_eq!(listing.refused.len(), 1, "{pair:?}");
        }
        let apart = read(&tree(&[
            ("100644", b"a.yml"),
            ("100644", b"b.yaml"),
            ("40000", b"a"),
        ]))
        .unwrap();
        assert_eq!((apart.items.len(), apart.refused.len()), (3, 0));
        assert_eq!(
            (is_policy("a.yml"), is_policy("README.md")),
            (Ok(true), Ok(false))
        );
        assert!(is_policy("a.YML").is_err() && is_policy("a.Yaml").is_err());
    }

    #[test]
    fn bytes_that_are_no_tree_are_none() {
        let whole = tree(&[("100644", b"a.yml")]);
        for end in 1..whole.len() {
            assert!(read(&whole[..end]).is_none(), "{end}");
        }
        assert_eq!(read(b"").unwrap().items.len(), 0);
    }
}
