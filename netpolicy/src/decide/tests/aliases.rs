//! Aliases (CNAME): they need no permission, but a denial of one of them is a denial of the name.

use super::*;

const LISTED: &str = "
network: domains
allow:
  - host: a.example.com
  - host: '*.wild.example.org'
  - host: nas.local
deny:
  - host: evil.example.net
    reason: not this one
  - host: '*.ads.example.net'
  - host: half.example.net
    ports: [443]
";

/// What is said to a flow to a name that is an alias of these, before and after its addresses are known.
fn flow(s: &Snapshot, text: &str, port: u16, aliases: &[&str]) -> [String; 2] {
    let aliases: Vec<Name> = aliases.iter().map(|text| name(text)).collect();
    [vec![], vec![ip("8.8.8.8")]].map(|addresses| {
        let mut ask = to(text, port);
        if let Destination::Name { answers, .. } = &mut ask.intent.to {
            *answers = Some(Answers {
                addresses,
                aliases: aliases.clone(),
            });
        }
        ask.on(s)
    })
}

fn look(s: &Snapshot, text: &str, aliases: &[&str]) -> String {
    let aliases: Vec<Name> = aliases.iter().map(|text| name(text)).collect();
    decide_aliases(s, &name(text), &aliases, NOW)
        .map_or_else(|denial| words(&denial), |()| "permit".to_owned())
}

#[test]
fn denied_alias_denies_the_name_anywhere_in_the_chain() {
    let s = job(LISTED);
    for (chain, said) in [
        (&["evil.example.net"][..], "name_denied @job:9"),
        (
            &["cdn.example.net", "evil.example.net"],
            "name_denied @job:9",
        ),
        (
            &["evil.example.net", "cdn.example.net"],
            "name_denied @job:9",
        ),
        (&["x.ads.example.net"], "name_denied @job:11"),
        // a rule that names the alias too does not help: deny beats allow
        (&["metadata.google.internal"], "address_metadata"),
        (&["console.example.net"], "name_denied"),
        (&["x.internal"], "name_not_allowed @job:3"),
        (&["printer.local"], "name_not_allowed @job:3"),
        (&["router"], "name_not_allowed @job:3"),
        (&["x.onion"], "name_not_allowed @job:3"),
    ] {
        assert_eq!(look(&s, "a.example.com", chain), said, "{chain:?}");
        assert_eq!(flow(&s, "a.example.com", 443, chain), [said, said]);
        assert_eq!(
            look(&s, "_http._tcp.a.example.com", chain)
                .split(' ')
                .next(),
            said.split(' ').next()
        );
    }
}

#[test]
fn other_aliases_need_no_permission() {
    let s = job(LISTED);
    for chain in [
        &["cdn.example.net"][..],
        &["cdn.example.net", "b.example.net"],
        // the apex of a denied wildcard, and names that only look like denied ones
        &["ads.example.net", "notevil.example.net"],
    ] {
        assert_eq!(look(&s, "a.example.com", chain), "permit");
        assert_eq!(
            flow(&s, "a.example.com", 443, chain),
            [
                "name_unresolvable".to_owned(),
                "dial 8.8.8.8 tls as a.example.com".to_owned()
            ]
        );
    }
    assert_eq!(
        look(&s, "b.example.com", &["a.example.com"]),
        "name_not_allowed @job:3",
        "an alias lends no permission either"
    );
}

#[test]
fn denial_on_some_ports_of_an_alias_is_one_on_these_ports() {
    let s = job(LISTED);
    let chain = &["half.example.net"];
    assert_eq!(look(&s, "a.example.com", chain), "permit");
    assert_eq!(
        flow(&s, "a.example.com", 443, chain)[1],
        "name_denied @job:12"
    );
    assert_eq!(
        flow(&s, "a.example.com", 80, chain)[1],
        "dial 8.8.8.8 http as a.example.com"
    );
    let only = job(
        "network: domains\nallow: [{ host: a.example.com, ports: [443] }]\ndeny: [{ host: half.example.net, ports: [443] }]",
    );
    assert_eq!(look(&only, "a.example.com", chain), "name_denied @job:4");
}

#[test]
fn local_alias_needs_the_rule_that_a_local_name_needs() {
    let open = job(
        "network: domains\nprivate: true\nallow: [{ host: a.example.com }, { host: nas.local }]",
    );
    assert_eq!(look(&open, "a.example.com", &["nas.local"]), "permit");
    assert_eq!(
        look(&open, "a.example.com", &["tv.local"]),
        "name_not_allowed @job:2"
    );
}

#[test]
fn every_layer_denies_aliases() {
    let s = layers(&[
        (
            LayerKind::Instance,
            "network: internet\ndeny: [{ host: evil.example.net }]",
        ),
        (
            LayerKind::Job,
            "network: domains\nallow: [{ host: a.example.com }]",
        ),
    ]);
    let chain = &["evil.example.net"];
    assert_eq!(look(&s, "a.example.com", chain), "name_denied @instance:3");
    assert_eq!(
        flow(&s, "a.example.com", 443, chain)[1],
        "name_denied @instance:3"
    );
    // also where a name is only heard on a flow to an address
    let mut ask = to("8.8.8.8", 443).heard("a.example.com", Some(&["8.8.8.8"]));
    assert_eq!(ask.on(&s), "dial 8.8.8.8 tls as a.example.com");
    if let Destination::Address {
        heard: Heard::Name {
            answers: Some(answers),
            ..
        },
        ..
    } = &mut ask.intent.to
    {
        answers.aliases.push(name("evil.example.net"));
    }
    assert_eq!(ask.on(&s), "name_denied @instance:3");
}

#[test]
fn denial_says_which_alias_it_was() {
    let s = job(LISTED);
    let alias = [name("evil.example.net")];
    let denial = decide_aliases(&s, &name("a.example.com"), &alias, NOW).unwrap_err();
    assert_eq!(
        denial.note.as_deref(),
        Some("not this one (an alias leads to evil.example.net)")
    );
}

#[test]
fn newer_denial_of_an_alias_ends_the_ground_of_a_flow() {
    let before = job("network: domains\nallow: [{ host: a.example.com }]");
    let mut ask = to("a.example.com", 443).answers(&["8.8.8.8"]);
    if let Destination::Name {
        answers: Some(answers),
        ..
    } = &mut ask.intent.to
    {
        answers.aliases.push(name("evil.example.net"));
    }
    let ground = ask.ground(&before);
    let said = Evidence::Tls {
        name: Some(name("a.example.com")),
    };
    assert!(decide_bytes(&before, &ground, &said, NOW).is_ok());
    let denial = decide_bytes(&job(LISTED), &ground, &said, NOW).unwrap_err();
    assert_eq!(words(&denial), "name_denied @job:9");
}
