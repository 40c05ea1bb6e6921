//! What would become of a destination on a live network, now: netpolicy's own words about the policy in force, and what
//! the gateway knows beside it.
//!
//! Nothing is looked up: a question must not become a packet. What was looked up before and still holds is supposed;
//! an address of the pools stands for its name; a budget that is used up, a sealed gateway and the last denial of the
//! same destination are told. Owns no decision: where the gateway's own state decides, it is asked as a door asks it.

use netpolicy::decide::Snapshot;
use netpolicy::explain::{Asked, Decision, Explanation, Question, explain as explained};
use netpolicy::ids::Generation;
use netpolicy::name::{Host, Name};
use netpolicy::reason::Reason;
use serde::{Deserialize, Serialize};

use super::api::{ExplainRequest, Problem};
use crate::context::{Context, now, now_ms};
use crate::network::Network;
use crate::network::recent::Last;

/// An explanation on a live network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    /// What the policy in force says, or the gateway's own state where that denies what the policy permits.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The policy's generation.
    pub generation: Generation,
    /// Its hash.
    pub hash: String,
    /// Whether it explains itself to its sandbox: who answers a sandbox leaves policy and rule out if not.
    pub explains: bool,
    /// The reason in a sentence.
    pub help: Option<String>,
    /// Addresses that the gateway knows for the name, from an earlier look-up. Not for a sandbox: they may be a LAN's.
    pub known: Vec<std::net::IpAddr>,
    /// What else there is to know, in sentences.
    pub remarks: Vec<String>,
}

/// Explains on the policy that is in force now.
pub fn explain(
    ctx: &Context,
    network: &Network,
    request: &ExplainRequest,
) -> Result<serde_json::Value, Problem> {
    let mut question = question(request)?;
    let live = network.live.load();
    let stands_for = stand_for(network, &mut question);
    let known = suppose(ctx, network, &mut question);
    let mut explanation = explained(&live.snapshot, &question, now());
    let mut remarks: Vec<String> = stands_for.into_iter().chain(known.remark).collect();
    let last = network
        .recent
        .find(&question.to, question.port, question.protocol);
    let own = own_denial(ctx, network, &live.snapshot, &question, &explanation)
        .or_else(|| earlier_denial(&question, &explanation, last.as_ref(), live.generation));
    if let Some((reason, why)) = own {
        explanation.summary = format!(
            "{} The policy itself permits it: {}",
            why, explanation.summary
        );
        explanation.change = change_of(reason);
        explanation.decision = Decision::Deny;
        explanation.reason = Some(reason);
        // no line of a policy did that
        (explanation.rule, explanation.policy) = (None, None);
        (explanation.layer, explanation.class) = (None, None);
    } else if explanation.decision == Decision::Permit
        && matches!(question.to, Host::Name(_))
        && question.resolves_to.is_empty()
    {
        remarks.push(
            "no address of it is known now: that holds if it leads to permitted addresses only"
                .to_owned(),
        );
    }
    remarks.extend(last.map(|last| told(&last, live.generation)));
    let answer = Live {
        help: explanation.reason.map(|reason| reason.help().to_owned()),
        explanation,
        generation: live.generation,
        hash: live.snapshot.hash().to_string(),
        explains: live.snapshot.explains(),
        known: known.addresses,
        remarks,
    };
    serde_json::to_value(answer).map_err(|e| Problem::new(500, "internal", e.to_string()))
}

/// An address that a name was answered with is that name, as at the doors. Says so.
fn stand_for(network: &Network, question: &mut Question) -> Option<String> {
    let Host::Address(address) = question.to else {
        return None;
    };
    if let Some(name) = network.leases.find(address) {
        let said = format!("{address} stands for {name} in this network");
        question.to = Host::Name(name);
        return Some(said);
    }
    question.unleased = network.leases.in_pool(address);
    question.bound = network.leases.bound(address);
    None
}

/// What an earlier look-up left.
#[derive(Default)]
struct Known {
    addresses: Vec<std::net::IpAddr>,
    remark: Option<String>,
}

/// Supposes what the resolver said before, if it still holds and the question supposes nothing itself.
fn suppose(ctx: &Context, network: &Network, question: &mut Question) -> Known {
    let Host::Name(name) = &question.to else {
        return Known::default();
    };
    if !question.resolves_to.is_empty() {
        return Known::default();
    }
    let at = std::time::Instant::now();
    let Some(found) = ctx.resolver.known(&network.scope, name, at) else {
        return Known::default();
    };
    if found.no_name() {
        let remark = Some("the resolver said that there is no such name".to_owned());
        return Known {
            remark,
            ..Known::default()
        };
    }
    question.resolves_to = found.all.to_vec();
    question.aliases = found.aliases.to_vec();
    Known {
        addresses: found.all.to_vec(),
        remark: None,
    }
}

/// What the gateway's own state denies although the policy permits it, as the doors find out.
fn own_denial(
    ctx: &Context,
    network: &Network,
    s: &Snapshot,
    question: &Question,
    explanation: &Explanation,
) -> Option<(Reason, String)> {
    if !*ctx.open.borrow() {
        return Some(with_help(Reason::GatewaySealed));
    }
    if explanation.decision == Decision::Deny {
        return None;
    }
    let names = s.limits().names.unwrap_or(crate::limits::NAMES);
    let may_ask = |name: &Name| network.leases.may_ask(name, &network.ledger, names);
    if let Some(reason) = network.ledger.used_up() {
        return Some(with_help(reason));
    }
    match &question.to {
        Host::Name(name) if !may_ask(name) => Some(with_help(Reason::LimitNames)),
        Host::Name(_) | Host::Address(_) => None,
    }
}

/// A name whose addresses were refused a while ago, and that nobody asked for since: nothing better is known.
fn earlier_denial(
    question: &Question,
    explanation: &Explanation,
    last: Option<&Last>,
    generation: Generation,
) -> Option<(Reason, String)> {
    let last = last.filter(|last| !last.failed && last.generation == generation)?;
    let of_answers = matches!(
        last.reason,
        Reason::NameResolvesToForbidden | Reason::AddressDenied | Reason::NameDenied
    );
    let unknown = question.resolves_to.is_empty() && matches!(question.to, Host::Name(_));
    let applies = of_answers && unknown && explanation.decision == Decision::Permit;
    applies.then(|| with_help(last.reason))
}

fn with_help(reason: Reason) -> (Reason, String) {
    (reason, reason.help().to_owned())
}

/// What would change a denial of the gateway's own.
fn change_of(reason: Reason) -> Option<String> {
    let limit = match reason {
        Reason::LimitUpload => "upload",
        Reason::LimitDownload => "download",
        Reason::LimitRecords => "records",
        Reason::LimitNames => "names",
        Reason::LimitFlows => "flows",
        _ => return None,
    };
    Some(format!(
        "Raise `limits.{limit}` in every layer that sets it."
    ))
}

/// The last denial, in a sentence.
fn told(last: &Last, generation: Generation) -> String {
    let seconds = now_ms().saturating_sub(last.at_ms).max(0) / 1000;
    let what = match (last.failed, last.port) {
        (true, None) => "its last look-up failed".to_owned(),
        (false, None) => "its last look-up was denied".to_owned(),
        (true, Some(port)) => format!("the last flow to port {port} failed"),
        (false, Some(port)) => format!("the last flow to port {port} was denied"),
    };
    let under = if last.generation == generation {
        String::new()
    } else {
        format!(
            ", under an earlier policy (generation {})",
            last.generation.0
        )
    };
    format!("{what} {seconds} s ago: {}{under}", last.reason.code())
}

/// Reads the question. A URL gives host, port and path.
fn question(request: &ExplainRequest) -> Result<Question, Problem> {
    let bad = |message: String| Problem::new(400, "bad_request", message);
    let asked = Asked::parse(&request.destination, request.protocol)
        .map_err(|e| bad(e.to_string()).hint(e.hint()))?;
    let sni = request.sni.as_deref().map(Name::parse).transpose();
    let sni = sni.map_err(|e| bad(format!("the server name is none: {e}")))?;
    let is_name = matches!(asked.host, Host::Name(_));
    Ok(Question {
        sni: sni.filter(|_| request.protocol.has_ports()),
        resolves_to: request.resolves_to.clone(),
        method: request.method.clone(),
        path: request.path.clone().or(asked.path.filter(|_| is_name)),
        ..Question::new(asked.host, asked.port, request.protocol)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netpolicy::policy::Protocol;

    fn asked(destination: &str) -> Result<Question, Problem> {
        question(&ExplainRequest {
            destination: destination.to_owned(),
            protocol: Protocol::Tcp,
            sni: None,
            resolves_to: Vec::new(),
            method: None,
            path: None,
        })
    }

    #[test]
    fn destinations_are_read_strictly_and_urls_give_port_and_path() {
        for text in [
            "example.com:0",
            "user@example.com:443",
            "0x7f.1:80",
            "::1:80",
            "ftp://example.com",
            "",
            "https://",
            "a b:80",
        ] {
            assert_eq!(asked(text).unwrap_err().status, 400, "{text:?}");
        }
        assert_eq!(asked("example.com:8443").unwrap().port, 8443);
        assert_eq!(asked("example.com").unwrap().port, 443);
        let url = asked("https://example.com/a/b?c=d#e").unwrap();
        assert_eq!((url.port, url.path.as_deref()), (443, Some("/a/b")));
        assert_eq!(asked("http://example.com").unwrap().port, 80);
    }

    #[test]
    fn every_budget_names_what_raises_it() {
        for reason in [
            Reason::LimitUpload,
            Reason::LimitDownload,
            Reason::LimitNames,
            Reason::LimitRecords,
            Reason::LimitFlows,
        ] {
            assert!(change_of(reason).is_some(), "{reason}");
        }
        assert_eq!(change_of(Reason::GatewaySealed), None);
    }
}
