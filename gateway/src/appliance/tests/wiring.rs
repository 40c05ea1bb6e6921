//! Sandboxes that are wired while the gateway seals and repairs itself.

use std::time::Duration;

use super::lab::*;

/// Repairs during which networks come and go.
const REPAIRS: u64 = 3;

#[test]
fn a_network_that_is_being_wired_while_the_gateway_repairs_itself_is_not_taken_for_lost() {
    let lab = Lab::started();
    let generation = || lab.block(async |c| c.posture().await.unwrap().generation);
    let began = generation();
    eventually_within("repairs", Duration::from_mins(1), || {
        // a foreign change that seals, and that repairing undoes
        lab.in_gateway("sysctl -qw net.ipv4.ip_forward=1");
        for _ in 0..10 {
            let sandbox = lab.attach(&far_only());
            let id = &sandbox.view.id;
            lab.block(async |c| c.detach(id).await.map(|_| ()).unwrap());
        }
        (generation() >= began + REPAIRS).then_some(())
    });
    let sandbox = lab.attach(&far_only());
    eventually("a gateway that enforces again", || sandbox.echoes(FAR).ok());
}
