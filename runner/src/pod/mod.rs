//! A pod: a holder, its network behind the gateway, and the files that a workload sees of it.
//!
//! Owns the order in which they come and go. Wiring: folder, holder, namespace descriptor, attach, acknowledgement for
//! exactly the policy that was asked for, files. Release: the same in reverse, every step tried whatever failed before,
//! all failures collected. Invariant: a [`Pod`] exists only when its network is enforced; a workload can only be made
//! from a pod.

mod error;
mod files;
mod handover;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gateway::control::api::{NetworkView, PolicyReplaced, Via};
use gateway::control::{AttachRequest, Client, ClientError, PolicySource};
use netpolicy::ids::{NetworkId, PolicyHash};
use sha2::{Digest, Sha256};

pub use error::PodError;
pub use files::proxy_variables;

use self::files::write_files;
use self::handover::{listen_once, make_folder, receive_namespace};
use crate::records::Records;
use crate::run::RunId;
use crate::sandbox::{Backend, HolderSpec, PodFiles, SandboxId};

/// Label on networks, so that the reaper finds this installation's.
pub const INSTANCE_LABEL: &str = "sallyport.instance";
/// Name of the one-use socket in a pod's folder.
const SOCKET: &str = "ns.sock";

/// A wired pod.
#[derive(Debug)]
pub struct Pod {
    /// The run it is for; every object of the pod carries it.
    pub run: RunId,
    /// The holder.
    pub holder: SandboxId,
    /// Its network, as last acknowledged.
    pub network: NetworkView,
    /// Files for the workload.
    pub files: PodFiles,
}

/// What of a pod exists so far, for cleaning up.
#[derive(Debug, Default)]
struct Parts {
    holder: Option<SandboxId>,
    attached: bool,
}

/// Makes and releases pods.
#[derive(Clone)]
pub struct Pods {
    /// Makes holders.
    pub backend: Arc<dyn Backend>,
    /// Attaches them.
    pub gateway: Client,
    /// Tallies of their networks.
    pub records: Arc<Records>,
    /// This installation.
    pub instance: String,
    /// Where each pod has a folder.
    pub folder: PathBuf,
    /// Socket that gets broker connections.
    pub broker: PathBuf,
}

impl Pods {
    /// Wires a pod for a run; when it fails, nothing is left, or the leftovers are logged and the reaper's.
    pub async fn wire(
        &self,
        run: &RunId,
        workspace: &str,
        policy: &PolicySource,
    ) -> Result<Pod, PodError> {
        let wanted = job_policy_hash(policy)?;
        let mut parts = Parts::default();
        match self
            .wire_parts(run, workspace, policy, wanted, &mut parts)
            .await
        {
            Ok(pod) => Ok(pod),
            Err(error) => {
                let leftovers = self.clear(run, &parts).await;
                if let Some(id) = network_id(run) {
                    self.records.forget(&id);
                }
                if !leftovers.is_empty() {
                    tracing::warn!(run.id = %run, ?leftovers, "a pod that could not be wired left something");
                }
                Err(error)
            }
        }
    }

    async fn wire_parts(
        &self,
        run: &RunId,
        workspace: &str,
        policy: &PolicySource,
        wanted: PolicyHash,
        parts: &mut Parts,
    ) -> Result<Pod, PodError> {
        let folder = self.folder_of(run);
        let made = make_folder(&folder).and_then(|()| listen_once(&folder.join(SOCKET)));
        let listener = made.map_err(|source| PodError::Folder {
            path: folder.clone(),
            source,
        })?;
        let via = self.via().await?;
        let spec = HolderSpec {
            run: run.clone(),
            socket: folder.join(SOCKET),
            via,
        };
        parts.holder = Some(self.backend.hold(&spec).await?);
        let namespace = receive_namespace(listener)
            .await
            .map_err(PodError::Handover)?;
        let _ = std::fs::remove_file(folder.join(SOCKET));
        let id = network_id(run);
        let request = AttachRequest {
            id: id.clone(),
            run: Some(run.to_string()),
            workspace: workspace.to_owned(),
            policy: policy.clone(),
            broker: Some(self.broker.clone()),
            member: None,
            via,
            labels: BTreeMap::from([(INSTANCE_LABEL.to_owned(), self.instance.clone())]),
        };
        if let Some(id) = &id {
            self.records.watch(id.clone());
        }
        let answer = self.gateway.attach(&request, namespace).await;
        parts.attached = may_exist(&answer);
        let network = answer.map_err(|source| PodError::Gateway {
            act: "attaching the sandbox's network",
            source,
        })?;
        acknowledges(&network, id, wanted)?;
        let files = write_files(&folder, &network).map_err(|source| PodError::Folder {
            path: folder,
            source,
        })?;
        let holder = parts
            .holder
            .clone()
            .ok_or_else(|| PodError::Handover(io::ErrorKind::NotFound.into()))?;
        Ok(Pod {
            run: run.clone(),
            holder,
            network,
            files,
        })
    }

    /// How the gateway takes sandboxes now.
    pub async fn via(&self) -> Result<Via, PodError> {
        let posture = self.gateway.posture().await;
        let view = posture.map_err(|source| PodError::Gateway {
            act: "asking the gateway how it takes sandboxes",
            source,
        })?;
        Ok(view.via)
    }

    /// Gives a pooled pod its job's policy; the reply is the acknowledgement.
    pub async fn assign(&self, pod: &mut Pod, policy: &PolicySource) -> Result<(), PodError> {
        let wanted = job_policy_hash(policy)?;
        let gateway = |source| PodError::Gateway {
            act: "assigning the policy",
            source,
        };
        let replaced: PolicyReplaced = self
            .gateway
            .replace_policy(&pod.network.id, policy)
            .await
            .map_err(gateway)?;
        if replaced.job_policy != wanted {
            return Err(PodError::OtherPolicy {
                wanted,
                got: replaced.job_policy,
            });
        }
        // Each replacement has the next generation, also one by the same policy.
        if replaced.generation <= pod.network.generation {
            return Err(PodError::OldGeneration {
                before: pod.network.generation,
                got: replaced.generation,
            });
        }
        pod.network.policy = replaced.policy;
        pod.network.job_policy = replaced.job_policy;
        pod.network.generation = replaced.generation;
        Ok(())
    }

    /// Releases a pod that no run has used, and drops its tally. Returns what could not be undone.
    pub async fn discard(&self, pod: Pod) -> Vec<String> {
        self.records.forget(&pod.network.id);
        self.release(pod).await
    }

    /// Releases a pod whose workload is gone; its tally is its run's to conclude. Returns what could not be undone.
    pub async fn release(&self, pod: Pod) -> Vec<String> {
        self.clear(
            &pod.run,
            &Parts {
                holder: Some(pod.holder),
                attached: true,
            },
        )
        .await
    }

    async fn clear(&self, run: &RunId, parts: &Parts) -> Vec<String> {
        let mut leftovers = Vec::new();
        if let (true, Some(id)) = (parts.attached, network_id(run)) {
            leftovers.extend(self.detach(&id).await);
        }
        if let Some(holder) = &parts.holder
            && let Err(error) = self.backend.remove(holder).await
        {
            leftovers.push(format!("holder {}: {error}", holder.0));
        }
        leftovers.extend(self.remove_folder(run));
        leftovers
    }

    /// Detaches a network; one that is gone is no leftover.
    pub async fn detach(&self, id: &NetworkId) -> Option<String> {
        match self.gateway.detach(id).await {
            Ok(_) => None,
            Err(error) if error.problem().is_some_and(|p| p.code == "not_found") => None,
            Err(error) => Some(format!("network {id}: {error}")),
        }
    }

    /// Removes a run's folder.
    pub fn remove_folder(&self, run: &RunId) -> Option<String> {
        let folder = self.folder_of(run);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Some(format!("{}: {error}", folder.display()))
            }
            _ => None,
        }
    }

    fn folder_of(&self, run: &RunId) -> PathBuf {
        self.folder.join(run.as_str())
    }
}

/// Whether there may be a network: an answer that could not be read, or came too late, may be one to an order that was
/// carried out. Only who was not heard at all, or was refused, has none.
fn may_exist(answer: &Result<NetworkView, ClientError>) -> bool {
    !matches!(
        answer,
        Err(ClientError::Connect { .. } | ClientError::Refused(_))
    )
}

/// Whether an answer acknowledges this network for exactly the policy that was asked for.
fn acknowledges(
    network: &NetworkView,
    id: Option<NetworkId>,
    wanted: PolicyHash,
) -> Result<(), PodError> {
    if let Some(wanted) = id
        && network.id != wanted
    {
        return Err(PodError::OtherNetwork {
            wanted,
            got: network.id.clone(),
        });
    }
    if network.job_policy != wanted {
        return Err(PodError::OtherPolicy {
            wanted,
            got: network.job_policy,
        });
    }
    Ok(())
}

/// The network that belongs to a run.
pub fn network_id(run: &RunId) -> Option<NetworkId> {
    format!("run-{run}").parse().ok()
}

/// The hash of the job policy alone (with the image's package hosts, where it uses them), which the gateway must
/// acknowledge.
pub fn job_policy_hash(policy: &PolicySource) -> Result<PolicyHash, PodError> {
    match policy {
        PolicySource::Document {
            file,
            text,
            packages,
        } => Ok(
            netpolicy::document::parse(file, text, packages.as_deref()).map_or_else(
                // The gateway refuses it, and says why.
                |_| PolicyHash(Sha256::digest(text.as_bytes()).into()),
                |policy| policy.hash,
            ),
        ),
        // What the gateway said when it was asked; it refuses to enforce another.
        PolicySource::Git { hash, policy, .. } => {
            hash.ok_or_else(|| PodError::NoSuchPreset(policy.clone()))
        }
        PolicySource::Preset(name) => netpolicy::document::preset(name)
            .map(|policy| policy.hash)
            .ok_or_else(|| PodError::NoSuchPreset(name.clone())),
    }
}
