//! Layers only narrow: every one must permit, the first that does not gives the denial.

use super::*;

const FLOOR: &str = "network: internet\ndeny:\n  - host: bad.example.com\n  - cidr: 9.9.9.0/24\n  - cidr: 8.0.0.0/8\n    ports: [25]";

#[test]
fn a_floor_closes_what_the_job_opens() {
    let s = layers(&[
        (
            LayerKind::Job,
            "network: domains\nallow:\n  - { host: bad.example.com }\n  - { host: a.example.com, ports: any }",
        ),
        (LayerKind::Instance, FLOOR),
    ]);
    assert_eq!(to("bad.example.com", 443).on(&s), "name_denied @instance:4");
    assert_eq!(
        to("a.example.com", 443).answers(&["9.9.9.9"]).on(&s),
        "address_denied @instance:5"
    );
    assert_eq!(
        to("a.example.com", 25).answers(&["8.8.8.8"]).on(&s),
        "address_denied @instance:6"
    );
    assert_eq!(to("b.example.com", 443).on(&s), "name_not_allowed @job:2");
    assert_eq!(
        to("a.example.com", 443).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 tls as a.example.com"
    );
}

#[test]
fn a_job_never_widens_a_floor() {
    let floor = "network: domains\nallow:\n  - host: '*.example.com'";
    let s = layers(&[
        (LayerKind::Instance, floor),
        (LayerKind::Job, "network: internet\nprivate: true"),
    ]);
    assert_eq!(
        to("a.example.org", 443).on(&s),
        "name_not_allowed @instance:2"
    );
    assert_eq!(
        to("a.example.com", 22).on(&s),
        "port_not_allowed @instance:4"
    );
    assert_eq!(
        to("a.example.com", 443).answers(&["10.0.0.1"]).on(&s),
        "name_resolves_to_forbidden @instance:4"
    );
    assert_eq!(
        to("a.example.com", 443).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 tls as a.example.com"
    );
    assert_eq!(to("8.8.8.8", 443).on(&s), "hear tls");
    assert_eq!(to("8.8.8.8", 22).on(&s), "address_not_allowed @instance:2");
    let heard = to("8.8.8.8", 443).heard("a.example.com", Some(&["8.8.8.8"]));
    assert_eq!(heard.on(&s), "dial 8.8.8.8 tls as a.example.com");
    assert_eq!(
        to("8.8.8.8", 443).heard("a.example.com", None).on(&s),
        "look up a.example.com"
    );
}

#[test]
fn private_needs_every_layer() {
    let job_policy = "network: internet\nprivate: true";
    let shut = layers(&[
        (LayerKind::Workspace, "network: internet"),
        (LayerKind::Job, job_policy),
    ]);
    let open = layers(&[
        (LayerKind::Workspace, job_policy),
        (LayerKind::Job, job_policy),
    ]);
    assert_eq!(to("10.0.0.1", 22).on(&shut), "address_private @workspace:2");
    assert_eq!(to("10.0.0.1", 22).on(&open), "dial 10.0.0.1 any");
}

#[test]
fn how_bytes_are_judged_narrows_too() {
    let rule = |speaks: &str| {
        format!(
            "network: domains\nallow: [{{ host: a.example.com, ports: [443], speaks: {speaks} }}]"
        )
    };
    let ask = to("a.example.com", 443).answers(&["8.8.8.8"]);
    let with =
        |floor: &str, own: &str| layers(&[(LayerKind::Instance, floor), (LayerKind::Job, own)]);
    assert_eq!(
        ask.on(&with("network: internet", &rule("any"))),
        "dial 8.8.8.8 any as a.example.com"
    );
    assert_eq!(
        ask.on(&with(&rule("tls"), &rule("any"))),
        "dial 8.8.8.8 tls as a.example.com"
    );
    assert_eq!(
        ask.on(&with(
            "network: domains\nallow: [{ host: a.example.com }]",
            &rule("any")
        )),
        "dial 8.8.8.8 tls as a.example.com"
    );
    assert_eq!(
        ask.on(&with(&rule("any"), &rule("any"))),
        "dial 8.8.8.8 any as a.example.com"
    );
    assert_eq!(
        ask.on(&with(&rule("tls"), &rule("http"))),
        "protocol_not_allowed @job:3"
    );
}

#[test]
fn what_no_policy_opens_is_reported_before_any_layer() {
    let s = layers(&[
        (LayerKind::Instance, "network: none"),
        (LayerKind::Job, "network: internet"),
    ]);
    assert_eq!(to("169.254.169.254", 80).on(&s), "address_metadata");
    assert_eq!(to("8.8.8.8", 80).on(&s), "network_none @instance:2");
}

#[test]
fn the_record_names_one_rule_of_each_layer() {
    let s = layers(&[
        (LayerKind::Instance, FLOOR),
        (
            LayerKind::Workspace,
            "network: domains\nallow:\n  - host: '*.example.com'",
        ),
        (
            LayerKind::Job,
            "network: domains\nallow:\n  - host: a.example.com",
        ),
    ]);
    let ground = to("a.example.com", 443).answers(&["8.8.8.8"]).ground(&s);
    let rules: Vec<String> = ground
        .rules()
        .iter()
        .map(|(kind, name, at)| format!("{} {name} {}", kind.word(), at.line))
        .collect();
    assert_eq!(
        rules,
        ["instance instance 2", "workspace workspace 4", "job job 4"]
    );
    assert_eq!(ground.class(), Some(Class::Public));
    assert_eq!(ground.hash(), s.hash());
}

#[test]
fn the_hash_follows_policies_and_not_addresses() {
    let one = layers(&[(LayerKind::Job, "network: internet")]);
    let other_book = one.with_book(Arc::new(AddressBook::default()));
    assert_eq!(one.hash(), other_book.hash());
    let changed = [
        layers(&[(LayerKind::Job, "network: internet\n")]),
        layers(&[(LayerKind::Workspace, "network: internet")]),
        layers(&[
            (LayerKind::Instance, "network: internet"),
            (LayerKind::Job, "network: internet"),
        ]),
        layers(&[]),
    ];
    for other in changed {
        assert_ne!(one.hash(), other.hash());
    }
}

#[test]
fn limits_are_the_narrowest_and_manners_are_the_jobs() {
    let s = layers(&[
        (
            LayerKind::Instance,
            "network: internet\nlimits: { flows: 10, upload: 1GiB }\nexplain: false",
        ),
        (
            LayerKind::Job,
            "network: internet\nnames: real\nlimits: { flows: 100, upload: 1MiB, names: 5 }",
        ),
    ]);
    assert_eq!(
        (s.limits().flows, s.limits().upload, s.limits().names),
        (Some(10), Some(1 << 20), Some(5))
    );
    assert_eq!(s.names_mode(), crate::policy::NamesMode::Real);
    assert!(s.explains());
}

#[test]
fn a_moment_at_which_no_entry_ends_changes_nothing_and_one_at_which_an_entry_of_any_layer_ends_does()
 {
    let s = layers(&[
        (
            LayerKind::Instance,
            "network: domains\nallow: [{ host: '*.example.com', until: 2026-11-30 }]",
        ),
        (
            LayerKind::Job,
            "network: domains\nallow: [{ host: a.example.com, until: 2026-11-29 }, { host: b.example.com }]",
        ),
    ]);
    let midnight = NOW.0 + 1;
    let lapses = |from: i64, to: i64| s.lapses(&(UnixSeconds(from)..UnixSeconds(to)));
    assert!(!lapses(0, midnight));
    assert!(lapses(midnight, midnight + 1));
    assert!(!lapses(midnight + 1, midnight + 86_400));
    assert!(lapses(midnight + 1, midnight + 86_401));
    assert!(!lapses(midnight + 86_401, i64::MAX));
    assert!(!job("network: internet").lapses(&(UnixSeconds(0)..UnixSeconds(i64::MAX))));
}
