//! Objects of the mirror, read one by one through `cat-file --batch`; never a file on disk, never more than asked for.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::git::Git;
use super::names::Oid;
use super::program::{ProgramError, Running};

/// A header line has an object, a word and a number.
const HEADER: u64 = 128;

/// Why an object could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Speaking to it.
    #[error("reading objects")]
    Pipe(#[from] std::io::Error),
    /// It did not answer in time.
    #[error("reading objects took longer than {0:?}")]
    Late(Duration),
    /// It is not there.
    #[error("the object {0} is missing")]
    Missing(Oid),
    /// It is something else.
    #[error("{oid} is a {found}, not a {wanted}")]
    OtherKind {
        /// The object.
        oid: Oid,
        /// What it is.
        found: String,
        /// What was looked for.
        wanted: &'static str,
    },
    /// It is larger than the limit.
    #[error("{oid} has {size} bytes, more than {most}")]
    TooLarge {
        /// The object.
        oid: Oid,
        /// Its size.
        size: u64,
        /// The limit.
        most: u64,
    },
}

/// A conversation with `cat-file --batch`.
#[derive(Debug)]
pub struct Objects {
    running: Running,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    patience: Duration,
}

impl Objects {
    /// Starts it.
    pub fn open(git: &Git, patience: Duration) -> Result<Self, ObjectError> {
        let mut running = git.converse(&["cat-file", "--batch"])?;
        let stdin = running
            .stdin
            .take()
            .ok_or(std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        let stdout = running
            .stdout
            .take()
            .ok_or(std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        Ok(Self {
            running,
            stdin,
            stdout: BufReader::new(stdout),
            patience,
        })
    }

    /// Reads one object of a kind, of at most so many bytes. After an error the conversation is of no more use.
    pub async fn read(
        &mut self,
        oid: &Oid,
        wanted: &'static str,
        most: u64,
    ) -> Result<Vec<u8>, ObjectError> {
        let patience = self.patience;
        tokio::time::timeout(patience, self.ask(oid, wanted, most))
            .await
            .map_err(|_| ObjectError::Late(patience))?
    }

    async fn ask(
        &mut self,
        oid: &Oid,
        wanted: &'static str,
        most: u64,
    ) -> Result<Vec<u8>, ObjectError> {
        self.stdin.write_all(format!("{oid}\n").as_bytes()).await?;
        let mut header = String::new();
        (&mut self.stdout)
            .take(HEADER)
            .read_line(&mut header)
            .await?;
        let mut words = header.split_whitespace().skip(1);
        let (kind, size) = (
            words.next().unwrap_or("missing"),
            words.next().and_then(|n| n.parse::<u64>().ok()),
        );
        let Some(size) = size else {
            return Err(ObjectError::Missing(oid.clone()));
        };
        if kind != wanted {
            return Err(ObjectError::OtherKind {
                oid: oid.clone(),
                found: kind.to_owned(),
                wanted,
            });
        }
        if size > most {
            return Err(ObjectError::TooLarge {
                oid: oid.clone(),
                size,
                most,
            });
        }
        let mut bytes = Vec::new();
        (&mut self.stdout)
            .take(size)
            .read_to_end(&mut bytes)
            .await?;
        let end = self.stdout.read_u8().await?;
        if bytes.len() as u64 != size || end != b'\n' {
            return Err(ObjectError::Missing(oid.clone()));
        }
        Ok(bytes)
    }

    /// Ends it.
    pub async fn close(self) {
        self.running.end().await;
    }
}
