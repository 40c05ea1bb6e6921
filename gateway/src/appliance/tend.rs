//! Tasks that keep a running gateway in step: resolvers, floors, budgets.
//!
//! A critical task that ends early seals the gateway: nobody would notice what it does not do any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::build::RESOLV_CONF;
use super::watch::hold;
use super::{BuildError, follows_system};
use crate::config::GatewayConfig;
use crate::context::Context;
use crate::control::problems::chain;
use crate::network::recompose::Concerned;
use crate::network::registry::Registry;
use crate::policy::FloorError;
use crate::posture::{Cause, Posture, out_of_descriptors};

/// Who holds the posture while a floor is broken.
const FLOORS: &str = "floors";
/// Budgets used are written down this often: what a crash may forget.
const PERSIST: Duration = Duration::from_secs(1);
/// NAT64 prefixes are learnt again this often (RFC 7050 says at least when the TTL ends; networks change seldom).
const NAT64: Duration = Duration::from_mins(5);
/// Live flows are decided again for this long after something changed.
const SWEEP: Duration = crate::network::lapse::DIALS;
/// Every so many seconds each sandbox's namespace is looked into; a look costs a millisecond a sandbox.
const LOOK_INSIDE: u32 = 10;

/// Follows the resolvers, and learns NAT64 prefixes through them.
pub fn resolvers(ctx: &Context, config: &GatewayConfig) {
    if follows_system(config) {
        ctx.resolver.follow_system(RESOLV_CONF.into(), &ctx.tasks);
    }
    let resolver = ctx.resolver.clone();
    ctx.tasks.keep("nat64", async move {
        loop {
            if let Err(error) = resolver.learn_nat64().await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "learning NAT64 prefixes failed"
                );
            }
            tokio::time::sleep(NAT64).await;
        }
    });
}

/// Seals for good when something that must run ends: a door that nobody serves, a watcher that sees nothing.
pub fn fallen(ctx: &Context, posture: &Arc<Posture>) {
    let (mut fallen, posture) = (ctx.tasks.fallen(), posture.clone());
    ctx.tasks.spawn("fallen tasks", async move {
        let name = match fallen.wait_for(Option::is_some).await {
            Ok(name) => name.unwrap_or_default(),
            Err(_) => return,
        };
        let text = format!("a part of the gateway has ended: {name}");
        hold(
            posture,
            "tasks",
            Cause::new(text, "restart the gateway, and report what its log says"),
        )
        .await;
    });
}

/// Looks at the floors that may be missed in a row for want of descriptors: ten seconds.
const MISSED: u32 = 10;

/// Floors: read at the start, looked at again each second; networks of before wait for them.
#[derive(Debug)]
pub struct Floors {
    adopted: bool,
    broken: bool,
    /// Looks missed in a row for want of descriptors.
    missed: u32,
}

impl Floors {
    /// Reads the floors and adopts networks of before; with a broken floor both wait, sealed.
    pub fn begin(registry: &Registry, posture: &Posture) -> Result<Self, BuildError> {
        let mut floors = Self {
            adopted: false,
            broken: false,
            missed: 0,
        };
        match registry.reload_floors() {
            Ok(_) => floors.adopt(registry)?,
            Err(error) => floors.seal(posture, &error),
        }
        Ok(floors)
    }

    fn adopt(&mut self, registry: &Registry) -> Result<(), BuildError> {
        let count = registry.adopt()?;
        if count > 0 {
            tracing::info!(count, "networks of an earlier gateway were adopted");
        }
        self.adopted = true;
        Ok(())
    }

    fn seal(&mut self, posture: &Posture, error: &FloorError) {
        self.broken = true;
        posture.hold(FLOORS, &Cause::new(chain(error), error.hint()));
    }

    /// Looks again; says whether flows must be decided again.
    fn look(&mut self, registry: &Arc<Registry>, posture: &Posture) -> bool {
        match registry.reload_floors() {
            // The floors before stay in force; what was not read may be what was there before.
            Err(error) if self.adopted && self.missed < MISSED && out_of_descriptors(&error) => {
                self.missed += 1;
                tracing::error!("no descriptor is free to read the floors with");
                false
            }
            Err(error) => {
                if !self.broken {
                    self.seal(posture, &error);
                }
                false
            }
            Ok(changed) => {
                self.missed = 0;
                if changed && self.adopted {
                    registry.recompose(Concerned::All);
                }
                if !self.adopted
                    && let Err(error) = self.adopt(registry)
                {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "networks of an earlier gateway could not be adopted"
                    );
                    return false;
                }
                if std::mem::take(&mut self.broken) {
                    posture.release(FLOORS);
                }
                changed
            }
        }
    }
}

/// Each second: budgets, floors, and flows that were being opened while something changed; now and then, whether a
/// sandbox got a second network or a smaller link.
pub async fn house(registry: Arc<Registry>, posture: Arc<Posture>, mut floors: Floors) {
    let mut tick = tokio::time::interval(PERSIST);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweeping_until = Instant::now();
    let mut book = registry.book();
    for count in 0_u32.. {
        tick.tick().await;
        let (networks, posture) = (registry.clone(), posture.clone());
        let sweep = Instant::now() < sweeping_until;
        let inside = count % LOOK_INSIDE == LOOK_INSIDE - 1;
        let work = tokio::task::spawn_blocking(move || {
            networks.persist();
            let changed = floors.look(&networks, &posture);
            if sweep {
                networks.sweep();
            }
            if inside {
                networks.look_inside();
            }
            (floors, changed)
        });
        let Ok((back, changed)) = work.await else {
            return;
        };
        floors = back;
        let now = registry.book();
        if changed || !Arc::ptr_eq(&now, &book) {
            book = now;
            sweeping_until = Instant::now() + SWEEP;
        }
    }
}
