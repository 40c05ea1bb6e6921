//! The system calls that std does not offer, behind safe functions.
//!
//! JUSTIFICATION: the guest is process 1 of hostile workloads and has one dependency, libc; prctl, signalfd, timerfd,
//! `SCM_RIGHTS` and `waitpid(-1)` have no safe form in std. Every call is checked, every descriptor is owned.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// One signal as the kernel reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Who sent it, as seen in this pid namespace; 0 is a sender outside of it (the engine) or the kernel.
    pub sender: u32,
}

/// How a child ended, as a shell would report it: its code, or 128 plus the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which process.
    pub pid: i32,
    /// Exit code.
    pub code: u8,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes this process untraceable: no ptrace, no `/proc/PID/mem`, `environ` or `fd` for others of the same user.
///
/// An exec gives the attribute back, so children are ordinary (prctl(2), `PR_SET_DUMPABLE`).
pub fn refuse_tracing() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes one integer and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// No core file, of this process and of what it starts, and no way back without `CAP_SYS_RESOURCE`: a core holds
/// secrets, and a rootless engine leaves the hard limit where its user's is (setrlimit(2)).
pub fn refuse_cores() -> io::Result<()> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: setrlimit reads `none`, which outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }).map(drop)
}

/// No more open files than this, for this process and what it starts: rootless engines leave their user's limit.
pub fn limit_files(most: u64) -> io::Result<()> {
    let mut now = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: getrlimit fills the structure or fails; setrlimit reads one that outlives the call.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, now.as_mut_ptr()))?;
        let now = now.assume_init();
        let less = libc::rlimit {
            rlim_cur: now.rlim_cur.min(most),
            rlim_max: now.rlim_max.min(most),
        };
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const less)).map(drop)
    }
}

/// Blocks every signal and returns a descriptor that reports them instead.
pub fn take_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the whole set before anyone reads it; the other calls only read it.
    unsafe {
        check(libc::sigfillset(set.as_mut_ptr()))?;
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            set.as_ptr(),
            std::ptr::null_mut(),
        ))?;
        let fd = check(libc::signalfd(
            -1,
            set.as_ptr(),
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Starts a command with no signal blocked: what [`take_signals`] blocks would be inherited across execve(2), and a
/// workload that cannot be asked to end, nor end its own children, is broken.
pub fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the whole set before sigprocmask reads it.
        let set = unsafe {
            check(libc::sigemptyset(none.as_mut_ptr()))?;
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
        };
        check(set).map(drop)
    };
    // SAFETY: between fork and exec only calls that are safe there (signal-safety(7)); nothing is allocated or locked.
    unsafe { command.pre_exec(unblock) };
}

/// The next waiting signal, if there is one.
pub fn next_signal(signals: BorrowedFd<'_>) -> Option<Received> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the kernel writes at most `size` bytes into the buffer of exactly that size, or fails.
    let read = unsafe { libc::read(signals.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if usize::try_from(read) != Ok(size) {
        return None;
    }
    // SAFETY: a full structure was read; it is plain data, any bit pattern is valid.
    let info = unsafe { info.assume_init() };
    Some(Received {
        signal: i32::try_from(info.ssi_signo).unwrap_or(0),
        sender: info.ssi_pid,
    })
}

/// Seconds since boot, time asleep included (`CLOCK_BOOTTIME`: no one in a sandbox can set it).
pub fn seconds_since_boot() -> io::Result<u64> {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: clock_gettime fills the structure or fails.
    let now = unsafe {
        check(libc::clock_gettime(libc::CLOCK_BOOTTIME, now.as_mut_ptr()))?;
        now.assume_init()
    };
    Ok(u64::try_from(now.tv_sec).unwrap_or(0))
}

/// A descriptor that becomes readable `seconds` from now by `CLOCK_BOOTTIME`.
pub fn boot_timer(seconds: u64) -> io::Result<OwnedFd> {
    let second = libc::timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let spec = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: second,
    };
    // SAFETY: timerfd_create takes integers; timerfd_settime reads `spec`, which outlives the call.
    unsafe {
        let timer = OwnedFd::from_raw_fd(check(libc::timerfd_create(
            libc::CLOCK_BOOTTIME,
            libc::TFD_CLOEXEC,
        ))?);
        check(libc::timerfd_settime(
            timer.as_raw_fd(),
            0,
            &raw const spec,
            std::ptr::null_mut(),
        ))?;
        Ok(timer)
    }
}

/// Waits until one of the descriptors is readable, or a second has passed.
pub fn wait_a_second(first: BorrowedFd<'_>, second: Option<BorrowedFd<'_>>) {
    let entry = |fd: i32| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // A negative descriptor is ignored by poll(2).
    let mut set = [
        entry(first.as_raw_fd()),
        entry(second.map_or(-1, |fd| fd.as_raw_fd())),
    ];
    let limit_ms = if second.is_some() { -1 } else { 1000 };
    // SAFETY: `set` has exactly two entries and lives through the call. An error (EINTR) only ends the wait early.
    unsafe { libc::poll(set.as_mut_ptr(), 2, limit_ms) };
}

/// Waits up to a second until a descriptor can be read without waiting, its end included.
pub fn is_readable_soon(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: exactly one entry, which lives through the call. An error (EINTR) is no readiness.
    unsafe { libc::poll(&raw mut entry, 1, 1000) > 0 }
}

/// Reaps one ended child without waiting; `None` when none is left to reap.
pub fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: waitpid writes one integer.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let code = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    Some(Ended {
        pid,
        code: u8::try_from(code).unwrap_or(255),
    })
}

/// Sends a signal; `target` as in kill(2): -1 is everyone but us, -N a process group. Nobody there is no error.
pub fn kill(target: i32, signal: i32) {
    // SAFETY: kill takes integers.
    unsafe { libc::kill(target, signal) };
}

/// Sends one byte and a descriptor (unix(7), `SCM_RIGHTS`).
pub fn send_descriptor(stream: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    const ROOM: usize = 64;
    #[repr(align(8))]
    struct Aligned([u8; ROOM]);
    let mut control = Aligned([0; ROOM]);
    let mut byte = *b"n";
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let payload = u32::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: msghdr is plain data for which zero is valid; `control` is aligned for cmsghdr and 64 bytes hold one
    // descriptor (CMSG_SPACE(4) is 24 here); all buffers outlive sendmsg.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(payload) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return Err(io::Error::other("no room for a descriptor"));
        }
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .write_unaligned(descriptor.as_raw_fd());
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
