//! A commit, loaded whole or not at all: every policy below the folder is read, parsed and checked, or the commit is
//! refused with all mistakes, each with commit, file, line and column.
//!
//! Owns the walk (folder by folder, object by object, within limits) and the meaning of names. A policy is found by its
//! own name (`policy:`) or by its path; both are unique. Floors are ordinary documents, `WORKSPACE.yml` each.
//! Refuses to own: whether the commit may be followed ([`super::follow`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use netpolicy::decide::{Layer, LayerKind};
use netpolicy::document::{self, Mistake};
use netpolicy::ids::NetworkId;
use netpolicy::policy::{Place, Policy};

use super::config::SourceConfig;
use super::names::{Oid, TreePath};
use super::objects::{ObjectError, Objects};
use super::tree::{self, Kind};

/// Deepest folder below the folder of policies.
const DEEPEST: usize = 8;
/// Largest tree object: the entries that limits permit, with room for others.
const TREE: u64 = 4 << 20;
/// More mistakes than a person reads.
const MOST_MISTAKES: usize = 200;

/// A document as the commit has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Path in the repository.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// The documents of a commit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Documents {
    /// Policies.
    pub policies: Vec<Document>,
    /// Floors.
    pub floors: Vec<Document>,
}

/// A checked policy with its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its text and path.
    pub document: Document,
    /// Its meaning, stamped.
    pub policy: Arc<Policy>,
}

/// Everything that a commit says, checked.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The commit.
    pub commit: Oid,
    /// Policies by path.
    policies: BTreeMap<String, Entry>,
    /// Paths by the policies' names.
    names: BTreeMap<String, String>,
    /// Floors by workspace.
    floors: BTreeMap<String, Layer>,
}

/// Why a commit cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It has mistakes.
    #[error("the commit has {} mistake{}", .0.len(), if .0.len() == 1 { "" } else { "s" })]
    Mistakes(Vec<Mistake>),
    /// It cannot be read.
    #[error(transparent)]
    Objects(#[from] ObjectError),
}

impl Catalogue {
    /// Checks documents.
    pub fn check(
        config: &SourceConfig,
        commit: &Oid,
        documents: Documents,
    ) -> Result<Self, Vec<Mistake>> {
        let stamp: Arc<str> = commit.as_str().into();
        let mut mistakes = Vec::new();
        let mut catalogue = Self {
            commit: commit.clone(),
            policies: BTreeMap::new(),
            names: BTreeMap::new(),
            floors: BTreeMap::new(),
        };
        for document in documents.floors {
            match floor(config, &document, &stamp) {
                Ok((workspace, layer)) => drop(catalogue.floors.insert(workspace, layer)),
                Err(found) => mistakes.extend(found),
            }
        }
        for document in documents.policies {
            match parse(&document, &stamp) {
                Ok(policy) => mistakes.extend(catalogue.insert(document, policy)),
                Err(found) => mistakes.extend(found),
            }
        }
        if mistakes.is_empty() {
            Ok(catalogue)
        } else {
            Err(stamped(mistakes, &stamp))
        }
    }

    fn insert(&mut self, document: Document, policy: Policy) -> Option<Mistake> {
        let before = self
            .names
            .insert(policy.name.clone(), document.file.clone());
        let twin = before.map(|other| {
            let message = format!("another policy has the name {:?}: {other}", policy.name);
            mistake(
                &document.file,
                message,
                "give each policy a name of its own",
            )
        });
        self.policies.insert(
            document.file.clone(),
            Entry {
                document,
                policy: Arc::new(policy),
            },
        );
        twin
    }

    /// The policy of this name or path.
    pub fn find(&self, policy: &str) -> Option<&Entry> {
        let path = self.names.get(policy).map_or(policy, String::as_str);
        self.policies.get(path)
    }

    /// The floor of a workspace.
    pub fn floor(&self, workspace: &str) -> Option<&Layer> {
        self.floors.get(workspace)
    }

    /// Names and paths of all policies.
    pub fn list(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names
            .iter()
            .map(|(name, path)| (name.as_str(), path.as_str()))
    }

    /// Whether the floors say the same.
    pub fn same_floors(&self, other: &Self) -> bool {
        let hashes = |of: &Self| -> Vec<_> {
            of.floors
                .iter()
                .map(|(k, v)| (k.clone(), v.policy().hash))
                .collect()
        };
        hashes(self) == hashes(other)
    }
}

fn mistake(file: &str, message: impl Into<String>, hint: &str) -> Mistake {
    let at = Place {
        file: file.into(),
        line: 1,
        column: 1,
        commit: None,
    };
    let hint = (!hint.is_empty()).then(|| hint.to_owned());
    Mistake {
        at,
        message: message.into(),
        hint,
    }
}

fn stamped(mut mistakes: Vec<Mistake>, commit: &Arc<str>) -> Vec<Mistake> {
    mistakes.truncate(MOST_MISTAKES);
    for one in &mut mistakes {
        one.at.commit = Some(commit.clone());
    }
    mistakes
}

fn parse(document: &Document, stamp: &Arc<str>) -> Result<Policy, Vec<Mistake>> {
    if document
        .text
        .starts_with("version https://git-lfs.github.com/")
    {
        let message = "this is a pointer of Git LFS, not a policy";
        return Err(vec![mistake(
            &document.file,
            message,
            "keep policies out of LFS",
        )]);
    }
    let mut policy = document::parse(&document.file, &document.text, None)?;
    policy.stamp(stamp);
    Ok(policy)
}

fn floor(
    config: &SourceConfig,
    document: &Document,
    stamp: &Arc<str>,
) -> Result<(String, Layer), Vec<Mistake>> {
    let policy = parse(document, stamp)?;
    let wrong = |message: &str, hint: &str| Err(vec![mistake(&document.file, message, hint)]);
    let name = document.file.rsplit('/').next().unwrap_or_default();
    let workspace = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if workspace.parse::<NetworkId>().is_err() {
        return wrong(
            "no workspace can have this name",
            "a floor's file is called WORKSPACE.yml",
        );
    }
    if !config.serves(workspace) {
        return wrong(
            "this source may not speak for that workspace",
            "see `workspaces` of the source's configuration",
        );
    }
    if let Some((what, at)) = policy.unenforced.first() {
        let message = format!("a floor asks for what is not enforced yet: {what}");
        return Err(vec![Mistake {
            at: at.clone(),
            message,
            hint: None,
        }]);
    }
    if let Some(at) = &policy.needs_packages {
        let message = "a floor has no image, so it cannot use the set `packages`".to_owned();
        return Err(vec![Mistake {
            at: at.clone(),
            message,
            hint: None,
        }]);
    }
    Ok((
        workspace.to_owned(),
        Layer::new(LayerKind::Workspace, Arc::new(policy)),
    ))
}

/// What is still read of a commit.
struct Walk<'a> {
    objects: &'a mut Objects,
    config: &'a SourceConfig,
    files: usize,
    bytes: u64,
    mistakes: Vec<Mistake>,
    commit: Arc<str>,
}

/// Reads the documents of a commit's tree.
pub async fn read(
    objects: &mut Objects,
    config: &SourceConfig,
    commit: &Oid,
    root: &Oid,
) -> Result<Documents, LoadError> {
    let mut walk = Walk {
        objects,
        config,
        files: 0,
        bytes: 0,
        mistakes: Vec::new(),
        commit: commit.as_str().into(),
    };
    let policies = walk.folder(root, &config.folder).await?;
    let mut documents = Documents {
        policies,
        floors: Vec::new(),
    };
    if let Some(floors) = &config.floors {
        documents.floors = walk.folder(root, floors).await?;
    }
    if documents.policies.is_empty() && walk.mistakes.is_empty() {
        let message = "no policy is left below this folder; deleting all policies is not a policy";
        walk.mistakes.push(mistake(
            config.folder.as_str(),
            message,
            "see `folder` of the source's configuration",
        ));
    }
    if walk.mistakes.is_empty() {
        Ok(documents)
    } else {
        Err(LoadError::Mistakes(stamped(walk.mistakes, &walk.commit)))
    }
}

impl Walk<'_> {
    fn wrong(&mut self, path: &str, message: impl Into<String>) {
        self.mistakes.push(mistake(path, message, ""));
    }

    /// All documents below a path. No link on the way is followed: each part is an entry of a tree of this commit.
    async fn folder(&mut self, root: &Oid, path: &TreePath) -> Result<Vec<Document>, LoadError> {
        let mut at = root.clone();
        for part in path.parts() {
            let bytes = self.objects.read(&at, "tree", TREE).await?;
            match tree::find(&bytes, part) {
                Some(Some(Ok(item))) if item.kind == Kind::Folder => at = item.oid,
                Some(Some(Err(why))) => {
                    self.wrong(path.as_str(), format!("{part} {why}"));
                    return Ok(Vec::new());
                }
                _ => {
                    self.wrong(path.as_str(), format!("there is no folder {part}"));
                    return Ok(Vec::new());
                }
            }
        }
        let mut documents = Vec::new();
        let mut folders = vec![(path.as_str().to_owned(), at, 0_usize)];
        while let Some((path, oid, depth)) = folders.pop() {
            let bytes = self.objects.read(&oid, "tree", TREE).await?;
            let Some(listing) = tree::read(&bytes) else {
                self.wrong(&path, "this folder cannot be read");
                continue;
            };
            for (name, why) in listing.refused {
                self.wrong(&format!("{path}/{name}"), why);
            }
            for item in listing.items {
                let file = format!("{path}/{}", item.name);
                self.files += 1;
                if self.files > self.config.limits.files {
                    self.wrong(
                        &path,
                        format!(
                            "there are more than {} files and folders",
                            self.config.limits.files
                        ),
                    );
                    return Ok(documents);
                }
                match (item.kind, tree::is_policy(&item.name)) {
                    (Kind::Folder, _) if depth >= DEEPEST => {
                        self.wrong(&file, format!("a folder is deeper than {DEEPEST}"));
                    }
                    (Kind::Folder, _) => folders.push((file, item.oid, depth + 1)),
                    (Kind::File, Err(why)) => self.wrong(&file, why),
                    (Kind::File, Ok(false)) => {}
                    (Kind::File, Ok(true)) => documents.extend(self.file(file, &item.oid).await?),
                }
            }
        }
        documents.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(documents)
    }

    async fn file(&mut self, file: String, oid: &Oid) -> Result<Option<Document>, LoadError> {
        let left = self.config.limits.total.saturating_sub(self.bytes);
        let bytes = match self
            .objects
            .read(oid, "blob", self.config.limits.file.min(left))
            .await
        {
            // The conversation ends here: what the object holds is not read to find its end.
            Err(ObjectError::TooLarge { size, most, .. }) => {
                let message =
                    format!("it has {size} bytes, and {most} are the most that may be read here");
                let found = std::mem::take(&mut self.mistakes);
                let all = found
                    .into_iter()
                    .chain([mistake(&file, message, "")])
                    .collect();
                return Err(LoadError::Mistakes(stamped(all, &self.commit)));
            }
            read => read?,
        };
        self.bytes += bytes.len() as u64;
        // Parsing bytes that are no text yields exactly that mistake, with its place.
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(Document { file, text })),
            Err(error) => {
                self.mistakes.extend(
                    document::parse_bytes(&file, error.as_bytes(), None)
                        .err()
                        .unwrap_or_default(),
                );
                Ok(None)
            }
        }
    }
}
