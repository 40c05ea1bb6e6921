//! The way in: one connection into a sandbox on request, decided by the policy's `ingress` entries, limited and recorded
//! like an outgoing one.
//!
//! Opened from the service address inside the gateway namespace, so that the sandbox sees nobody else. The control
//! connection then becomes the stream itself. Without an entry for the port nothing is dialled.

mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use netpolicy::decide::{
    Connect, Denial, Destination, Direction, Ground, Heard, Intent, decide_connect,
};
use netpolicy::ids::NetworkId;
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;

use super::api::{IngressRequest, Problem};
use super::problems;
use super::routes::read;
use super::server::Body;
use super::verbs::{Verbs, blocking};
use crate::context::{now, now_ms};
use crate::kernel::sockets::dial_in;
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::{Door, FlowFacts, FlowGuard};
use crate::record::entry::{DecidedBy, Denied, Entry, Open, Subject};
use stream::WayIn;

/// A sandbox is a veth away; a program that does not accept in this time is not there.
const DIAL: Duration = Duration::from_secs(10);

/// Decides, dials, records; the reply turns the connection into the stream.
pub async fn open(
    verbs: &Arc<Verbs>,
    id: &NetworkId,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Problem> {
    let asked = request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|value| value == "stream");
    if !asked {
        return Err(Problem::new(
            426,
            "bad_request",
            "this verb turns the connection into a stream",
        )
        .hint("send `Upgrade: stream`"));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let wanted: IngressRequest = read(request).await?;
    let network = verbs
        .ctx
        .networks
        .by_id(id)
        .ok_or_else(|| problems::unknown(id))?;
    let way = Way::new(verbs, &network, wanted);
    let slot = way.admit()?;
    let ground = way.decide()?;
    let (stream, guard) = way.dial(ground).await?;
    let (tasks, way_in) = (
        verbs.ctx.tasks.clone(),
        WayIn {
            ctx: verbs.ctx.clone(),
            network,
            guard,
            slot,
        },
    );
    tasks.spawn("ingress", way_in.relay(stream, upgrade));
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(
        header::CONNECTION,
        header::HeaderValue::from_static("upgrade"),
    );
    response
        .headers_mut()
        .insert(header::UPGRADE, header::HeaderValue::from_static("stream"));
    Ok(response)
}

struct Way<'a> {
    verbs: &'a Verbs,
    network: &'a Arc<Network>,
    service: IpAddr,
    to: SocketAddr,
    intent: Intent,
}

impl<'a> Way<'a> {
    fn new(verbs: &'a Verbs, network: &'a Arc<Network>, wanted: IngressRequest) -> Self {
        let pools = verbs.registry.pools();
        let (service, address) = if wanted.v6 {
            (IpAddr::V6(pools.service_v6()), IpAddr::V6(network.v6))
        } else {
            (IpAddr::V4(pools.service_v4()), IpAddr::V4(network.v4))
        };
        let to = Destination::Address {
            address,
            bound: Vec::new(),
            heard: Heard::NotYet,
        };
        let intent = Intent {
            direction: Direction::Ingress,
            protocol: Protocol::Tcp,
            port: wanted.port,
            to,
        };
        Self {
            verbs,
            network,
            service,
            to: (address, wanted.port).into(),
            intent,
        }
    }

    fn admit(&self) -> Result<FlowSlot, Problem> {
        if !*self.verbs.ctx.open.borrow() {
            return Err(problems::sealed(&self.verbs.posture.view()));
        }
        self.network
            .ledger
            .admit(&self.verbs.ctx.ceilings)
            .map_err(|reason| self.deny(&plain(reason)))
    }

    fn decide(&self) -> Result<Ground, Problem> {
        self.judge().map_err(|denial| self.deny(&denial))
    }

    fn judge(&self) -> Result<Ground, Denial> {
        match decide_connect(&self.network.live.load().snapshot, &self.intent, now()) {
            Connect::Dial(permit) => Ok(permit.into_ground()),
            Connect::Deny(denial) => Err(denial),
            // Nothing about a way in waits for a name.
            Connect::LookUp(_) | Connect::Hear(_) => Err(plain(Reason::AddressNotAllowed)),
        }
    }

    async fn dial(&self, ground: Ground) -> Result<(TcpStream, FlowGuard), Problem> {
        let stream = self.connect().await.map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::ConnectionRefused => Reason::UpstreamRefused,
                io::ErrorKind::TimedOut => Reason::UpstreamTimeout,
                _ => Reason::UpstreamUnreachable,
            };
            self.record(Entry::Failure(Box::new(self.denied(&plain(reason)))));
            Problem::new(
                502,
                reason.code(),
                format!(
                    "the sandbox does not answer on port {}: {error}",
                    self.to.port()
                ),
            )
        })?;
        let source = stream.local_addr().unwrap_or((self.service, 0).into());
        let live = self.network.live.load();
        let open = Open {
            flow: 0,
            subject: subject(self.network, source, self.to),
            upstream: self.to,
            local: Some(source),
            class: ground.class(),
            by: DecidedBy::ground(&ground),
            policy: ground.hash(),
            generation: live.generation,
        };
        let guard = self.network.flows.open(FlowFacts {
            door: Door::Ingress,
            source,
            destination: self.to,
            upstream: self.to,
            intent: self.intent.clone(),
            ground,
            opened_ms: now_ms(),
        });
        let open = Open {
            flow: guard.flow.id,
            ..open
        };
        // Whoever replaces a policy, seals or ends a network walks the registered flows; what changed while this one was
        // dialled is looked at once more here.
        self.still_permitted()
            .map_err(|denial| self.deny(&denial))?;
        self.network
            .ledger
            .record()
            .map_err(|reason| self.deny(&plain(reason)))?;
        let recorded = self.verbs.ctx.journal.append(Entry::Open(Box::new(open)));
        match recorded {
            Ok(()) => Ok((stream, guard)),
            Err(error) if error.0.kind() == io::ErrorKind::QuotaExceeded => {
                Err(self.deny(&plain(Reason::LimitRecords)))
            }
            Err(error) => Err(Problem::new(503, "journal", problems::chain(&error))),
        }
    }

    fn still_permitted(&self) -> Result<(), Denial> {
        if self.network.ended.is_cancelled() {
            return Err(plain(Reason::RunEnded));
        }
        if !*self.verbs.ctx.open.borrow() {
            return Err(plain(Reason::GatewaySealed));
        }
        self.judge().map(drop)
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let (namespace, service, to) = (
            self.verbs.enforcer().map_err(io::Error::other)?,
            self.service,
            self.to,
        );
        let dialled = blocking(move || dial_in(namespace.ns(), service, to)).await;
        let stream = dialled
            .map_err(io::Error::other)?
            .map_err(|e| io::Error::other(problems::chain(&e)))?;
        let stream = TcpStream::from_std(stream)?;
        tokio::time::timeout(DIAL, stream.writable())
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    fn denied(&self, denial: &Denial) -> Denied {
        let live = self.network.live.load();
        Denied {
            subject: subject(self.network, (self.service, 0).into(), self.to),
            reason: denial.reason,
            by: DecidedBy::denial(denial),
            class: denial.class,
            upstream: None,
            heard: None,
            policy: live.snapshot.hash(),
            generation: live.generation,
        }
    }

    fn deny(&self, denial: &Denial) -> Problem {
        self.record(Entry::Denial(Box::new(self.denied(denial))));
        let problem = Problem::new(
            403,
            "denied",
            format!("{}: {}", denial.reason, denial.reason.guide()),
        );
        problem.hint(format!(
            "an `ingress` entry of the policy opens port {}",
            self.to.port()
        ))
    }

    fn record(&self, entry: Entry) {
        if let Err(error) = self.verbs.ctx.journal.append(entry) {
            tracing::warn!(sandbox.id = %self.network.id, %error, "a way in that was not opened was not recorded");
        }
    }
}

fn plain(reason: Reason) -> Denial {
    crate::relay::plain_denial(reason)
}

/// Who a record of a way in is about.
fn subject(network: &Network, source: SocketAddr, to: SocketAddr) -> Subject {
    Subject {
        network: network.id.clone(),
        run: network.run.clone(),
        door: Door::Ingress,
        direction: Direction::Ingress,
        protocol: Protocol::Tcp,
        source,
        name: None,
        address: Some(to.ip()),
        port: to.port(),
    }
}
