//! The policy that a job's network setting means, and the request that its runner gets.

use std::fmt::Write;

use gateway::control::PolicySource;
use netpolicy::document::{self, Mistake};
use netpolicy::policy::{self, Policy};
use runner::{IsolationChoice, JobRequest, Takes};

use super::spec::{IsolationWord, JobSpec, NetworkMode, NetworkSpec};

/// What mistakes and records call the policy of a job.
pub const POLICY_FILE: &str = "job.yaml";
/// What they call the policy that a list of domains means.
pub const DOMAINS_FILE: &str = "domains.yaml";

impl NetworkMode {
    /// The word in policy files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Domains => "domains",
            Self::Internet => "internet",
        }
    }

    /// The setting of a policy.
    pub const fn of(mode: policy::NetworkMode) -> Self {
        match mode {
            policy::NetworkMode::None => Self::None,
            policy::NetworkMode::Domains => Self::Domains,
            policy::NetworkMode::Internet => Self::Internet,
        }
    }
}

impl NetworkSpec {
    /// The policy as the gateway takes it.
    pub fn source(&self) -> PolicySource {
        if let Some(policy) = &self.policy_name {
            return PolicySource::Git {
                source: None,
                policy: policy.clone(),
                hash: None,
                packages: None,
            };
        }
        match (&self.policy, self.mode, self.allow_private) {
            (Some(text), ..) => document(POLICY_FILE, text.clone()),
            (None, NetworkMode::None, _) => PolicySource::Preset("none".to_owned()),
            (None, NetworkMode::Internet, false) => PolicySource::Preset("internet".to_owned()),
            (None, NetworkMode::Internet, true) => {
                PolicySource::Preset("internet-private".to_owned())
            }
            (None, NetworkMode::Domains, _) => document(DOMAINS_FILE, self.domains_text()),
        }
    }

    /// The document that a list of domains means. A text in quotes of JSON is one in YAML.
    fn domains_text(&self) -> String {
        let mut text = format!(
            "policy: job-domains\nnetwork: domains\nprivate: {}\nallow:\n",
            self.allow_private
        );
        for domain in &self.domains {
            let host = serde_json::Value::from(domain.as_str());
            let _ = writeln!(text, "  - host: {host}");
        }
        if self.domains.is_empty() {
            text = text.replace("allow:\n", "allow: []\n");
        }
        text
    }

    /// The checked policy; `None`: it is in a source that only the gateway reads.
    pub fn policy(&self) -> Option<Result<Policy, Vec<Mistake>>> {
        match self.source() {
            PolicySource::Preset(name) => document::preset(&name).map(Ok),
            PolicySource::Document { file, text, .. } => Some(document::parse(&file, &text, None)),
            PolicySource::Git { .. } => None,
        }
    }
}

fn document(file: &str, text: String) -> PolicySource {
    PolicySource::Document {
        file: file.to_owned(),
        text,
        packages: None,
    }
}

impl JobSpec {
    /// What a runner is asked to run. Secrets are not in it; `workspace` chooses the floor.
    pub fn request(&self, workspace: &str) -> JobRequest {
        JobRequest {
            policy: self.network.source(),
            command: self.command.clone(),
            image: self.image.clone(),
            isolation: self.isolation.map(|word| match word {
                IsolationWord::Auto => IsolationChoice::Auto,
                IsolationWord::Hardened => IsolationChoice::Hardened,
                IsolationWord::Gvisor => IsolationChoice::Gvisor,
            }),
            root: self.root,
            timeout_seconds: self.limits.timeout_seconds,
            memory_mib: self.limits.memory_mib,
            cpu_millis: self.limits.cpu_millis,
            pids: self.limits.pids,
            env: self.env.clone().into_iter().collect(),
            workdir: self.workdir.clone(),
            workspace: workspace.to_owned(),
            takes: Takes {
                files: false,
                stdin: self.input,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_tries_to_be_more_than_one_line_is_a_mistake_and_no_rule() {
        for hostile in [
            "a.example\n  - host: b.example",
            "\"",
            "x\", ports: any, z: \"",
            "{}",
            "*",
            "",
            "a b",
        ] {
            let network = NetworkSpec {
                mode: NetworkMode::Domains,
                domains: vec![hostile.to_owned()],
                ..NetworkSpec::default()
            };
            assert!(network.policy().unwrap().is_err(), "{hostile:?}");
        }
        let network = NetworkSpec {
            mode: NetworkMode::Domains,
            domains: vec!["a.example".to_owned(), "*.b.example".to_owned()],
            ..NetworkSpec::default()
        };
        assert_eq!(network.policy().unwrap().unwrap().allow.len(), 2);
        let none = NetworkSpec {
            domains: Vec::new(),
            ..network
        };
        assert_eq!(none.policy().unwrap().unwrap().allow.len(), 0);
    }

    #[test]
    fn every_setting_is_a_policy_that_says_the_same() {
        for mode in [
            NetworkMode::None,
            NetworkMode::Domains,
            NetworkMode::Internet,
        ] {
            for allow_private in [false, true] {
                let network = NetworkSpec {
                    mode,
                    allow_private,
                    ..NetworkSpec::default()
                };
                let policy = network.policy().unwrap().unwrap();
                assert_eq!(NetworkMode::of(policy.network), mode);
                assert_eq!(policy.private, allow_private && mode != NetworkMode::None);
            }
        }
    }
}
