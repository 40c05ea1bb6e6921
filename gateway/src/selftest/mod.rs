//! The escape suite: from a probe sandbox, forbidden packets must not get through and a permitted one must.
//!
//! [`Selftest::quick`] is asked before the posture opens: while the doors still deny, it checks that kernel rules, queue,
//! doors and DNS answer as they should. [`Selftest::run`] is the whole table, on demand, on this very host: targets are
//! listeners that it opens in the uplink namespace itself, and what counts is what arrives there. Nothing is sent to
//! other machines. Failure stance: a probe that could not be made has not passed.

mod probe;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::PolicySource;
use crate::control::api::{Probe, SelftestReport};
use crate::kernel::Firewall;
use crate::network::registry::{ChangeError, Registry};
use crate::posture::Cause;
use probe::{Outcome, Sandbox, Target};

/// A documentation address (RFC 5737): never anybody's.
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The metadata service of most clouds.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// A packet that no counter shows after this was not dropped where it should have been.
const COUNTED: Duration = Duration::from_secs(2);

/// The suite of one gateway.
#[derive(Debug)]
pub struct Selftest {
    registry: Arc<Registry>,
    firewall: Firewall,
}

impl Selftest {
    /// Over a gateway's own parts.
    pub fn new(registry: Arc<Registry>, firewall: Firewall) -> Self {
        Self { registry, firewall }
    }

    /// Before the posture opens. Blocks for tens of milliseconds.
    pub fn quick(&self) -> Result<(), Cause> {
        let failed = |text: String| {
            Cause::new(
                format!("the probe before enforcing failed: {text}"),
                "sallyport selftest",
            )
        };
        let table = self
            .closed()
            .map_err(|e| failed(crate::control::problems::chain(&e)))?;
        match table.iter().find(|probe| !probe.passed) {
            None => Ok(()),
            Some(probe) => Err(failed(format!("{}: {}", probe.promise, probe.seen))),
        }
    }

    /// The whole table.
    pub async fn run(self: &Arc<Self>) -> Result<SelftestReport, ChangeError> {
        let suite = self.clone();
        let table = tokio::task::spawn_blocking(move || {
            let mut probes = suite.closed()?;
            probes.extend(suite.internet()?);
            probes.extend(suite.permitted()?);
            Ok(SelftestReport { probes })
        });
        table
            .await
            .unwrap_or_else(|e| Err(ChangeError::State(std::io::Error::other(e))))
    }

    /// Under `none`: nothing but the broker and denials.
    fn closed(&self) -> Result<Vec<Probe>, ChangeError> {
        let sandbox = Sandbox::attach(&self.registry, &PolicySource::Preset("none".to_owned()))?;
        let service = IpAddr::V4(self.registry.pools().service_v4());
        let table = vec![
            row(
                "control_broker",
                "the sandbox reaches its broker",
                sandbox.reaches_broker(service),
            ),
            row(
                "dns_denied_name",
                "a denied name is answered NXDOMAIN, at once",
                sandbox.name_is_denied(service, "selftest.example"),
            ),
            row(
                "tcp_denied",
                "a denied connect is reset at once",
                sandbox.is_refused(SocketAddr::from((NOBODY, 443))),
            ),
            row(
                "metadata",
                "the metadata service is out of reach",
                sandbox.is_refused(SocketAddr::from((METADATA, 80))),
            ),
            row(
                "gateway_ports",
                "the gateway's own ports do not answer",
                sandbox.is_refused(SocketAddr::from((service, 22))),
            ),
        ];
        sandbox.detach();
        Ok(table)
    }

    /// Under `internet`: the machine itself, other sandboxes, forged and foreign packets.
    fn internet(&self) -> Result<Vec<Probe>, ChangeError> {
        let sandbox =
            Sandbox::attach(&self.registry, &PolicySource::Preset("internet".to_owned()))?;
        let other = Sandbox::attach(&self.registry, &PolicySource::Preset("internet".to_owned()))?;
        let service = IpAddr::V4(self.registry.pools().service_v4());
        let mut table = vec![
            row(
                "metadata_internet",
                "the metadata service is out of reach with internet access",
                sandbox.is_refused(SocketAddr::from((METADATA, 80))),
            ),
            row(
                "other_run",
                "another sandbox is out of reach",
                sandbox.is_refused(SocketAddr::from((other.v4(), 80))),
            ),
            row(
                "gateway_door",
                "the doors do not answer when addressed",
                sandbox.is_refused(SocketAddr::from((service, 9040))),
            ),
        ];
        match self.machine().map(Target::open) {
            None => table.push(row(
                "host",
                "the machine's own services are out of reach",
                Err("this machine has no address to try".to_owned()),
            )),
            Some(Err(error)) => table.push(row(
                "host",
                "the machine's own services are out of reach",
                Err(error.to_string()),
            )),
            Some(Ok(target)) => {
                let refused = sandbox
                    .is_refused(target.tcp())
                    .and_then(|seen| target.saw_nothing(&seen));
                table.push(row(
                    "host",
                    "the machine's own services are out of reach",
                    refused,
                ));
                let sent = sandbox
                    .sends_datagram(target.udp())
                    .and_then(|seen| target.saw_nothing(&seen));
                table.push(row(
                    "udp",
                    "datagrams to other ports than DNS go nowhere",
                    sent,
                ));
                let forged = self
                    .dropped("drop_spoofed", || sandbox.forges(other.v4(), target.udp()))
                    .and_then(|seen| target.saw_nothing(&seen));
                table.push(row("spoofed", "a forged source is dropped", forged));
            }
        }
        // GRE: any protocol that is neither TCP, UDP nor ICMP.
        table.push(row(
            "protocol",
            "other protocols are dropped",
            self.dropped("drop_protocol", || sandbox.sends_protocol(47, NOBODY)),
        ));
        table.push(row(
            "icmp",
            "ICMP other than echoes goes nowhere",
            self.dropped("drop_icmp", || sandbox.sends_protocol(1, NOBODY)),
        ));
        sandbox.detach();
        other.detach();
        Ok(table)
    }

    /// Under a policy that names a target: it must get through, or nothing above proves anything.
    fn permitted(&self) -> Result<Vec<Probe>, ChangeError> {
        const PROMISE: &str = "a permitted connect gets through";
        let Some(Ok(target)) = self.machine().map(Target::open) else {
            return Ok(vec![row(
                "control_permitted",
                PROMISE,
                Err("this machine has no address to try".to_owned()),
            )]);
        };
        let to = target.tcp();
        let text = format!(
            "policy: selftest\nnetwork: domains\nprivate: true\nallow:\n  - cidr: {}\n    ports: [{}]\n    speaks: any\n",
            to.ip(),
            to.port()
        );
        let source = PolicySource::Document {
            file: "selftest.yaml".to_owned(),
            text,
            packages: None,
        };
        let sandbox = Sandbox::attach(&self.registry, &source)?;
        // A floor may forbid it: then the denial is right, and the broker was the control.
        let seen = if sandbox.permits(to) {
            sandbox.connects(to).and_then(|seen| target.saw_one(seen))
        } else {
            Ok("a floor forbids it, so it was not tried".to_owned())
        };
        sandbox.detach();
        Ok(vec![row("control_permitted", PROMISE, seen)])
    }

    /// An address of the machine that a packet could be sent to.
    fn machine(&self) -> Option<IpAddr> {
        let book = self.registry.book();
        let usable =
            |a: &&IpAddr| matches!(a, IpAddr::V4(v4) if !v4.is_loopback() && !v4.is_link_local());
        book.host.iter().find(usable).copied()
    }

    /// Whether a kernel counter grows by an act.
    fn dropped(&self, counter: &str, act: impl FnOnce() -> Outcome) -> Outcome {
        let count = || -> Result<u64, String> {
            let enforcer = self.firewall.require().map_err(|e| e.to_string())?;
            let all = enforcer.counters().map_err(|e| e.to_string())?;
            all.into_iter()
                .find(|(name, _)| name == counter)
                .map(|(_, c)| c.packets)
                .ok_or_else(|| format!("there is no counter {counter}"))
        };
        let before = count()?;
        let seen = act()?;
        // a packet may still be on its way through another processor when its sender has returned
        let began = Instant::now();
        while began.elapsed() < COUNTED {
            if count()? > before {
                return Ok(format!("{seen}; {counter} counted it"));
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Err(format!("{seen}; {counter} did not count it"))
    }
}

fn row(name: &str, promise: &str, outcome: Outcome) -> Probe {
    let (passed, seen) = match outcome {
        Ok(seen) => (true, seen),
        Err(seen) => (false, seen),
    };
    Probe {
        name: name.to_owned(),
        promise: promise.to_owned(),
        passed,
        seen,
    }
}
