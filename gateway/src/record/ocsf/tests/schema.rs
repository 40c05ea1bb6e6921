//! Checks an event against the schema's own tables: attributes, requirements, types, enumerations, constraints.

use std::net::IpAddr;
use std::sync::LazyLock;

use serde_json::{Map, Value};

const SCHEMA: &str = include_str!("../../../../tests/data/ocsf-1.8.0.json");

static TABLES: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap());

/// What is wrong with an event; nothing if it is valid.
pub fn problems(event: &Value) -> Vec<String> {
    let schema: &Value = &TABLES;
    let mut found = Vec::new();
    let class = schema["classes"]
        .as_object()
        .unwrap()
        .iter()
        .find(|(_, class)| class["uid"] == event["class_uid"]);
    let Some((name, class)) = class else {
        return vec![format!("no class {}", event["class_uid"])];
    };
    let profiles = event["metadata"]["profiles"].clone();
    let check = Check {
        schema,
        profiles: &profiles,
    };
    check.object(name, class, event, "", &mut found);
    if event["metadata"]["version"] != schema["version"] {
        found.push("metadata.version is another".to_owned());
    }
    if event["category_uid"] != class["category_uid"] {
        found.push("category_uid is another class's".to_owned());
    }
    let sum = event["class_uid"].as_u64().unwrap() * 100 + event["activity_id"].as_u64().unwrap();
    if event["type_uid"] != sum {
        found.push(format!("type_uid should be {sum}"));
    }
    found
}

struct Check<'a> {
    schema: &'a Value,
    profiles: &'a Value,
}

impl Check<'_> {
    fn object(&self, name: &str, of: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let Some(fields) = value.as_object() else {
            return found.push(format!("{path} is no object"));
        };
        let attributes = of["attributes"].as_object().unwrap();
        // `object` itself takes anything
        if name != "object" {
            for key in fields.keys().filter(|key| !attributes.contains_key(*key)) {
                found.push(format!("{path}{key} is no attribute of {name}"));
            }
        }
        for (key, attribute) in attributes {
            let at = format!("{path}{key}");
            match fields.get(key) {
                None if self.applies(attribute) && attribute["requirement"] == "required" => {
                    found.push(format!("{at} is missing"));
                }
                None => {}
                Some(_) if !self.applies(attribute) => {
                    found.push(format!("{at} belongs to a profile that is not named"));
                }
                Some(value) if attribute["array"] == true => {
                    for item in value.as_array().into_iter().flatten() {
                        self.value(attribute, item, &at, found);
                    }
                }
                Some(value) => {
                    self.value(attribute, value, &at, found);
                    sibling(attribute, value, fields, path, found);
                }
            }
        }
        let wanted = of["constraints"]["at_least_one"].as_array();
        if wanted.is_some_and(|keys| {
            !keys
                .iter()
                .any(|k| fields.contains_key(k.as_str().unwrap()))
        }) {
            found.push(format!("{path} has none of {wanted:?}"));
        }
    }

    fn applies(&self, attribute: &Value) -> bool {
        let named = |profile: &Value| {
            self.profiles
                .as_array()
                .is_some_and(|p| p.contains(profile))
        };
        attribute["profiles"]
            .as_array()
            .is_none_or(|profiles| profiles.iter().any(named))
    }

    fn value(&self, attribute: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let kind = attribute["type"].as_str().unwrap();
        if kind == "object_t" {
            let name = attribute["object"].as_str().unwrap();
            let of = &self.schema["objects"][name];
            assert!(of.is_object(), "{at}: take `{name}` into the test data");
            return self.object(name, of, value, &format!("{at}."), found);
        }
        let base = self.schema["types"][kind]["type"].as_str().unwrap_or(kind);
        let fits = match base {
            "string_t" => value.is_string(),
            "integer_t" | "long_t" => value.is_i64() || value.is_u64(),
            "boolean_t" => value.is_boolean(),
            "json_t" => true,
            other => panic!("{at}: the check does not know {other}"),
        };
        let narrower = match kind {
            "ip_t" => value.as_str().is_some_and(|s| s.parse::<IpAddr>().is_ok()),
            "port_t" => value.as_u64().is_some_and(|n| n <= 65_535),
            "timestamp_t" => value.is_i64(),
            _ => true,
        };
        if !fits || !narrower {
            return found.push(format!("{at}: not a {kind}: {value}"));
        }
        if let Some(ids) = attribute["enum"].as_object() {
            let id = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if !ids.contains_key(&id) {
                found.push(format!("{at}: {id} is not among {:?}", ids.keys()));
            }
        }
    }
}

/// The words beside an enumeration's number are the schema's own, unless the number says "other".
fn sibling(
    attribute: &Value,
    value: &Value,
    fields: &Map<String, Value>,
    path: &str,
    found: &mut Vec<String>,
) {
    let Some(sibling) = attribute["sibling"].as_str() else {
        return;
    };
    let caption = &attribute["enum"][value.to_string()];
    if let Some(word) = fields.get(sibling)
        && *value != 99
        && caption.is_string()
        && word != caption
    {
        found.push(format!("{path}{sibling}: should be {caption}, is {word}"));
    }
}
