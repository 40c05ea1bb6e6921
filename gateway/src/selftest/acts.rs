//! What is tried with the two probes, apart from frames: under `none`, under `internet`, and what a policy permits.

use std::net::{IpAddr, SocketAddr};

use netpolicy::policy::Protocol;

use super::frames::packet::{Ends, Packet};
use super::frames::{self, Marks, NOBODY4, NOBODY6};
use super::programs::{self, Refusal};
use super::report::Family;
use super::sandbox::Sandbox;
use super::suite::CROWDED;
use super::table::Table;
use super::target::{Came, Target};
use super::watch::Watch;
use super::{AT_ONCE, Seen};
use crate::control::PolicySource;
use crate::kernel::KernelError;
use crate::kernel::links::INNER;
use crate::kernel::witness::Wire;
use crate::network::registry::{ChangeError, Registry};

/// Numbers of marks that are no frame's: of denied names, of permitted twins, and of datagrams to the machine.
pub const NAMES: u16 = 61_000;
const TWINS: u16 = 62_000;
const HOST_UDP: u16 = 63_000;

/// Port that frames by hand come from, see [`Packet::udp`].
const WIRE_PORT: u16 = 0x9c41;

fn service(registry: &Registry, family: Family) -> IpAddr {
    match family {
        Family::Ipv6 => registry.pools().service_v6().into(),
        Family::Ipv4 | Family::Ethernet | Family::Both => registry.pools().service_v4().into(),
    }
}

fn refusal(registry: &Registry) -> Refusal {
    if registry.accepts_first() {
        Refusal::AfterAccepting
    } else {
        Refusal::AtOnce
    }
}

pub(super) fn nobody(family: Family) -> IpAddr {
    match family {
        Family::Ipv6 => NOBODY6.into(),
        Family::Ipv4 | Family::Ethernet | Family::Both => NOBODY4.into(),
    }
}

/// Under `none`: nothing but the broker and denials.
pub fn closed(table: &mut Table, registry: &Registry, sandbox: &Sandbox, marks: &Marks) {
    for (at, family) in (0_u16..).zip([Family::Ipv4, Family::Ipv6]) {
        let service = service(registry, family);
        table.row(
            "control_broker",
            family,
            "the sandbox reaches its broker",
            programs::reaches_broker(sandbox, service),
        );
        let name = format!("{}.selftest.example.com", marks.label(NAMES + 2 * at));
        table.row(
            "name_denied",
            family,
            "a denied name is answered at once, and asked nowhere",
            programs::name_is_denied(&sandbox.namespace, service, &name),
        );
        let name = format!("{}.selftest.example.com", marks.label(NAMES + 2 * at + 1));
        table.row(
            "name_denied_tcp",
            family,
            "so over TCP",
            programs::name_is_denied_over_tcp(&sandbox.namespace, service, &name),
        );
        table.row(
            "connect_denied",
            family,
            "a denied connect is refused at once",
            programs::is_refused(
                &sandbox.namespace,
                (nobody(family), 443).into(),
                refusal(registry),
            ),
        );
        table.row(
            "control_wire",
            family,
            "a frame made by hand reaches the gateway",
            by_hand(sandbox, service),
        );
    }
}

/// A permitted question, as a frame: what is sent so arrives, if it may.
fn by_hand(sandbox: &Sandbox, service: IpAddr) -> Seen {
    let from = sandbox.address(service.is_ipv6());
    let question = programs::question("selftest.example.com");
    let (ethertype, packet) = Packet::udp(Ends { from, to: service }, 53, &question).bytes();
    let frame = frames::ethernet(crate::kernel::links::OUTER_MAC, ethertype, &packet);
    programs::inside(&sandbox.namespace, move || {
        let act = || -> Result<Vec<u8>, KernelError> {
            let act = |source| KernelError::Io {
                act: "asking by hand".to_owned(),
                source,
            };
            let socket = std::net::UdpSocket::bind((from, WIRE_PORT)).map_err(act)?;
            socket.set_read_timeout(Some(AT_ONCE)).map_err(act)?;
            Wire::open(INNER)?.send(&frame).map_err(act)?;
            let mut answer = vec![0; 512];
            let length = socket.recv(&mut answer).map_err(act)?;
            answer.truncate(length);
            Ok(answer)
        };
        programs::denied(&act().map_err(|e| crate::control::problems::chain(&e))?)
    })
}

/// Under `internet`: the machine, other sandboxes, the gateway itself.
pub fn open(
    table: &mut Table,
    registry: &Registry,
    (probe, other): (&Sandbox, &Sandbox),
    (targets, marks): (&[Option<Target>; 2], &Marks),
) {
    for (family, target) in [Family::Ipv4, Family::Ipv6].into_iter().zip(targets) {
        let v6 = family == Family::Ipv6;
        let service = service(registry, family);
        let metadata: IpAddr = if v6 {
            std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254).into()
        } else {
            std::net::Ipv4Addr::new(169, 254, 169, 254).into()
        };
        for (check, promise, to) in [
            (
                "metadata",
                "the metadata service is out of reach",
                SocketAddr::from((metadata, 80)),
            ),
            (
                "sandbox",
                "another sandbox is out of reach",
                (other.address(v6), 80).into(),
            ),
            (
                "gateway_ports",
                "the gateway's own ports do not answer",
                (service, 22).into(),
            ),
            (
                "gateway_door",
                "the doors do not answer when addressed",
                (service, 9040).into(),
            ),
        ] {
            table.row(
                check,
                family,
                promise,
                programs::is_refused(&probe.namespace, to, refusal(registry)),
            );
        }
        let denied = SocketAddr::from((nobody(family), 443));
        table.row(
            "proxy_denied",
            family,
            "the explicit proxy refuses what is denied",
            programs::asks_proxy(&probe.namespace, service, denied, "403", &[]),
        );
        let Some(target) = target else { continue };
        table.row(
            "host_tcp",
            family,
            "the machine's own services are out of reach",
            programs::is_refused(&probe.namespace, target.tcp(), refusal(registry)),
        );
        table.row(
            "host_udp",
            family,
            "so over UDP",
            programs::sends(&probe.namespace, target.udp(), &marks.number(HOST_UDP)),
        );
        table.row(
            "host_proxy",
            family,
            "so by the explicit proxy",
            programs::asks_proxy(&probe.namespace, service, target.tcp(), "403", &[]),
        );
    }
}

/// A policy that names a listener of the machine, for every protocol.
pub fn naming(target: &Target) -> PolicySource {
    let (tcp, udp) = (target.tcp(), target.udp());
    let text = format!(
        "policy: selftest\nnetwork: domains\nprivate: true\nallow:\n  - cidr: {0}\n    ports: [{1}]\n    speaks: any\n  - cidr: {0}\n    ports: [{2}]\n    protocol: udp\n  - cidr: {0}\n    protocol: icmp\n",
        tcp.ip(),
        tcp.port(),
        udp.port()
    );
    PolicySource::Document {
        file: "selftest.yaml".to_owned(),
        text,
        packages: None,
    }
}

/// Under a policy that names a listener: it must be reached, or nothing above proves anything.
pub fn permitted(
    table: &mut Table,
    watch: &mut Watch,
    registry: &Registry,
    probe: &Sandbox,
    target: &Target,
    marks: &Marks,
) -> Result<(), ChangeError> {
    let (tcp, udp) = (target.tcp(), target.udp());
    let family = if tcp.is_ipv6() {
        Family::Ipv6
    } else {
        Family::Ipv4
    };
    probe.replace(&naming(target))?;
    let first = TWINS + if tcp.is_ipv6() { 10 } else { 0 };
    let service = service(registry, family);
    for (at, check, promise) in [
        (0, "permitted_tcp", "a permitted connection arrives"),
        (1, "permitted_proxy", "so by the explicit proxy"),
        (2, "permitted_udp", "a permitted datagram arrives"),
    ] {
        let mark = marks.number(first + at);
        let (protocol, to) = if at == 2 {
            (Protocol::Udp, udp)
        } else {
            (Protocol::Tcp, tcp)
        };
        // a floor may forbid it: then the denial is right
        if !probe.permits(protocol, to) {
            table.skip(check, family, promise, "a floor forbids it");
            continue;
        }
        let (sent, came) = std::thread::scope(|scope| {
            // taken while it is sent: strangers who come without end must not fill the queue first
            let took = || match at {
                2 => target.took_datagram(&mark),
                _ => target.took_connection(&mark),
            };
            let taking = scope.spawn(took);
            let sent = match at {
                0 => programs::connects(&probe.namespace, to, &mark),
                1 => programs::asks_proxy(&probe.namespace, service, to, "200", &mark),
                _ => programs::sends(&probe.namespace, to, &mark),
            };
            (sent, taking.join().unwrap_or(Came::No))
        });
        if came == Came::Crowded {
            table.skip(check, family, promise, CROWDED);
            continue;
        }
        let arrived = sent.and_then(|seen| match came {
            Came::No | Came::Crowded => Err(format!("{seen}, but nothing arrived")),
            Came::Yes(_) if watch.blind.is_none() && watch.wait_for(first + at).is_none() => Err(
                format!("{seen} and arrived, but the witness did not see it"),
            ),
            Came::Yes(_) => Ok(format!("{seen}, and it arrived")),
        });
        table.row(check, family, promise, arrived);
    }
    echo(
        table,
        watch,
        probe,
        (family, tcp.ip()),
        marks.number(first + 3),
    );
    Ok(())
}

/// A permitted echo, where the machine answers any.
fn echo(
    table: &mut Table,
    watch: &mut Watch,
    probe: &Sandbox,
    (family, to): (Family, IpAddr),
    mark: [u8; frames::MARK],
) {
    const PROMISE: &str = "a permitted echo is answered";
    if !probe.permits(Protocol::Icmp, (to, 0).into()) {
        return table.skip("permitted_icmp", family, PROMISE, "a floor forbids it");
    }
    if let Err(why) = programs::pings(to, b"selftest") {
        let why = format!("this machine does not answer itself: {why}");
        return table.skip("permitted_icmp", family, PROMISE, &why);
    }
    let seen = programs::inside(&probe.namespace, move || programs::pings(to, &mark));
    watch.look();
    table.row("permitted_icmp", family, PROMISE, seen);
}
