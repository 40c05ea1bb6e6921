//! An ordinary user of this machine, for what must work without root.
//!
//! `./dev rootless` makes the user, its folders and its Podman's store; tests become it for single programs. Everything a
//! lab makes for it lies in the lab's own directory.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The account's name, as `./dev` made it.
const NAME: &str = "sallyport-lab";

/// The user.
#[derive(Clone, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl User {
    /// The one that was prepared.
    pub fn prepared() -> Self {
        let user = nix::unistd::User::from_name(NAME)
            .ok()
            .flatten()
            .expect("the ordinary user is not prepared: run `./dev rootless`");
        assert!(
            user.dir.join("storage.conf").is_file(),
            "rootless Podman is not prepared: run `./dev rootless`"
        );
        Self {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir,
        }
    }

    /// Makes a command one of this user, in this user's environment and no other.
    pub fn dress<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", &self.home)
            .env("USER", NAME)
            .env("LANG", "C")
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("CONTAINERS_CONF", self.home.join("containers.conf"))
            .env("CONTAINERS_STORAGE_CONF", self.home.join("storage.conf"))
            .current_dir("/")
            .uid(self.uid)
            .gid(self.gid)
    }

    /// Gives a file or folder to this user.
    pub fn own(&self, path: &Path) {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// A program that this user may execute: itself, or a copy where its folder is shut.
    pub fn program(&self, program: &Path) -> PathBuf {
        let open =
            |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
        if program.ancestors().all(open) {
            return program.to_owned();
        }
        let copy = self.home.join("sallyport");
        let new = self.home.join(format!("sallyport.{}", std::process::id()));
        std::fs::copy(program, &new).expect("copy the binary");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("mode");
        std::fs::rename(&new, &copy).expect("the binary of the user");
        copy
    }
}
