//! The running system as its files describe it: which distribution, which kernel, which settings and programs.
//!
//! Reads below a root that tests choose; owns no verdict. What cannot be read is absent, never guessed.

use std::fs;
use std::path::{Path, PathBuf};

/// Where programs are looked for: a service has these, whatever a shell has.
const PATHS: [&str; 6] = [
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
];

/// Families that name their packages alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Debian and what calls itself like it, Ubuntu apart.
    Debian,
    /// Ubuntu and what calls itself like it.
    Ubuntu,
    /// Fedora, RHEL and their rebuilds.
    Fedora,
    /// Arch.
    Arch,
    /// Alpine.
    Alpine,
    /// Any other.
    Other,
}

/// What a fix may install.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Package {
    /// The kernel's modules of the running release.
    Modules,
    /// Git.
    Git,
    /// The OpenSSH client.
    Ssh,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// `newuidmap` and `newgidmap`.
    IdMaps,
}

impl Distribution {
    /// The command that installs a package.
    pub fn install(self, package: Package, release: &str) -> String {
        let name = self.named(package);
        match self {
            // these name the release: another kernel's modules are of no use before a reboot
            Self::Ubuntu if package == Package::Modules => format!("apt install {name}-{release}"),
            Self::Fedora if package == Package::Modules => format!("dnf install {name}-{release}"),
            _ if package == Package::Modules && self != Self::Other => {
                format!("{} {name}, then reboot into it", self.command())
            }
            _ => format!("{} {name}", self.command()),
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Debian | Self::Ubuntu => "apt install",
            Self::Fedora => "dnf install",
            Self::Arch => "pacman -S",
            Self::Alpine => "apk add",
            Self::Other => "install",
        }
    }

    fn named(self, package: Package) -> &'static str {
        match (package, self) {
            // the cloud kernels of Debian and Alpine's `virt` leave modules out
            (Package::Modules, Self::Debian) => "linux-image-$(dpkg --print-architecture)",
            (Package::Modules, Self::Ubuntu) => "linux-modules-extra",
            (Package::Modules, Self::Fedora) => "kernel-modules",
            (Package::Modules, Self::Arch) => "linux",
            (Package::Modules, Self::Alpine) => "linux-lts",
            (Package::Modules, Self::Other) => "the distribution's full kernel",
            (Package::Git, _) => "git",
            (Package::Ssh, Self::Fedora) => "openssh-clients",
            (Package::Ssh, Self::Arch) => "openssh",
            (Package::Ssh, Self::Alpine) => "openssh-client-default",
            (Package::Ssh, _) => "openssh-client",
            (Package::Docker, Self::Debian | Self::Ubuntu) => "docker.io",
            (Package::Docker, Self::Fedora) => "moby-engine",
            (Package::Docker, _) => "docker",
            (Package::Podman, _) => "podman",
            (Package::IdMaps, Self::Fedora) => "shadow-utils",
            (Package::IdMaps, Self::Arch) => "shadow",
            (Package::IdMaps, Self::Alpine) => "shadow-uidmap",
            (Package::IdMaps, _) => "uidmap",
        }
    }
}

/// The system below a root.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// The one that this process runs on.
    pub fn here() -> Self {
        Self::at("/")
    }

    /// Another, for tests.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A file's text, without the white space around it.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Whether a path is there.
    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// A program's place.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let places = PATHS.iter().map(|path| Path::new(path).join(name));
        places.map(|path| self.root.join(path)).find(|p| p.exists())
    }

    /// What names its packages.
    pub fn distribution(&self) -> Distribution {
        let text = self
            .text("etc/os-release")
            .or_else(|| self.text("usr/lib/os-release"))
            .unwrap_or_default();
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.strip_prefix('=')?.trim_matches(['"', '\'']).to_owned())
        };
        let own = value("ID").unwrap_or_default();
        let like = value("ID_LIKE").unwrap_or_default();
        // os-release(5): the own name first, then what it is like, closest first
        let names = std::iter::once(own.as_str()).chain(like.split_ascii_whitespace());
        let known = |name: &str| match name {
            "debian" => Some(Distribution::Debian),
            "ubuntu" => Some(Distribution::Ubuntu),
            "fedora" | "rhel" | "centos" => Some(Distribution::Fedora),
            "arch" => Some(Distribution::Arch),
            "alpine" => Some(Distribution::Alpine),
            _ => None,
        };
        names
            .map(known)
            .find_map(|d| d)
            .unwrap_or(Distribution::Other)
    }

    /// The running kernel's release.
    pub fn release(&self) -> String {
        self.text("proc/sys/kernel/osrelease").unwrap_or_default()
    }

    /// How to install a package here.
    pub fn install(&self, package: Package) -> String {
        self.distribution().install(package, &self.release())
    }
}
