//! What an instance makes once and keeps: its unique local prefix and the key of its lease addresses.
//!
//! Kept under the state directory, made at the first start. Losing them costs stable addresses, nothing else; a file
//! that is damaged is an error, because silently making new ones would hand out other addresses to live networks.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ipnet::Ipv6Net;

/// What an instance keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// Unique local prefix (RFC 4193: fd, 40 random bits).
    pub ula: Ipv6Net,
    /// Key of the hash that chooses lease addresses.
    pub lease_key: [u8; 16],
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("ula", &self.ula)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// Reads it, or makes it.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let mut bytes = [0; 21];
        let text = keep(&state_dir.join("instance"), || {
            getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
            Ok(bytes
                .iter()
                .fold(String::new(), |text, b| text + &format!("{b:02x}")))
        })?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the instance file is damaged");
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * bytes.len() {
            return Err(damaged());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| damaged())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| damaged())?;
        }
        let (global, lease_key) = bytes.split_at(5);
        // RFC 4193 3.2: eight bits of prefix, forty random ones.
        let mut base = [0; 16];
        for (octet, value) in base.iter_mut().zip([0xfd].iter().chain(global)) {
            *octet = *value;
        }
        let base = Ipv6Addr::from(base);
        let lease_key = lease_key.try_into().map_err(|_| damaged())?;
        Ok(Self {
            ula: Ipv6Net::new(base, 48).map_err(|_| damaged())?,
            lease_key,
        })
    }
}

/// Reads a file, or makes it from what `make` says; whole or not at all.
fn keep(path: &Path, make: impl FnOnce() -> io::Result<String>) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = make()?;
            let fresh = path.with_extension("new");
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, path)?;
            Ok(text)
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_keeps_its_prefix_and_two_instances_differ() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Instance::open(a.path()).unwrap();
        assert_eq!(Instance::open(a.path()).unwrap(), first);
        assert_ne!(Instance::open(b.path()).unwrap(), first);
        assert_eq!(
            (first.ula.prefix_len(), first.ula.addr().octets()[0]),
            (48, 0xfd)
        );
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_a_new_instance() {
        let dir = tempfile::tempdir().unwrap();
        Instance::open(dir.path()).unwrap();
        for text in ["", "zz", "00"] {
            fs::write(dir.path().join("instance"), text).unwrap();
            assert!(Instance::open(dir.path()).is_err(), "{text:?}");
        }
    }
}
