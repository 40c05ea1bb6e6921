//! Files and folders that a run brings along, as their owner sees them: walked, measured, packed.
//!
//! Whoever asks for the run reads them, with that user's own rights, and the sandbox gets a copy. The tree may be what an
//! untrusted program left: links are carried as links and never followed, also when somebody swaps a file for one while
//! it is read (`O_NOFOLLOW` below an open folder, openat(2)); what is neither file, folder nor link is refused, without
//! ever waiting for it. The form is the guest helper's (`images/guest/src/parcel.rs`). Failure stance: what cannot be
//! copied whole is not copied, and the run does not start.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};

use crate::exit::{Failure, NOT_RUN};
use crate::show;

/// Of all that one run brings along. What is larger belongs into an image.
const LARGEST: u64 = 1 << 30;
/// Entries of all.
const MOST: u64 = 100_000;
/// Folders in folders: each level holds a descriptor while it is read.
const DEEPEST: usize = 128;
const PIECE: usize = 64 * 1024;

/// One `--copy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// What is copied.
    from: PathBuf,
    /// Where its entries go: the name that it gets, or nothing for the content of a folder in the working folder.
    to: PathBuf,
}

impl Copy {
    /// Reads `FOLDER-OR-FILE[:PATH]`.
    pub fn read(text: &OsStr) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        let (from, to) = match bytes.iter().rposition(|byte| *byte == b':') {
            Some(at) => (
                bytes.get(..at).unwrap_or_default(),
                bytes.get(at + 1..).unwrap_or_default(),
            ),
            None => (bytes, &[][..]),
        };
        let refused = |why: &str| {
            let told = format!("--copy {}: {why}", show::clean(&text.to_string_lossy()));
            Err(Failure::new(told).code(NOT_RUN))
        };
        if from.is_empty() {
            return refused("write FOLDER-OR-FILE, or FOLDER-OR-FILE:PATH");
        }
        let content = from.ends_with(b"/") || [&b"."[..], b".."].contains(&last(from));
        let from = PathBuf::from(OsStr::from_bytes(from));
        let name = from.file_name().map(PathBuf::from).unwrap_or_default();
        let path = Path::new(OsStr::from_bytes(to));
        if path.components().any(|part| part == Component::ParentDir) {
            return refused("the path in the sandbox has a part `..`");
        }
        let to = match to {
            [] if content => PathBuf::new(),
            [] => name,
            [.., b'/'] if !content => path.join(name),
            _ => path.to_owned(),
        };
        Ok(Self { from, to })
    }
}

/// What stands behind the last slash.
fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Where entries go.
trait Sink {
    fn folder(&mut self, to: &Path, mode: u16) -> io::Result<()>;
    fn file(&mut self, to: &Path, mode: u16, size: u64, content: File) -> io::Result<()>;
    fn link(&mut self, to: &Path, target: &CStr) -> io::Result<()>;
}

/// Refuses what is too much, or cannot be copied, before anything is started.
pub fn measure(copies: &[Copy]) -> Result<(), Failure> {
    let mut measured = Measured::default();
    copies.iter().try_for_each(|copy| walk(copy, &mut measured))
}

/// Packs everything; pieces go to `send`, and a mistake there ends it.
pub fn pack(
    copies: &[Copy],
    send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut packed = Packed {
        measured: Measured::default(),
        piece: Vec::with_capacity(PIECE),
        send,
    };
    copies.iter().try_for_each(|copy| walk(copy, &mut packed))?;
    packed.add(b"E")?;
    packed.flush()?;
    Ok(())
}

fn walk(copy: &Copy, sink: &mut impl Sink) -> Result<(), Failure> {
    let bytes = copy.from.as_os_str().as_bytes();
    // behind a slash a link would be followed
    let end = bytes.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
    let plain = bytes.get(..=end).unwrap_or(bytes);
    let mut place = Place {
        shown: copy.from.clone(),
        depth: 0,
        listed: 0,
    };
    let name = CString::new(plain).map_err(|error| place.told(&error.into()))?;
    let found = statat(CWD, &name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = found.map_err(|error| place.told(&error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        let told = format!("{} is a link", show::clean(&copy.from.to_string_lossy()));
        let hint = "links are never followed; name what it leads to";
        return Err(Failure::new(told).hint(hint).code(NOT_RUN));
    }
    entry(CWD, &name, &copy.to, &mut place, sink)
}

/// Where a walk is, for messages and limits.
struct Place {
    shown: PathBuf,
    depth: usize,
    /// Names that were read; they are held until their turn comes.
    listed: u64,
}

impl Place {
    fn told(&self, error: &io::Error) -> Failure {
        let path = self.shown.to_string_lossy();
        Failure::new(format!("copying {}: {error}", show::clean(&path))).code(NOT_RUN)
    }
}

fn entry(
    at: BorrowedFd<'_>,
    name: &CStr,
    to: &Path,
    place: &mut Place,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = found.map_err(|error| place.told(&error.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            if !to.as_os_str().is_empty() {
                let mode = permissions(stat.st_mode);
                sink.folder(to, mode).map_err(|e| place.told(&e))?;
            }
            folder(at, name, to, place, sink)
        }
        FileType::RegularFile => file(at, name, to, sink).map_err(|e| place.told(&e)),
        FileType::Symlink => {
            let target = readlinkat(at, name, Vec::new()).map_err(|e| place.told(&e.into()))?;
            sink.link(to, &target).map_err(|e| place.told(&e))
        }
        _ => Err(place.told(&special())),
    }
}

fn special() -> io::Error {
    io::Error::other("it is a device, pipe or socket, and only files, folders and links are copied")
}

/// The nine bits; those that lend somebody's rights stay outside.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o777).unwrap_or_default()
}

fn file(at: BorrowedFd<'_>, name: &CStr, to: &Path, sink: &mut impl Sink) -> io::Result<()> {
    // not waiting: a pipe may stand there by now
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let content = File::from(openat(at, name, flags, Mode::empty())?);
    let stat = rustix::fs::fstat(&content)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(special());
    }
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    sink.file(to, permissions(stat.st_mode), size, content)
}

fn folder(
    at: BorrowedFd<'_>,
    name: &CStr,
    to: &Path,
    place: &mut Place,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    if place.depth >= DEEPEST {
        let deep = format!("more than {DEEPEST} folders in each other");
        return Err(place.told(&io::Error::other(deep)));
    }
    let left = MOST.saturating_sub(place.listed);
    let (opened, names) = names(at, name, left).map_err(|error| place.told(&error))?;
    place.listed += names.len() as u64;
    for name in names {
        let child = OsString::from_vec(name.to_bytes().to_vec());
        let to = to.join(&child);
        place.shown.push(&child);
        place.depth += 1;
        entry(opened.as_fd(), &name, &to, place, sink)?;
        place.depth -= 1;
        place.shown.pop();
    }
    Ok(())
}

/// An open folder and what is in it, in an order that is always the same.
fn names(
    at: BorrowedFd<'_>,
    name: &CStr,
    most: u64,
) -> io::Result<(std::os::fd::OwnedFd, Vec<CString>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(at, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for found in Dir::read_from(&opened)? {
        let name = found?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() as u64 > most {
            return Err(too_many());
        }
    }
    names.sort();
    Ok((opened, names))
}

fn too_many() -> io::Error {
    io::Error::other(format!("that makes more than {MOST} files"))
}

/// What has been seen so far.
#[derive(Default)]
struct Measured {
    bytes: u64,
    entries: u64,
}

impl Measured {
    fn count(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries += 1;
        if self.bytes > LARGEST {
            let most = show::bytes(LARGEST);
            return Err(io::Error::other(format!(
                "that makes more than {most}; what is larger belongs into an image"
            )));
        }
        if self.entries > MOST {
            return Err(too_many());
        }
        Ok(())
    }
}

impl Sink for Measured {
    fn folder(&mut self, _to: &Path, _mode: u16) -> io::Result<()> {
        self.count(0)
    }

    fn file(&mut self, _to: &Path, _mode: u16, size: u64, _content: File) -> io::Result<()> {
        self.count(size)
    }

    fn link(&mut self, _to: &Path, _target: &CStr) -> io::Result<()> {
        self.count(0)
    }
}

/// Entries on their way, in pieces.
struct Packed<'a> {
    measured: Measured,
    piece: Vec<u8>,
    send: &'a mut dyn FnMut(Vec<u8>) -> io::Result<()>,
}

impl Packed<'_> {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        (self.send)(piece)
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        let length = u16::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidFilename)?;
        self.add(&length.to_be_bytes())?;
        self.add(text)
    }

    fn head(&mut self, kind: &[u8], to: &Path) -> io::Result<()> {
        self.add(kind)?;
        self.text(to.as_os_str().as_bytes())
    }
}

impl Sink for Packed<'_> {
    fn folder(&mut self, to: &Path, mode: u16) -> io::Result<()> {
        self.measured.count(0)?;
        self.head(b"D", to)?;
        self.add(&mode.to_be_bytes())
    }

    fn file(&mut self, to: &Path, mode: u16, size: u64, content: File) -> io::Result<()> {
        self.measured.count(size)?;
        self.head(b"F", to)?;
        self.add(&mode.to_be_bytes())?;
        self.add(&size.to_be_bytes())?;
        // what is written behind the size meanwhile stays outside
        let mut content = content.take(size);
        let mut buffer = vec![0; PIECE];
        loop {
            match content.read(&mut buffer)? {
                0 if content.limit() > 0 => {
                    return Err(io::Error::other("it became shorter while it was read"));
                }
                0 => return Ok(()),
                length => self.add(buffer.get(..length).unwrap_or_default())?,
            }
        }
    }

    fn link(&mut self, to: &Path, target: &CStr) -> io::Result<()> {
        self.measured.count(0)?;
        self.head(b"L", to)?;
        self.text(target.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn packed(copies: &[&str]) -> Result<Vec<u8>, Failure> {
        let copies: Vec<Copy> = copies
            .iter()
            .map(|text| Copy::read(OsStr::new(text)))
            .collect::<Result<_, _>>()?;
        measure(&copies)?;
        let mut all = Vec::new();
        pack(&copies, &mut |piece| {
            all.extend(piece);
            Ok(())
        })?;
        Ok(all)
    }

    fn has(all: &[u8], part: &[u8]) -> bool {
        all.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn a_copy_goes_where_people_expect_it() {
        for (text, from, to) in [
            ("agent.py", "agent.py", "agent.py"),
            ("/x/project", "/x/project", "project"),
            ("/x/project/", "/x/project/", ""),
            (".", ".", ""),
            ("a/..", "a/..", ""),
            ("a.py:/tmp/b.py", "a.py", "/tmp/b.py"),
            ("a.py:sub/", "a.py", "sub/a.py"),
            ("x/:sub/", "x/", "sub/"),
            ("a:b:", "a:b", "a:b"),
        ] {
            let copy = Copy::read(OsStr::new(text)).unwrap();
            assert_eq!((copy.from, copy.to), (from.into(), to.into()), "{text}");
        }
        for wrong in ["", ":", ":/x", "a:../b", "a:/x/../../etc"] {
            assert!(Copy::read(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn links_are_carried_and_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, secret) = (folder.path().join("in"), folder.path().join("secret"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&secret, "s3cr3t").unwrap();
        std::fs::write(inside.join("own"), "own content").unwrap();
        symlink(&secret, inside.join("file")).unwrap();
        symlink(folder.path(), inside.join("folder")).unwrap();
        let all = packed(&[inside.to_str().unwrap()]).unwrap();
        assert!(has(&all, b"own content") && has(&all, secret.as_os_str().as_bytes()));
        assert!(!has(&all, b"s3cr3t"));
        // nor is one that is named itself, with or without a slash behind it
        for (name, slash) in [("file", ""), ("folder", ""), ("folder", "/")] {
            let named = format!("{}{slash}", inside.join(name).display());
            assert!(packed(&[&named]).is_err(), "{named}");
        }
        // while what one leads to can be named, by a way that has links
        assert!(has(
            &packed(&[inside.join("folder/secret").to_str().unwrap()]).unwrap(),
            b"s3cr3t"
        ));
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let failure = packed(&[folder.path().to_str().unwrap()]).unwrap_err();
        assert!(failure.message.contains("pipe"), "{failure:?}");
        std::fs::remove_file(&pipe).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
        packed(&[folder.path().to_str().unwrap()]).unwrap_err();
        packed(&["/dev/null"]).unwrap_err();
    }

    #[test]
    fn too_much_and_too_deep_are_refused_and_modes_lend_no_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(LARGEST).unwrap();
        measure(&[Copy::read(OsStr::new(path)).unwrap()]).unwrap();
        std::fs::write(folder.path().join("more"), "x").unwrap();
        let failure = measure(&[Copy::read(OsStr::new(path)).unwrap()]).unwrap_err();
        assert!(failure.message.contains("1.0 GiB"), "{failure:?}");
        std::fs::remove_file(&large).unwrap();
        let tool = folder.path().join("more");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o6755)).unwrap();
        let all = packed(&[&format!("{}:t", tool.display())]).unwrap();
        assert!(all.starts_with(b"F\x00\x01t\x01\xed"), "{all:?}");
        let mut deep = folder.path().to_owned();
        for _ in 0..=DEEPEST {
            deep.push("d");
        }
        std::fs::create_dir_all(deep).unwrap();
        let failure = packed(&[path]).unwrap_err();
        assert!(
            failure.message.contains("folders in each other"),
            "{failure:?}"
        );
    }
}
