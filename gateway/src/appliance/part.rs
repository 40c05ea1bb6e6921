//! The kernel part of a gateway: everything that exists only where the kernel can hold it, bound at once or not at all.
//!
//! Where it cannot exist the gateway runs without it and tries again; from the first success on it is as if it had been
//! there from the start. Owns the order of acts; refuses to own what runs without it.
//! Failure stance: only what says that the kernel cannot hold rules counts as missing; every other failure is one.

use std::sync::Arc;
use std::time::Duration;

use super::adapters::SynReader;
use super::{BuildError, build, lock, serve, serve_datagrams, watch};
use crate::config::GatewayConfig;
use crate::context::Context;
use crate::kernel::{Doors, Enforcer, Firewall, KernelError, Monitor};
use crate::network::allot::Pools;
use crate::network::registry::Registry;
use crate::posture::Posture;

/// How often a kernel part that was missing is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Everything bound, nothing running.
pub(super) struct Part {
    pub(super) enforcer: Enforcer,
    doors: Doors,
    datagrams: super::Datagrams,
    queue: Option<SynReader>,
    monitor: Monitor,
    lock: std::fs::File,
}

impl Part {
    /// Locks the namespace, applies the sealed rules and binds what listens in it.
    pub(super) fn bind(config: &GatewayConfig, pools: &Pools) -> Result<Self, BuildError> {
        let lock = lock::namespace(config)?;
        let enforcer = Enforcer::open(build::kernel(config, pools))?;
        let datagrams = build::datagrams(&enforcer)?;
        Ok(Self {
            doors: Doors::open(enforcer.ns(), enforcer.config().ports)?,
            queue: build::queue(&enforcer, &datagrams.errors)?,
            datagrams,
            monitor: Monitor::open(&enforcer)?,
            enforcer,
            lock,
        })
    }

    /// It, as everybody asks for it.
    pub(super) fn firewall(&self) -> Firewall {
        Firewall::of(self.enforcer.clone())
    }

    /// The same, or why this host cannot hold it.
    pub(super) fn try_bind(
        config: &GatewayConfig,
        pools: &Pools,
    ) -> Result<Result<Self, String>, BuildError> {
        if let Some(why) = &config.no_kernel_part {
            return Ok(Err(why.clone()));
        }
        match Self::bind(config, pools) {
            Err(BuildError::Kernel(KernelError::NoFirewall(why))) => {
                Ok(Err(crate::control::problems::chain(&*why)))
            }
            other => other.map(Ok),
        }
    }

    /// Starts what watches and what listens.
    pub(super) fn run(self, ctx: &Context, registry: &Arc<Registry>, posture: &Arc<Posture>) {
        let namespace = watch::NamespaceWatcher {
            monitor: self.monitor,
            enforcer: self.enforcer.clone(),
            posture: posture.clone(),
        };
        watch::keep(ctx, posture, namespace);
        serve_datagrams(ctx, &self.enforcer, self.datagrams);
        serve(ctx, registry, self.doors, self.queue);
        let lock = self.lock;
        ctx.tasks.spawn("namespace lock", async move {
            let _held = lock;
            std::future::pending::<()>().await;
        });
    }
}

/// Tries until the kernel part can be bound, then starts it; work resumes with the next attempt of whoever waits for it.
pub(super) async fn await_part(
    config: GatewayConfig,
    ctx: Context,
    registry: Arc<Registry>,
    posture: Arc<Posture>,
    firewall: Firewall,
) {
    loop {
        tokio::time::sleep(AGAIN).await;
        let (config, pools) = (config.clone(), registry.pools().clone());
        let tried = tokio::task::spawn_blocking(move || Part::try_bind(&config, &pools)).await;
        match tried {
            Ok(Ok(Ok(part))) => {
                firewall.install(part.enforcer.clone());
                part.run(&ctx, &registry, &posture);
                posture.wake();
                tracing::info!("the kernel part is there now");
                return;
            }
            Ok(Ok(Err(why))) => tracing::debug!(why, "still without the kernel part"),
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the kernel part cannot be bound"
            ),
            Err(_) => return,
        }
    }
}
