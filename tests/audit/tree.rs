//! The files of the repository that people write.

use std::path::{Path, PathBuf};

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("workspace")
}

/// Folders that no person writes.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "corpus"];

/// Every file whose name ends so.
pub fn files(ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                // a build folder is known by its tag, wherever it is
                let built = SKIPPED.contains(&name.as_str()) || path.join("CACHEDIR.TAG").exists();
                if !built && !path.is_symlink() {
                    folders.push(path);
                }
            } else if ends.iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    assert!(
        !found.is_empty() || ends.is_empty(),
        "no file ends with {ends:?}"
    );
    found.sort();
    found
}

/// A path as messages show it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}
