//! What the running kernel can do, tried: a gateway's own rules in a namespace that is thrown away.
//!
//! The names of modules tell little: built in, loadable, or missing in a container they look alike. So the very rules
//! that a gateway applies are applied and read back. Nothing that exists is touched.

use std::net::{Ipv4Addr, Ipv6Addr};

use gateway::kernel::{Backend, Config, Enforcement, Enforcer, KernelError, Posture};
use netpolicy::ruleset::Queue;
use nix::errno::Errno;

use super::system::System;
use super::{Check, State, modules};

/// Any addresses do: nothing is attached.
const SERVICE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVICE6: Ipv6Addr = Ipv6Addr::new(0xfd53, 0x5350, 0, 0, 0, 0, 0, 1);

/// How the name of the namespace begins that it is tried in; the number of the process follows.
pub const TRIAL: &str = "sallyport-doctor-";

/// Tries it; without the powers for it, says so.
pub fn checks(system: &System, enforcement: Enforcement) -> Vec<Check> {
    match attempt(enforcement) {
        Ok((backend, queue)) => {
            let mut checks = vec![
                Check::ok(
                    "kernel rules",
                    format!(
                        "a gateway's rules were applied and read back ({})",
                        backend.as_str()
                    ),
                ),
                queue_check(queue),
            ];
            if queue == Queue::None {
                let missing = modules::checks(system, &modules::QUEUE);
                checks.extend(missing.into_iter().map(|check| Check {
                    state: State::Remark,
                    ..check
                }));
            }
            checks
        }
        Err(error) => {
            let seen = crate::exit::Failure::from_error(&error).message;
            let forbidden = error
                .errno()
                .map(Errno::from_raw)
                .is_some_and(|e| e == Errno::EPERM || e == Errno::EACCES);
            let (state, fix) = if forbidden {
                (State::Unknown, "run `sallyport doctor` as root")
            } else {
                let fix = match enforcement {
                    Enforcement::Iptables => {
                        "install the package iptables with its legacy programs (iptables-legacy; iptables-nft alone is nf_tables), `modprobe` what the kernel lacks (ip_tables, iptable_raw, iptable_mangle, iptable_filter, their ip6 twins, ipt_REJECT, ip6t_REJECT, and xt_ before the other names), or remove `gateway.enforcement`"
                    }
                    Enforcement::Auto | Enforcement::Nftables => {
                        "a kernel with nf_tables, nft_tproxy and network namespaces: the distribution's full one; or install iptables with its legacy programs; without either, sandboxes have a socket to the proxy only (`gateway.egress_filter`)"
                    }
                };
                (State::Wrong, fix)
            };
            let mut checks = vec![Check::not("kernel rules", state, seen, fix)];
            if state == State::Wrong && enforcement != Enforcement::Iptables {
                checks.extend(modules::checks(system, &modules::RULES));
            }
            checks
        }
    }
}

/// Opens, enforces, verifies and takes away.
fn attempt(enforcement: Enforcement) -> Result<(Backend, Queue), KernelError> {
    let config = Config {
        directory: gateway::config::GatewayConfig::default().namespaces(),
        name: format!("{TRIAL}{}", std::process::id()),
        enforcement,
        ..Config::new(SERVICE4, SERVICE6)
    };
    let enforcer = Enforcer::open(config)?;
    let found = (enforcer.backend(), enforcer.queue());
    let tried = enforcer.apply(Posture::Enforcing);
    // gone whatever came out
    let removed = enforcer.remove();
    tried.and(removed).map(|()| found)
}

fn queue_check(queue: Queue) -> Check {
    match queue {
        Queue::Native(_) => Check::ok("SYN queue", "nft_queue: a connect tells the truth"),
        Queue::Compat(_) => Check::ok("SYN queue", "xt_NFQUEUE: a connect tells the truth"),
        Queue::None => Check::not(
            "SYN queue",
            State::Remark,
            "neither nft_queue nor xt_NFQUEUE: connects are accepted first and reset on failure",
            "`modprobe nft_queue`, or a kernel that has it",
        ),
    }
}
