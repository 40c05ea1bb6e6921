//! The JSON Schema of `config.yml`, from the defaults that the sections really have: a setting that exists is in it.

use serde_json::{Map, Value, json};

use super::Config;

/// Settings whose default does not show their type, and what a setting means where its name does not say it.
const HELP: &[(&str, &str)] = &[
    ("gateway", "The gateway: the namespace, links, kernel rules, doors, decisions and the record."),
    ("gateway.namespace", "Name of the network namespace that the gateway makes for itself, below /run/netns."),
    ("gateway.control", "Unix socket of the control API."),
    ("gateway.state_dir", "Directory of what must survive a reboot: the record, its key, floors."),
    ("gateway.run_dir", "Directory of what must survive a restart: networks, leases, budgets."),
    ("gateway.pools", "Address pools of sandboxes and of synthetic names."),
    ("gateway.resolvers", "Upstream resolvers, with split DNS by domain; empty uses the system's."),
    ("gateway.host_addresses", "Further addresses that belong to this machine (public ones of a 1:1 NAT)."),
    ("gateway.local_networks", "Further networks that count as private."),
    ("gateway.egress_filter", "`required`, `auto` or `off`; only `required` is enforced yet."),
    ("gateway.uplink", "`host`: the gateway runs in the host's network namespace. `this`: the namespace it is in is meant."),
    ("gateway.enforcement", "`nftables`, `iptables` or `auto`."),
    ("runner", "The runner: sandboxes through the container engine."),
    ("runner.engine", "`auto`, `docker`, `podman` or the absolute path of a socket."),
    ("runner.pool", "Wired holders kept ready; each costs one idle process and makes a start faster."),
    ("runner.max_runs", "Runs at the same time; more are refused."),
    ("runner.control", "The gateway's control socket."),
    ("runner.socket", "Unix socket of the runner's API."),
    ("runner.state_dir", "Directory of what must survive a restart; the same path for the engine."),
    ("runner.run_dir", "Directory of sockets and per-run files; the same path for the engine."),
    ("runner.limits", "Defaults and ceilings of a run."),
];

/// The schema (2020-12).
pub fn document() -> Value {
    let defaults = Config::default();
    let sections = json!({ "gateway": defaults.gateway, "runner": defaults.runner });
    let mut schema = object("", &sections);
    if let Some(top) = schema.as_object_mut() {
        top.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        top.insert("title".into(), "Sallyport configuration".into());
    }
    schema
}

fn object(path: &str, defaults: &Value) -> Value {
    let mut properties = Map::new();
    for (key, default) in defaults.as_object().into_iter().flatten() {
        let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let mut property = kind(&at, default);
        if let (Some(map), Some((_, help))) = (property.as_object_mut(), HELP.iter().find(|(known, _)| *known == at)) {
            map.insert("description".into(), (*help).into());
        }
        properties.insert(key.clone(), property);
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn kind(path: &str, default: &Value) -> Value {
    match default {
        Value::Object(map) if !map.is_empty() => object(path, default),
        Value::Object(_) => json!({ "type": "object" }),
        Value::Bool(_) => json!({ "type": "boolean", "default": default }),
        Value::Number(_) => json!({ "type": "integer", "minimum": 0, "default": default }),
        Value::String(_) => json!({ "type": "string", "default": default }),
        Value::Array(_) => json!({ "type": "array", "default": default }),
        // an option: what it is when it is there, the section knows
        Value::Null => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_defaults_is_in_the_schema_and_unknown_ones_are_not_allowed() {
        let schema = document();
        for (section, key) in [("gateway", "control"), ("gateway", "namespace"), ("runner", "pool"), ("runner", "socket")] {
            let property = &schema["properties"][section]["properties"][key];
            assert!(property.is_object() && property["description"].is_string(), "{section}.{key}: {property}");
        }
        assert_eq!(schema["properties"]["gateway"]["additionalProperties"], false);
    }
}
