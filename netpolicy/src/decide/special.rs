//! Names that never mean the public internet (RFC 6761 and its registry, `.internal`, names of container engines).
//!
//! One table for look-ups, doors and explanations. A local name is permitted only by a rule that names it, under
//! `private: true`; otherwise nothing is asked upstream. `.onion` (RFC 7686) and `.alt` (RFC 9476) are not DNS names at
//! all and are never asked for.

use crate::name::Name;

/// What a name means besides the DNS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A single label or a special-use name: it means something on this network or nothing.
    Local,
    /// Not a DNS name, whatever a rule says.
    NotDns,
}

/// Suffixes of local names. `example.com` and its siblings are left out: resolvers treat them as ordinary names.
const LOCAL: &[&str] = &[
    "localhost",
    "localdomain",
    "local",
    "test",
    "invalid",
    "example",
    // ICANN reserved it for private use; container engines put the host there
    "internal",
    "home.arpa",
    "resolver.arpa",
    "service.arpa",
    "ipv4only.arpa",
    "in-addr.arpa",
    "ip6.arpa",
    // names of cluster services, which a search list would complete
    "svc",
];

/// Suffixes that are no DNS names.
const NOT_DNS: &[&str] = &["onion", "alt"];

/// Whether and how a name is special.
pub fn special(name: &Name) -> Option<Special> {
    let text = name.as_str();
    if NOT_DNS.iter().any(|suffix| is_at_or_below(text, suffix)) {
        return Some(Special::NotDns);
    }
    let local = !text.contains('.') || LOCAL.iter().any(|suffix| is_at_or_below(text, suffix));
    local.then_some(Special::Local)
}

/// Suffixes of local names strictly below a name (`home.arpa` below `arpa`).
pub(crate) fn local_below(apex: &Name) -> impl Iterator<Item = Name> + use<> {
    let apex = apex.clone();
    let all = LOCAL.iter().filter_map(|suffix| Name::parse(suffix).ok());
    all.filter(move |name| name.is_below(&apex))
}

/// Whether a canonical name is the suffix or lies below it.
fn is_at_or_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Special> {
        special(&Name::parse(text).unwrap())
    }

    #[test]
    fn local_names_are_recognised_by_whole_labels() {
        for text in [
            "router",
            "localhost",
            "a.localhost",
            "localhost.localdomain",
            "ip6-localhost",
            "nas.local",
            "x.internal",
            "host.docker.internal",
            "host.containers.internal",
            "kubernetes.default.svc",
            "x.home.arpa",
            "x.test",
            "ipv4only.arpa",
            "5.0.0.10.in-addr.arpa",
        ] {
            assert_eq!(of(text), Some(Special::Local), "{text}");
        }
        for text in [
            "example.com",
            "notlocal.com",
            "mylocalhost.com",
            "xlocal.net",
            "local.example.com",
            "arpa.net",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of("abc.onion"), Some(Special::NotDns));
        assert_eq!(of("x.alt"), Some(Special::NotDns));
    }
}
