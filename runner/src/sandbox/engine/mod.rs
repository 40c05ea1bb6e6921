//! Sandboxes as containers of Docker or Podman.
//!
//! Owns the conversation with the engine: what is asked ([`spec`]), of whom ([`connect`]), and that every answer comes in
//! time. Invariants: a workload is inspected before it is started, and one that is not in its holder's network namespace
//! is removed instead; what carries our labels but not our name was not made by us and is left alone.

mod ask;
pub mod connect;
mod differs;
pub mod elsewhere;
mod images;
mod listed;
pub mod spec;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, KillContainerOptions,
    ListContainersOptions, RemoveContainerOptions, StartContainerOptions, WaitContainerOptions,
};
use futures_util::StreamExt;

use self::ask::{engine, host, settled, settled_or_stopped, status, within};
use self::connect::{Connected, Flavour};
use self::differs::{difference, unlimited};
use self::listed::listed;
use self::spec::{Ceilings, Common, INSTANCE_LABEL, RUN_LABEL};
use super::{
    Asked, Backend, Chunk, Exit, Facts, HolderSpec, ImageFacts, Isolation, Owned, Prepared, Role,
    SandboxError, SandboxId, Streams, User, WorkloadSpec, guest, seccomp,
};
use crate::config::EngineChoice;
use crate::job::{ImageName, Takes};

/// The engine backend.
#[derive(Debug)]
pub struct Engine {
    connected: Connected,
    instance: String,
    guest: PathBuf,
    holder_image: String,
    profiles: Profiles,
    ceilings: Ceilings,
}

/// Seccomp profiles, as the engine wants to be told.
#[derive(Debug)]
struct Profiles {
    agent: String,
    root: String,
}

impl Engine {
    /// Connects, lays the helper out below `state_dir` and gives the engine the holder's image.
    pub async fn open(
        choice: &EngineChoice,
        instance: &str,
        state_dir: &Path,
    ) -> Result<Self, SandboxError> {
        let connected = connect::connect(choice).await?;
        let guest = guest::lay_out(&state_dir.join("guest"))
            .map_err(host("laying the guest helper out"))?;
        let profile = |user| profile_reference(connected.flavour, state_dir, user);
        let profiles = Profiles {
            agent: profile(User::Agent)?,
            root: profile(User::Root)?,
        };
        let holder_image = format!("sallyport/holder:{}", guest::stamp());
        let this = Self {
            connected,
            instance: instance.to_owned(),
            guest,
            holder_image,
            profiles,
            ceilings: ceilings(),
        };
        this.ensure_holder_image().await?;
        Ok(this)
    }

    fn common(&self, user: User, isolation: Isolation) -> Result<Common<'_>, SandboxError> {
        let runtime = match isolation {
            Isolation::Hardened => self.connected.hardened.as_ref(),
            Isolation::Gvisor => Some(
                self.connected
                    .gvisor
                    .as_ref()
                    .ok_or(SandboxError::NoSuchIsolation(isolation))?,
            ),
        };
        if !self.connected.facts.isolation.contains(&isolation) {
            return Err(SandboxError::NoSuchIsolation(isolation));
        }
        let seccomp = match user {
            User::Agent => &self.profiles.agent,
            User::Root => &self.profiles.root,
        };
        let ceilings = self.ceilings;
        Ok(Common {
            instance: &self.instance,
            flavour: self.connected.flavour,
            seccomp,
            runtime,
            ceilings,
        })
    }

    async fn create(
        &self,
        name: String,
        body: bollard::models::ContainerCreateBody,
    ) -> Result<SandboxId, SandboxError> {
        let options = CreateContainerOptions {
            name: Some(name),
            ..CreateContainerOptions::default()
        };
        let made = within(
            "making a container",
            self.connected.api.create_container(Some(options), body),
        )
        .await?;
        Ok(SandboxId(made.id))
    }

    async fn start_container(&self, id: &SandboxId) -> Result<(), SandboxError> {
        within(
            "starting a container",
            self.connected
                .api
                .start_container(&id.0, None::<StartContainerOptions>),
        )
        .await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<ContainerInspectResponse, SandboxError> {
        within(
            "inspecting a container",
            self.connected
                .api
                .inspect_container(&id.0, None::<InspectContainerOptions>),
        )
        .await
    }

    async fn signal(
        &self,
        id: &SandboxId,
        signal: &str,
        act: &'static str,
    ) -> Result<(), SandboxError> {
        let options = KillContainerOptions {
            signal: signal.to_owned(),
        };
        let work = async {
            Ok(self
                .connected
                .api
                .kill_container(&id.0, Some(options))
                .await)
        };
        settled_or_stopped(within(act, work).await?, act)
    }
}

/// This process's own hard limits: it and the engine are services of one machine.
fn ceilings() -> Ceilings {
    use nix::sys::resource::{Resource, getrlimit};
    let hard = |resource| {
        getrlimit(resource).map_or(i64::MAX, |(_, hard)| {
            i64::try_from(hard).unwrap_or(i64::MAX)
        })
    };
    Ceilings {
        files: hard(Resource::RLIMIT_NOFILE),
        processes: hard(Resource::RLIMIT_NPROC),
    }
}

/// Docker takes a profile itself, Podman the path of a file.
fn profile_reference(
    flavour: Flavour,
    state_dir: &Path,
    user: User,
) -> Result<String, SandboxError> {
    let text =
        seccomp::profile(user).map_err(|e| host("rendering the seccomp profile")(e.into()))?;
    if flavour == Flavour::Docker {
        return Ok(text);
    }
    let path = state_dir.join(if user == User::Root {
        "seccomp-root.json"
    } else {
        "seccomp-agent.json"
    });
    std::fs::write(&path, text).map_err(host("writing the seccomp profile"))?;
    Ok(path.to_string_lossy().into_owned())
}

impl Backend for Engine {
    fn facts(&self) -> &Facts {
        &self.connected.facts
    }

    fn look_again(&self) -> Asked<'_, Facts> {
        Box::pin(async { Ok(connect::learn(&self.connected.api).await?.facts) })
    }

    fn until_gone(&self) -> futures_util::future::BoxFuture<'_, ()> {
        // an event that no engine has: what is waited for is the end of the conversation
        let none = HashMap::from([("type".to_owned(), vec!["sallyport".to_owned()])]);
        let options = bollard::query_parameters::EventsOptions {
            filters: Some(none),
            ..Default::default()
        };
        let events = self.connected.api.events(Some(options));
        Box::pin(
            events
                .take_while(|event| std::future::ready(event.is_ok()))
                .for_each(|_| async {}),
        )
    }

    fn image<'a>(&'a self, name: &'a ImageName) -> Asked<'a, ImageFacts> {
        Box::pin(self.look_up_image(name))
    }

    fn hold<'a>(&'a self, spec: &'a HolderSpec) -> Asked<'a, SandboxId> {
        Box::pin(async move {
            let common = self.common(User::Agent, Isolation::Hardened)?;
            let body = spec::holder(&common, &self.holder_image, spec);
            let id = self
                .create(spec::name(&self.instance, &spec.run, Role::Holder), body)
                .await?;
            match self.start_container(&id).await {
                Ok(()) => Ok(id),
                Err(error) => {
                    self.remove(&id).await?;
                    Err(error)
                }
            }
        })
    }

    fn prepare<'a>(&'a self, spec: &'a WorkloadSpec) -> Asked<'a, Prepared> {
        Box::pin(async move {
            let common = self.common(spec.user, spec.isolation)?;
            let helper = spec::helper_path();
            let body = spec::workload(&common, &self.guest, &helper, spec);
            let id = self
                .create(spec::name(&self.instance, &spec.run, Role::Workload), body)
                .await?;
            let inspected = self.inspect(&id).await.and_then(|made| {
                match difference(&made, spec, common.runtime) {
                    Some(differs) => Err(SandboxError::Differs(differs)),
                    None => Ok(unlimited(&made)),
                }
            });
            match inspected {
                Ok(unlimited) => Ok(Prepared { id, unlimited }),
                Err(error) => {
                    self.remove(&id).await?;
                    Err(error)
                }
            }
        })
    }

    fn start<'a>(&'a self, id: &'a SandboxId, takes: Takes) -> Asked<'a, Streams> {
        Box::pin(async move {
            let options = AttachContainerOptions {
                stream: true,
                stdin: !takes.is_nothing(),
                // none: what a command reads is bytes, and Podman would look for its usual ones in them
                detach_keys: Some(String::new()),
                stdout: true,
                stderr: true,
                ..AttachContainerOptions::default()
            };
            let attached = within(
                "attaching to a container",
                self.connected.api.attach_container(&id.0, Some(options)),
            )
            .await?;
            self.start_container(id).await?;
            // The engine ends the connection when its writing half goes, so it lives as long as the output.
            let (input, unused) = if takes.is_nothing() {
                (None, Some(attached.input))
            } else {
                (Some(attached.input), None)
            };
            let chunks = attached.output.map(move |piece| {
                let _kept = &unused;
                match piece {
                    Ok(LogOutput::StdErr { message }) => Ok(Chunk::Err(message)),
                    Ok(
                        LogOutput::StdOut { message }
                        | LogOutput::Console { message }
                        | LogOutput::StdIn { message },
                    ) => Ok(Chunk::Out(message)),
                    Err(error) => Err(engine("reading output")(error)),
                }
            });
            Ok(Streams {
                output: chunks.boxed(),
                input,
            })
        })
    }

    fn wait<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, Exit> {
        Box::pin(async move {
            let options = WaitContainerOptions {
                condition: "not-running".to_owned(),
            };
            let mut waiting = self.connected.api.wait_container(&id.0, Some(options));
            // An exit code other than zero arrives as an error value; the inspection below is what counts.
            match waiting.next().await {
                None | Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => {}
                Some(Err(error)) => return Err(engine("waiting for a container")(error)),
            }
            let state = self.inspect(id).await?.state.unwrap_or_default();
            if state.running == Some(true) {
                return Err(SandboxError::Differs(
                    "a container that has ended is running".to_owned(),
                ));
            }
            Ok(Exit {
                code: state.exit_code.unwrap_or(255),
                out_of_memory: state.oom_killed == Some(true),
            })
        })
    }

    fn ask_to_end<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()> {
        Box::pin(self.signal(id, "SIGTERM", "asking a container to end"))
    }

    fn kill<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()> {
        Box::pin(self.signal(id, "SIGKILL", "killing a container"))
    }

    fn remove<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()> {
        Box::pin(async move {
            let options = RemoveContainerOptions {
                v: true,
                force: true,
                link: false,
            };
            let work = async {
                Ok(self
                    .connected
                    .api
                    .remove_container(&id.0, Some(options))
                    .await)
            };
            let act = "removing a container";
            match within(act, work).await? {
                // somebody else removes it, and has not done so: it is not gone
                Err(error) if status(&error) == Some(409) => Err(engine(act)(error)),
                other => settled(other, act),
            }
        })
    }

    fn owned(&self) -> Asked<'_, Vec<Owned>> {
        Box::pin(async move {
            let filters = HashMap::from([(
                "label".to_owned(),
                vec![format!("{INSTANCE_LABEL}={}", self.instance)],
            )]);
            let options = ListContainersOptions {
                all: true,
                filters: Some(filters),
                ..ListContainersOptions::default()
            };
            let listed = within("listing containers", async {
                listed(self.connected.api.list_containers(Some(options)).await)
            })
            .await?;
            let ours = listed.into_iter().filter_map(|container| {
                let run = container.labels.as_ref()?.get(RUN_LABEL)?.parse().ok()?;
                let names = container.names.unwrap_or_default();
                let expected = [Role::Holder, Role::Workload]
                    .map(|role| spec::name(&self.instance, &run, role));
                // Labels can come from an image that someone else runs; names cannot.
                let named = names
                    .iter()
                    .any(|name| expected.iter().any(|e| name.trim_start_matches('/') == e));
                named.then_some(Owned {
                    id: SandboxId(container.id?),
                    run,
                })
            });
            Ok(ours.collect())
        })
    }

    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        file_system: &'a Path,
        stamp: Option<&'a str>,
    ) -> Asked<'a, ()> {
        Box::pin(self.import_file_system(name, file_system, stamp))
    }
}
