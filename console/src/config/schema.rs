//! The JSON Schema of `config.yml`: each section from the table that its checker uses, so that they cannot disagree.

use netpolicy::document::json_schema;
use serde_json::{Map, Value, json};

/// The schema (2020-12).
pub fn document() -> Value {
    let runner = json_schema(
        &runner::config::SHAPE,
        "Sallyport runner",
        "The `runner` section of Sallyport's configuration.",
    );
    let mut properties = Map::new();
    properties.insert("gateway".into(), part(gateway::config::schema()));
    properties.insert("runner".into(), part(runner));
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

/// A whole schema as a part of another.
fn part(mut schema: Value) -> Value {
    if let Some(section) = schema.as_object_mut() {
        section.remove("$schema");
    }
    schema
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
}
