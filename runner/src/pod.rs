//! A pod: a holder, its network behind the gateway, and the files that a workload sees of it.
//!
//! Owns the order in which they come and go. Wiring: folder, holder, namespace descriptor, attach, acknowledgement for
//! exactly the policy that was asked for, files. Release: the same in reverse, every step tried whatever failed before,
//! all failures collected. Invariant: a [`Pod`] exists only when its network is enforced; a workload can only be made
//! from a pod.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway::control::api::{NetworkView, PolicyReplaced};
use gateway::control::descriptor::{Carrier, Received};
use gateway::control::{AttachRequest, Client, ClientError, PolicySource};
use netpolicy::ids::{NetworkId, PolicyHash};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;

use crate::records::Records;
use crate::run::{Failure, RunId};
use crate::sandbox::{Backend, HolderSpec, PodFiles, SandboxError, SandboxId};

/// Label on networks, so that the reaper finds this installation's.
pub const INSTANCE_LABEL: &str = "sallyport.instance";
/// A holder sends its namespace as its first act; a busy host may take seconds to start it.
const HANDOVER_PATIENCE: Duration = Duration::from_secs(30);
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

/// Why a pod could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The engine.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The gateway.
    #[error("{act}: {source}")]
    Gateway {
        /// What was asked of it.
        act: &'static str,
        /// Its answer.
        #[source]
        source: ClientError,
    },
    /// The host's files.
    #[error("preparing {path}: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The holder sent nothing, or nonsense.
    #[error("receiving the sandbox's network namespace: {0}")]
    Handover(io::Error),
    /// The gateway enforces something else than was asked for.
    #[error("the gateway acknowledged policy {got} where {wanted} was asked for")]
    OtherPolicy {
        /// What was asked for.
        wanted: PolicyHash,
        /// What is enforced.
        got: PolicyHash,
    },
    /// No such preset.
    #[error("there is no policy preset called {0:?}")]
    NoSuchPreset(String),
}

impl From<PodError> for Failure {
    fn from(error: PodError) -> Self {
        let (code, hint, mistakes) = match &error {
            PodError::Sandbox(source) => ("engine", source.hint(), Vec::new()),
            PodError::Gateway { source, .. } => {
                let problem = source.problem();
                let policy = problem.is_some_and(|p| matches!(p.code.as_str(), "policy_invalid" | "not_enforced_yet"));
                let mistakes = problem.map(|p| p.mistakes.clone()).unwrap_or_default();
                (if policy { "policy" } else { "gateway" }, source.hint(), mistakes)
            }
            PodError::NoSuchPreset(_) => ("policy", Some("`sallyport policy presets` lists them".to_owned()), Vec::new()),
            PodError::Folder { .. } | PodError::Handover(_) | PodError::OtherPolicy { .. } => ("internal", None, Vec::new()),
        };
        Self { code: code.to_owned(), message: error.to_string(), hint, mistakes }
    }
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
    pub async fn wire(&self, run: &RunId, workspace: &str, policy: &PolicySource) -> Result<Pod, PodError> {
        let wanted = job_policy_hash(policy)?;
        let mut parts = Parts::default();
        match self.wire_parts(run, workspace, policy, &mut parts).await {
            Ok(pod) if pod.network.job_policy == wanted => Ok(pod),
            other => {
                let error = match other {
                    Ok(pod) => PodError::OtherPolicy { wanted, got: pod.network.job_policy },
                    Err(error) => error,
                };
                let leftovers = self.clear(run, &parts).await;
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
        parts: &mut Parts,
    ) -> Result<Pod, PodError> {
        let folder = self.folder_of(run);
        let made = make_folder(&folder).and_then(|()| listen_once(&folder.join(SOCKET)));
        let listener = made.map_err(|source| PodError::Folder { path: folder.clone(), source })?;
        let spec = HolderSpec { run: run.clone(), socket: folder.join(SOCKET) };
        parts.holder = Some(self.backend.hold(&spec).await?);
        let namespace = receive_namespace(listener).await.map_err(PodError::Handover)?;
        let _ = std::fs::remove_file(folder.join(SOCKET));
        let id = network_id(run);
        let request = AttachRequest {
            id: id.clone(),
            run: Some(run.to_string()),
            workspace: workspace.to_owned(),
            policy: policy.clone(),
            broker: Some(self.broker.clone()),
            labels: BTreeMap::from([(INSTANCE_LABEL.to_owned(), self.instance.clone())]),
        };
        if let Some(id) = id {
            self.records.watch(id);
        }
        let gateway = |source| PodError::Gateway { act: "attaching the sandbox's network", source };
        let network = self.gateway.attach(&request, namespace).await.map_err(gateway)?;
        parts.attached = true;
        let files = write_files(&folder, &network).map_err(|source| PodError::Folder { path: folder, source })?;
        let holder = parts.holder.clone().ok_or_else(|| PodError::Handover(io::ErrorKind::NotFound.into()))?;
        Ok(Pod { run: run.clone(), holder, network, files })
    }

    /// Gives a pooled pod its job's policy; the reply is the acknowledgement.
    pub async fn assign(&self, pod: &mut Pod, policy: &PolicySource) -> Result<(), PodError> {
        let wanted = job_policy_hash(policy)?;
        let gateway = |source| PodError::Gateway { act: "assigning the policy", source };
        let replaced: PolicyReplaced = self.gateway.replace_policy(&pod.network.id, policy).await.map_err(gateway)?;
        if replaced.job_policy != wanted {
            return Err(PodError::OtherPolicy { wanted, got: replaced.job_policy });
        }
        pod.network.policy = replaced.policy;
        pod.network.job_policy = replaced.job_policy;
        pod.network.generation = replaced.generation;
        Ok(())
    }

    /// Releases a pod whose workload is gone. Returns what could not be undone.
    pub async fn release(&self, pod: Pod) -> Vec<String> {
        self.clear(&pod.run, &Parts { holder: Some(pod.holder), attached: true }).await
    }

    async fn clear(&self, run: &RunId, parts: &Parts) -> Vec<String> {
        let mut leftovers = Vec::new();
        if let (true, Some(id)) = (parts.attached, network_id(run)) {
            leftovers.extend(self.detach(&id).await);
        }
        if let Some(holder) = &parts.holder {
            if let Err(error) = self.backend.remove(holder).await {
                leftovers.push(format!("holder {}: {error}", holder.0));
            }
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
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(format!("{}: {error}", folder.display())),
            _ => None,
        }
    }

    fn folder_of(&self, run: &RunId) -> PathBuf {
        self.folder.join(run.as_str())
    }
}

/// The network that belongs to a run.
pub fn network_id(run: &RunId) -> Option<NetworkId> {
    format!("run-{run}").parse().ok()
}

/// The hash of the job policy's own text, which the gateway must acknowledge.
pub fn job_policy_hash(policy: &PolicySource) -> Result<PolicyHash, PodError> {
    match policy {
        PolicySource::Document { text, .. } => Ok(PolicyHash(Sha256::digest(text.as_bytes()).into())),
        PolicySource::Preset(name) => netpolicy::document::preset(name)
            .map(|policy| policy.hash)
            .ok_or_else(|| PodError::NoSuchPreset(name.clone())),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    // Only the engine, which is root, may look inside: the one-use socket is open to every user.
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

fn listen_once(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    // The holder is nobody, also where the engine maps users.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Takes the one descriptor of the first connection; the listener is gone afterwards.
async fn receive_namespace(listener: UnixListener) -> io::Result<OwnedFd> {
    let receive = async {
        let (stream, _) = listener.accept().await?;
        let (mut carrier, descriptor) = Carrier::receiving(stream);
        let mut byte = [0];
        carrier.read_exact(&mut byte).await?;
        match descriptor.take() {
            Received::One(namespace) => Ok(namespace),
            Received::Nothing | Received::TooMany => Err(io::Error::other("the holder did not send exactly one descriptor")),
        }
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the holder sent nothing");
    tokio::time::timeout(HANDOVER_PATIENCE, receive).await.unwrap_or_else(|_| Err(late()))
}

fn write_files(folder: &Path, network: &NetworkView) -> io::Result<PodFiles> {
    let files = PodFiles {
        resolv_conf: folder.join("resolv.conf"),
        hosts: folder.join("hosts"),
        hostname: folder.join("hostname"),
    };
    write_readable(&files.resolv_conf, &resolv_conf(network))?;
    write_readable(&files.hosts, &hosts(network))?;
    write_readable(&files.hostname, "sandbox\n")?;
    Ok(files)
}

fn write_readable(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444))
}

/// `ndots:1`: a name with a dot is asked for as it is; there is no search list for anything else.
fn resolv_conf(network: &NetworkView) -> String {
    format!("nameserver {}\nnameserver {}\noptions ndots:1\n", network.service_v4, network.service_v6)
}

/// The broker has a fixed entry, so that no answer of anyone can move it.
fn hosts(network: &NetworkView) -> String {
    let line = |address: IpAddr, names: &str| format!("{address}\t{names}\n");
    [
        line([127, 0, 0, 1].into(), "localhost"),
        line(std::net::Ipv6Addr::LOCALHOST.into(), "localhost ip6-localhost ip6-loopback"),
        line(network.v4.into(), "sandbox"),
        line(network.v6.into(), "sandbox"),
        line(network.service_v4.into(), "broker.sallyport.internal"),
        line(network.service_v6.into(), "broker.sallyport.internal"),
    ]
    .concat()
}
