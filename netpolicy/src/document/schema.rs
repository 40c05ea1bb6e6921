//! JSON Schema (2020-12) out of the same tables that the checker reads.

use serde_json::{Map, Value, json};

use super::shape::{Bond, Field, Kind, Need, Shape};

/// The schema of a whole document.
pub fn document(shape: &Shape, title: &str, description: &str) -> Value {
    let mut schema = object(shape);
    schema.insert(
        "$schema".into(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    schema.insert("title".into(), json!(title));
    schema.insert("description".into(), json!(description));
    Value::Object(schema)
}

fn object(shape: &Shape) -> Map<String, Value> {
    let properties: Map<String, Value> = shape.fields.iter().map(property).collect();
    let required = shape
        .fields
        .iter()
        .filter(|field| field.need == Need::Required)
        .map(|field| json!(field.key));
    let mut schema = Map::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), Value::Object(properties));
    schema.insert("required".into(), required.collect());
    schema.insert("additionalProperties".into(), json!(false));
    let bonds: Vec<Value> = shape.bonds.iter().map(bond).collect();
    if !bonds.is_empty() {
        schema.insert("allOf".into(), Value::Array(bonds));
    }
    schema
}

fn property(field: &Field) -> (String, Value) {
    let mut value = kind(&field.kind);
    if let Value::Object(schema) = &mut value {
        schema.insert("description".into(), json!(field.help));
    }
    (field.key.to_owned(), value)
}

fn kind(kind_: &Kind) -> Value {
    match kind_ {
        Kind::Text(format) => match format.pattern {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string", "minLength": 1 }),
        },
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Whole { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::List { of, min } => json!({ "type": "array", "items": kind(of), "minItems": min }),
        Kind::Object(shape) => Value::Object(object(shape)),
        Kind::Named { keys, of } => {
            let names = keys
                .pattern
                .map_or_else(|| json!({}), |pattern| json!({ "pattern": pattern }));
            json!({ "type": "object", "propertyNames": names, "additionalProperties": kind(of) })
        }
        Kind::Either { of, .. } => json!({ "anyOf": of.iter().map(kind).collect::<Vec<_>>() }),
    }
}

fn bond(bond: &Bond) -> Value {
    match bond {
        Bond::OneOf(keys) => {
            let each: Vec<Value> = keys
                .iter()
                .map(|key| json!({ "required": [key] }))
                .collect();
            json!({ "oneOf": each })
        }
        Bond::Needs(key, other) => json!({ "dependentRequired": { *key: [other] } }),
        Bond::NeedsUnless(key, other, (free, word)) => json!({ "anyOf": [
            { "not": { "required": [key] } },
            { "required": [other] },
            { "required": [free], "properties": { *free: { "const": word } } },
        ] }),
        Bond::Apart(key, other, _) => json!({ "not": { "required": [key, other] } }),
        Bond::ApartIf {
            key, word, other, ..
        } => {
            json!({ "not": { "required": [key, other], "properties": { *key: { "const": word } } } })
        }
        Bond::ApartWords((key, word), (other, said), _) => {
            let both = json!({ *key: { "const": word }, *other: { "const": said } });
            json!({ "not": { "required": [key, other], "properties": both } })
        }
    }
}
