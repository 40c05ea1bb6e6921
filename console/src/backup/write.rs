//! Making a backup.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde::Serialize;
use serde_json::Value;

use super::{BackupError, End, FORMAT, Head, Line, Seals, Summary, failed, folder};
use crate::clock;
use crate::store::Store;
use crate::store::dump::{Dumped, Part};
use crate::vault::Vault;

/// Whether the instance key is to be inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyInside {
    /// It is kept elsewhere.
    No,
    /// It is: who opens the backup reads every secret.
    Yes,
}

/// Writes a backup of a store, which may be in use, into a new file.
pub async fn write(
    store: &Store,
    vault: &Vault,
    inside: KeyInside,
    seals: Seals,
    path: &Path,
) -> Result<Summary, BackupError> {
    if path.symlink_metadata().is_ok() {
        return Err(BackupError::There(path.to_owned()));
    }
    let draft = Draft::beside(path)?;
    let mut out = seals
        .encryptor()?
        .wrap_output(BufWriter::new(&draft.file))
        .map_err(|source| failed("writing", path, source))?;
    let rows = Rows {
        out: &mut out,
        path,
        count: 0,
        keys: Vec::new(),
        at: clock::now(),
    };
    let written = rows.all(store, vault, inside).await?;
    let flushed = out
        .finish()
        .and_then(|mut out| out.flush())
        .and_then(|()| draft.file.sync_all());
    flushed.map_err(|source| failed("writing", path, source))?;
    draft.name(path)?;
    Ok(written)
}

/// A file that has another name until it is whole.
struct Draft {
    file: File,
    path: PathBuf,
}

impl Draft {
    fn beside(path: &Path) -> Result<Self, BackupError> {
        let draft = folder(path).join(format!(".{}.backup", clock::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .open(&draft)
            .map_err(|source| failed("making", path, source))?;
        Ok(Self { file, path: draft })
    }

    /// Gives it its name, which nothing else has.
    fn name(self, path: &Path) -> Result<(), BackupError> {
        self.name_by(path, |from, to| std::fs::hard_link(from, to))
    }

    /// The same by a way to link; a file system that has none (vfat, exFAT) renames it, and over nothing either.
    fn name_by(
        self,
        path: &Path,
        link: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), BackupError> {
        let named = match link(&self.path, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let only = RenameFlags::RENAME_NOREPLACE;
                renameat2(AT_FDCWD, &self.path, AT_FDCWD, path, only).map_err(io::Error::from)
            }
            linked => linked,
        };
        match named {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::There(path.to_owned()));
            }
            Err(source) => return Err(failed("naming", path, source)),
        }
        let synced = File::open(folder(path)).and_then(|folder| folder.sync_all());
        synced.map_err(|source| failed("writing", path, source))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // what has a name keeps it
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Rows on their way into a file.
struct Rows<'a, W> {
    out: &'a mut W,
    path: &'a Path,
    count: u64,
    /// Instance keys that the store names: which, and whether it is the current one.
    keys: Vec<(String, bool)>,
    at: clock::Millis,
}

impl<W: Write> Rows<'_, W> {
    async fn all(
        mut self,
        store: &Store,
        vault: &Vault,
        inside: KeyInside,
    ) -> Result<Summary, BackupError> {
        store.dump(|part| self.part(part)).await?;
        if self.keys.len() > 1 {
            // also without a key inside: the file of the one before is gone once the rotation ends
            return Err(BackupError::Turning);
        }
        let current = self.keys.iter().find(|(_, current)| *current);
        let key_id = current.map(|(id, _)| id.clone());
        let key = match (inside, &key_id) {
            (KeyInside::Yes, Some(id)) => {
                let key = vault.current(store).await?;
                if key.id() != id {
                    return Err(BackupError::Turning);
                }
                Some(key)
            }
            _ => None,
        };
        let end = End {
            rows: self.count,
            key_id: key_id.clone(),
            key: key.as_ref().map(|key| key.reveal().to_owned()),
        };
        self.line(&Line::End(end))?;
        Ok(Summary {
            rows: self.count,
            at: self.at,
            key_id,
            has_key: key.is_some(),
        })
    }

    fn part(&mut self, part: Part) -> Result<(), BackupError> {
        match part {
            Part::Version(version) => self.line(&Head {
                format: FORMAT.to_owned(),
                version,
                at: self.at,
            }),
            Part::Row(Dumped { table, row }) => {
                if table == "keyring"
                    && let Some(id) = row.get("id").and_then(Value::as_str)
                {
                    let current = row.get("current") == Some(&Value::Bool(true));
                    self.keys.push((id.to_owned(), current));
                }
                self.count += 1;
                self.line(&Line::Row(table, row))
            }
        }
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), BackupError> {
        let written = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .and_then(|mut text| {
                text.push(b'\n');
                self.out.write_all(&text)
            });
        written.map_err(|source| failed("writing", self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_can_be_linked_a_backup_has_its_name_and_is_written_over_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.age");
        let named = |text: &str| {
            let draft = Draft::beside(&path).unwrap();
            (&draft.file).write_all(text.as_bytes()).unwrap();
            // as vfat answers
            draft.name_by(&path, |_, _| Err(io::ErrorKind::PermissionDenied.into()))
        };
        named("first").unwrap();
        let again = named("second");
        assert!(matches!(again, Err(BackupError::There(_))), "{again:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no draft stays: {left:?}");
    }
}
