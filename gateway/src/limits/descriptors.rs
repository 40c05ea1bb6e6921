//! The process's descriptors, shared out once: every kind of holder has its part, and the parts add up to what there is.
//!
//! Whoever holds a descriptor for longer than a moment is here: with flows alone bounded, users who look, or sandboxes
//! that ask on streams, could take what the gateway verifies its own rules with. A part is a bound and no promise that
//! the kernel has so many. Refuses to own: who may have how much of a part (each holder's own file).

/// Listeners, journal, rule sockets, runtimes, threads inside namespaces, captures, collectors, git.
const OWN: usize = 256;
/// Followers are long-lived, everything else at the control socket lasts milliseconds.
const MOST_CONTROL: usize = 1024;
/// The connection, and what it reads or reaches: a segment of the record, the anchors, a sandbox's own port.
const A_CONTROL: usize = 2;
/// One refusal at the control socket is being told for so many places.
const PLACES_A_REFUSAL: usize = 32;
/// What a network holds while nothing happens: its file of leases, and its namespace or its listener.
const A_NETWORK: usize = 2;
/// Connections that ask the DNS door, over all networks.
const MOST_QUESTIONS: usize = 1024;
/// Handovers to brokers in progress over all networks.
const MOST_HANDOVERS: usize = 512;
/// The connection, its copy, and the connection to the broker.
const A_HANDOVER: usize = 3;
/// Sockets to upstream resolvers that are no network's own.
const MOST_COMMON: usize = 512;
/// Sockets to upstream resolvers that are.
const MOST_LOOKUPS: usize = 4096;
/// What one flow may hold at once: two sockets, and a second attempt of happy eyeballs. A lent pipe is counted by itself.
const A_FLOW: usize = 3;
/// Both ends.
const A_PIPE: usize = 2;
/// No more flows than this, however many descriptors there are: a bound on memory.
const MOST_FLOWS: usize = 262_144;
/// No more pipes than this: each pins memory of the kernel.
const MOST_PIPES: usize = 4096;

/// More than any kernel lets a process have (`fs.nr_open`): what is beyond is not counted with.
const MOST: usize = 1 << 30;

/// How many of each kind there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// Connections at the control socket.
    pub control: usize,
    /// Refusals that are being told there.
    pub refusals: usize,
    /// Networks.
    pub networks: usize,
    /// Connections to the DNS door.
    pub questions: usize,
    /// Connections that are being handed to brokers.
    pub handovers: usize,
    /// Sockets to upstream resolvers for whichever network needs more than its own.
    pub common: usize,
    /// Sockets to upstream resolvers, shared out over the networks.
    pub lookups: usize,
    /// Flows.
    pub flows: usize,
    /// Pipes.
    pub pipes: usize,
}

impl Descriptors {
    /// Shares out what a process with this limit may hold.
    pub fn of(limit: usize) -> Self {
        let limit = limit.min(MOST);
        let rest = limit - OWN.min(limit / 4);
        let sixteenths = |parts: usize| rest / 16 * parts;
        let with_refusals = PLACES_A_REFUSAL * A_CONTROL + 1;
        let control = (sixteenths(2) * PLACES_A_REFUSAL / with_refusals).min(MOST_CONTROL);
        let mut shares = Self {
            control,
            refusals: control / PLACES_A_REFUSAL,
            networks: sixteenths(2) / A_NETWORK,
            questions: sixteenths(1).min(MOST_QUESTIONS),
            handovers: (sixteenths(1) / A_HANDOVER).min(MOST_HANDOVERS),
            common: sixteenths(1).min(MOST_COMMON),
            lookups: sixteenths(2).min(MOST_LOOKUPS),
            flows: 0,
            pipes: 0,
        };
        // a quarter of what is left goes to pipes, the rest to sockets
        let left = rest - shares.held();
        shares.pipes = (left / 4 / A_PIPE).min(MOST_PIPES);
        shares.flows = (left / 4).min(MOST_FLOWS);
        shares
    }

    /// The most that all parts together hold.
    fn held(&self) -> usize {
        self.control * A_CONTROL
            + self.refusals
            + self.networks * A_NETWORK
            + self.questions
            + self.handovers * A_HANDOVER
            + self.common
            + self.lookups
            + self.flows * A_FLOW
            + self.pipes * A_PIPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_never_add_up_to_more_than_there_is_and_leave_the_gateways_own() {
        let odd = (0..5_000).chain([16_384, 20_000, 65_535, 65_536, 524_288, 1 << 20]);
        for limit in odd.chain([usize::MAX / 2, usize::MAX]) {
            let shares = Descriptors::of(limit);
            let own = limit - shares.held();
            assert!(own >= OWN.min(limit / 4), "{limit}: {shares:?}");
        }
    }

    #[test]
    fn every_kind_has_some_under_the_smallest_limit_that_engines_give() {
        let Descriptors {
            control,
            refusals,
            networks,
            questions,
            handovers,
            common,
            lookups,
            flows,
            pipes,
        } = Descriptors::of(1024);
        let parts = [
            control / 8,
            refusals,
            networks / 32,
            questions / 16,
            handovers / 8,
            common / 16,
            lookups / 32,
            flows / 64,
            pipes / 16,
        ];
        assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
    }

    #[test]
    fn where_there_are_plenty_no_bound_but_the_fixed_ones_is_felt() {
        let shares = Descriptors::of(1 << 20);
        let fixed = (shares.control, shares.questions, shares.handovers);
        assert_eq!(fixed, (MOST_CONTROL, MOST_QUESTIONS, MOST_HANDOVERS));
        assert!(shares.networks >= 65_000 && shares.flows > 150_000);
    }
}
