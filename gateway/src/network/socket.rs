//! Networks without a link: where there is no kernel part, a sandbox has a listener on its own loopback instead.
//!
//! Owns which way to the gateway a sandbox may have now, which policies may be in force over it (as
//! `gateway.egress_filter` says), and the start of its door. Refuses to own: what the door does.
//! Failure stance: no network.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netpolicy::policy::NetworkMode;

use super::Network;
use super::registry::Registry;
use crate::config::EgressFilter;
use crate::control::api::Via;
use crate::kernel::KernelError;
use crate::policy::Composed;

impl Registry {
    /// A link where there is a kernel part, a socket where there is none: nobody chooses less than what the host can.
    pub(super) fn fits(&self, via: Via) -> Result<(), KernelError> {
        match (via, self.parts.firewall.get()) {
            (Via::Link, _) => self.parts.firewall.require().map(drop),
            (Via::Socket, None) => Ok(()),
            (Via::Socket, Some(_)) => Err(KernelError::Unusable(
                "this gateway enforces: a sandbox is attached by its network namespace",
            )),
        }
    }

    /// Whether a policy may be in force over this way to the gateway.
    pub(super) fn may_run(&self, via: Via, composed: &Composed) -> Result<(), KernelError> {
        let job = composed.snapshot.job();
        let internet = job.is_none_or(|policy| policy.network == NetworkMode::Internet);
        if via == Via::Socket && internet && self.parts.filter == EgressFilter::Required {
            let why = self.parts.firewall.why().to_owned();
            return Err(KernelError::NoFirewall(Box::new(KernelError::Lacking(why))));
        }
        Ok(())
    }

    /// Serves the proxy on a sandbox's own loopback.
    pub(super) fn open_socket(
        &self,
        network: &Arc<Network>,
        listener: OwnedFd,
    ) -> Result<(), KernelError> {
        let listener = crate::kernel::sockets::loopback_proxy(listener)?;
        let service = self.parts.pools.service_v4().into();
        crate::listen::serve_socket(&self.parts.ctx, network.clone(), service, listener);
        Ok(())
    }
}
