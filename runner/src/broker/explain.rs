//! `GET /v1/net/explain`: hands the question to the gateway, for the network that asks, and puts the answer into words.
//!
//! The destination is a sandbox's text: bounded, decoded once, passed on as one JSON string.

use std::fmt::Write as _;

use gateway::control::Client;
use gateway::control::api::ExplainRequest;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use netpolicy::ids::NetworkId;
use netpolicy::policy::Protocol;
use serde_json::Value;

use super::{Answer, plain, text};

/// The longest name has 253 characters, with port and brackets; a URL may be longer.
const LONGEST_DESTINATION: usize = 2048;

/// How the answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Answers `dest=...` for a network.
pub async fn answer(query: &str, form: Form, network: &NetworkId, gateway: &Client) -> Answer {
    let Some(destination) = destination(query) else {
        return text(
            StatusCode::BAD_REQUEST,
            "ask for one destination: /v1/net/explain?dest=HOST:PORT\n",
        );
    };
    let request = ExplainRequest {
        destination,
        protocol: Protocol::Tcp,
        sni: None,
        resolves_to: Vec::new(),
        method: None,
        path: None,
    };
    match gateway.explain(network, &request).await {
        Ok(mut explanation) => {
            keep_quiet(&mut explanation);
            let decision = explanation
                .get("decision")
                .and_then(Value::as_str)
                .unwrap_or("deny")
                .to_owned();
            let mut answer = match form {
                Form::Text => text(StatusCode::OK, words(&request.destination, &explanation)),
                Form::Json => plain(StatusCode::OK, "application/json", explanation.to_string()),
            };
            if let Ok(value) = HeaderValue::from_str(&decision) {
                answer.headers_mut().insert("sallyport-decision", value);
            }
            answer
        }
        Err(error) => match error.problem() {
            Some(problem) if problem.status < 500 => {
                text(StatusCode::BAD_REQUEST, format!("{}\n", problem.message))
            }
            _ => {
                tracing::warn!(%error, %network, "explaining a destination");
                text(StatusCode::BAD_GATEWAY, "the gateway does not answer\n")
            }
        },
    }
}

/// What no sandbox is told: addresses that the gateway found, which may be a LAN's, in whatever sentence they stand. And
/// what a policy with `explain: false` does not tell: who decided, where, and what would change it.
fn keep_quiet(explanation: &mut Value) {
    let known = explanation
        .as_object_mut()
        .and_then(|keys| keys.remove("known"));
    let found = known.is_some_and(|known| known.as_array().is_some_and(|list| !list.is_empty()));
    if let Some(keys) = explanation.as_object_mut().filter(|_| found) {
        keys.insert("summary".to_owned(), Value::Null);
    }
    let tells = explanation.get("explains").and_then(Value::as_bool) == Some(true);
    let Some(keys) = explanation.as_object_mut().filter(|_| !tells) else {
        return;
    };
    for key in ["rule", "policy", "layer", "summary", "change", "hash"] {
        keys.insert(key.to_owned(), Value::Null);
    }
}

/// The decoded destination, with a port.
fn destination(query: &str) -> Option<String> {
    let raw = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("dest="))?;
    let decoded = percent_decode(raw)?;
    let fits = !decoded.is_empty()
        && decoded.len() <= LONGEST_DESTINATION
        && !decoded.chars().any(char::is_control);
    fits.then_some(decoded)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// The explanation for people: decision, reason, the line that made it, what would change it.
fn words(destination: &str, explanation: &Value) -> String {
    let get = |key: &str| explanation.get(key).and_then(Value::as_str);
    let mut out = format!("{destination}: {}", get("decision").unwrap_or("unknown"));
    if let Some(reason) = get("reason") {
        let _ = write!(out, " ({reason})");
    }
    out.push('\n');
    let rule = explanation.get("rule");
    let file = rule
        .and_then(|rule| rule.get("file"))
        .and_then(Value::as_str);
    let line = rule
        .and_then(|rule| rule.get("line"))
        .and_then(Value::as_u64);
    if let (Some(file), Some(line)) = (file, line) {
        let layer = get("layer").map_or_else(String::new, |layer| format!(" ({layer} policy)"));
        let commit = rule.and_then(|rule| rule.get("commit"));
        let commit = commit
            .and_then(Value::as_str)
            .map(|commit| format!(" of commit {commit}"))
            .unwrap_or_default();
        let _ = writeln!(out, "  decided by {file}:{line}{commit}{layer}");
    }
    if let Some(generation) = explanation.get("generation").and_then(Value::as_u64) {
        let _ = writeln!(out, "  policy generation: {generation}");
    }
    for (key, label) in [
        ("policy", "policy"),
        ("class", "address class"),
        ("help", "help"),
        ("change", "what would change it"),
    ] {
        if let Some(value) = get(key) {
            let _ = writeln!(out, "  {label}: {value}");
        }
    }
    let remarks = explanation.get("remarks").and_then(Value::as_array);
    for remark in remarks.into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(out, "  note: {remark}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_generation_layer_file_and_line_unless_the_policy_keeps_quiet() {
        let full = |explains: bool| {
            serde_json::json!({
                "decision": "deny", "reason": "name_denied", "layer": "instance", "policy": "floor",
                "rule": { "file": "floor.yml", "line": 7 }, "summary": "denied by floor.yml:7",
                "change": "remove floor.yml:7", "generation": 3, "hash": "00ff", "explains": explains,
            })
        };
        let mut told = full(true);
        keep_quiet(&mut told);
        let shown = words("x.example:443", &told);
        for part in [
            "floor.yml:7 (instance policy)",
            "policy generation: 3",
            "policy: floor",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for mut quiet in [
            full(false),
            serde_json::json!({ "decision": "deny", "policy": "floor" }),
        ] {
            keep_quiet(&mut quiet);
            let shown = format!("{}{}", words("x.example:443", &quiet), quiet);
            assert!(
                shown.contains("deny") && !shown.contains("floor") && !shown.contains("00ff"),
                "{shown}"
            );
        }
    }

    #[test]
    fn addresses_that_the_gateway_found_stay_outside_and_its_remarks_come_in() {
        let mut told = serde_json::json!({
            "decision": "deny", "reason": "name_resolves_to_forbidden", "explains": true, "policy": "p",
            "summary": "one of its addresses (10.0.0.5) is a private address", "known": ["10.0.0.5"],
            "remarks": ["its last look-up was denied 3 s ago: name_resolves_to_forbidden"],
        });
        keep_quiet(&mut told);
        let shown = format!("{}{told}", words("int.example:443", &told));
        assert!(!shown.contains("10.0.0.5"), "{shown}");
        assert!(
            shown.contains("  note: its last look-up was denied 3 s ago"),
            "{shown}"
        );
        assert!(shown.contains("policy: p"), "{shown}");
    }

    #[test]
    fn destination_is_bounded_and_decoded_once() {
        assert_eq!(
            destination("dest=example.com%3A22").as_deref(),
            Some("example.com:22")
        );
        assert_eq!(
            destination("x=1&dest=example.com").as_deref(),
            Some("example.com")
        );
        assert_eq!(
            destination("dest=2001%3Adb8%3A%3A1").as_deref(),
            Some("2001:db8::1")
        );
        assert_eq!(
            destination("dest=https%3A%2F%2Fa.example%2Fx").as_deref(),
            Some("https://a.example/x")
        );
        assert_eq!(destination("dest=%2541").as_deref(), Some("%41"));
        for bad in [
            "",
            "dest=",
            "dest=%0d%0aX",
            "dest=%4",
            "dest=%zz",
            "dest=%ff%fe",
            "other=1",
        ] {
            assert_eq!(destination(bad), None, "{bad}");
        }
        assert_eq!(destination(&format!("dest={}", "a".repeat(3000))), None);
    }

    #[test]
    fn words_name_reason_and_line() {
        let explanation = serde_json::json!({
            "decision": "deny", "reason": "name_not_allowed", "rule": { "file": "p.yaml", "line": 3 }, "policy": "p"
        });
        let text = words("a.example:443", &explanation);
        assert_eq!(
            text,
            "a.example:443: deny (name_not_allowed)\n  decided by p.yaml:3\n  policy: p\n"
        );
    }
}
