//! Rows of the hardening checklist about where the console lives: open ports, its file, its backups, guesses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;

use super::checklist::{CheckItem, Found};
use crate::accounts::{GUESSES_AT_ACCOUNT, GUESSES_FROM_ADDRESS};
use crate::clock::{DAY, Millis};
use crate::settings::{AppUrl, ConsoleConfig};

/// A backup that is older has lost more than anybody remembers.
const OLD: Millis = 8 * DAY;
/// Ports that people are meant to reach on most machines: SSH, and a reverse proxy.
const USUAL: [u16; 3] = [22, 80, 443];
/// Services that ask whoever comes for nothing, or for too little.
const OPEN: [(u16, &str); 10] = [
    (2375, "a container engine"),
    (2379, "etcd"),
    (3306, "MySQL"),
    (5432, "PostgreSQL"),
    (6379, "Redis"),
    (9200, "Elasticsearch"),
    (10250, "a kubelet"),
    (11211, "memcached"),
    (27017, "MongoDB"),
    (5900, "VNC"),
];

/// Where programs listen for TCP in the console's network; `None`: the kernel does not say.
pub(super) fn listening() -> Option<Vec<SocketAddr>> {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}")).ok();
    let mut all = sockets(&of("tcp")?);
    // a kernel without IPv6 has no such file
    all.extend(of("tcp6").map(|text| sockets(&text)).unwrap_or_default());
    Some(all)
}

/// The listening ones of the kernel's table (proc_pid_net(5)).
fn sockets(table: &str) -> Vec<SocketAddr> {
    let rows = table.lines().skip(1).map(str::split_whitespace);
    rows.filter_map(|mut row| {
        let (local, state) = (row.nth(1)?, row.nth(1)?);
        let (address, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == "0A").then_some(SocketAddr::new(address_of(address)?, port))
    })
    .collect()
}

/// Words of 32 bits in the order of this machine's bytes.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok();
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?.to_ne_bytes()).into());
    }
    let mut bytes = [0; 16];
    for (place, four) in bytes.chunks_mut(4).enumerate() {
        four.copy_from_slice(&word(place * 8)?.to_ne_bytes());
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

pub(super) fn ports(config: &ConsoleConfig, listening: Option<&[SocketAddr]>) -> CheckItem {
    let fix = || {
        "let each listen at 127.0.0.1 only, or drop its port in the machine's firewall; `ss -ltnp` names the programs".to_owned()
    };
    let found = listening.map_or_else(
        || {
            Found::Unknown(
                "the kernel does not say".to_owned(),
                "look with `ss -ltn`".to_owned(),
            )
        },
        |all| {
            let outside = |at: &&SocketAddr| {
                let sandboxes = config
                    .gateway
                    .pools
                    .iter()
                    .any(|net| net.contains(&at.ip()));
                !at.ip().is_loopback() && !sandboxes
            };
            let own = |port: &u16| *port == config.listen.port() || USUAL.contains(port);
            let open: BTreeSet<u16> = all.iter().filter(outside).map(SocketAddr::port).collect();
            let others: Vec<u16> = open.iter().copied().filter(|port| !own(port)).collect();
            let known: Vec<String> = OPEN
                .iter()
                .filter(|(port, _)| others.contains(port))
                .map(|(port, what)| format!("{port} ({what})"))
                .collect();
            if !known.is_empty() {
                return Found::Bad(format!("anybody reaches {}", known.join(", ")), fix());
            }
            if others.is_empty() {
                return Found::Good(format!("reached from outside: {}", words(&open)));
            }
            Found::Unknown(
                format!("also reached from outside: {}", words(&others)),
                fix(),
            )
        },
    );
    CheckItem::of("ports", "Nothing listens that nobody should reach", found)
}

fn words<'a>(ports: impl IntoIterator<Item = &'a u16>) -> String {
    let ports: Vec<String> = ports.into_iter().map(u16::to_string).collect();
    if ports.is_empty() {
        "nothing".to_owned()
    } else {
        format!("port {}", ports.join(", "))
    }
}

pub(super) fn guessing(config: &ConsoleConfig) -> CheckItem {
    let proxies = &config.trusted_proxies;
    let origin = config.url.as_ref().map(AppUrl::origin);
    let proxied = config.tls.is_none() && origin.is_some_and(|origin| origin.starts_with("https:"));
    let found = if !config.email_password {
        Found::Good("nobody signs in with a password".to_owned())
    } else if proxies.iter().any(|net| net.prefix_len() == 0) {
        Found::Bad(
            "whoever comes may name any address as theirs, so guesses are counted by none".to_owned(),
            "list the addresses of the reverse proxies under `console.trusted_proxies`, and no more".to_owned(),
        )
    } else if proxied && proxies.is_empty() {
        Found::Bad(
            "everybody counts as the reverse proxy: who guesses too often keeps all others from signing in".to_owned(),
            "list its address under `console.trusted_proxies`".to_owned(),
        )
    } else {
        Found::Good(format!(
            "{GUESSES_AT_ACCOUNT} at an account, {GUESSES_FROM_ADDRESS} from an address in a quarter of an hour"
        ))
    };
    CheckItem::of("guessing", "Guesses of passwords are limited", found)
}

pub(super) fn config_file(config: &ConsoleConfig) -> CheckItem {
    let title = "Nobody else writes the configuration, or reads passwords in it";
    let Some(file) = &config.file else {
        return CheckItem::of(
            "config_file",
            title,
            Found::Good("there is none: built-in defaults".to_owned()),
        );
    };
    let name = file.display();
    let found = match std::fs::metadata(file).map(|file| file.permissions().mode() & 0o777) {
        Err(_) => Found::Unknown(
            format!("{name} cannot be asked"),
            "look with `ls -l`".to_owned(),
        ),
        Ok(mode) if mode & 0o022 != 0 => Found::Bad(
            format!("{name} may be written by others (mode {mode:o})"),
            format!("chmod 600 {name}, and read what is in it"),
        ),
        Ok(mode) if mode & 0o044 != 0 && config.holds_secret() => Found::Bad(
            format!("{name} holds a password and others may read it (mode {mode:o})"),
            format!("chmod 600 {name}, then change that password"),
        ),
        Ok(mode) => Found::Good(format!("{name}, mode {mode:o}")),
    };
    CheckItem::of("config_file", title, found)
}

pub(super) fn backup(newest: Option<Millis>, now: Millis) -> CheckItem {
    let fix = || {
        "let `sallyport backup` run each day, and keep its files elsewhere; other copies are not known here".to_owned()
    };
    let found = match newest {
        None => Found::Bad("none was made".to_owned(), fix()),
        Some(at) => {
            let days = (now - at).max(0) / DAY;
            let found = match days {
                0 => "less than a day ago".to_owned(),
                1 => "a day ago".to_owned(),
                days => format!("{days} days ago"),
            };
            if now - at > OLD {
                Found::Bad(found, fix())
            } else {
                Found::Good(found)
            }
        }
    };
    CheckItem::of("backup", "There is a backup of this week", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::HOUR;
    use crate::settings::{MailSettings, MailTls, Redacted};

    #[test]
    fn a_backup_grows_old_and_none_is_none() {
        let now = 100 * DAY;
        for (at, state) in [
            (None, "bad"),
            (Some(now - HOUR), "good"),
            (Some(now - 8 * DAY), "good"),
            (Some(now - 8 * DAY - 1), "bad"),
        ] {
            assert_eq!(backup(at, now).state, state, "{at:?}");
        }
    }

    #[test]
    fn open_ports_are_named_and_what_is_known_to_be_open_to_all_is_bad() {
        let config = ConsoleConfig::default();
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n\
            1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2\n\
            2: 00000000:1538 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 3\n";
        let quiet = sockets(table);
        assert_eq!(
            quiet,
            ["127.0.0.1:8080", "0.0.0.0:22"].map(|at| at.parse::<SocketAddr>().unwrap())
        );
        let six = "  sl  local_address\n 0: 00000000000000000000000001000000:1538 0:0 0A\n 1: \
            00000000000000000000000000000000:1F41 0:0 0A\n";
        let six = sockets(six);
        assert_eq!(
            six,
            ["[::1]:5432", "[::]:8001"].map(|at| at.parse::<SocketAddr>().unwrap())
        );
        let state = |more: &[&str]| {
            let more = more.iter().map(|at| at.parse().unwrap());
            let all: Vec<SocketAddr> = quiet.iter().copied().chain(more).collect();
            ports(&config, Some(&all)).state
        };
        assert_eq!(state(&[]), "good");
        assert_eq!(state(&["[::1]:5432", "0.0.0.0:8420"]), "good");
        assert_eq!(state(&["[::]:8001"]), "unknown");
        assert_eq!(state(&["192.0.2.1:5432", "[::]:8001"]), "bad");
        assert_eq!(ports(&config, None).state, "unknown");
        // what the kernel says of this very process
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listening().unwrap().contains(&own.local_addr().unwrap()));
    }

    #[test]
    fn a_file_that_others_write_or_read_passwords_in_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yml");
        std::fs::write(&file, "").unwrap();
        let mut config = ConsoleConfig::default();
        assert_eq!(config_file(&config).state, "good");
        config.file = Some(file.clone());
        let mut all = Vec::new();
        for secret in [false, true] {
            config.mail = secret.then(|| MailSettings {
                host: crate::outbound::Target::parse("https://mail.example")
                    .unwrap()
                    .host,
                port: 587,
                tls: MailTls::StartTls,
                credentials: Some(("u".into(), Redacted::new("p".to_owned()))),
                from: "a@example.com".into(),
            });
            for mode in [0o600, 0o644, 0o660] {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(&file, mode).unwrap();
                all.push(config_file(&config).state);
            }
        }
        assert_eq!(all, ["good", "good", "bad", "good", "bad", "bad"]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(config_file(&config).state, "unknown");
    }

    #[test]
    fn guesses_are_counted_by_who_makes_them() {
        let mut config = ConsoleConfig::default();
        assert_eq!(guessing(&config).state, "good");
        config.url = AppUrl::parse("https://sally.example");
        assert_eq!(guessing(&config).state, "bad");
        config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        assert_eq!(guessing(&config).state, "good");
        config.trusted_proxies.push("0.0.0.0/0".parse().unwrap());
        assert_eq!(guessing(&config).state, "bad");
        config.email_password = false;
        assert_eq!(guessing(&config).state, "good");
    }
}
