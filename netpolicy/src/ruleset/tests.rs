//! Rules as text, and what must hold in both postures.

use super::*;

fn plan(queue: Queue) -> Plan {
    Plan {
        service4: [198, 18, 0, 1].into(),
        service6: "fd00:5a::1".parse().unwrap(),
        ports: Ports::default(),
        queue,
        limits: Limits::default(),
    }
}

fn chain<'a>(rules: &'a Ruleset, name: &str) -> &'a Chain {
    rules.chains.iter().find(|c| c.name == name).unwrap()
}

#[test]
fn enforcing_rules_read_as_designed() {
    insta::assert_snapshot!(Ruleset::enforcing(&plan(Queue::Native(0))).render());
}

#[test]
fn sealed_rules_read_as_designed() {
    insta::assert_snapshot!(Ruleset::sealed(&plan(Queue::Native(0))).render());
}

#[test]
fn sealed_rules_hold_no_packet_for_a_verdict() {
    let held = |r: &Ruleset| {
        r.chains
            .iter()
            .flat_map(|c| &c.rules)
            .flat_map(|r| &r.exprs)
            .any(|e| matches!(e, Expr::Queue(_) | Expr::QueueCompat(_)))
    };
    assert!(!held(&Ruleset::sealed(&plan(Queue::Native(0)))));
    assert!(held(&Ruleset::enforcing(&plan(Queue::Native(0)))));
    assert!(held(&Ruleset::enforcing(&plan(Queue::Compat(0)))));
}

#[test]
fn every_base_chain_but_the_shape_drops_by_default() {
    for rules in [
        Ruleset::enforcing(&plan(Queue::None)),
        Ruleset::sealed(&plan(Queue::None)),
    ] {
        for chain in rules.chains.iter().filter(|c| c.name != "shape") {
            assert!(
                chain.base.is_none_or(|b| b.policy == Fate::Drop),
                "{}",
                chain.name
            );
        }
        let last = chain(&rules, "source").rules.last().unwrap();
        assert_eq!(last.exprs.last(), Some(&Expr::End(Fate::Drop)));
    }
}

#[test]
fn every_counter_is_used_and_every_use_is_declared() {
    let mut used = BTreeSet::new();
    for rules in [
        Ruleset::enforcing(&plan(Queue::Native(0))),
        Ruleset::sealed(&plan(Queue::Native(0))),
    ] {
        for expr in rules
            .chains
            .iter()
            .flat_map(|c| &c.rules)
            .flat_map(|r| &r.exprs)
        {
            if let Expr::Count(name) = expr {
                assert!(rules.counters.contains(name), "{name}");
                used.insert(*name);
            }
        }
    }
    assert_eq!(
        used.len(),
        Ruleset::sealed(&plan(Queue::None)).counters.len()
    );
}

#[test]
fn elements_land_in_the_set_of_their_family() {
    let interface: InterfaceName = "sp0".parse().unwrap();
    let four = Element {
        interface: interface.clone(),
        address: "198.18.0.2".parse().unwrap(),
    };
    let six = Element {
        interface,
        address: "fd00:5a::2".parse().unwrap(),
    };
    let rules = Ruleset::sealed(&plan(Queue::None)).with_elements([&four, &six]);
    assert_eq!(
        rules
            .sets
            .iter()
            .map(|s| s.elements.len())
            .collect::<Vec<_>>(),
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert!(
        rules
            .render()
            .contains("elements = { \"sp0\" . 198.18.0.2 }")
    );
    assert_eq!(four.key().len(), 20);
    assert_eq!(six.key().len(), 32);
}

#[test]
fn interface_names_carry_no_syntax() {
    for bad in [
        "",
        "0a",
        "-a",
        "a b",
        "a;b",
        "a\"",
        "a/b",
        "A",
        "a{",
        "@a",
        "sixteen-letters0",
        "a\n",
        "é",
    ] {
        assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
    }
    for good in ["a", "sp-1a2b3c4d5e6f", "fifteen-letters"] {
        assert!(good.parse::<InterfaceName>().is_ok(), "{good:?}");
    }
}
