//! The JSON Schema of `config.yml`: the sections of gateway and console from their own tables, the runner's from the defaults that it
//! really has, so that a setting that exists is in it.

use runner::RunnerConfig;
use serde_json::{Map, Value, json};

/// What a setting of the runner means.
const HELP: &[(&str, &str)] = &[
    (
        "engine",
        "`auto`, `docker`, `podman` or the absolute path of a socket.",
    ),
    (
        "pool",
        "Wired holders kept ready; each costs one idle process and makes a start faster.",
    ),
    ("max_runs", "Runs at the same time; more are refused."),
    (
        "control",
        "The gateway's control socket. Without it the one of the gateway section.",
    ),
    ("socket", "Unix socket of the runner's API."),
    (
        "state_dir",
        "Folder of what must survive a restart; the same path for the engine.",
    ),
    (
        "run_dir",
        "Folder of sockets and per-run files; the same path for the engine.",
    ),
    ("limits", "Defaults and ceilings of a run."),
];

/// The schema (2020-12).
pub fn document() -> Value {
    let mut gateway = gateway::config::schema();
    if let Some(section) = gateway.as_object_mut() {
        section.remove("$schema");
    }
    let runner = serde_json::to_value(RunnerConfig::default()).unwrap_or_default();
    let mut properties = Map::new();
    properties.insert("gateway".into(), gateway);
    properties.insert("runner".into(), object(&runner));
    for (name, section) in console::settings::schemas() {
        properties.insert(name.into(), section);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sallyport configuration",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn object(defaults: &Value) -> Value {
    let mut properties = Map::new();
    for (key, default) in defaults.as_object().into_iter().flatten() {
        let mut property = kind(default);
        if let (Some(map), Some((_, help))) = (
            property.as_object_mut(),
            HELP.iter().find(|(known, _)| known == key),
        ) {
            map.insert("description".into(), (*help).into());
        }
        properties.insert(key.clone(), property);
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn kind(default: &Value) -> Value {
    match default {
        Value::Object(_) => object(default),
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
    fn every_setting_is_in_the_schema_and_unknown_ones_are_not_allowed() {
        let schema = document();
        for (section, key) in [
            ("gateway", "control"),
            ("gateway", "namespace"),
            ("runner", "pool"),
            ("console", "database"),
            ("app", "url"),
            ("auth", "email_password"),
            ("workspaces", "enabled"),
            ("runner", "socket"),
        ] {
            let property = &schema["properties"][section]["properties"][key];
            assert!(
                property["description"].is_string(),
                "{section}.{key}: {property}"
            );
        }
        for section in ["gateway", "runner", "console", "app", "auth", "workspaces"] {
            assert_eq!(
                schema["properties"][section]["additionalProperties"], false,
                "{section}"
            );
        }
    }

    #[test]
    fn every_setting_of_the_runner_is_explained() {
        let defaults = serde_json::to_value(RunnerConfig::default()).unwrap();
        let keys: Vec<&String> = defaults.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), HELP.len(), "{keys:?}");
        assert!(HELP.iter().all(|(key, _)| defaults.get(key).is_some()));
    }
}
