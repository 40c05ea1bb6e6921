//! Tokens that are kept: `logins.json` in `~/.config/sallyport`, readable by its owner only, one for each console and
//! workspace. Each goes to the console it was made for and to no other.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::owner_only;
use crate::exit::Failure;

/// The file.
const FILE: &str = "logins.json";

/// A token with what it is for.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// The console's origin.
    pub url: String,
    /// The workspace's id.
    pub workspace: String,
    /// The workspace's name, when it was made.
    pub name: String,
    /// The token.
    pub token: String,
    /// Further authorities to know the console by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Somebody insisted that it goes in the clear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// All of them.
#[derive(Default, Serialize, Deserialize)]
pub struct Logins {
    /// The newest, or the one that was chosen, stands first.
    logins: Vec<Login>,
}

/// Where it lies; `None`: there is no home.
fn folder() -> Option<PathBuf> {
    let named = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let config = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    config.map(|config| config.join("sallyport"))
}

impl Logins {
    /// What is kept; nothing if there is no file.
    pub fn read() -> Result<Self, Failure> {
        let Some(path) = folder().map(|folder| folder.join(FILE)) else {
            return Ok(Self::default());
        };
        match fs::symlink_metadata(&path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::new(format!("reading {}: {error}", path.display()))),
            Ok(_) => {}
        }
        let text = owner_only(&path)?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!("{} cannot be read: {error}", path.display()))
                .hint("remove it and sign in again")
        })
    }

    /// Keeps them: a new file in the place of the old one, so that a crash leaves one of both.
    pub fn write(&self) -> Result<(), Failure> {
        let folder = folder().ok_or_else(|| {
            Failure::new("there is no home to keep a token in").hint("set HOME or XDG_CONFIG_HOME")
        })?;
        let failed = |error: std::io::Error| {
            Failure::new(format!("writing {}: {error}", folder.join(FILE).display()))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed)?;
        let fresh = folder.join(format!("{FILE}.{}", std::process::id()));
        let text =
            serde_json::to_string_pretty(self).map_err(|error| Failure::from_error(&error))?;
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&fresh, folder.join(FILE)));
        written.map_err(|error| {
            let _ = fs::remove_file(&fresh);
            failed(error)
        })
    }

    /// The one that is used where nothing is named.
    pub fn current(&self) -> Option<&Login> {
        self.logins.first()
    }

    /// All, the one that is used first.
    pub fn all(&self) -> &[Login] {
        &self.logins
    }

    /// The one for a console, and for a workspace if that is named.
    pub fn at(&self, url: &str, workspace: Option<&str>) -> Option<&Login> {
        self.logins.iter().find(|login| {
            let here =
                workspace.is_none_or(|named| login.workspace == named || login.name == named);
            login.url == url && here
        })
    }

    /// Puts one first, in the place of an earlier one for the same workspace.
    pub fn put(&mut self, login: Login) -> Option<Login> {
        let earlier = self.take(&login.url, &login.workspace);
        self.logins.insert(0, login);
        earlier
    }

    /// Takes one out.
    pub fn take(&mut self, url: &str, workspace: &str) -> Option<Login> {
        let place = self
            .logins
            .iter()
            .position(|login| login.url == url && login.workspace == workspace)?;
        Some(self.logins.remove(place))
    }
}
