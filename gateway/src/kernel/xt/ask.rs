//! Asks the kernel itself about its tables: which parts it has, and how many rules a table holds. No program is needed.
//!
//! Owns: three socket options and what their answers mean. Every answer is about the namespace of the calling thread.
//!
//! JUSTIFICATION for unsafe: these questions exist only as options of a raw socket (`linux/netfilter/x_tables.h`,
//! `linux/netfilter_ipv4/ip_tables.h` and its IPv6 twin), which no library offers.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use netpolicy::ruleset::IpFamily;
use socket2::{Domain, Protocol, Socket, Type};

/// `IPPROTO_RAW`: the socket is only asked.
const RAW: i32 = 255;
/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`
const GET_INFO: i32 = 64;
/// `struct ipt_getinfo`: name (32), hooks, two times five places, number of entries, size.
const INFO: usize = 84;
/// Where the hooks and the number of entries stand in it.
const HOOKS: usize = 32;
const ENTRIES: usize = 76;
const SIZE: usize = 80;
/// `XT_TABLE_MAXNAMELEN`
const TABLE_NAME: usize = 32;
/// `struct xt_get_revision`: name (29, with its end) and revision.
const REVISION: usize = 30;
const PART_NAME: usize = 29;

/// The tables that are there, by name. Where it cannot be told there are none.
pub fn tables(family: IpFamily) -> Vec<String> {
    let family = match family {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    };
    // The thread's own view: `/proc/self` is the main thread's, which is in another namespace.
    let path = format!("/proc/thread-self/net/{family}_tables_names");
    let names = fs::read_to_string(path).unwrap_or_default();
    names.lines().map(str::to_owned).collect()
}

/// What a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Rules, without the policies of its chains.
    pub rules: u32,
    /// Octets in the kernel, and in every program that looks at it.
    pub size: u32,
}

/// What a table holds.
pub fn held(family: IpFamily, table: &str) -> io::Result<Held> {
    let mut info = [0; INFO];
    put(&mut info, TABLE_NAME, table)?;
    ask(family, GET_INFO, &mut info)?;
    let word = |at: usize| {
        let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    // one entry for the policy of each hook, and one that ends the table
    Ok(Held {
        rules: word(ENTRIES).saturating_sub(word(HOOKS).count_ones() + 1),
        size: word(SIZE),
    })
}

/// Those of these matches (lower case) and targets (upper case) that the kernel neither has nor can load.
pub fn missing(family: IpFamily, needed: Vec<String>) -> Vec<String> {
    let lacks = |part: &String| is_known(family, part).is_ok_and(|known| !known);
    needed.into_iter().filter(lacks).collect()
}

fn is_known(family: IpFamily, part: &str) -> io::Result<bool> {
    let is_target = part.bytes().all(|b| b.is_ascii_uppercase());
    // `IPT_SO_GET_REVISION_MATCH`, `_TARGET`; of IPv6 they stand two higher
    let option = match (family, is_target) {
        (IpFamily::V4, false) => 66,
        (IpFamily::V4, true) => 67,
        (IpFamily::V6, false) => 68,
        (IpFamily::V6, true) => 69,
    };
    let mut revision = [0; REVISION];
    put(&mut revision, PART_NAME, part)?;
    match ask(family, option, &mut revision) {
        // there, in other revisions than the first
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// A name with its end.
fn put(question: &mut [u8], room: usize, name: &str) -> io::Result<()> {
    let place = question.get_mut(..name.len()).filter(|_| name.len() < room);
    let place = place.ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(name.as_bytes());
    Ok(())
}

fn ask(family: IpFamily, option: i32, question: &mut [u8]) -> io::Result<()> {
    let (domain, level) = match family {
        IpFamily::V4 => (Domain::IPV4, libc::IPPROTO_IP),
        IpFamily::V6 => (Domain::IPV6, libc::IPPROTO_IPV6),
    };
    let socket = Socket::new(domain, Type::RAW.cloexec(), Some(Protocol::from(RAW)))?;
    let mut length = libc::socklen_t::try_from(question.len()).map_err(io::Error::other)?;
    // SAFETY: the buffer is writable for the length that is given, and nobody else holds it; the kernel writes no more.
    let said = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            question.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if said == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_no_kernel_has_are_missing_and_others_are_not() {
        for family in [IpFamily::V4, IpFamily::V6] {
            let needed = ["u32", "NFQUEUE", "nonsense", "NONSENSE"].map(str::to_owned);
            assert_eq!(missing(family, needed.into()), ["nonsense", "NONSENSE"]);
        }
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        let long = "x".repeat(TABLE_NAME);
        for family in [IpFamily::V4, IpFamily::V6] {
            let error = held(family, &long).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
