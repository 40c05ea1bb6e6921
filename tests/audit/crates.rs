//! What is inside: every crate has a licence that may be passed on together, comes from the registry with a checksum or
//! from this repository, and stands there once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::tree::root;

/// Licences that may be combined into a binary under GPL-3.0-or-later.
const LICENCES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that may stand in the tree twice, each with the reason.
const TWICE: [(&str, &str); 29] = [
    ("base64", "the engine's client is a version ahead"),
    (
        "bit-set",
        "property tests are a version apart from the rest",
    ),
    ("bit-vec", "comes with bit-set"),
    ("block-buffer", "comes with digest"),
    (
        "chacha20",
        "backups (age) are a version behind random numbers",
    ),
    ("const-oid", "comes with signatures"),
    ("cpufeatures", "hashes and signatures are a version apart"),
    ("crypto-common", "comes with digest"),
    (
        "digest",
        "the store's drivers are a version ahead of signatures",
    ),
    ("foldhash", "comes with hashbrown"),
    ("getrandom", "key generation waits for its successor"),
    ("hashbrown", "maps of different ages"),
    ("hashlink", "the YAML parser is a version behind the store"),
    (
        "hkdf",
        "backups (age) are a version behind the store's drivers",
    ),
    ("hmac", "comes with digest"),
    (
        "hybrid-array",
        "comes with post-quantum keys of backups (age)",
    ),
    ("nix", "netlink sockets use the version before"),
    ("nom", "mail is a version ahead of what reads certificates"),
    (
        "rand",
        "the older one belongs to RSA keys of commits, which are switched off and not built",
    ),
    ("rand_core", "key generation waits for its successor"),
    ("sha2", "comes with digest"),
    (
        "signature",
        "ID tokens are a version ahead of the journal's and the commits' keys",
    ),
    ("strum", "schedules and tables are a version apart"),
    ("strum_macros", "comes with strum"),
    ("syn", "derive macros of different ages, at build time only"),
    (
        "synstructure",
        "derive macros of different ages, at build time only",
    ),
    (
        "thiserror",
        "translations of backups' errors (age) use the version before",
    ),
    ("thiserror-impl", "comes with thiserror"),
    ("untrusted", "certificates of the lab's origins"),
];

fn metadata() -> Value {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("metadata")
}

/// Packages that the graph for this platform really uses.
fn used(metadata: &Value) -> Vec<&Value> {
    let nodes = metadata
        .pointer("/resolve/nodes")
        .and_then(Value::as_array)
        .expect("resolve");
    let ids: BTreeSet<&str> = nodes.iter().filter_map(|n| n["id"].as_str()).collect();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages
        .filter(|p| p["id"].as_str().is_some_and(|id| ids.contains(id)))
        .collect()
}

fn name(package: &Value) -> String {
    format!(
        "{} {}",
        package["name"].as_str().unwrap_or_default(),
        package["version"].as_str().unwrap_or_default()
    )
}

/// Whether an SPDX expression can be met with the list: one side of every `OR`, both sides of every `AND`.
fn permitted(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    plain
        .split(" AND ")
        .all(|all| all.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

#[test]
fn every_licence_may_be_passed_on() {
    let metadata = metadata();
    let refused: Vec<String> = used(&metadata)
        .into_iter()
        .filter(|p| !p["license"].as_str().is_some_and(permitted))
        .map(|p| format!("{}: {}", name(p), p["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(
        permitted("MIT OR GPL-2.0") && !permitted("GPL-2.0") && !permitted("MIT AND GPL-2.0"),
        "the check itself"
    );
}

#[test]
fn every_crate_comes_from_the_registry_with_a_checksum_or_from_here() {
    let metadata = metadata();
    let foreign: Vec<String> = used(&metadata)
        .into_iter()
        .filter(|p| {
            p["source"]
                .as_str()
                .is_some_and(|source| !source.starts_with("registry+"))
        })
        .map(name)
        .collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    for block in lock
        .split("[[package]]")
        .filter(|b| b.contains("source = "))
    {
        assert!(block.contains("checksum = "), "no checksum: {block}");
    }
}

#[test]
fn no_crate_stands_there_twice_without_a_reason() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in used(&metadata) {
        versions
            .entry(package["name"].as_str().unwrap_or_default())
            .or_default()
            .push(package["version"].as_str().unwrap_or_default());
    }
    let twice: Vec<_> = versions
        .iter()
        .filter(|(name, v)| v.len() > 1 && !TWICE.iter().any(|(known, _)| known == *name))
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
}
