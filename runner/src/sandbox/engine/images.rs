//! Images of an engine: looked up and judged before anything runs, loaded from archives that this program makes.
//!
//! Invariant: nothing here ever pulls. An image whose own settings would lead a sandbox astray (a working directory below
//! /proc, volumes over the system) is refused before a container of it exists.

use std::path::Path;
use std::time::Duration;

use bollard::query_parameters::ImportImageOptions;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};

use super::Engine;
use super::ask::{engine, host, status, within};
use super::spec::SALLY_ON_PATH;
use crate::image::STAMP_LABEL;
use crate::image::archive::{self, Defaults, Layer};
use crate::job::{ImageName, check_workdir};
use crate::sandbox::{ImageFacts, SandboxError, guest};

/// Loading moves a file system of hundreds of megabytes.
const LOAD_PATIENCE: Duration = Duration::from_mins(10);

impl Engine {
    /// Gives the engine the holder's image, unless it has exactly this one.
    pub(super) async fn ensure_holder_image(&self) -> Result<(), SandboxError> {
        let present = within("looking the holder's image up", async {
            match self.connected.api.inspect_image(&self.holder_image).await {
                Err(error) if status(&error) == Some(404) => Ok(false),
                other => other.map(|_| true),
            }
        });
        if present.await? {
            return Ok(());
        }
        let layer = Layer::Bytes(guest::file_system().into());
        let archive = archive::image(&self.holder_image, Defaults::default(), None, &layer)
            .map_err(host("packing the holder's image"))?;
        self.load(archive).await
    }

    async fn load(
        &self,
        archive: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), SandboxError> {
        const ACT: &str = "loading an image";
        let body = bollard::body_try_stream(archive);
        let loading = self
            .connected
            .api
            .import_image(ImportImageOptions::default(), body, None);
        match tokio::time::timeout(LOAD_PATIENCE, loading.try_for_each(|_| async { Ok(()) })).await
        {
            Ok(result) => result.map_err(engine(ACT)),
            Err(_) => Err(SandboxError::Late {
                act: ACT,
                limit: LOAD_PATIENCE,
            }),
        }
    }

    /// What an image is, if it can be run safely.
    pub(super) async fn look_up_image(&self, name: &ImageName) -> Result<ImageFacts, SandboxError> {
        let looked_up = async { Ok(self.connected.api.inspect_image(name.as_str()).await) };
        let image = match within("looking an image up", looked_up).await? {
            Err(error) if status(&error) == Some(404) => {
                return Err(SandboxError::NoSuchImage(name.clone()));
            }
            other => other.map_err(engine("looking an image up"))?,
        };
        let config = image.config.unwrap_or_default();
        let mut command = config.entrypoint.unwrap_or_default();
        command.extend(config.cmd.unwrap_or_default());
        let workdir = config
            .working_dir
            .filter(|dir| !dir.is_empty())
            .unwrap_or_else(|| "/".to_owned());
        let volumes = config.volumes.unwrap_or_default();
        let stamp = config
            .labels
            .and_then(|mut labels| labels.remove(STAMP_LABEL));
        let facts = ImageFacts {
            stamp,
            id: image.id.unwrap_or_default(),
            command,
            workdir,
            volumes,
        };
        match refusal(&facts) {
            Some(why) => Err(SandboxError::ImageRefused {
                image: name.clone(),
                why,
            }),
            None => Ok(facts),
        }
    }

    /// Makes an image of a file system archive.
    pub(super) async fn import_file_system(
        &self,
        name: &ImageName,
        file_system: &Path,
        stamp: Option<&str>,
    ) -> Result<(), SandboxError> {
        const DEFAULTS: Defaults = Defaults {
            user: "agent",
            workdir: "/home/agent",
            command: &["/bin/bash"],
            env: &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        };

        let (name, path) = (name.to_string(), file_system.to_owned());
        let stamp = stamp.map(str::to_owned);
        // Hashing hundreds of megabytes takes a second, in which other runs must go on.
        let packing = tokio::task::spawn_blocking(move || {
            archive::image(&name, DEFAULTS, stamp.as_deref(), &Layer::File(&path))
        });
        let packed = packing.await.unwrap_or_else(|broken| Err(broken.into()));
        self.load(packed.map_err(host("packing an image"))?).await
    }
}

/// An image that cannot be run safely, and why.
fn refusal(facts: &ImageFacts) -> Option<String> {
    if let Err(why) = check_workdir(&facts.workdir) {
        return Some(format!("its working directory {:?}: {why}", facts.workdir));
    }
    let odd = |volume: &&String| {
        let plain = volume.trim_end_matches('/');
        plain.is_empty()
            || plain == "/etc"
            || plain == SALLY_ON_PATH
            || check_workdir(plain).is_err()
    };
    facts
        .volumes
        .iter()
        .find(odd)
        .map(|volume| format!("it wants a volume at {volume:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(workdir: &str, volumes: &[&str]) -> ImageFacts {
        ImageFacts {
            stamp: None,
            id: "sha256:00".to_owned(),
            command: Vec::new(),
            workdir: workdir.to_owned(),
            volumes: volumes.iter().map(|&v| v.to_owned()).collect(),
        }
    }

    #[test]
    fn image_that_leads_astray_is_refused_and_an_ordinary_one_is_not() {
        for (workdir, volumes) in [
            ("/proc/self/fd/8", &[][..]),
            ("relative", &[]),
            ("/", &["/"]),
            ("/", &["/etc"]),
            ("/", &["/proc/x"]),
            ("/", &["/data", "/sys/fs"]),
            ("/", &["/usr/local/bin/sally/"]),
        ] {
            assert!(
                refusal(&facts(workdir, volumes)).is_some(),
                "{workdir} {volumes:?}"
            );
        }
        assert_eq!(
            refusal(&facts("/srv/app", &["/data", "/var/lib/thing/", "/.sally"])),
            None
        );
    }
}
