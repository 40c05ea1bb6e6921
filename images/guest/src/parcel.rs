//! What a run brings along: files that init unpacks before the command starts, as the job's user, inside the sandbox.
//!
//! They come on standard input, before whatever the command may read there, as entries in this form (numbers big-endian):
//!
//! | entry | bytes |
//! |---|---|
//! | folder | `D`, length of the path in 2 bytes, path, mode in 2 bytes |
//! | file | `F`, length of the path in 2 bytes, path, mode in 2 bytes, size in 8 bytes, content |
//! | link | `L`, length of the path in 2 bytes, path, length of the target in 2 bytes, target |
//! | end | `E` |
//!
//! Paths are relative to the working folder, or absolute; none has a part `..`. Links are made and never followed where
//! something is put in their place. Exactly the entries are read and not a byte more. Owns no judgement of what may come
//! in: it happens with the powers of the job, where the job could do the same. Failure stance: the first thing that cannot
//! be made, or an end before the end, and the command is not started.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::sys;

/// What its owner needs to fill a folder.
const OWNERS: u32 = 0o700;

/// Standard input, unbuffered, until some moment.
struct Incoming<'a> {
    from: File,
    late: &'a dyn Fn() -> bool,
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // asked each time: who gives without an end is never waited for
        while !(self.late)() {
            if sys::is_readable_soon(self.from.as_fd()) {
                return self.from.read(buffer);
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

/// Unpacks what comes on standard input; gives up when `late` says so.
pub fn unpack(late: &dyn Fn() -> bool) -> io::Result<()> {
    let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    unpack_from(&mut Incoming { from, late })
}

fn unpack_from(input: &mut impl Read) -> io::Result<()> {
    loop {
        match &array(input)? {
            b"D" => {
                let path = path(input)?;
                let mode = number(input)?;
                told(&path, folder(&path, mode.into()))?;
            }
            b"F" => {
                let path = path(input)?;
                let mode = number(input)?;
                let size = u64::from_be_bytes(array(input)?);
                told(&path, file(&path, mode.into(), &mut input.take(size)))?;
            }
            b"L" => {
                let path = path(input)?;
                let target = PathBuf::from(std::ffi::OsString::from_vec(text(input)?));
                told(&path, link(&path, &target))?;
            }
            b"E" => return Ok(()),
            _ => return Err(malformed("no such entry")),
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("what was to be brought in is malformed: {what}"),
    )
}

/// Names are the job's, so they are quoted: they may hold what a terminal obeys.
fn told(path: &Path, made: io::Result<()>) -> io::Result<()> {
    made.map_err(|error| {
        let path = path.to_string_lossy();
        let told = format!("cannot bring {path:?} into this sandbox: {error}");
        io::Error::new(error.kind(), told)
    })
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input
        .read_exact(&mut bytes)
        .map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => malformed("it ends too early"),
            _ => error,
        })?;
    Ok(bytes)
}

fn number(input: &mut impl Read) -> io::Result<u16> {
    array(input).map(u16::from_be_bytes)
}

fn text(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = usize::from(number(input)?);
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(malformed("an empty name, or one with a NUL byte"));
    }
    Ok(bytes)
}

fn path(input: &mut impl Read) -> io::Result<PathBuf> {
    let path = PathBuf::from(std::ffi::OsString::from_vec(text(input)?));
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(malformed("a path with '..'"));
    }
    Ok(path)
}

fn folder(path: &Path, mode: u32) -> io::Result<()> {
    parents(path)?;
    let made = match DirBuilder::new().mode(OWNERS).create(path) {
        // the image's own, or one that was made as a parent, stays as it is
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            DirBuilder::new().mode(OWNERS).create(path)
        }
        other => other,
    };
    // whatever the mask of new files is
    made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode | OWNERS)))
}

fn file(path: &Path, mode: u32, content: &mut io::Take<&mut impl Read>) -> io::Result<()> {
    parents(path)?;
    cleared(path)?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    io::copy(content, &mut file)?;
    if content.limit() > 0 {
        return Err(malformed("it ends too early"));
    }
    // whatever the mask of new files is
    file.set_permissions(Permissions::from_mode(mode))
}

fn link(path: &Path, target: &Path) -> io::Result<()> {
    parents(path)?;
    cleared(path)?;
    symlink(target, path)
}

/// The way to what is named by a path of its own (`--copy a:b/c`).
fn parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::fs::create_dir_all(parent),
        _ => Ok(()),
    }
}

fn cleared(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
