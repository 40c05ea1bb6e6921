//! Receive packet steering for outer links: without it about two connects in 100,000 are reset by the kernel, because
//! a data segment on one CPU overtakes the handshake on another.
//!
//! Owns a detached sysfs mount that shows the gateway namespace. Where it cannot be made (a user namespace) links work
//! without steering, and the caller says so.
//!
//! JUSTIFICATION for unsafe: the new mount calls have no wrapper in the crates in use.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::error::{Act, KernelError};

/// A sysfs of the gateway namespace.
#[derive(Debug)]
pub struct Steering {
    sysfs: OwnedFd,
    cpus: String,
}

/// `FSCONFIG_CMD_CREATE`
const CONFIG_CREATE: libc::c_uint = 6;
const CLOEXEC: libc::c_uint = 1;

impl Steering {
    /// Mounts sysfs for the namespace of the calling thread, attached nowhere.
    pub fn here() -> Result<Self, KernelError> {
        if crate::ordinary::in_user_namespace() {
            // the files are there, and only root of the machine may write them
            return Err(KernelError::Unusable(
                "packet steering cannot be set in a user namespace",
            ));
        }
        let sysfs = detached(c"sysfs").act("mounting sysfs for the gateway namespace")?;
        let cpus = fs::read_to_string("/sys/devices/system/cpu/possible")
            .act("reading the list of CPUs")?;
        Ok(Self {
            sysfs,
            cpus: mask(cpus.trim()),
        })
    }

    /// Spreads what arrives on a link over all CPUs.
    pub fn spread(&self, link: &str) -> Result<(), KernelError> {
        let path = format!("class/net/{link}/queues/rx-0/rps_cpus");
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
        let file = nix::fcntl::openat(
            &self.sysfs,
            path.as_str(),
            flags,
            nix::sys::stat::Mode::empty(),
        )
        .act(format!("opening {path}"))?;
        File::from(file)
            .write_all(self.cpus.as_bytes())
            .act(format!("writing {path}"))
    }
}

/// `0-3,8` as the kernel's hexadecimal bit mask, in groups of 32 bits.
fn mask(list: &str) -> String {
    let mut words = vec![0_u32; 1];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            continue;
        };
        for cpu in first..=last.min(first + 4096) {
            if words.len() <= cpu / 32 {
                words.resize(cpu / 32 + 1, 0);
            }
            if let Some(word) = words.get_mut(cpu / 32) {
                *word |= 1 << (cpu % 32);
            }
        }
    }
    words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect::<Vec<_>>()
        .join(",")
}

fn detached(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the string outlives the call; the result is checked.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOEXEC) })?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: FSCONFIG_CMD_CREATE takes no key, value or aux.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            CONFIG_CREATE,
            nothing,
            nothing,
            0,
        )
    };
    if created != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor and two integers; the result is checked.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just handed this descriptor to us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn cpu_lists_become_masks() {
        assert_eq!(mask("0"), "00000001");
        assert_eq!(mask("0-3"), "0000000f");
        assert_eq!(mask("0-1,32-33"), "00000003,00000003");
    }
}
