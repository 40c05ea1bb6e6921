//! The schema and the checker give the same verdict on structure.

use super::*;
use crate::document::tree::{Node, Value};

fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), json(&entry.value)))
            .collect(),
        Value::Scalar { text, .. } => match (node.is_null(), shape::flag(node), shape::whole(node))
        {
            (true, _, _) => serde_json::Value::Null,
            (_, Some(flag), _) => flag.into(),
            (_, _, Some(number)) => number.into(),
            _ => text.clone().into(),
        },
        Value::Refused => serde_json::Value::Null,
    }
}

#[test]
fn the_schema_agrees_with_the_checker() {
    let schema = schema();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let good = [
        FULL.to_owned(),
        with("allow: []\ndeny: []\nuse: []\ningress: [{ ports: any }]"),
        with("allow: [{ host: a.example.com, ports: [1-2, 3], http: [{ methods: [GET] }] }]"),
        with("deny: [{ cidr: 8.8.8.8 }, { host: a.example.com, ports: any, protocol: udp }]"),
        with("allow: [{ host: a.example.com, protocol: udp, speaks: tls, ports: any }]"),
        with("limits: {}\nsecrets: []\ntests: []\nsets: {}"),
    ];
    let presets = PRESETS
        .iter()
        .map(|(name, _)| preset_text(name).unwrap().to_owned());
    let bad = [
        "policy: p".to_owned(),
        "network: none".to_owned(),
        "policy: p\nnetwork: domain".to_owned(),
        "[]".to_owned(),
        "policy: ../p\nnetwork: none".to_owned(),
        with("nonsense: 1"),
        with("private: 1"),
        with("private: 'true'"),
        with("allow: {}"),
        with("allow:"),
        with("allow: [a.example.com]"),
        with("allow: [{}]"),
        with("allow: [{ host: a.example.com, cidr: 8.8.8.8, ports: [1] }]"),
        with("allow: [{ cidr: 8.8.8.8 }]"),
        with("allow: [{ cidr: 8.8.8.8, ports: [1], http: [{ methods: [GET] }] }]"),
        with("allow: [{ host: a.example.com, ports: [] }]"),
        with("allow: [{ host: a.example.com, ports: [0] }]"),
        with("allow: [{ host: a.example.com, ports: [65536] }]"),
        with("allow: [{ host: a.example.com, ports: ['80'] }]"),
        with("allow: [{ host: a.example.com, ports: 80 }]"),
        with("allow: [{ host: a.example.com, ports: [any] }]"),
        with("allow: [{ host: a.example.com, ports: [22:22] }]"),
        with("allow: [{ host: a.example.com, speaks: any, http: [{ methods: [GET] }] }]"),
        with("allow: [{ host: a.example.com, protocol: udp, http: [{ methods: [GET] }] }]"),
        with("allow: [{ host: a.example.com, protocol: udp, speaks: http }]"),
        with("allow: [{ host: a.example.com, http: [] }]"),
        with("allow: [{ host: a.example.com, http: [{ methods: [get] }] }]"),
        with("allow: [{ host: a.example.com, until: soon }]"),
        with("allow: [{ host: '' }]"),
        with("deny: [{ host: a.example.com, speaks: any }]"),
        with("ingress: [{}]"),
        with("limits: { flows: 0 }"),
        with("limits: { upload: 100 }"),
        with("limits: { upload: 100mib }"),
        with("secrets: [{ secret: K, host: a.example.com, header: 'X: y' }]"),
        with("secrets: [{ secret: K, host: a.example.com }]"),
        with("sets: { Bad_Name: [{ host: a.example.com }] }"),
        with("sets: { x: [] }"),
        with("unknown: maybe"),
        with("use: packages"),
        with("tests: [{ to: 'a.example.com:1', expect: permit, reason: name_denied }]"),
        with("tests: [{ to: 'a.example.com:1' }]"),
    ];
    for (text, fits) in good
        .into_iter()
        .chain(presets)
        .map(|text| (text, true))
        .chain(bad.map(|text| (text, false)))
    {
        let mut mistakes = Mistakes::new("p.yaml");
        let root = tree::read(&text, &mut mistakes).unwrap();
        shape::check(&root, &grammar::POLICY, &mut mistakes);
        assert_eq!(mistakes.count() == 0, fits, "checker: {text}\n{mistakes:?}");
        assert_eq!(validator.is_valid(&json(&root)), fits, "schema: {text}");
    }
}

#[test]
fn the_schema_is_published_as_it_stands() {
    insta::assert_json_snapshot!(schema());
}
