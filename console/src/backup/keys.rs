//! For whom a backup is encrypted, and who opens it: keys of age's, or a passphrase from a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use age::secrecy::SecretString;
use age::{scrypt, x25519};
use zeroize::Zeroizing;

use super::{BackupError, failed};

/// Shorter passphrases are found by trying.
const LEAST: usize = 12;
/// A file of keys is no longer.
const LONGEST: u64 = 64 << 10;

/// For whom a backup is encrypted.
pub enum Seals {
    /// Whoever has the secret half of one of these keys.
    Keys(Vec<x25519::Recipient>),
    /// Whoever knows it.
    Passphrase(SecretString),
}

/// What opens a backup.
pub enum Opens {
    /// One of these keys.
    Keys(Vec<x25519::Identity>),
    /// This.
    Passphrase(SecretString),
}

impl Seals {
    /// Public keys as `age-keygen` prints them.
    pub fn keys(texts: &[String]) -> Result<Self, BackupError> {
        let parse = |text: &String| {
            let wrong =
                |why: &str| BackupError::Key(format!("{text} is no public key of age's: {why}"));
            x25519::Recipient::from_str(text).map_err(wrong)
        };
        texts
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self::Keys)
    }

    /// The first line of a file.
    pub fn passphrase(path: &Path) -> Result<Self, BackupError> {
        let text = first_line(path)?;
        if text.chars().count() < LEAST {
            let told = format!(
                "the passphrase in {} has fewer than {LEAST} characters: it would be found by trying",
                path.display()
            );
            return Err(BackupError::Key(told));
        }
        Ok(Self::Passphrase(SecretString::from(
            text.as_str().to_owned(),
        )))
    }

    pub(super) fn encryptor(self) -> Result<age::Encryptor, BackupError> {
        match self {
            Self::Keys(keys) => {
                let all = keys.iter().map(|key| key as &dyn age::Recipient);
                let made = age::Encryptor::with_recipients(all);
                made.map_err(|error| BackupError::Key(error.to_string()))
            }
            Self::Passphrase(text) => Ok(age::Encryptor::with_user_passphrase(text)),
        }
    }
}

impl Opens {
    /// Secret keys, one a line, as `age-keygen` writes them.
    pub fn keys(path: &Path) -> Result<Self, BackupError> {
        let text = whole(path)?;
        let keys = text
            .lines()
            .filter(|line| line.starts_with("AGE-SECRET-KEY-"))
            .filter_map(|line| x25519::Identity::from_str(line.trim()).ok());
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() {
            let told = format!("{} has no secret key of age's", path.display());
            return Err(BackupError::Key(told));
        }
        Ok(Self::Keys(keys))
    }

    /// The first line of a file.
    pub fn passphrase(path: &Path) -> Result<Self, BackupError> {
        let text = first_line(path)?;
        Ok(Self::Passphrase(SecretString::from(
            text.as_str().to_owned(),
        )))
    }

    pub(super) fn decrypt<R: std::io::BufRead>(
        &self,
        file: R,
    ) -> Result<age::stream::StreamReader<R>, BackupError> {
        let closed = |error: age::DecryptError| BackupError::Closed(error.to_string());
        let age = age::Decryptor::new_buffered(file).map_err(closed)?;
        match self {
            Self::Keys(keys) => age.decrypt(keys.iter().map(|key| key as &dyn age::Identity)),
            Self::Passphrase(text) => {
                let opens = scrypt::Identity::new(text.clone());
                age.decrypt(std::iter::once(&opens as &dyn age::Identity))
            }
        }
        .map_err(closed)
    }
}

fn whole(path: &Path) -> Result<Zeroizing<String>, BackupError> {
    let mut text = Zeroizing::new(String::new());
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.map_err(|source| failed("reading", path, source))?;
    Ok(text)
}

fn first_line(path: &Path) -> Result<Zeroizing<String>, BackupError> {
    let text = whole(path)?;
    Ok(Zeroizing::new(
        text.lines().next().unwrap_or_default().to_owned(),
    ))
}
