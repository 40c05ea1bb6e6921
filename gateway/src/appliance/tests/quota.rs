//! What one network may hold of the record, across restarts, and what it leaves to the others.

use netpolicy::reason::Reason;

use super::lab::*;
use crate::record::Entry;

fn is_told_of(lab: &Lab, of: &Sandbox) -> bool {
    lab.block(async |c| {
        let mut lines = c.records(0).await.unwrap();
        while let Some(line) = lines.next().await.unwrap() {
            let (Entry::Denial(denied) | Entry::Folded { first: denied, .. }) = line.entry else {
                continue;
            };
            if denied.reason == Reason::LimitRecords && denied.subject.network == of.view.id {
                return true;
            }
        }
        false
    })
}

#[test]
fn a_network_that_used_up_its_share_of_the_record_opens_no_flow_after_a_restart_either_and_others_do()
 {
    let lab = Lab::new();
    let mut config = lab.config();
    config.journal.network_entries = 4;
    lab.start(config.clone());
    let (noisy, quiet) = (lab.attach(&far_only()), lab.attach(&far_only()));
    for _ in 0..2 {
        drop(noisy.echoes(FAR).unwrap());
        eventually("the flow's end", || {
            lab.block(async |c| c.flows(Some(&noisy.view.id)).await.unwrap())
                .is_empty()
                .then_some(())
        });
    }
    assert!(noisy.echoes(FAR).is_err());
    let kept = config
        .run_dir
        .join(format!("networks/{}/state.json", noisy.view.id));
    eventually("the share on disk", || {
        let state = std::fs::read_to_string(&kept).unwrap();
        state.contains("\"entries\":4").then_some(())
    });
    lab.kill();
    lab.start(config.clone());
    assert!(noisy.echoes(FAR).is_err());
    quiet.echoes(FAR).unwrap();
    // its denials are folded into one entry, which is written at a clean end at the latest
    lab.stop();
    lab.start(config);
    assert!(is_told_of(&lab, &noisy) && !is_told_of(&lab, &quiet));
}
