//! The promises of `sally hold`.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

const SALLY: &str = env!("CARGO_BIN_EXE_sally");

fn socket(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("sally-hold-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn holder(socket: &std::path::Path) -> Child {
    Command::new("unshare")
        .args(["--net", "--", SALLY, "hold", "--socket"])
        .arg(socket)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// The first descriptor that arrives on a stream.
fn descriptor(stream: &UnixStream) -> OwnedFd {
    let mut byte = [0u8; 8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = [0u64; 8];
    // SAFETY: zero is a valid msghdr; the buffers outlive the call and are described with their true sizes.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr().cast();
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        assert_eq!(libc::recvmsg(stream.as_raw_fd(), &raw mut message, 0), 1);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null());
        assert_eq!(
            ((*header).cmsg_level, (*header).cmsg_type),
            (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        );
        OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
    }
}

#[test]
fn holder_sends_its_own_network_namespace_and_ends_when_told() {
    let path = socket("sends");
    let listener = UnixListener::bind(&path).unwrap();
    let mut child = holder(&path);
    let (stream, _) = listener.accept().unwrap();
    let namespace = std::fs::File::from(descriptor(&stream));
    let inode = namespace.metadata().unwrap().ino();
    assert_eq!(
        inode,
        std::fs::metadata(format!("/proc/{}/ns/net", child.id()))
            .unwrap()
            .ino()
    );
    assert_ne!(inode, std::fs::metadata("/proc/self/ns/net").unwrap().ino());
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn holder_without_a_listener_fails() {
    let status = holder(&socket("nobody")).wait().unwrap();
    assert_eq!(status.code(), Some(1));
}
