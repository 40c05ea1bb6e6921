//! Adding up: rates between two looks, bytes by name, denials by reason. Bounded, whatever sandboxes do.

use std::collections::{BTreeMap, HashMap};

use gateway::control::api::{FlowView, NetworkView};
use gateway::record::{Entry, Line};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::what::destination;

/// Names and denials remembered for one network; what comes after is added up as one.
const MOST: usize = 256;
/// Where what has no place any more is added up.
const OTHERS: &str = "(others)";
/// Names and denials shown in JSON.
const SHOWN: usize = 10;

/// One network.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Policy and its generation.
    pub policy: String,
    /// Live flows.
    pub flows: usize,
    /// Bytes from it and to it, in all.
    pub total: [u64; 2],
    /// Bytes a second.
    pub rate: [u64; 2],
    /// Bytes by name: of live flows, and of those that ended since watching began.
    pub names: Vec<(String, u64)>,
    /// Denials since watching began, by reason and destination, most first.
    pub denials: Vec<(String, String, u64)>,
    /// Denials since the last look.
    pub denied_now: u64,
}

#[derive(Debug, Default)]
struct Of {
    seen: Option<(Instant, [u64; 2])>,
    ended: HashMap<String, u64>,
    denials: HashMap<(String, String), u64>,
    denied_now: u64,
    row: Row,
    present: bool,
}

/// Everything that is shown.
#[derive(Debug, Default)]
pub struct Model {
    wanted: Vec<String>,
    of: BTreeMap<String, Of>,
}

impl Model {
    /// Of these networks, or of all.
    pub fn new(wanted: &[String]) -> Self {
        Self {
            wanted: wanted.to_vec(),
            of: BTreeMap::new(),
        }
    }

    /// Takes in a look at all networks.
    pub fn networks(&mut self, networks: &[NetworkView], flows: &[FlowView], now: Instant) {
        for of in self.of.values_mut() {
            of.present = false;
        }
        for network in networks
            .iter()
            .filter(|n| wants(&self.wanted, n.id.as_str()))
        {
            let name = network.id.to_string();
            let of = self.of.entry(name.clone()).or_default();
            let total = [network.used.upload, network.used.download];
            let rate = of
                .seen
                .map_or([0, 0], |(then, before)| rates(before, total, now - then));
            of.seen = Some((now, total));
            of.present = true;
            let mut names = of.ended.clone();
            for flow in flows.iter().filter(|f| f.network == network.id) {
                let to = flow
                    .name
                    .clone()
                    .unwrap_or_else(|| flow.destination.ip().to_string());
                add(
                    &mut names,
                    to,
                    flow.up.saturating_add(flow.down),
                    OTHERS.to_owned(),
                );
            }
            of.row = Row {
                name,
                policy: format!("{} g{}", network.policy_name, network.generation.0),
                flows: network.flows,
                total,
                rate,
                names: most(names),
                denials: most(of.denials.clone())
                    .into_iter()
                    .map(|((r, d), n)| (r, d, n))
                    .collect(),
                denied_now: of.denied_now,
            };
        }
        // a network that is gone takes its sums along, or a run a second would grow this without end
        self.of.retain(|_, of| of.present);
    }

    /// Takes in a record.
    pub fn record(&mut self, line: &Line) {
        let (subject, count, reason) = match &line.entry {
            Entry::Close(close) => {
                let name = close.subject.network.as_str();
                if wants(&self.wanted, name) {
                    let of = self.of.entry(name.to_owned()).or_default();
                    let to = close.subject.name.clone();
                    let to = to.or_else(|| close.subject.address.map(|a| a.to_string()));
                    let to = to.unwrap_or_else(|| OTHERS.to_owned());
                    add(
                        &mut of.ended,
                        to,
                        close.up.saturating_add(close.down),
                        OTHERS.to_owned(),
                    );
                }
                return;
            }
            Entry::Denial(denied) => (&denied.subject, 1, denied.reason),
            Entry::Folded {
                first,
                count,
                failed: false,
            } => (&first.subject, *count, first.reason),
            Entry::Open(_)
            | Entry::Failure(_)
            | Entry::Folded { failed: true, .. }
            | Entry::Network(_)
            | Entry::Source(_)
            | Entry::Selftest(_)
            | Entry::Posture { .. }
            | Entry::Gap { .. } => return,
        };
        if wants(&self.wanted, subject.network.as_str()) {
            let of = self.of.entry(subject.network.to_string()).or_default();
            of.denied_now += count;
            let reason = reason.code().to_owned();
            let rest = (reason.clone(), OTHERS.to_owned());
            add(&mut of.denials, (reason, destination(subject)), count, rest);
        }
    }

    /// What was shown is old now.
    pub fn next(&mut self) {
        for of in self.of.values_mut() {
            of.denied_now = 0;
        }
    }

    /// The networks, busiest first, quiet ones by name.
    pub fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .of
            .values()
            .filter(|of| of.present)
            .map(|of| &of.row)
            .collect();
        rows.sort_by_key(|row| {
            (
                std::cmp::Reverse(row.rate[0].saturating_add(row.rate[1])),
                row.name.clone(),
            )
        });
        rows
    }

    /// One look for programs.
    pub fn json(&self, cursor: u64, trouble: Option<&str>) -> Value {
        let row = |row: &Row| {
            json!({
                "name": row.name, "policy": row.policy, "flows": row.flows,
                "up": row.total[0], "down": row.total[1],
                "up_per_second": row.rate[0], "down_per_second": row.rate[1],
                "names": row.names.iter().take(SHOWN).map(|(n, b)| json!({ "name": n, "bytes": b })).collect::<Vec<_>>(),
                "denials": row.denials.iter().take(SHOWN)
                    .map(|(r, d, n)| json!({ "reason": r, "destination": d, "count": n })).collect::<Vec<_>>(),
                "denied_now": row.denied_now,
            })
        };
        json!({ "cursor": cursor, "trouble": trouble, "networks": self.rows().into_iter().map(row).collect::<Vec<_>>() })
    }
}

fn wants(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|w| w == name)
}

fn rates(before: [u64; 2], now: [u64; 2], took: std::time::Duration) -> [u64; 2] {
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let [up, down] = now;
    let [up0, down0] = before;
    // a counter that went back is another network of the same name
    [up.saturating_sub(up0), down.saturating_sub(down0)]
        .map(|bytes| bytes.saturating_mul(1000) / milliseconds)
}

fn add<K: std::hash::Hash + Eq>(to: &mut HashMap<K, u64>, key: K, count: u64, rest: K) {
    let key = if to.len() >= MOST && !to.contains_key(&key) {
        rest
    } else {
        key
    };
    let sum = to.entry(key).or_default();
    *sum = sum.saturating_add(count);
}

fn most<K: Ord>(of: HashMap<K, u64>) -> Vec<(K, u64)> {
    let mut all: Vec<(K, u64)> = of.into_iter().filter(|(_, n)| *n > 0).collect();
    all.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    all
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use super::*;

    /// A network with bytes up and down.
    pub fn network(name: &str, up: u64, down: u64) -> NetworkView {
        serde_json::from_value(json!({
            "id": name, "run": null, "workspace": "default", "v4": "198.18.0.2", "v6": "fd00::2",
            "service_v4": "198.18.0.1", "service_v6": "fd00::1", "policy": "01".repeat(32),
            "job_policy": "01".repeat(32), "policy_name": "web", "generation": 3, "names": "leased",
            "attached_ms": 1, "flows": 2,
            "used": { "upload": up, "download": down, "names": 1, "records": 1 },
        }))
        .unwrap()
    }

    /// A denial of a name.
    pub fn denial(network: &str, name: &str) -> Line {
        serde_json::from_value(json!({
            "seq": 1, "t": 1, "prev": "", "hash": "", "kind": "denial", "reason": "name_denied",
            "subject": { "network": network, "door": "dns", "direction": "egress", "protocol": "udp",
                "source": "198.18.0.9:1", "name": name, "port": 0 },
            "policy": "01".repeat(32), "generation": 1,
        }))
        .unwrap()
    }

    #[test]
    fn rates_are_differences_and_the_busiest_comes_first() {
        let (mut model, begin) = (Model::new(&[]), Instant::now());
        model.networks(&[network("a", 0, 0), network("b", 0, 0)], &[], begin);
        model.networks(
            &[network("a", 10, 0), network("b", 0, 4096)],
            &[],
            begin + Duration::from_secs(2),
        );
        let rows = model.rows();
        assert_eq!((rows[0].name.as_str(), rows[0].rate), ("b", [0, 2048]));
        assert_eq!(rows[1].rate, [5, 0]);
        model.networks(&[network("a", 0, 0)], &[], begin + Duration::from_secs(3));
        assert_eq!(model.rows().len(), 1, "b is gone");
        assert_eq!(
            model.rows()[0].rate,
            [0, 0],
            "a new network of the same name has no negative rate"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_goes_uncounted() {
        let mut model = Model::new(&[]);
        for n in 0..5000 {
            model.record(&denial("a", &format!("x{n}.evil.example")));
        }
        model.networks(&[network("a", 0, 0)], &[], Instant::now());
        let row = model.rows()[0].clone();
        assert!(row.denials.len() <= MOST + 1);
        assert_eq!(row.denials.iter().map(|(_, _, n)| n).sum::<u64>(), 5000);
        assert_eq!(row.denied_now, 5000);
        assert_eq!(row.denials[0].1, OTHERS);
    }

    #[test]
    fn only_the_named_networks_are_watched() {
        let mut model = Model::new(&["b".to_owned()]);
        model.record(&denial("a", "x.example"));
        model.networks(
            &[network("a", 1, 1), network("b", 1, 1)],
            &[],
            Instant::now(),
        );
        assert_eq!(
            model
                .rows()
                .iter()
                .map(|r| r.name.as_str())
                .collect::<Vec<_>>(),
            ["b"]
        );
    }
}
