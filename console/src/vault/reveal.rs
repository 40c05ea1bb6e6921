//! The one way by which a secret leaves: sealed to the key of the runner whose run it is for.
//!
//! A secret with a list of hosts goes only to a run whose policy lets it speak to these hosts and no others. Refuses to
//! own: who may start the run, and whether this runner holds it (the runner protocol asks that before).

use std::collections::BTreeMap;

use netpolicy::name::Pattern;
use netpolicy::policy::{NetworkMode, Policy, Selector};
use runner::sealed::{PublicKey, SealError, seal};
use zeroize::Zeroizing;

use super::{Place, Vault, VaultError};
use crate::clock::Millis;
use crate::store::secrets::KIND;
use crate::store::{Store, StoreError};

/// What a run asks for.
#[derive(Clone, Copy, Debug)]
pub struct ForRun<'a> {
    /// The workspace of the run.
    pub workspace: &'a str,
    /// Names of the secrets.
    pub names: &'a [String],
    /// What the run may reach.
    pub policy: &'a Policy,
    /// The runner that holds the run.
    pub runner: &'a PublicKey,
    /// What the message is bound to, such as the run's id and the fencing number of its claim.
    pub context: &'a [u8],
}

/// Why a run gets no secrets.
#[derive(Debug, thiserror::Error)]
pub enum RevealError {
    /// The workspace has none of this name.
    #[error("the workspace has no secret {0}")]
    Missing(String),
    /// The run reaches more than the secret's hosts.
    #[error("the secret {name} is for {hosts} alone, and the run's policy permits more")]
    Elsewhere {
        /// Its name.
        name: String,
        /// Its hosts, for people.
        hosts: String,
    },
    /// It does not open.
    #[error("opening the secret {name}")]
    Vault {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: VaultError,
    },
    /// It cannot be sealed to the runner.
    #[error("sealing secrets to the runner")]
    Runner(#[from] SealError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether a policy lets a run speak to these hosts at most. Who is let in is spoken to as well.
pub fn keeps_to(policy: &Policy, hosts: &[Pattern]) -> bool {
    if !policy.ingress.is_empty() {
        return false;
    }
    match policy.network {
        NetworkMode::None => true,
        NetworkMode::Internet => false,
        NetworkMode::Domains => policy.allow.iter().all(|rule| match &rule.to {
            Selector::Host(named) => hosts.iter().any(|host| host.covers(named)),
            Selector::Cidr(_) => false,
        }),
    }
}

impl Vault {
    /// The secrets of a run as a JSON object of names and values, sealed to its runner, and noted as used.
    pub async fn reveal_for_run(
        &self,
        store: &Store,
        asked: ForRun<'_>,
        now: Millis,
    ) -> Result<Vec<u8>, RevealError> {
        let mut values: BTreeMap<&str, Zeroizing<String>> = BTreeMap::new();
        let mut used = Vec::new();
        for name in asked.names {
            let missing = || RevealError::Missing(name.clone());
            let found = store.secret_named(asked.workspace, name).await?;
            let secret = found.ok_or_else(missing)?;
            let closed = |source| RevealError::Vault {
                name: name.clone(),
                source,
            };
            // a list that cannot be read permits no host, never every one
            let written: Option<Vec<String>> = serde_json::from_str(&secret.hosts).ok();
            let written = written.ok_or_else(|| closed(VaultError::Tampered))?;
            let hosts: Vec<Pattern> = written
                .iter()
                .filter_map(|h| Pattern::parse(h).ok())
                .collect();
            if !written.is_empty() && !keeps_to(asked.policy, &hosts) {
                return Err(RevealError::Elsewhere {
                    name: name.clone(),
                    hosts: written.join(", "),
                });
            }
            let place = Place {
                kind: KIND,
                id: &secret.id,
                workspace: asked.workspace,
                version: secret.value_version,
            };
            let sealed = store
                .sealed(KIND, &secret.id, asked.workspace, secret.value_version)
                .await?;
            let sealed = sealed.ok_or_else(|| closed(VaultError::Tampered))?;
            let value = self.open(store, &place, &sealed).await.map_err(closed)?;
            let value = std::str::from_utf8(&value).map_err(|_| closed(VaultError::Tampered))?;
            values.insert(name, Zeroizing::new(value.to_owned()));
            used.push(secret.id);
        }
        let plain: BTreeMap<&str, &str> = values.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let text = Zeroizing::new(serde_json::to_vec(&plain).unwrap_or_default());
        let message = seal(asked.runner, asked.context, &text)?;
        for id in used {
            store.secret_used(&id, now).await?;
        }
        Ok(message)
    }
}
