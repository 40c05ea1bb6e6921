//! `sallyport policy explain`: asks the decisions themselves; nothing is looked up and nothing is sent.

use std::net::IpAddr;
use std::sync::Arc;

use clap::Args;
use gateway::control::api::ExplainRequest;
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::explain::{Asked, Decision, Explanation, Question, explain};
use netpolicy::name::Name;
use netpolicy::policy::Protocol;

use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

/// Wrong usage, as clap has it.
const USAGE: u8 = 2;

/// A destination, and what shall be supposed about it.
#[derive(Debug, Args)]
pub struct Destination {
    /// host:port, ip:port (IPv6 in brackets) or a URL; without a port 443 is meant; for `--icmp` a host or an address
    #[arg(value_name = "DEST")]
    place: String,
    /// A UDP flow
    #[arg(long)]
    udp: bool,
    /// An echo (ping); the destination has no port
    #[arg(long, conflicts_with_all = ["udp", "sni", "method", "path"])]
    icmp: bool,
    /// Server name that the client would send, if it is another than the host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// What the resolver would answer; repeat for several
    #[arg(long, value_name = "IP", value_parser = address)]
    resolves_to: Vec<IpAddr>,
    /// HTTP method, in capital letters
    #[arg(long, value_parser = method)]
    method: Option<String>,
    /// HTTP path
    #[arg(long)]
    path: Option<String>,
}

#[derive(Debug, Args)]
pub struct Arguments {
    /// Policy file, or the name of a preset
    #[arg(value_name = "FILE|PRESET")]
    policy: String,
    #[command(flatten)]
    to: Destination,
    /// A floor above the policy (file or preset): the instance's first, then the workspace's
    #[arg(long, value_name = "FILE|PRESET")]
    floor: Vec<String>,
}

fn address(text: &str) -> Result<IpAddr, String> {
    netpolicy::addr::parse_ip(text).map_err(|e| e.to_string())
}

/// Methods are told apart by case (RFC 9110 9.1), so another case is another method, which nobody means.
fn method(text: &str) -> Result<String, String> {
    let capitals = text.to_ascii_uppercase();
    if text.is_empty()
        || !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    {
        return Err("a method is a word in capital letters, such as GET".to_owned());
    }
    if capitals != text {
        return Err(format!(
            "methods are written in capital letters: {capitals}"
        ));
    }
    Ok(capitals)
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    let question = arguments.to.question()?;
    let policy = super::load(&arguments.policy)?;
    let from_image = policy.needs_packages.clone();
    let floors = super::lints::floors(&arguments.floor)?.into_iter();
    let mut layers: Vec<_> = floors
        .map(|(kind, floor)| (kind, Arc::new(floor)))
        .collect();
    layers.push((LayerKind::Job, Arc::new(policy)));
    let snapshot = Snapshot::new(
        layers,
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    );
    let explanation = explain(&snapshot, &question, gateway::context::now());
    match format {
        Format::Json => show::json(&explanation)?,
        Format::Text => print(&arguments.to.place, &explanation)?,
    }
    if let (Some(at), Format::Text, true) =
        (from_image, format, explanation.decision != Decision::Permit)
    {
        show::out(format_args!(
            "{}: note: the set `packages` is read from the image when a run starts; its hosts are not known here",
            clean(&at.to_string())
        ))?;
    }
    Ok(outcome(&explanation))
}

/// A destination that does not pass, or not before a person said yes, is the answer no.
pub fn outcome(explanation: &Explanation) -> Outcome {
    match explanation.decision {
        Decision::Permit => Outcome::Good,
        Decision::Deny | Decision::Ask => Outcome::Negative,
    }
}

/// Says the explanation in sentences.
pub fn print(destination: &str, explanation: &Explanation) -> Result<(), Failure> {
    let word = match explanation.decision {
        Decision::Permit => "permit",
        Decision::Deny => "deny",
        Decision::Ask => "ask",
    };
    let reason = explanation
        .reason
        .map_or_else(String::new, |reason| format!(" ({})", reason.code()));
    show::out(format_args!("{word}{reason}: {}", clean(destination)))?;
    show::out(clean(&explanation.summary))?;
    if let (Some(policy), Some(rule)) = (&explanation.policy, &explanation.rule) {
        let layer = explanation.layer.map_or("", LayerKind::word);
        show::out(format_args!(
            "decided by {layer} policy `{}`, {}",
            clean(policy),
            clean(&rule.to_string())
        ))?;
    }
    explanation
        .change
        .iter()
        .try_for_each(|change| show::out(format_args!("to change it: {}", clean(change))))
}

impl Destination {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.place
    }

    /// What is asked.
    pub fn question(&self) -> Result<Question, Failure> {
        let usage = |message: String| Failure::new(message).code(USAGE);
        let protocol = self.protocol();
        let asked =
            Asked::parse(&self.place, protocol).map_err(|e| usage(e.to_string()).hint(e.hint()))?;
        let mut question = Question::new(asked.host, asked.port, protocol);
        let sni = self.sni.as_deref().map(Name::parse).transpose();
        question.sni = sni.map_err(|e| usage(format!("--sni: {e}")))?;
        question.resolves_to.clone_from(&self.resolves_to);
        question.method.clone_from(&self.method);
        question.path = self.path.clone().or(asked.path);
        // a URL is about a request; without a method it is the one that everybody starts with
        if question.path.is_some() && question.method.is_none() {
            question.method = Some("GET".to_owned());
        }
        Ok(question)
    }

    /// The same for a gateway.
    pub fn request(&self) -> Result<ExplainRequest, Failure> {
        // what is wrong with it is told here, before anybody is asked
        let question = self.question()?;
        Ok(ExplainRequest {
            destination: self.place.clone(),
            protocol: question.protocol,
            sni: self.sni.clone(),
            resolves_to: question.resolves_to,
            method: question.method,
            path: question.path,
        })
    }

    fn protocol(&self) -> Protocol {
        match (self.udp, self.icmp) {
            (_, true) => Protocol::Icmp,
            (true, false) => Protocol::Udp,
            (false, false) => Protocol::Tcp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_in_capital_letters_and_another_case_is_told_so() {
        assert_eq!(method("GET").as_deref(), Ok("GET"));
        assert_eq!(method("VERSION-CONTROL").as_deref(), Ok("VERSION-CONTROL"));
        assert!(method("get").unwrap_err().ends_with("GET"));
        for none in ["", "G T", "GET\n", "/"] {
            assert!(method(none).is_err(), "{none:?}");
        }
    }
}
