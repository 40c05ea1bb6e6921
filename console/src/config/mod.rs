//! `config.yml`: one YAML file with a section per role; every mistake at once, each with its place.
//!
//! Owns where the file lies, who may write it, and how its text becomes the sections that gateway and runner define.
//! Refuses to own what the settings mean. A file that is named must exist; one that is wrong starts nothing.

mod read;
pub mod schema;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netpolicy::document::Mistake;

use crate::exit::Failure;
pub use read::json;

/// Where the file is looked for when none is named.
pub const DEFAULT_FILE: &str = "/etc/sallyport/config.yml";

/// Everything the roles are told.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The gateway.
    pub gateway: ::gateway::config::GatewayConfig,
    /// The runner.
    pub runner: ::runner::RunnerConfig,
    /// The console, and the sections that are about people.
    pub console: ::console::settings::ConsoleConfig,
}

impl Config {
    /// The console's ports and name are Sallyport's own: the gateway opens them to no sandbox.
    fn closed_to_sandboxes(mut self) -> Self {
        let own = &mut self.gateway.own;
        for port in self.console.ports() {
            if !own.ports.contains(&port) {
                own.ports.push(port);
            }
        }
        let name = self
            .console
            .url
            .as_ref()
            .and_then(::console::settings::AppUrl::name);
        own.names
            .extend(name.filter(|name| !own.names.contains(name)));
        self
    }
}

/// The file that applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigFile {
    /// Named by argument or environment, or found at the usual place.
    At(PathBuf),
    /// None: built-in defaults.
    BuiltIn,
}

impl ConfigFile {
    /// The named file, else the usual one if it exists, else the defaults.
    pub fn find(named: Option<&Path>) -> Self {
        if let Some(path) = named {
            return Self::At(path.to_owned());
        }
        let own = ::gateway::ordinary::folders().map(|own| own.config);
        let usual = own.into_iter().chain([PathBuf::from(DEFAULT_FILE)]);
        let there = usual.into_iter().find(|path| path.exists());
        there.map_or(Self::BuiltIn, Self::At)
    }

    /// The same for who only asks a gateway: the machine's file that this user may not read is passed over, for the
    /// machine's gateway may still let the user in, at its usual socket. What runs a role is never told so little.
    pub fn find_to_ask(named: Option<&Path>) -> Self {
        match Self::find(named) {
            Self::At(path) if named.is_none() && is_shut(&path) => Self::BuiltIn,
            found => found,
        }
    }

    /// Its path, if it is a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) => Some(path),
            Self::BuiltIn => None,
        }
    }

    /// Reads it; all mistakes become the failure's details.
    pub fn load(&self) -> Result<Config, Failure> {
        let Self::At(path) = self else {
            return Ok(Config::default().closed_to_sandboxes());
        };
        let mistakes = match self.check()? {
            Ok(config) => return Ok(config.closed_to_sandboxes()),
            Err(mistakes) => mistakes,
        };
        let mut failure = Failure::new(format!(
            "{} has {}",
            path.display(),
            crate::show::count(mistakes.len(), "mistake")
        ))
        .hint("correct them; `sallyport config schema` prints what may be written");
        failure.details = mistakes.iter().map(ToString::to_string).collect();
        Err(failure)
    }

    /// Reads it; the mistakes apart from what keeps it from being read at all.
    pub fn check(&self) -> Result<Result<Config, Vec<Mistake>>, Failure> {
        let Self::At(path) = self else {
            return Ok(Ok(Config::default()));
        };
        let text = std::fs::read(path).map_err(|e| {
            Failure::new(format!("reading the configuration {}: {e}", path.display()))
                .hint("name another with --config or SALLYPORT_CONFIG, or remove the name to use built-in defaults")
        })?;
        if let Some(writer) = others_may_write(path) {
            return Err(
                Failure::new(format!("{} may be written by {writer}", path.display())).hint(
                    format!(
                        "chmod 600 {}; whoever writes it decides what sandboxes may reach",
                        path.display()
                    ),
                ),
            );
        }
        let mut read = read::config(&path.display().to_string(), &text);
        if let Ok(config) = &mut read {
            config.console.file = Some(path.clone());
        }
        let secret = read
            .as_ref()
            .is_ok_and(|config| config.console.holds_secret());
        if secret && others_may_read(path) {
            let name = path.display();
            return Err(
                Failure::new(format!("{name} holds a password and others may read it"))
                    .hint(format!("chmod 600 {name}, then change that password")),
            );
        }
        Ok(read)
    }
}

fn is_shut(path: &Path) -> bool {
    let opened = std::fs::File::open(path);
    opened.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

fn others_may_read(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.mode() & 0o044 != 0)
}

fn others_may_write(path: &Path) -> Option<&'static str> {
    match std::fs::metadata(path).ok()?.mode() {
        mode if mode & 0o002 != 0 => Some("everybody"),
        mode if mode & 0o020 != 0 => Some("its group"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yml");
        std::fs::write(&path, "gateway: {}\n").unwrap();
        for (mode, fits) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let loaded = ConfigFile::At(path.clone()).load();
            assert_eq!(loaded.is_ok(), fits, "{mode:o}: {loaded:?}");
        }
    }

    #[test]
    fn a_file_with_a_password_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yml");
        std::fs::write(
            &path,
            "console: { database: \"postgres://a:b@db.example/c\" }\n",
        )
        .unwrap();
        for (mode, fits) in [(0o600, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let loaded = ConfigFile::At(path.clone()).load();
            assert_eq!(loaded.is_ok(), fits, "{mode:o}: {loaded:?}");
        }
    }

    #[test]
    fn the_consoles_ports_and_name_are_closed_to_sandboxes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yml");
        std::fs::write(
            &path,
            "app: { url: \"https://sally.example\" }\nconsole: { management: { listen: \"127.0.0.1:8499\" } }\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let own = ConfigFile::At(path).load().unwrap().gateway.own;
        for port in [8420, 8499, 443] {
            assert!(own.ports.contains(&port), "{port}: {own:?}");
        }
        assert_eq!(own.names.len(), 1, "{own:?}");
    }

    #[test]
    fn a_named_file_must_exist() {
        let failure = ConfigFile::find(Some(Path::new("/nonexistent/config.yml")))
            .load()
            .unwrap_err();
        assert!(
            failure.message.contains("/nonexistent/config.yml"),
            "{failure:?}"
        );
    }
}
