//! Policies that tests of the DNS door are run under.

use netpolicy::ids::PolicyHash;
use netpolicy::policy::{Limits, NamesMode, NetworkMode, Policy};

/// `network: domains` with these hosts, ports 80 and 443.
pub fn domains(hosts: &[&str]) -> Policy {
    policy(NetworkMode::Domains, hosts, &[])
}

pub fn internet() -> Policy {
    policy(NetworkMode::Internet, &[], &[])
}

pub fn real(policy: Policy) -> Policy {
    Policy {
        names: NamesMode::Real,
        ..policy
    }
}

pub fn with_names(policy: Policy, names: u32) -> Policy {
    Policy {
        limits: Limits {
            names: Some(names),
            ..policy.limits.clone()
        },
        ..policy
    }
}

pub fn policy(network: NetworkMode, allow: &[&str], deny: &[&str]) -> Policy {
    use netpolicy::name::Pattern;
    use netpolicy::policy::{Place, Ports, Protocol, Rule, Selector, Unknown};
    let at = |line: usize| Place {
        file: "lab.yaml".into(),
        line: u32::try_from(line).unwrap(),
        column: 1,
        commit: None,
    };
    let rule = |(index, host): (usize, &&str), ports: &[u16], protocol| Rule {
        to: match host.parse() {
            Ok(net) => Selector::Cidr(net),
            Err(_) => Selector::Host(Pattern::parse(host).unwrap()),
        },
        ports: if ports.is_empty() {
            Ports::any()
        } else {
            Ports(ports.iter().map(|p| *p..=*p).collect())
        },
        protocol,
        speaks: None,
        until: None,
        http: Vec::new(),
        reason: None,
        at: at(10 + index),
    };
    Policy {
        name: "lab".to_owned(),
        description: String::new(),
        network,
        network_at: at(2),
        private: false,
        names: NamesMode::Leased,
        allow: allow
            .iter()
            .enumerate()
            .map(|entry| rule(entry, &[80, 443], Some(Protocol::Tcp)))
            .collect(),
        deny: deny
            .iter()
            .enumerate()
            .map(|entry| rule(entry, &[], None))
            .collect(),
        ingress: Vec::new(),
        limits: Limits::default(),
        secrets: Vec::new(),
        unknown: Unknown::Deny,
        explain: true,
        tests: Vec::new(),
        unenforced: Vec::new(),
        needs_packages: None,
        at: at(1),
        hash: PolicyHash([1; 32]),
    }
}
