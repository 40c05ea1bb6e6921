//! The sandbox base image, built on this machine from its own package sources, without a registry.
//!
//! Owns running `images/sandbox/build` (carried in this program) and handing its archive to the engine. It is the one
//! program that the runner starts, and only when the image that this installation ships is missing: as root, with a fixed
//! environment, from the runner's own folder. No other image is ever fetched by a run.

pub mod archive;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::{Mutex, OnceCell};

use crate::job::ImageName;
use crate::run::Failure;
use crate::sandbox::{Backend, ImageFacts, SandboxError};

const SCRIPT: &str = include_str!("../../../images/sandbox/build");
const NAME: &str = "sallyport/sandbox:latest";
/// Label with the recipe's stamp, which changes with what would be in the image.
pub const STAMP_LABEL: &str = "sallyport.stamp";
/// How much of what a failing build said is passed on.
const LAST_WORDS: usize = 2000;

/// Whether a name means the image that this installation builds itself.
pub fn is_ours(name: &ImageName) -> bool {
    matches!(name.as_str(), NAME | "sallyport/sandbox")
}

/// Builds the image, one build at a time.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    building: Mutex<()>,
    /// What the recipe says on this machine; `None` where it cannot tell (another distribution).
    stamp: OnceCell<Option<String>>,
}

/// Why there is no sandbox image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Files of the build.
    #[error("preparing the build of the sandbox image: {0}")]
    Folder(#[source] std::io::Error),
    /// The build ended badly.
    #[error("building the sandbox image: {0}")]
    Build(String),
    /// The engine did not take it.
    #[error(transparent)]
    Import(#[from] SandboxError),
}

impl ImageError {
    /// As callers of a run see it.
    pub fn into_failure(self) -> Failure {
        let hint = match &self {
            Self::Build(_) | Self::Folder(_) => {
                Some("the machine needs root, mmdebstrap and a Debian package source; or name another image with `--image`".to_owned())
            }
            Self::Import(error) => error.hint(),
        };
        Failure::new("image", self.to_string()).hint(hint)
    }
}

impl Images {
    /// Builds below this folder.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            building: Mutex::new(()),
            stamp: OnceCell::new(),
        }
    }

    /// The recipe's program, in a fixed environment.
    fn recipe(&self, script: &Path) -> Command {
        let mut command = Command::new("/bin/bash");
        command
            .arg(script)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TMPDIR", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// What the recipe would make here.
    async fn stamp(&self) -> Option<&str> {
        let asked = self.stamp.get_or_init(|| async {
            let script = self.folder.join("recipe");
            tokio::fs::create_dir_all(&self.folder).await.ok()?;
            tokio::fs::write(&script, SCRIPT).await.ok()?;
            let said = self.recipe(&script).arg("--stamp").output().await.ok()?;
            let text = String::from_utf8(said.stdout).ok()?;
            said.status.success().then(|| text.trim().to_owned())
        });
        asked.await.as_deref()
    }

    /// What to tell about an image of ours that this installation would make differently; nothing where nobody can tell.
    pub async fn staleness(&self, facts: &ImageFacts) -> Option<String> {
        let expected = self.stamp().await?;
        let differs = facts.stamp.as_deref() != Some(expected);
        differs.then(|| {
            format!(
                "the sandbox image was made by another recipe ({} instead of {expected}); remove {NAME} from the engine and the next run makes it anew",
                facts.stamp.as_deref().unwrap_or("none")
            )
        })
    }

    /// Builds the image and gives it to the engine, unless another build has just done so.
    pub async fn build(&self, backend: &dyn Backend) -> Result<(), ImageError> {
        let name: ImageName = NAME
            .parse()
            .map_err(|_| ImageError::Build("its own name is malformed".to_owned()))?;
        let _one_at_a_time = self.building.lock().await;
        if backend.image(&name).await.is_ok() {
            return Ok(());
        }
        tokio::fs::create_dir_all(&self.folder)
            .await
            .map_err(ImageError::Folder)?;
        let script = self.folder.join("build");
        let archive = self.folder.join("sandbox.tar");
        tokio::fs::write(&script, SCRIPT)
            .await
            .map_err(ImageError::Folder)?;
        let output = self
            .recipe(&script)
            .arg(&archive)
            .output()
            .await
            .map_err(ImageError::Folder)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let from = said
                .char_indices()
                .rev()
                .nth(LAST_WORDS)
                .map_or(0, |(at, _)| at);
            return Err(ImageError::Build(
                said.get(from..).unwrap_or_default().trim().to_owned(),
            ));
        }
        if !archive::looks_like_tar(&archive).map_err(ImageError::Folder)? {
            return Err(ImageError::Build("it made no archive".to_owned()));
        }
        let stamp = self.stamp().await;
        backend.import(&name, &archive, stamp).await?;
        tokio::fs::remove_file(&archive)
            .await
            .map_err(ImageError::Folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(stamp: Option<&str>) -> ImageFacts {
        ImageFacts {
            stamp: stamp.map(str::to_owned),
            id: "sha256:00".to_owned(),
            command: Vec::new(),
            workdir: "/".to_owned(),
            volumes: Vec::new(),
        }
    }

    #[tokio::test]
    async fn image_of_another_recipe_is_told_and_one_of_this_recipe_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let images = Images::new(folder.path().join("image"));
        let expected = images
            .stamp()
            .await
            .expect("a Debian machine tells its stamp")
            .to_owned();
        assert_eq!(images.staleness(&facts(Some(&expected))).await, None);
        for other in [None, Some("0123")] {
            let told = images.staleness(&facts(other)).await.unwrap();
            assert!(told.contains(&expected) && told.contains(NAME), "{told}");
        }
    }
}
