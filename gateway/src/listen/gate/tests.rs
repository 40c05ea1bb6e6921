//! Every row of the table of SYN states.

use std::time::Duration;

use crate::listen::gate::state::{Arrival, Bounds, Effect, Outcome, Table, Verdict};

type Gate = Table<&'static str, &'static str>;

const START: Duration = Duration::from_secs(100);

fn gate() -> Gate {
    Table::new(Bounds {
        each: 4,
        total: 6,
        ..Bounds::default()
    })
}

fn syn(port: u16, isn: u32, packet: u32) -> Arrival {
    Arrival {
        key: (([198, 18, 0, 2], port).into(), ([192, 0, 2, 1], 443).into()),
        isn,
        packet,
        network: 1,
    }
}

fn new(gate: &mut Gate, arrival: Arrival) -> (u64, Vec<Effect<&'static str>>) {
    match gate.syn(arrival, START) {
        (Outcome::New(serial), effects) => (serial, effects),
        (Outcome::Known, effects) => panic!("known: {effects:?}"),
    }
}

fn known(gate: &mut Gate, arrival: Arrival) -> Vec<Effect<&'static str>> {
    match gate.syn(arrival, START) {
        (Outcome::Known, effects) => effects,
        (Outcome::New(_), effects) => panic!("new: {effects:?}"),
    }
}

#[test]
fn a_copy_of_a_held_syn_is_dropped() {
    let mut gate = gate();
    let (serial, effects) = new(&mut gate, syn(1, 7, 10));
    assert_eq!(effects, []);
    assert_eq!(
        known(&mut gate, syn(1, 7, 11)),
        [Effect::Verdict(11, Verdict::Drop)]
    );
    assert_eq!(
        gate.ready(serial, "up", START),
        [Effect::Verdict(10, Verdict::Accept)]
    );
}

#[test]
fn a_syn_that_was_let_go_is_replaced_by_its_next_copy() {
    let mut gate = gate();
    let (serial, _) = new(&mut gate, syn(1, 7, 10));
    assert_eq!(gate.tick(START + Duration::from_millis(2_999)), []);
    assert_eq!(
        gate.tick(START + Duration::from_secs(3)),
        [Effect::Verdict(10, Verdict::Drop)]
    );
    assert_eq!(known(&mut gate, syn(1, 7, 11)), []);
    assert_eq!(
        gate.ready(serial, "up", START),
        [Effect::Verdict(11, Verdict::Accept)]
    );
}

#[test]
fn a_new_attempt_on_the_same_ports_abandons_the_old_one() {
    let mut gate = gate();
    let (old, _) = new(&mut gate, syn(1, 7, 10));
    assert_eq!(gate.own(old, "old task"), Ok(()));
    let (fresh, effects) = new(&mut gate, syn(1, 8, 11));
    assert_eq!(effects, [Effect::Verdict(10, Verdict::Drop)]);
    // what the old attempt still brings is of no use
    assert_eq!(gate.ready(old, "late", START), [Effect::Discard("late")]);
    assert_eq!(gate.refuse(old, Verdict::Reset), []);
    assert_eq!(gate.own(old, "late task"), Err("late task"));
    assert_eq!(
        gate.ready(fresh, "up", START),
        [Effect::Verdict(11, Verdict::Accept)]
    );
}

#[test]
fn ready_and_active_accept_copies_and_discard_on_reuse() {
    let mut gate = gate();
    let (serial, _) = new(&mut gate, syn(1, 7, 10));
    assert_eq!(gate.own(serial, "task"), Ok(()));
    gate.ready(serial, "up", START);
    assert_eq!(
        known(&mut gate, syn(1, 7, 11)),
        [Effect::Verdict(11, Verdict::Accept)]
    );
    assert_eq!(
        gate.accept(syn(1, 7, 0).key),
        Some((serial, Some("task"), "up"))
    );
    assert_eq!(gate.accept(syn(1, 7, 0).key), None, "paired once");
    assert_eq!(
        known(&mut gate, syn(1, 7, 12)),
        [Effect::Verdict(12, Verdict::Accept)]
    );
    let (fresh, effects) = new(&mut gate, syn(1, 8, 13));
    assert_eq!(effects, []);
    // the end of the old relay does not end the new attempt
    gate.close(serial);
    assert_eq!(
        gate.ready(fresh, "again", START),
        [Effect::Verdict(13, Verdict::Accept)]
    );
    let (_, effects) = new(&mut gate, syn(1, 9, 14));
    assert_eq!(effects, [Effect::Discard("again")]);
}

#[test]
fn what_nobody_accepts_is_discarded_after_ten_seconds() {
    let mut gate = gate();
    let (serial, _) = new(&mut gate, syn(1, 7, 10));
    gate.ready(serial, "up", START);
    assert_eq!(gate.tick(START + Duration::from_millis(9_999)), []);
    assert_eq!(
        gate.tick(START + Duration::from_secs(10)),
        [Effect::Discard("up")]
    );
    assert!(gate.is_empty());
    assert_eq!(gate.accept(syn(1, 7, 0).key), None);
}

#[test]
fn nothing_waits_to_be_accepted_for_a_network_that_has_ended() {
    let mut gate = gate();
    let (dialing, _) = new(&mut gate, syn(1, 7, 10));
    let (ready, _) = new(&mut gate, syn(2, 7, 11));
    let (active, _) = new(&mut gate, syn(3, 7, 12));
    let other = Arrival {
        network: 2,
        ..syn(4, 7, 13)
    };
    let (others, _) = new(&mut gate, other);
    for serial in [ready, active, others] {
        assert_eq!(gate.own(serial, "place"), Ok(()));
        gate.ready(serial, "up", START);
    }
    assert!(gate.accept(syn(3, 7, 12).key).is_some());
    assert_eq!(gate.forget(1), [Effect::Discard("up")]);
    // what is dialling is told, and written down, by its own task
    assert_eq!(
        gate.refuse(dialing, Verdict::Reset),
        [Effect::Verdict(10, Verdict::Reset)]
    );
    assert_eq!(gate.dialing(), 0);
    // what is active goes with its relay, and what is another's stays
    assert_eq!(gate.len(), 2);
    gate.close(active);
    assert_eq!(gate.len(), 1);
    assert!(gate.accept(other.key).is_some());
}

#[test]
fn a_refusal_is_the_verdict_and_forgets() {
    let mut gate = gate();
    for verdict in [
        Verdict::Reset,
        Verdict::HostUnreachable,
        Verdict::NetUnreachable,
        Verdict::Prohibited,
        Verdict::Drop,
    ] {
        let (serial, _) = new(&mut gate, syn(1, 7, 10));
        assert_eq!(gate.refuse(serial, verdict), [Effect::Verdict(10, verdict)]);
        assert!(gate.is_empty());
    }
    let (serial, _) = new(&mut gate, syn(1, 7, 10));
    assert_eq!(
        gate.refuse(serial, Verdict::Accept),
        [Effect::Verdict(10, Verdict::Drop)],
        "nothing to pair with"
    );
}

#[test]
fn net_26_the_oldest_attempt_makes_room_and_only_in_its_own_network() {
    let mut gate = gate();
    let other = Arrival {
        network: 2,
        ..syn(99, 1, 99)
    };
    new(&mut gate, other);
    for port in 0..4 {
        let (_, effects) = new(&mut gate, syn(port, 7, port.into()));
        assert_eq!(effects, []);
    }
    for port in 4..50 {
        let (_, effects) = new(&mut gate, syn(port, 7, port.into()));
        assert_eq!(
            effects,
            [Effect::Verdict(u32::from(port) - 4, Verdict::Drop)]
        );
    }
    assert_eq!(gate.dialing(), 5);
    assert_eq!(
        known(
            &mut gate,
            Arrival {
                packet: 100,
                ..other
            }
        ),
        [Effect::Verdict(100, Verdict::Drop)]
    );
}

#[test]
fn when_all_is_full_the_greediest_network_gives_way() {
    let mut gate = Gate::new(Bounds {
        each: 4,
        total: 5,
        ..Bounds::default()
    });
    for port in 0..4 {
        new(&mut gate, syn(port, 7, port.into()));
    }
    new(
        &mut gate,
        Arrival {
            network: 2,
            ..syn(10, 1, 10)
        },
    );
    let (_, effects) = new(
        &mut gate,
        Arrival {
            network: 3,
            ..syn(11, 1, 11)
        },
    );
    assert_eq!(effects, [Effect::Verdict(0, Verdict::Drop)]);
}

#[test]
fn the_oldest_is_dropped_on_request_but_never_the_one_that_asks() {
    let mut gate = gate();
    let (first, _) = new(&mut gate, syn(1, 7, 10));
    let (second, _) = new(&mut gate, syn(2, 7, 11));
    assert_eq!(
        gate.drop_oldest(1, second),
        Some(vec![Effect::Verdict(10, Verdict::Drop)])
    );
    assert_eq!(gate.drop_oldest(1, second), None);
    assert_eq!(gate.drop_oldest(2, second), None);
    assert_eq!(gate.refuse(first, Verdict::Reset), []);
}
