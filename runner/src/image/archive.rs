//! Image archives in the form that every engine loads: manifest, configuration, one layer.
//!
//! Owns the few tar headers and the two JSON documents (Docker's image specification 1.2, which Podman reads, too);
//! loading one gives the same image with the same identity on every engine, where importing a bare file system does not
//! (Podman takes the changes of an import for one). Refuses to own what is in the layer.

use std::io::{self, Read};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

/// Size of a tar record: header and padding come in it (POSIX ustar).
const BLOCK: usize = 512;
/// How much of a layer is read at a time.
const PIECE: usize = 256 * 1024;

/// How containers of an image run when nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Defaults {
    /// User.
    pub user: &'static str,
    /// Working directory.
    pub workdir: &'static str,
    /// Arguments.
    pub command: &'static [&'static str],
    /// Variables.
    pub env: &'static [&'static str],
}

/// The one layer of an image.
#[derive(Debug)]
pub enum Layer<'a> {
    /// In memory.
    Bytes(Bytes),
    /// On disk.
    File(&'a Path),
}

impl Layer<'_> {
    /// Length and digest; reads all of it.
    fn measure(&self) -> io::Result<(u64, String)> {
        let mut hash = Sha256::new();
        let length = match self {
            Self::Bytes(bytes) => {
                hash.update(bytes);
                bytes.len() as u64
            }
            Self::File(path) => io::copy(
                &mut io::BufReader::with_capacity(PIECE, std::fs::File::open(path)?),
                &mut hash,
            )?,
        };
        Ok((length, hex(&hash.finalize())))
    }
}

/// A whole image archive as a stream.
pub fn image(
    name: &str,
    defaults: Defaults,
    stamp: Option<&str>,
    layer: &Layer<'_>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<> + 'static> {
    let (length, digest) = layer.measure()?;
    let config = config(defaults, stamp, &digest).to_string();
    let config_name = format!("{}.json", hex(&Sha256::digest(config.as_bytes())));
    let manifest =
        json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]).to_string();
    let mut head = Vec::new();
    for (name, text) in [
        ("manifest.json", &manifest),
        (config_name.as_str(), &config),
    ] {
        head.extend_from_slice(&header(name, text.len() as u64, 0o644));
        head.extend_from_slice(text.as_bytes());
        head.resize(head.len().next_multiple_of(BLOCK), 0);
    }
    head.extend_from_slice(&header("layer.tar", length, 0o644));
    let padding = length.next_multiple_of(BLOCK as u64).saturating_sub(length);
    // Two empty blocks end an archive.
    let tail = vec![0; usize::try_from(padding).unwrap_or(0) + 2 * BLOCK];
    let body = match layer {
        Layer::Bytes(bytes) => once(bytes.clone()).boxed(),
        Layer::File(path) => pieces(std::fs::File::open(path)?, length).boxed(),
    };
    Ok(once(head.into()).chain(body).chain(once(tail.into())))
}

fn once(bytes: Bytes) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::once(async { Ok(bytes) })
}

/// A file in pieces, exactly as long as it was when it was measured.
fn pieces(
    file: std::fs::File,
    length: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let file = tokio::fs::File::from_std(file).take(length);
    stream::try_unfold(file, |mut file| async move {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        Ok((read > 0).then(|| (piece.freeze(), file)))
    })
}

fn config(defaults: Defaults, stamp: Option<&str>, layer: &str) -> Value {
    let labels: serde_json::Map<String, Value> = stamp
        .map(|stamp| (super::STAMP_LABEL.to_owned(), stamp.into()))
        .into_iter()
        .collect();
    json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        // A fixed date, so that the same content is the same image.
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": defaults.user,
            "WorkingDir": defaults.workdir,
            "Cmd": defaults.command,
            "Env": defaults.env,
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "sallyport" }],
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A file system archive that holds one file.
pub fn one_file(name: &str, content: &[u8], mode: u32) -> Vec<u8> {
    let mut archive = Vec::with_capacity(content.len() + 4 * BLOCK);
    archive.extend_from_slice(&header(name, content.len() as u64, mode));
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    archive
}

fn header(name: &str, size: u64, mode: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        if let Some(field) = block.get_mut(at..at + text.len()) {
            field.copy_from_slice(text.as_bytes());
        }
    };
    put(0, name);
    put(100, &format!("{mode:07o}\0"));
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The checksum counts its own field as spaces.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = block.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    block
}

/// Checks that a file can be read as an archive at all, before an engine is bothered with it.
pub fn looks_like_tar(path: &Path) -> io::Result<bool> {
    let mut block = [0; BLOCK];
    std::fs::File::open(path)?.read_exact(&mut block)?;
    Ok(block.get(257..262) == Some(b"ustar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn image_is_read_by_tar_and_names_its_layer_by_digest() {
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("root.tar");
        std::fs::write(&layer, one_file("sally", b"content", 0o555)).unwrap();
        assert!(looks_like_tar(&layer).unwrap());
        let defaults = Defaults {
            user: "agent",
            ..Defaults::default()
        };
        let parts: Vec<_> = image("a/b:c", defaults, Some("s1"), &Layer::File(&layer))
            .unwrap()
            .collect()
            .await;
        let whole: Vec<u8> = parts
            .into_iter()
            .flat_map(|part| part.unwrap().to_vec())
            .collect();
        let archive = folder.path().join("image.tar");
        std::fs::write(&archive, whole).unwrap();
        let tar = |arguments: &[&std::ffi::OsStr]| {
            assert!(
                std::process::Command::new("tar")
                    .args(arguments)
                    .current_dir(folder.path())
                    .status()
                    .unwrap()
                    .success()
            );
        };
        tar(&["-xf".as_ref(), archive.as_os_str()]);
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        let manifest: Value = serde_json::from_slice(&read("manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["a/b:c"]));
        let config: Value =
            serde_json::from_slice(&read(manifest[0]["Config"].as_str().unwrap())).unwrap();
        assert_eq!(config["config"]["User"], "agent");
        let digest = hex(&Sha256::digest(read("layer.tar")));
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{digest}")])
        );
        tar(&["-xf".as_ref(), "layer.tar".as_ref()]);
        assert_eq!(read("sally"), b"content");
    }
}
