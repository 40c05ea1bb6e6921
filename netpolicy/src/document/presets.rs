//! The shipped policies: each is a document like any other, so that it can be read, copied and explained by line.

use super::mistake::Mistake;
use crate::policy::Policy;

/// Names of the presets in listing order, with their one-line meaning.
pub const PRESETS: &[(&str, &str)] = &[
    ("none", "no network"),
    ("domains", "allowed domains only; copy it and fill `allow`"),
    (
        "domains-private",
        "allowed domains only, also where they lead to private networks or the host",
    ),
    ("internet", "every public destination, port 25 excepted"),
    (
        "internet-private",
        "every public destination, private networks and the host, port 25 excepted",
    ),
    (
        "app",
        "HTTP and TLS on ports 80 and 443 of public destinations, for services of apps",
    ),
    ("build", "public destinations for image builds"),
    ("own-calls", "public destinations for Sallyport's own calls"),
];

/// A preset's document.
pub fn preset_text(name: &str) -> Option<&'static str> {
    Some(match name {
        "none" => include_str!("presets/none.yaml"),
        "domains" => include_str!("presets/domains.yaml"),
        "domains-private" => include_str!("presets/domains-private.yaml"),
        "internet" => include_str!("presets/internet.yaml"),
        "internet-private" => include_str!("presets/internet-private.yaml"),
        "app" => include_str!("presets/app.yaml"),
        "build" => include_str!("presets/build.yaml"),
        "own-calls" => include_str!("presets/own-calls.yaml"),
        _ => return None,
    })
}

/// A preset by name: `none domains domains-private internet internet-private app build own-calls`.
pub fn preset(name: &str) -> Option<Policy> {
    checked(name)?.ok()
}

fn checked(name: &str) -> Option<Result<Policy, Vec<Mistake>>> {
    Some(super::parse(
        &format!("preset:{name}"),
        preset_text(name)?,
        None,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_policy_without_mistakes() {
        for (name, _) in PRESETS {
            let policy = checked(name).unwrap().unwrap();
            assert_eq!(policy.name, *name);
            assert!(
                policy.unenforced.is_empty() && policy.needs_packages.is_none(),
                "{name}"
            );
            assert_eq!(&*policy.at.file, format!("preset:{name}"));
        }
        assert_eq!(preset("nonsense"), None);
    }
}
