//! A probe sandbox: a fresh namespace on a network of its own, which is gone when its handle is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use netpolicy::decide::{Connect, Destination, Direction, Heard, Intent, decide_connect};
use netpolicy::policy::Protocol;

use crate::context::now;
use crate::control::api::Via;
use crate::control::{AttachRequest, PolicySource};
use crate::kernel::Ns;
use crate::kernel::error::Act;
use crate::kernel::links::raise_loopback;
use crate::network::registry::{ChangeError, Registry};
use crate::network::{Network, names};

/// An attached namespace of its own.
#[derive(Debug)]
pub struct Sandbox {
    registry: Arc<Registry>,
    /// The namespace.
    pub namespace: Ns,
    /// Its network.
    pub network: Arc<Network>,
    /// Its broker, which only listens.
    pub broker: UnixListener,
    socket: PathBuf,
}

impl Sandbox {
    /// Attaches a fresh namespace by a link.
    pub fn attach(registry: &Arc<Registry>, policy: &PolicySource) -> Result<Self, ChangeError> {
        let namespace = Ns::anonymous()?;
        let descriptor = namespace.fd().try_clone_to_owned()?;
        Self::with(registry, policy, namespace, (Via::Link, descriptor))
    }

    /// Attaches a fresh namespace by a listener on its loopback, which is all the network that it has.
    pub fn attach_by_socket(
        registry: &Arc<Registry>,
        policy: &PolicySource,
        namespace: Ns,
    ) -> Result<Self, ChangeError> {
        let listener = namespace.run(|| {
            crate::kernel::netns::route_here(
                |handle| async move { raise_loopback(&handle).await },
            )?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, crate::listen::PROXY_PORT))
                .act("listening on the loopback of a probe sandbox")
        })?;
        Self::with(registry, policy, namespace, (Via::Socket, listener.into()))
    }

    fn with(
        registry: &Arc<Registry>,
        policy: &PolicySource,
        namespace: Ns,
        (via, descriptor): (Via, OwnedFd),
    ) -> Result<Self, ChangeError> {
        let id = names::probe()?;
        let socket = registry.run_dir().join(id.as_str());
        let broker = UnixListener::bind(&socket)?;
        broker.set_nonblocking(true)?;
        let request = AttachRequest {
            id: Some(id),
            run: None,
            workspace: crate::control::api::default_workspace(),
            policy: policy.clone(),
            broker: Some(socket.clone()),
            member: None,
            via,
            labels: BTreeMap::from([("sallyport.role".to_owned(), "selftest".to_owned())]),
        };
        let owner = rustix::process::geteuid().as_raw();
        match registry.attach_probe(&request, descriptor, owner) {
            Ok(described) => Ok(Self {
                registry: registry.clone(),
                namespace,
                network: described.network,
                broker,
                socket,
            }),
            Err(error) => {
                drop(std::fs::remove_file(&socket));
                Err(error)
            }
        }
    }

    /// Puts it under another policy.
    pub fn replace(&self, policy: &PolicySource) -> Result<(), ChangeError> {
        self.registry.replace(&self.network.id, policy).map(drop)
    }

    /// What its policy says about a destination.
    pub fn permits(&self, protocol: Protocol, to: SocketAddr) -> bool {
        let intent = Intent {
            direction: Direction::Egress,
            protocol,
            port: to.port(),
            to: Destination::Address {
                address: to.ip(),
                bound: Vec::new(),
                heard: Heard::NotYet,
            },
        };
        matches!(
            decide_connect(&self.network.live.load().snapshot, &intent, now()),
            Connect::Dial(_)
        )
    }

    /// Its address of a family.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 {
            self.network.v6.into()
        } else {
            self.network.v4.into()
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Err(error) = self.registry.detach(&self.network.id, "detached") {
            tracing::error!(%error, "a probe sandbox could not be detached");
        }
        drop(std::fs::remove_file(&self.socket));
    }
}
