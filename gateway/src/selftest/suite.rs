//! One time through the suite, in order: attach, forbidden frames and programs, what was seen, permitted twins.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::acts::{NAMES, closed, open, permitted};
use super::frames::{self, Forbidden, Marks, Places};
use super::report::{Family, SelftestReport};
use super::sandbox::Sandbox;
use super::table::Table;
use super::target::{Came, Target};
use super::watch::Watch;
use super::{AT_ONCE, Selftest, socket};
use crate::control::PolicySource;
use crate::kernel::links::INNER;
use crate::kernel::witness::Wire;
use crate::kernel::{KernelError, Ns};
use crate::network::registry::{ChangeError, Registry};

/// A frame that was going to arrive has arrived by then: a veth, a verdict and a dial take a few milliseconds.
const SETTLES: Duration = Duration::from_millis(100);
/// How often the frames are sent again while witnesses are too busy to see all.
const TRIES: u32 = 3;
/// Why a family has nothing to reach.
pub const NO_ADDRESS: &str = "this machine has no address of this family that it can reach itself";
/// Why a listener of the machine shows nothing.
pub const CROWDED: &str = "others of this machine connect and send to the selftest's listeners, too often to tell what came";
/// Numbers of marks that are no frame's.
const CONTROL: u16 = 60_000;

/// The rows of one time.
pub fn run(selftest: &Selftest) -> Result<SelftestReport, ChangeError> {
    let began = Instant::now();
    let table = match selftest.registry.namespace()? {
        Some(gateway) => linked(selftest, &gateway)?,
        None => socket::run(selftest)?,
    };
    Ok(SelftestReport {
        checks: table.done(),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Where sandboxes have links.
fn linked(selftest: &Selftest, gateway: &Ns) -> Result<Table, ChangeError> {
    let registry = &selftest.registry;
    let marks = Marks::new()?;
    let preset = |name: &str| PolicySource::Preset(name.to_owned());
    let probe = Sandbox::attach(registry, &preset("internet"))?;
    let other = Sandbox::attach(registry, &preset("none"))?;
    registry.try_out(&[&probe.network, &other.network]);
    #[cfg(test)]
    let _hole = super::tests::hole(selftest, (&probe, &other));
    let targets = [
        target(registry, Family::Ipv4),
        target(registry, Family::Ipv6),
    ];
    let mut watch = Watch::open(marks, gateway, &other.namespace)?;
    let mut table = Table::default();
    witness(&mut table, &mut watch, &marks);
    closed(&mut table, registry, &other, &marks);
    // an operator may open the machine itself to `internet`: then it is no place to be denied
    let opened = [None, None];
    let denied = if registry.opens_private() {
        &opened
    } else {
        &targets
    };
    open(&mut table, registry, (&probe, &other), (denied, &marks));
    let places = places(registry, &probe, &other, &targets);
    let mut list = frames::all(&places, &marks);
    if registry.opens_private() {
        turned_off(&mut table, &mut list);
    }
    forbidden(&mut table, &mut watch, &probe.namespace, &list)?;
    nothing_came(&mut table, &watch, (denied, &marks));
    for target in targets.iter().flatten() {
        permitted(&mut table, &mut watch, registry, &probe, target, &marks)?;
    }
    for (family, target) in [Family::Ipv4, Family::Ipv6].into_iter().zip(&targets) {
        if target.is_none() {
            table.skip(
                "permitted_tcp",
                family,
                "a permitted connection arrives",
                NO_ADDRESS,
            );
        }
    }
    drop((probe, other));
    registry.try_out(&[]);
    Ok(table)
}

/// What `gateway.egress_filter: off` opens is not forbidden, and is said to be open.
fn turned_off(table: &mut Table, list: &mut Vec<Forbidden>) {
    for (check, what) in [
        ("to_host", "an address of the machine goes nowhere"),
        ("to_private", "a private network goes nowhere"),
    ] {
        list.retain(|frame| frame.check != check);
        let why = "turned off: `gateway.egress_filter: off` opens it to internet sandboxes";
        table.skip(check, Family::Both, what, why);
    }
}

/// Listeners on the first address of a family that the machine can reach itself.
pub fn target(registry: &Registry, family: Family) -> Option<Target> {
    let usable = |address: &&IpAddr| match address {
        IpAddr::V4(v4) => family == Family::Ipv4 && !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => {
            family == Family::Ipv6 && !v6.is_loopback() && !v6.is_unicast_link_local()
        }
    };
    let book = registry.book();
    let mut candidates = book.host.iter().filter(usable);
    let pools: Vec<IpNet> = registry.pools().all().into_iter().collect();
    candidates.find_map(|address| {
        let target = Target::open(*address, pools.clone(), registry.own_dials()).ok();
        target.filter(Target::is_reachable)
    })
}

fn places(
    registry: &Registry,
    probe: &Sandbox,
    other: &Sandbox,
    targets: &[Option<Target>; 2],
) -> Places {
    let [four, six] = targets;
    let host = |target: &Option<Target>| target.as_ref().map(|t| t.tcp().ip());
    Places {
        own: (probe.network.v4, probe.network.v6),
        other: (other.network.v4, other.network.v6),
        service: (registry.pools().service_v4(), registry.pools().service_v6()),
        host: (
            host(four).and_then(|a| match a {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            }),
            host(six).and_then(|a| match a {
                IpAddr::V6(v6) => Some(v6),
                IpAddr::V4(_) => None,
            }),
        ),
    }
}

/// The witnesses see what is there to be seen.
fn witness(table: &mut Table, watch: &mut Watch, marks: &Marks) {
    const PROMISE: &str = "the witness in the uplink sees what passes there";
    if let Some(why) = watch.blind.clone() {
        return table.skip("control_witness", Family::Both, PROMISE, &why);
    }
    let sent = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
        let to = socket.local_addr()?;
        socket.send_to(&marks.number(CONTROL), to)
    });
    let seen = match sent {
        Err(error) => Err(format!("sending over loopback: {error}")),
        Ok(_) => watch
            .wait_for(CONTROL)
            .map(|_| "it saw a datagram of the machine's own".to_owned())
            .ok_or_else(|| "it did not see a datagram of the machine's own".to_owned()),
    };
    table.row("control_witness", Family::Both, PROMISE, seen);
}

/// Sends every frame, and says of each where it was seen.
pub fn forbidden(
    table: &mut Table,
    watch: &mut Watch,
    from: &Ns,
    list: &[Forbidden],
) -> Result<(), KernelError> {
    let nowhere = if watch.blind.is_some() {
        "sent, and seen in no other sandbox; the uplink cannot be watched"
    } else {
        "sent, and seen nowhere"
    };
    let frames: Vec<Vec<u8>> = list.iter().map(|f| f.frame.clone()).collect();
    let mut sent = Vec::new();
    let mut missed = watch.missed().unwrap_or(0);
    let mut more = 0;
    for _ in 0..TRIES {
        let wanted = frames.clone();
        sent = from.run(move || {
            let wire = Wire::open(INNER)?;
            Ok(wanted.iter().map(|frame| put(&wire, frame)).collect())
        })?;
        let all = watch.look_for_all(&frames, SETTLES);
        let now = watch.missed().unwrap_or(u64::MAX);
        more = now - missed;
        if all && more == 0 {
            break;
        }
        missed = now;
    }
    if more > 0 {
        table.skip(
            "control_room",
            Family::Both,
            "the witnesses see every small frame",
            &format!("this machine carries more than they can read: {more} were missed"),
        );
    }
    for (one, sent) in list.iter().zip(sent) {
        let promise = format!("{} goes nowhere", one.what);
        let seen = match (sent, watch.seen_of(&one.frame)) {
            (_, Some(place)) => Err(format!("it was seen in {place}")),
            (Err(error), None) => Err(format!("it could not be sent: {error}")),
            (Ok(()), None) if !watch.has_entered(&one.frame) => {
                let why = "it was sent and lost before the gateway: this machine carries too much";
                table.skip(one.check, one.family, &promise, why);
                continue;
            }
            (Ok(()), None) => Ok(nowhere.to_owned()),
        };
        table.row(one.check, one.family, &promise, seen);
    }
    Ok(())
}

/// Sends a frame, again if the link's queue has no room for it.
fn put(wire: &Wire, frame: &[u8]) -> Result<(), String> {
    let due = Instant::now() + AT_ONCE;
    loop {
        match wire.send(frame) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && Instant::now() < due => {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            sent => return sent.map_err(|e| e.to_string()),
        }
    }
}

/// What programs tried has not arrived either.
fn nothing_came(
    table: &mut Table,
    watch: &Watch,
    (targets, marks): (&[Option<Target>; 2], &Marks),
) {
    for (family, target) in [Family::Ipv4, Family::Ipv6].into_iter().zip(targets) {
        let Some(target) = target else {
            table.skip(
                "host_silent",
                family,
                "nothing arrives at the machine's own services",
                "there is no address of this family to try, or the operator opened it",
            );
            continue;
        };
        let seen = match target.arrived(marks) {
            Came::Yes(what) => Err(what),
            Came::No => Ok("nothing arrived".to_owned()),
            Came::Crowded => {
                let promise = "nothing arrives at the machine's own services";
                table.skip("host_silent", family, promise, CROWDED);
                continue;
            }
        };
        table.row(
            "host_silent",
            family,
            "nothing arrives at the machine's own services",
            seen,
        );
    }
    for (at, family) in (0_u16..).zip([Family::Ipv4, Family::Ipv6]) {
        // the other sandbox asked itself
        let seen = if (0..2).any(|way| watch.went_out(NAMES + 2 * at + way)) {
            Err("it was seen in the uplink".to_owned())
        } else {
            Ok("no packet carried it".to_owned())
        };
        table.row("name_silent", family, "a denied name is in no packet", seen);
    }
}
