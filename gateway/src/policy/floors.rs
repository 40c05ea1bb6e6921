//! Floors: ordinary policy documents that only root can change.
//!
//! A file is believed when it is a regular file of root (or of the gateway's own user, for a gateway without root) that
//! nobody else can write, in a folder of which the same is true. It is opened once, judged by its descriptor, and read
//! from that descriptor, so that what was judged is what is read.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netpolicy::decide::{Layer, LayerKind};
use netpolicy::document::{self, Mistake};
use netpolicy::ids::NetworkId;

/// The largest document that the parser takes, and one byte to notice a larger one.
const MOST_BYTES: u64 = (1 << 20) + 1;

/// Where floors are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FloorFiles {
    /// The instance floor; none means "whatever a policy may".
    pub instance: Option<PathBuf>,
    /// Folder of workspace floors, `WORKSPACE.yaml` each; a workspace without a file has none.
    pub workspaces: Option<PathBuf>,
}

/// A floor that is named but cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// It cannot be read.
    #[error("reading the floor {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody other than root could have written it.
    #[error("the floor {path} is not believed: {why}")]
    NotBelieved {
        /// The file or its folder.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// It is no policy.
    #[error("the floor {path} is wrong: {}", .mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// All mistakes.
        mistakes: Vec<Mistake>,
    },
    /// It asks for what nothing enforces yet.
    #[error("the floor {path} asks for what is not enforced yet: {what}")]
    NotEnforcedYet {
        /// The file.
        path: PathBuf,
        /// The key.
        what: String,
    },
}

impl FloorError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { path, .. } => format!(
                "restore {}, or remove it from `gateway.instance_floor` / `gateway.workspace_floors`",
                path.display()
            ),
            Self::NotBelieved { path, .. } => {
                format!("chown root {0} && chmod go-w {0}", path.display())
            }
            Self::Wrong { path, .. } | Self::NotEnforcedYet { path, .. } => {
                format!("sallyport policy check {}", path.display())
            }
        }
    }
}

/// The floors in force.
#[derive(Debug, Default)]
pub struct Floors {
    instance: Option<Layer>,
    workspaces: HashMap<String, Layer>,
}

impl Floors {
    /// Reads all floors, or none.
    pub fn read(files: &FloorFiles) -> Result<Self, FloorError> {
        let instance = files
            .instance
            .as_deref()
            .map(|path| read(path, LayerKind::Instance))
            .transpose()?;
        let mut workspaces = HashMap::new();
        if let Some(folder) = &files.workspaces {
            for path in documents(folder)? {
                let Some(name) = path.file_stem().and_then(|n| n.to_str()) else {
                    continue;
                };
                let layer = read(&path, LayerKind::Workspace)?;
                if name.parse::<NetworkId>().is_err() {
                    return Err(FloorError::NotBelieved {
                        path,
                        why: "no workspace can have this name",
                    });
                }
                workspaces.insert(name.to_owned(), layer);
            }
        }
        Ok(Self {
            instance,
            workspaces,
        })
    }

    /// The floors of one workspace.
    pub fn of(&self, workspace: &str) -> impl Iterator<Item = &Layer> {
        self.instance.iter().chain(self.workspaces.get(workspace))
    }

    /// Whether a workspace has one of its own.
    pub fn has(&self, workspace: &str) -> bool {
        self.workspaces.contains_key(workspace)
    }

    /// Whether both say the same.
    pub fn same(&self, other: &Self) -> bool {
        let hash = |layer: &Layer| layer.policy().hash;
        let all = |floors: &Self| -> HashMap<String, _> {
            floors
                .workspaces
                .iter()
                .map(|(k, v)| (k.clone(), hash(v)))
                .collect()
        };
        self.instance.as_ref().map(hash) == other.instance.as_ref().map(hash)
            && all(self) == all(other)
    }
}

/// `*.yaml` files of a folder. A folder that is named and missing is an error, not "no floors".
fn documents(folder: &Path) -> Result<Vec<PathBuf>, FloorError> {
    let fail = |source| FloorError::Read {
        path: folder.to_owned(),
        source,
    };
    believe(folder, &fs::metadata(folder).map_err(fail)?)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let twin = path.extension().is_some_and(|e| {
            e.eq_ignore_ascii_case("yml") || (e.eq_ignore_ascii_case("yaml") && e != "yaml")
        });
        if twin {
            return Err(FloorError::NotBelieved {
                path,
                why: "a floor's file is called WORKSPACE.yaml",
            });
        }
        if path.extension().is_some_and(|e| e == "yaml") {
            all.push(path);
        }
    }
    Ok(all)
}

fn read(path: &Path, kind: LayerKind) -> Result<Layer, FloorError> {
    let fail = |source| FloorError::Read {
        path: path.to_owned(),
        source,
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    believe(folder, &fs::metadata(folder).map_err(fail)?)?;
    // O_NONBLOCK: a FIFO in its place must not hold the gateway up.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(FloorError::NotBelieved {
            path: path.to_owned(),
            why: "it is not a regular file",
        });
    }
    believe(path, &metadata)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    let name = path.display().to_string();
    let wrong = |mistakes| FloorError::Wrong {
        path: path.to_owned(),
        mistakes,
    };
    let text = String::from_utf8(bytes)
        .map_err(|e| fail(io::Error::new(io::ErrorKind::InvalidData, e)))?;
    let policy = document::parse(&name, &text, None).map_err(wrong)?;
    if let Some((what, _)) = policy.unenforced.first() {
        return Err(FloorError::NotEnforcedYet {
            path: path.to_owned(),
            what: what.clone(),
        });
    }
    if policy.needs_packages.is_some() {
        return Err(FloorError::NotEnforcedYet {
            path: path.to_owned(),
            what: "use: [packages] (a floor has no image)".to_owned(),
        });
    }
    Ok(Layer::new(kind, Arc::new(policy)))
}

/// Only root, or the user that the gateway runs as, may have written it.
fn believe(path: &Path, metadata: &Metadata) -> Result<(), FloorError> {
    let ours = metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw();
    let not_believed = |why| {
        Err(FloorError::NotBelieved {
            path: path.to_owned(),
            why,
        })
    };
    if !ours {
        return not_believed("it belongs to another user than root");
    }
    // A sticky folder (/tmp) lets others add files, not replace root's.
    let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
    if metadata.mode() & 0o022 != 0 && !sticky {
        return not_believed("others than its owner can write it");
    }
    Ok(())
}
