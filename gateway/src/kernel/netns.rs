//! Network namespaces: made, kept by a bind mount, told apart by inode, entered by short-lived plain threads.
//!
//! Owns: the mount under the namespace directory. Refuses to own: what happens inside.
//! Sockets belong to the namespace they were made in, so a closure that runs inside hands sockets out and ends; no
//! thread of the runtime ever leaves the uplink namespace.

use std::fmt;
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures_util::future::{Either, select};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};

use super::error::{Act, KernelError};

/// `NSFS_MAGIC` of linux/magic.h: the file system behind namespace files.
const NSFS: FsType = FsType(0x6e73_6673);

/// Identity of a namespace: two descriptors name the same one exactly when both numbers agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NsId {
    device: u64,
    inode: u64,
}

impl NsId {
    /// The namespace behind a descriptor.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let meta = File::from(fd.try_clone_to_owned()?).metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }

    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Self::of(File::open("/proc/thread-self/ns/net")?.as_fd())
    }

    /// The namespace of process 1: of the machine, or of the container that the gateway runs in.
    ///
    /// A process 1 with more capabilities than ours cannot be looked at (ptrace(2), access mode checks); kernel threads
    /// can, and they never leave the machine's own namespace.
    pub fn of_init() -> io::Result<Self> {
        let of = |pid: u32| Self::of(File::open(format!("/proc/{pid}/ns/net"))?.as_fd());
        match of(1) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && is_kernel_thread(2) =>
            {
                of(2).map_err(|_| error)
            }
            found => found,
        }
    }
}

/// Whether the calling thread is in the machine's own namespace, told by a setting that no other one shows
/// (`net_core_table` of net/core/sysctl_net_core.c). For who may not look at process 1.
pub fn is_machines() -> bool {
    Path::new("/proc/sys/net/core/dev_weight").exists()
}

/// `PF_KTHREAD` in the flags of `/proc/PID/stat`, which no program can give itself.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let flags = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command may hold anything, blanks and brackets too; the fields begin behind its last bracket.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()
    };
    flags().is_some_and(|flags| flags & PF_KTHREAD != 0)
}

impl fmt::Display for NsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.inode)
    }
}

/// An open network namespace.
#[derive(Debug)]
pub struct Ns {
    fd: OwnedFd,
    id: NsId,
}

impl Ns {
    /// Takes a descriptor that somebody sent; fails unless it is a namespace file.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, KernelError> {
        let kind = fstatfs(&fd)
            .act("reading the file system of a namespace descriptor")?
            .filesystem_type();
        if kind != NSFS {
            return Err(KernelError::Unusable("the descriptor is not a namespace"));
        }
        let id = NsId::of(fd.as_fd()).act("reading the identity of a namespace")?;
        Ok(Self { fd, id })
    }

    /// Opens `directory/name`, or makes a new namespace there and keeps it by a bind mount.
    ///
    /// Returns whether it was there before. A left-over file that is no namespace is replaced.
    pub fn open_or_create(directory: &Path, name: &str) -> Result<(Self, Origin), KernelError> {
        let path = persistent_path(directory, name)?;
        fs::create_dir_all(directory).act(format!("creating {}", directory.display()))?;
        share(directory)?;
        if let Ok(ns) = File::open(&path)
            .map_err(drop)
            .and_then(|file| Self::from_fd(file.into()).map_err(drop))
        {
            return Ok((ns, Origin::Adopted));
        }
        // A left-over file is a mount point as good as a new one.
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .act(format!("creating the mount point {}", path.display()))?;
        let target = path.clone();
        on_thread(move || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &target,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
        })
        .act("starting a thread")?
        .act(format!("keeping a new namespace at {}", path.display()))
        .inspect_err(|_| drop(fs::remove_file(&path)))
        .map_err(|error| match error.errno() {
            // namespaces(7): a limit of user.max_net_namespaces, which is 0 where they are switched off
            Some(libc::ENOSPC) => KernelError::NoFirewall(Box::new(error)),
            _ => error,
        })?;
        let file = File::open(&path).act(format!("opening {}", path.display()))?;
        Ok((Self::from_fd(file.into())?, Origin::Created))
    }

    /// A new namespace that nothing keeps but this handle.
    pub fn anonymous() -> Result<Self, KernelError> {
        let file = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = file
            .act("starting a thread")?
            .act("making a network namespace")?;
        Self::from_fd(file.into())
    }

    /// Takes the mount over a directory of nobody else's away, that making namespaces in it has put there.
    pub fn release(directory: &Path) -> Result<(), KernelError> {
        match umount2(directory, MntFlags::MNT_DETACH) {
            Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
            Err(error) => Err(error).act(format!("unmounting {}", directory.display())),
        }
    }

    /// Takes the name away. The namespace itself ends with its last socket and descriptor.
    pub fn unlink(directory: &Path, name: &str) -> Result<(), KernelError> {
        let path = persistent_path(directory, name)?;
        if !path.exists() {
            return Ok(());
        }
        match umount2(&path, MntFlags::MNT_DETACH) {
            Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
            Err(error) => return Err(error).act(format!("unmounting {}", path.display())),
        }
        match fs::remove_file(&path) {
            // Mounted once more below a mount that somebody put over the directory: the name is gone all the same.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tracing::warn!(path = %path.display(), "the mount point stays behind");
                Ok(())
            }
            result => result.act(format!("removing {}", path.display())),
        }
    }

    /// Its identity.
    pub fn id(&self) -> NsId {
        self.id
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A second handle on the same namespace.
    pub fn duplicate(&self) -> Result<Self, KernelError> {
        let fd = self
            .fd
            .try_clone()
            .act("duplicating a namespace descriptor")?;
        Ok(Self { fd, id: self.id })
    }

    /// Runs a blocking closure on a fresh thread inside the namespace.
    pub fn run<T, F>(&self, inside: F) -> Result<T, KernelError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, KernelError> + Send + 'static,
    {
        let fd = self
            .fd
            .try_clone()
            .act("duplicating a namespace descriptor")?;
        let id = self.id;
        on_thread(move || {
            // An ordinary user's gateway may not enter the machine's namespace, and it is there already.
            if NsId::current().act("reading the identity of a namespace")? != id {
                setns(fd, CloneFlags::CLONE_NEWNET).act("entering a network namespace")?;
            }
            inside()
        })
        .act("starting a thread")?
    }

    /// Runs routing requests inside the namespace, on a thread and a runtime of their own.
    pub fn route<T, F, Fut>(&self, requests: F) -> Result<T, KernelError>
    where
        T: Send + 'static,
        F: FnOnce(rtnetlink::Handle) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, KernelError>>,
    {
        self.run(move || route_here(requests))
    }
}

impl From<Ns> for OwnedFd {
    fn from(ns: Ns) -> Self {
        ns.fd
    }
}

/// Runs routing requests in the namespace of the calling thread, which must not belong to a runtime.
pub fn route_here<T, F, Fut>(requests: F) -> Result<T, KernelError>
where
    F: FnOnce(rtnetlink::Handle) -> Fut,
    Fut: Future<Output = Result<T, KernelError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .act("making a runtime")?;
    runtime.block_on(async {
        let (connection, handle, _) =
            rtnetlink::new_connection().act("opening a routing socket")?;
        let requests = std::pin::pin!(requests(handle));
        match select(requests, connection).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => {
                Err(io::Error::from(io::ErrorKind::BrokenPipe)).act("talking to the routing socket")
            }
        }
    })
}

/// Opens the file of a namespace, made if it is not there, for whoever locks it: the lock belongs to the namespace.
///
/// Two that make it at once would mount one over the other, so the directory is locked for the moment, as `ip netns`
/// does.
pub fn keep(directory: &Path, name: &str) -> Result<File, KernelError> {
    let path = persistent_path(directory, name)?;
    let opening = || format!("opening {}", directory.display());
    fs::create_dir_all(directory).act(opening())?;
    let moment = File::open(directory).act(opening())?;
    rustix::fs::flock(&moment, rustix::fs::FlockOperation::LockExclusive)
        .map_err(io::Error::from)
        .act(format!("locking {}", directory.display()))?;
    Ns::open_or_create(directory, name)?;
    File::open(&path).act(format!("opening {}", path.display()))
}

/// Makes the directory a shared mount, as `ip netns` does: or its first run would put one over it, and our namespace would
/// be mounted twice, once out of reach.
fn share(directory: &Path) -> Result<(), KernelError> {
    let act = || format!("making {} a shared mount", directory.display());
    let shared = || {
        mount(
            None::<&str>,
            directory,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    match shared() {
        Err(nix::errno::Errno::EINVAL) => {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(
                Some(directory),
                directory,
                None::<&str>,
                flags,
                None::<&str>,
            )
            .act(act())?;
            shared().act(act())
        }
        result => result.act(act()),
    }
}

/// Whether a namespace was there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Made now.
    Created,
    /// Found.
    Adopted,
}

/// The names are configuration, not input of a sandbox; they still must not leave the directory.
fn persistent_path(directory: &Path, name: &str) -> Result<PathBuf, KernelError> {
    let fits = (1..=64).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fits {
        Ok(directory.join(name))
    } else {
        Err(KernelError::Unusable(
            "a namespace name has 1 to 64 characters of a-z, 0-9, '-', '_' and '.'",
        ))
    }
}

/// A plain thread whose panic is an error of the caller.
fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    std::thread::Builder::new()
        .name("in-netns".into())
        .spawn(work)?
        .join()
        .map_err(|_| io::Error::other("the thread inside the namespace panicked"))
}
