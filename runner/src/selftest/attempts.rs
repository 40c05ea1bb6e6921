//! What is tried from inside a container, and what becomes of what the probe says.
//!
//! The probe is not believed more than it must be: what did not answer has failed, whatever else it prints is passed
//! over, and where something must or must not arrive the listener outside has the last word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway::control::api::{Check, Family, Outcome, Variant};
use gateway::selftest::frames::{NOBODY4, NOBODY6};
use serde::{Deserialize, Serialize};

/// Longest text of a probe that a row shows.
pub const LONGEST: usize = 200;

/// One attempt as the probe reads it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Attempt {
    act: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "String::is_empty")]
    mark: String,
    #[serde(skip)]
    check: &'static str,
    #[serde(skip)]
    family: Family,
    #[serde(skip)]
    promise: &'static str,
}

/// What stands ready outside for one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Which family.
    pub family: Family,
    /// An address of the machine, with the port that is permitted and the one that is not.
    pub host: Option<(IpAddr, u16, u16)>,
    /// In the denied datagram, and nowhere else.
    pub mark: String,
}

/// A line of the probe.
#[derive(Deserialize)]
struct Told {
    number: usize,
    ok: bool,
    seen: String,
}

impl Attempt {
    fn new(
        (check, family): (&'static str, Family),
        promise: &'static str,
        act: &'static str,
        to: Option<(String, u16)>,
    ) -> Self {
        let (to, port) = to.unzip();
        Self {
            act,
            to,
            port,
            mark: String::new(),
            check,
            family,
            promise,
        }
    }

    fn marked(mut self, mark: &str) -> Self {
        mark.clone_into(&mut self.mark);
        self
    }

    /// Its row's name and family.
    pub fn row(&self) -> (&'static str, Family) {
        (self.check, self.family)
    }

    /// Its row.
    pub fn came_out(&self, variant: Variant, outcome: Outcome, detail: String) -> Check {
        Check {
            check: self.check.to_owned(),
            family: self.family,
            variant,
            outcome,
            promise: self.promise.to_owned(),
            detail,
        }
    }
}

/// Everything that is tried, in order.
pub fn all(ends: &[Ends], console: &[u16]) -> Vec<Attempt> {
    let both = |check, promise, act| Attempt::new((check, Family::Both), promise, act, None);
    let mut list = vec![
        both(
            "no_other_link",
            "there is no link but the gateway's",
            "links",
        ),
        both(
            "no_capabilities",
            "the sandbox has no capabilities",
            "powers",
        ),
        both(
            "no_engine_socket",
            "no engine's socket is in the sandbox",
            "engine",
        ),
    ];
    for end in ends {
        let v6 = end.family == Family::Ipv6;
        let (service, metadata, nobody): (_, IpAddr, IpAddr) = if v6 {
            let metadata = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
            ("service6", metadata.into(), NOBODY6.into())
        } else {
            let metadata = Ipv4Addr::new(169, 254, 169, 254);
            ("service4", metadata.into(), NOBODY4.into())
        };
        let mut refused = |check, promise, to: String, port| {
            let row = (check, end.family);
            list.push(Attempt::new(row, promise, "refused", Some((to, port))));
        };
        let text = |address: IpAddr| address.to_string();
        let closed = "the metadata service is out of reach";
        refused("metadata", closed, text(metadata), 80);
        let closed = "the gateway's own ports do not answer";
        refused("gateway_ports", closed, service.to_owned(), 22);
        let closed = "the doors do not answer when addressed";
        refused("gateway_door", closed, service.to_owned(), 9040);
        let closed = "a denied connect is refused at once";
        refused("connect_denied", closed, text(nobody), 443);
        if let Some((host, permitted, denied)) = end.host {
            let closed = "the machine's own services are out of reach";
            refused("host_tcp", closed, text(host), denied);
            for port in console {
                let closed = "the console is out of reach";
                refused("console_ports", closed, text(host), *port);
            }
            let row = ("permitted_tcp", end.family);
            let promise = "a permitted connection arrives and is answered";
            let to = Some((text(host), permitted));
            list.push(Attempt::new(row, promise, "echoes", to).marked("selftest"));
        }
        let row = ("udp_denied", end.family);
        let promise = "a denied datagram does not leave by the uplink";
        let to = Some((text(nobody), 9));
        list.push(Attempt::new(row, promise, "sends", to).marked(&end.mark));
    }
    list
}

/// Rows of what the probe said. `outside` says what was seen where the probe has no part: `Some` fails the row.
pub fn rows(
    list: &[Attempt],
    output: &str,
    variant: Variant,
    outside: impl Fn(&Attempt) -> Outside,
) -> Vec<Check> {
    let told: Vec<Told> = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let row = |(number, attempt): (usize, &Attempt)| {
        let said = told.iter().find(|told| told.number == number);
        let (outcome, detail) = match (outside(attempt), said) {
            (Outside::Came(what), _) => (Outcome::Failed, what),
            (_, None) => (
                Outcome::Failed,
                "the probe said nothing about it".to_owned(),
            ),
            (_, Some(told)) if !told.ok => (Outcome::Failed, short(&told.seen)),
            (Outside::Blind(why), Some(_)) => (Outcome::Skipped, why),
            (Outside::Quiet, Some(told)) => (Outcome::Passed, short(&told.seen)),
        };
        attempt.came_out(variant, outcome, detail)
    };
    list.iter().enumerate().map(row).collect()
}

/// What was seen outside of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outside {
    /// Nothing that should not be.
    Quiet,
    /// Something that must not come, or nothing of what must.
    Came(String),
    /// It cannot be seen from here.
    Blind(String),
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Attempt> {
        let end = |family, host: IpAddr| Ends {
            family,
            host: Some((host, 7, 8)),
            mark: format!("mark-{family}"),
        };
        let four = end(Family::Ipv4, [192, 168, 77, 1].into());
        let six = end(Family::Ipv6, Ipv6Addr::LOCALHOST.into());
        all(&[four, six], &[8480])
    }

    fn told(list: &[Attempt], ok: bool) -> String {
        let line = |n| format!("{{\"number\":{n},\"ok\":{ok},\"seen\":\"x\"}}\n");
        (0..list.len()).map(line).collect()
    }

    #[test]
    fn each_row_fails_when_the_probe_reaches_it_or_says_nothing_and_passes_only_otherwise() {
        let list = list();
        let quiet = |_: &Attempt| Outside::Quiet;
        let of = |output: &str| rows(&list, output, Variant::Hardened, quiet);
        let passed = of(&format!("noise\n{}", told(&list, true)));
        assert!(passed.iter().all(|c| c.outcome == Outcome::Passed));
        assert_eq!(passed.len(), 19);
        for output in [told(&list, false), String::new(), "{}\n[]\n".to_owned()] {
            let failed = of(&output);
            assert!(failed.iter().all(|c| c.outcome == Outcome::Failed));
        }
    }

    #[test]
    fn what_arrives_outside_fails_a_row_whatever_the_probe_says_and_what_cannot_be_seen_is_no_pass()
    {
        let list = list();
        let outside = |attempt: &Attempt| match attempt.row() {
            ("host_tcp", _) => Outside::Came("a connection arrived".to_owned()),
            ("udp_denied", _) => Outside::Blind("no rights".to_owned()),
            _ => Outside::Quiet,
        };
        let rows = rows(&list, &told(&list, true), Variant::Gvisor, outside);
        for row in rows {
            let wanted = match row.check.as_str() {
                "host_tcp" => Outcome::Failed,
                "udp_denied" => Outcome::Skipped,
                _ => Outcome::Passed,
            };
            assert_eq!(row.outcome, wanted, "{row:?}");
        }
    }
}
