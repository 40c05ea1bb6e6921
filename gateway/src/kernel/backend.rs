//! What holds the rules: nf_tables, or the older tables of iptables where the kernel has none.
//!
//! Owns: the choice, once, when the gateway starts, and handing each act to whoever was chosen. Both get the same
//! ruleset. Refuses to own: rules, posture, and the state of networks.
//! Failure stance: sealed rules are in force when [`Rules::open`] returns, whichever was chosen, and what the other
//! one held is gone.

use netlink_sys::Socket;
use netpolicy::ruleset::xtables::Change;
use netpolicy::ruleset::{Element, Queue, Ruleset};
use nftnl::MsgType;

use super::error::{Act, KernelError, Mismatch};
use super::lanes::{self, LaneChain};
use super::netns::{Ns, Origin};
use super::nft::{Counter, check, read, write};
use super::wire;
use super::xt::{self, Xtables};

/// Which kernel rules the configuration asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforcement {
    /// nf_tables where the kernel has it, else iptables.
    #[default]
    Auto,
    /// nf_tables or nothing.
    Nftables,
    /// iptables, even where nf_tables is there.
    Iptables,
}

/// Which kernel rules are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// nf_tables.
    Nftables,
    /// iptables and ip6tables, legacy.
    Iptables,
}

impl Backend {
    /// As the configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        }
    }
}

/// Whoever holds the rules.
#[derive(Debug)]
pub(super) enum Rules {
    Nft {
        writer: Socket,
        reader: Socket,
        ns: Ns,
    },
    Xt(Xtables),
}

/// The two rulesets that opening needs, for a kind of queue.
pub(super) struct Trial<'a> {
    pub(super) sealed: &'a dyn Fn(Queue) -> Ruleset,
    pub(super) enforcing: &'a dyn Fn(Queue) -> Ruleset,
    /// Number of the queue.
    pub(super) number: u16,
}

impl Rules {
    /// Chooses, finds out how first SYNs can be held, and seals.
    pub(super) fn open(
        wish: Enforcement,
        ns: &Ns,
        origin: Origin,
        trial: &Trial<'_>,
    ) -> Result<(Self, Queue), KernelError> {
        match wish {
            Enforcement::Nftables => Self::nft(ns, origin, trial),
            Enforcement::Iptables => {
                Self::xt(ns, trial).map_err(|error| KernelError::NoFirewall(Box::new(error)))
            }
            Enforcement::Auto => match Self::nft(ns, origin, trial) {
                Err(KernelError::NoFirewall(none)) => Self::xt(ns, trial).map_err(|error| {
                    let both = format!(
                        "{}; there is no iptables either: {}",
                        with_causes(&none),
                        with_causes(&error)
                    );
                    KernelError::NoFirewall(Box::new(KernelError::Lacking(both)))
                }),
                outcome => outcome,
            },
        }
    }

    fn nft(ns: &Ns, origin: Origin, trial: &Trial<'_>) -> Result<(Self, Queue), KernelError> {
        let (writer, reader) = ns.run(|| {
            Ok((
                write::open().map_err(KernelError::without_firewall)?,
                wire::netfilter_socket().act("opening the socket that reads rules back")?,
            ))
        })?;
        let queue = detect_queue(&writer, trial)?;
        write::replace(&writer, &(trial.sealed)(queue)).map_err(KernelError::without_firewall)?;
        if origin == Origin::Adopted && xt::are_there(ns)? {
            match (Xtables::open(ns), xt::strangers(ns)?) {
                (Ok(tables), _) => tables.clear()?,
                (Err(error), Some(_)) => return Err(error),
                // nothing is in them: older kernels give every namespace the tables that are loaded
                (Err(_), None) => {}
            }
        }
        let ns = ns.duplicate()?;
        Ok((Self::Nft { writer, reader, ns }, queue))
    }

    fn xt(ns: &Ns, trial: &Trial<'_>) -> Result<(Self, Queue), KernelError> {
        let tables = Xtables::open(ns)?;
        let queue = tables.detect_queue(trial.number, trial.enforcing)?;
        tables.replace(&(trial.sealed)(queue))?;
        tracing::info!(program = tables.program(), "rules go through iptables");
        // What a gateway with nf_tables left; a kernel without it has nothing to take away.
        let left = ns.run(|| {
            let Ok(writer) = write::open() else {
                return Ok(());
            };
            write::replace_lanes(&writer, &[])?;
            write::delete(&writer)
        });
        if let Err(error) = left {
            tracing::debug!(%error, "no nf_tables here");
        }
        Ok((Self::Xt(tables), queue))
    }

    pub(super) const fn backend(&self) -> Backend {
        match self {
            Self::Nft { .. } => Backend::Nftables,
            Self::Xt(_) => Backend::Iptables,
        }
    }

    /// Port number of the socket that writes rules, where there is one.
    pub(super) fn writer_port(&mut self) -> Result<u32, KernelError> {
        let Self::Nft { writer, .. } = self else {
            return Ok(0);
        };
        let mut address = netlink_sys::SocketAddr::new(0, 0);
        writer
            .get_address(&mut address)
            .act("reading the address of the rule socket")?;
        Ok(address.port_number())
    }

    /// Puts these rules in the place of those in force.
    pub(super) fn replace(&self, rules: &Ruleset) -> Result<(), KernelError> {
        match self {
            Self::Nft { writer, .. } => write::replace(writer, rules),
            Self::Xt(tables) => tables.replace(rules),
        }
    }

    /// Puts these lanes in the place of those in force.
    pub(super) fn replace_lanes(&self, chains: &[LaneChain]) -> Result<(), KernelError> {
        match self {
            Self::Nft { writer, .. } => write::replace_lanes(writer, chains),
            Self::Xt(_) if chains.is_empty() => Ok(()),
            Self::Xt(_) => Err(KernelError::NeedsNftables),
        }
    }

    /// Lets members in or shuts them out. `whole` is what must be in force afterwards, should that fail half-way.
    pub(super) fn change(
        &self,
        elements: &[Element],
        way: Change,
        whole: impl FnOnce() -> Ruleset,
    ) -> Result<(), KernelError> {
        let tables = match self {
            Self::Nft { writer, .. } => {
                let kind = match way {
                    Change::Add => MsgType::Add,
                    Change::Remove => MsgType::Del,
                };
                return write::change_elements(writer, elements, kind);
            }
            Self::Xt(tables) => tables,
        };
        match (tables.change(elements, way), way) {
            (Ok(()), _) => Ok(()),
            // the rules may have been flushed under us: what counts is that nothing of it is left
            (Err(_), Change::Remove) => tables.replace(&whole()),
            (Err(error), Change::Add) => {
                tables.replace(&whole())?;
                Err(error)
            }
        }
    }

    /// Compares what is there with what was asked.
    pub(super) fn check(&self, rules: &Ruleset, lanes: &[LaneChain]) -> Result<(), KernelError> {
        match self {
            Self::Nft { reader, ns, .. } => {
                let found = read::everything(reader).act("reading the rules back")?;
                check::check(rules, lanes, &found)?;
                xt::strangers(ns)?.map_or(Ok(()), |stranger| Err(stranger.into()))
            }
            Self::Xt(tables) => {
                tables.check(rules)?;
                let strangers = tables.ns().tables()?;
                if strangers.is_empty() {
                    return Ok(());
                }
                let found = strangers.join(" ");
                Err(Mismatch::new("tables of nf_tables", "none", found).into())
            }
        }
    }

    /// Counts of dropped and refused packets by kind.
    pub(super) fn counters(&self) -> Result<Vec<(String, Counter)>, KernelError> {
        match self {
            Self::Nft { reader, .. } => read::counters(reader).act("reading the counters"),
            Self::Xt(tables) => tables.counters(),
        }
    }

    /// The rules as text: as asked for where they are nf_tables', as the programs print them where they are iptables'.
    pub(super) fn text(&self, rules: &Ruleset, lanes: &[LaneChain]) -> String {
        let head = format!("# enforcement: {}\n", self.backend().as_str());
        let text = match self {
            Self::Nft { .. } => rules.render() + &lanes::render(lanes),
            Self::Xt(tables) => tables
                .text()
                .unwrap_or_else(|error| format!("# {}\n", with_causes(&error))),
        };
        head + &text
    }

    /// Takes everything away.
    pub(super) fn delete(&self) -> Result<(), KernelError> {
        match self {
            Self::Nft { writer, .. } => {
                write::replace_lanes(writer, &[])?;
                write::delete(writer)
            }
            Self::Xt(tables) => tables.clear(),
        }
    }
}

/// An error and what caused it, on one line.
fn with_causes(error: &KernelError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Tries the native expression, then the compatibility target, by applying a table that holds it. The namespace has no
/// links yet, or links without elements in sealed rules: nothing passes meanwhile.
fn detect_queue(writer: &Socket, trial: &Trial<'_>) -> Result<Queue, KernelError> {
    for queue in [Queue::Native(trial.number), Queue::Compat(trial.number)] {
        match write::replace(writer, &(trial.enforcing)(queue)) {
            Ok(()) => return Ok(queue),
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {}
            Err(error) => {
                tracing::debug!(%error, "the namespace refused a ruleset");
                return Err(error);
            }
        }
    }
    Ok(Queue::None)
}
