//! `sallyport net`: networks behind the gateway, over its control socket.

mod capture;
mod explain;
mod follow;
mod top;
mod what;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use clap::Subcommand;
use gateway::control::api::{AttachRequest, FlowView, NetworkView, default_workspace};
use gateway::member::{Membership, ServiceName};
use netpolicy::ids::NetworkId;

use super::policy::source;
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, bytes};

const ATTACH_HELP: &str = "\
Any network namespace that has only `lo` can be put behind the gateway, whatever made it:

  ip netns add mine
  sallyport net attach --netns /run/netns/mine --policy domains.yml --name mine
  ip netns exec mine curl https://example.com/    # DNS server: 198.18.0.1
  sallyport net detach mine

Services of one app reach the siblings that they need, by name, and nobody else:

  sallyport net attach --netns /run/netns/db --policy none.yml \\
      --group shop --service db
  sallyport net attach --netns /run/netns/web --policy web.yml \\
      --group shop --service web --needs db

A name that was given with --name is used up with its network: the record tells \
networks apart by name. Without --name the gateway draws one that never comes twice.";

const FLOWS_HELP: &str = "\
A line for each event: = is live already, + opened, - ended, ! denied, ? permitted and not reached. Times are UTC.

  sallyport net flows -f
  sallyport net flows web -f --json | jq 'select(.event == \"denied\")'
  sallyport net flows -f --json --after 1200    # each line has its `cursor`";

const CAPTURE_HELP: &str = "\
The gateway taps the network's link; the sandbox cannot tell. Frames that were missed are counted in the file.

  sallyport net capture web -w web.pcapng --seconds 30
  sallyport net capture web --filter 'tcp and not port 443' | tcpdump -nr -";

const TOP_HELP: &str = "\
Examples:
  sallyport net top                       # until interrupted
  sallyport net top web db -i 5
  sallyport net top --json -n 1           # one look, for programs";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the networks
    Ls,
    /// Show one network
    Show {
        /// Its name
        name: String,
    },
    /// List live flows, of one network or of all; with --follow what opens, ends and is denied
    #[command(after_help = FLOWS_HELP)]
    Flows {
        /// Its name
        name: Option<String>,
        /// Keep printing what opens, ends and is denied
        #[arg(short, long)]
        follow: bool,
        /// Go on after this record, the `cursor` of an earlier look
        #[arg(long, value_name = "SEQ", requires = "follow")]
        after: Option<u64>,
    },
    /// Watch what every network does: rates, flows, names by bytes, denials and why
    #[command(after_help = TOP_HELP)]
    Top(top::Arguments),
    /// Say what would become of a destination on a live network now, and why
    #[command(after_help = explain::HELP)]
    Explain(explain::Arguments),
    /// Write one network's packets as pcapng
    #[command(after_help = CAPTURE_HELP)]
    Capture(capture::Arguments),
    /// Put an existing network namespace behind the gateway
    #[command(after_help = ATTACH_HELP)]
    Attach {
        /// Path of the namespace (/run/netns/NAME, /proc/PID/ns/net)
        #[arg(long, value_name = "PATH")]
        netns: PathBuf,
        /// Policy file, the name of a preset, or of a policy in git
        #[arg(long, value_name = "FILE|PRESET|NAME")]
        policy: String,
        /// Name of the network, never used before; the gateway chooses one if absent
        #[arg(long)]
        name: Option<String>,
        /// Workspace, which chooses the workspace floor
        #[arg(long, default_value_t = default_workspace())]
        workspace: String,
        /// App that it is a service of; its members find each other by service name
        #[arg(long, requires = "service", value_name = "GROUP")]
        group: Option<NetworkId>,
        /// Its name to its siblings
        #[arg(long, requires = "group", value_name = "NAME")]
        service: Option<ServiceName>,
        /// Siblings that it may connect to, by service name
        #[arg(long, requires = "group", value_delimiter = ',', value_name = "NAMES")]
        needs: Vec<ServiceName>,
        /// Socket that gets connections to the broker address
        #[arg(long, value_name = "SOCKET")]
        broker: Option<PathBuf>,
    },
    /// Take a network away: its flows are cut, its namespace keeps only `lo`
    Detach {
        /// Its name
        name: String,
    },
    /// Replace a network's policy; flows that the new one does not permit are cut
    Policy {
        /// Its name
        name: String,
        /// Policy file, the name of a preset, or of a policy in git
        #[arg(value_name = "FILE|PRESET|NAME")]
        policy: String,
    },
}

pub fn perform(verb: Verb, shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let format = shared.format();
    let config = shared.load_to_ask()?.gateway;
    wait(async {
        match verb {
            Verb::Ls => list(&client.networks().await?, format)?,
            Verb::Show { name } => show_one(&client.network(&id(&name)?).await?, format)?,
            Verb::Flows {
                name,
                follow,
                after,
            } => {
                let name = name.map(|n| id(&n)).transpose()?;
                if follow {
                    return follow::follow(&client, name.as_ref(), after, format).await;
                }
                flows(&client.flows(name.as_ref()).await?, format)?;
            }
            Verb::Capture(arguments) => return capture::capture(&client, &arguments).await,
            Verb::Explain(arguments) => return explain::explain(&client, &arguments, format).await,
            Verb::Top(arguments) => return top::watch(&client, &arguments, format).await,
            Verb::Attach {
                netns,
                policy,
                name,
                workspace,
                group,
                service,
                needs,
                broker,
            } => {
                let namespace = open(&netns)?;
                let request = AttachRequest {
                    via: gateway::control::api::Via::Link,
                    id: name.map(|n| id(&n)).transpose()?,
                    run: None,
                    workspace,
                    policy: source(&policy, &config)?,
                    broker,
                    member: membership(group, service, needs),
                    labels: std::collections::BTreeMap::new(),
                };
                show_one(&client.attach(&request, namespace).await?, format)?;
            }
            Verb::Detach { name } => {
                let gone = client.detach(&id(&name)?).await?;
                match format {
                    Format::Json => show::json(&gone)?,
                    Format::Text => show::out(format_args!(
                        "{} is detached, {} flows were cut",
                        gone.id, gone.cut
                    ))?,
                }
            }
            Verb::Policy { name, policy } => {
                let replaced = client
                    .replace_policy(&id(&name)?, &source(&policy, &config)?)
                    .await?;
                match format {
                    Format::Json => show::json(&replaced)?,
                    Format::Text => show::out(format_args!(
                        "{name} is under generation {} ({}), {} flows were cut",
                        replaced.generation.0, replaced.policy, replaced.cut
                    ))?,
                }
            }
        }
        Ok(Outcome::Good)
    })
}

fn id(name: &str) -> Result<NetworkId, Failure> {
    name.parse()
        .map_err(|e: netpolicy::ids::NetworkIdError| Failure::from_error(&e))
}

/// clap lets neither the group nor the service stand alone.
fn membership(
    group: Option<NetworkId>,
    service: Option<ServiceName>,
    needs: Vec<ServiceName>,
) -> Option<Membership> {
    Some(Membership {
        group: group?,
        service: service?,
        needs: needs.into_iter().collect(),
    })
}

fn open(path: &std::path::Path) -> Result<OwnedFd, Failure> {
    let file = File::open(path).map_err(|e| {
        Failure::new(format!("opening the namespace {}: {e}", path.display())).hint(
            "give a path like /run/netns/NAME or /proc/PID/ns/net; root may open those of others",
        )
    })?;
    Ok(file.into())
}

fn list(networks: &[NetworkView], format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return show::json(&networks);
    }
    let row = |n: &NetworkView| {
        [
            n.id.to_string(),
            n.v4.to_string(),
            n.policy_name.clone(),
            n.generation.0.to_string(),
            n.flows.to_string(),
            bytes(n.used.upload),
            bytes(n.used.download),
            n.run.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let head = [
        "name",
        "address",
        "policy",
        "generation",
        "flows",
        "up",
        "down",
        "run",
    ];
    show::out(show::table(head, networks.iter().map(row)))?;
    // the gateway's own state, so the same for each
    if let Some(remark) = networks.iter().find_map(|n| n.remark.as_deref()) {
        show::alert(remark);
    }
    Ok(())
}

fn show_one(network: &NetworkView, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return show::json(network);
    }
    let rows = [
        ("name", network.id.to_string()),
        ("addresses", format!("{}, {}", network.v4, network.v6)),
        (
            "DNS, broker, proxy",
            format!("{}, {}", network.service_v4, network.service_v6),
        ),
        (
            "gateway",
            network
                .remark
                .clone()
                .unwrap_or_else(|| gateway::posture::BLOCKED.to_owned()),
        ),
        ("workspace", network.workspace.clone()),
        (
            "member",
            network.member.as_ref().map_or_else(
                || "-".to_owned(),
                |m| format!("{} of {}", m.service, m.group),
            ),
        ),
        ("run", network.run.clone().unwrap_or_else(|| "-".to_owned())),
        (
            "policy",
            format!(
                "{} (generation {})",
                network.policy_name, network.generation.0
            ),
        ),
        ("policy's source", network.stamp.to_string()),
        ("policy hash", network.policy.to_string()),
        ("live flows", network.flows.to_string()),
        (
            "up, down",
            format!(
                "{}, {}",
                bytes(network.used.upload),
                bytes(network.used.download)
            ),
        ),
        ("names", network.used.names.to_string()),
    ];
    for (key, value) in rows {
        show::out(format_args!("{key:<20}{}", show::clean(&value)))?;
    }
    Ok(())
}

fn flow_row(flow: &FlowView) -> [String; 7] {
    let rule = flow
        .rule
        .as_ref()
        .map_or_else(|| "-".to_owned(), netpolicy::policy::Place::line);
    [
        flow.id.to_string(),
        flow.network.to_string(),
        flow.name
            .clone()
            .unwrap_or_else(|| flow.destination.ip().to_string()),
        flow.upstream.to_string(),
        bytes(flow.up),
        bytes(flow.down),
        rule,
    ]
}

fn flows(flows: &[FlowView], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => show::json(&flows),
        Format::Text => {
            let head = [
                "flow",
                "network",
                "destination",
                "upstream",
                "up",
                "down",
                "rule",
            ];
            show::out(show::table(head, flows.iter().map(flow_row)))
        }
    }
}
