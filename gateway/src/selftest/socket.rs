//! Where the kernel holds no rules: a sandbox has a socket to the explicit proxy and no network, and that is tried.
//!
//! The probe is a namespace with nothing but a loopback and that socket, as sandboxes have them here. No frame can leave
//! it, so none is tried, and a row says so: what is shown is how the proxy decides. Whether an engine gives its
//! containers no network is for a probe in a container to show. Failure stance: as the suite's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::acts::{naming, nobody};
use super::frames::Marks;
use super::programs::{self, inside};
use super::report::Family;
use super::sandbox::Sandbox;
use super::suite::target;
use super::table::Table;
use super::target::{Came, Target};
use super::{AT_ONCE, Seen, Selftest};
use crate::control::PolicySource;
use crate::kernel::Ns;
use crate::network::registry::{ChangeError, Registry};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// The rows of one time.
pub fn run(selftest: &Selftest) -> Result<Table, ChangeError> {
    let registry = &selftest.registry;
    let mut table = Table::default();
    let why = format!(
        "not enforced, {}: sandboxes have no link here that a frame could leave by",
        registry.why_no_links()
    );
    table.skip("frames", Family::Both, "forbidden frames go nowhere", &why);
    let namespace = match Ns::anonymous() {
        Ok(namespace) => namespace,
        Err(error) => {
            let why = crate::control::problems::chain(&error);
            let why = format!("this user can make no namespace to try it from: {why}");
            table.skip("proxy", Family::Both, "the proxy denies and permits", &why);
            return Ok(table);
        }
    };
    let marks = Marks::new()?;
    let none = PolicySource::Preset("none".to_owned());
    let probe = Sandbox::attach_by_socket(registry, &none, namespace)?;
    registry.try_out(&[&probe.network]);
    #[cfg(test)]
    let _hole = super::tests::hole(selftest, (&probe, &probe));
    for family in FAMILIES {
        let seen = no_way_out(&probe.namespace, (nobody(family), 443).into());
        let promise = "nothing but the proxy can be reached";
        table.row("no_network", family, promise, seen);
    }
    for (family, target) in FAMILIES.into_iter().zip(targets(registry)) {
        denied(&mut table, &probe, family, (target.as_ref(), &marks));
        twin(&mut table, &probe, family, target.as_ref())?;
    }
    drop(probe);
    registry.try_out(&[]);
    Ok(table)
}

fn targets(registry: &Registry) -> [Option<Target>; 2] {
    FAMILIES.map(|family| target(registry, family))
}

/// A connect past the proxy, which finds no route.
fn no_way_out(from: &Ns, to: SocketAddr) -> Seen {
    inside(from, move || {
        match std::net::TcpStream::connect_timeout(&to, AT_ONCE) {
            Ok(_) => Err(format!("{to} was reached")),
            Err(error) => Ok(error.to_string()),
        }
    })
}

/// What the proxy must refuse, whatever is asked of it.
fn denied(
    table: &mut Table,
    probe: &Sandbox,
    family: Family,
    (target, marks): (Option<&Target>, &Marks),
) {
    let v6 = family == Family::Ipv6;
    let metadata: IpAddr = if v6 {
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254).into()
    } else {
        Ipv4Addr::new(169, 254, 169, 254).into()
    };
    let refuses = |to| programs::asks_proxy(&probe.namespace, PROXY, to, "403", &[]);
    let promise = "the proxy refuses what is denied";
    let to = (nobody(family), 443).into();
    table.row("proxy_denied", family, promise, refuses(to));
    let promise = "the metadata service is out of reach";
    table.row("metadata", family, promise, refuses((metadata, 80).into()));
    let promise = "the machine's own services are out of reach";
    match target {
        None => table.skip("host_proxy", family, promise, super::suite::NO_ADDRESS),
        Some(target) => {
            let refused = refuses(target.tcp());
            let seen = match target.arrived(marks) {
                Came::Yes(what) => Err(what),
                Came::Crowded if refused.is_ok() => {
                    return table.skip("host_proxy", family, promise, super::suite::CROWDED);
                }
                Came::No | Came::Crowded => refused.map(|seen| format!("{seen}, nothing arrived")),
            };
            table.row("host_proxy", family, promise, seen);
        }
    }
}

/// What a policy names is reached, or the refusals prove nothing.
fn twin(
    table: &mut Table,
    probe: &Sandbox,
    family: Family,
    target: Option<&Target>,
) -> Result<(), ChangeError> {
    const PROMISE: &str = "a permitted connection arrives by the proxy";
    const MARK: &[u8] = b"selftest";
    let Some(target) = target else {
        table.skip("permitted_proxy", family, PROMISE, super::suite::NO_ADDRESS);
        return Ok(());
    };
    probe.replace(&naming(target))?;
    if !probe.permits(netpolicy::policy::Protocol::Tcp, target.tcp()) {
        table.skip("permitted_proxy", family, PROMISE, "a floor forbids it");
        return Ok(());
    }
    let (sent, came) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| target.took_connection(MARK));
        let sent = programs::asks_proxy(&probe.namespace, PROXY, target.tcp(), "200", MARK);
        (sent, taking.join().unwrap_or(Came::No))
    });
    let seen = match came {
        Came::Crowded => {
            table.skip("permitted_proxy", family, PROMISE, super::suite::CROWDED);
            return Ok(());
        }
        Came::Yes(_) => sent.map(|seen| format!("{seen}, and it arrived")),
        Came::No => sent.and_then(|seen| Err(format!("{seen}, but nothing arrived"))),
    };
    table.row("permitted_proxy", family, PROMISE, seen);
    Ok(())
}
