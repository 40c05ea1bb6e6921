//! Lanes between members: there while enforcing, shut while sealed, gone with the pair, and every change is noticed.

use std::net::{SocketAddr, TcpListener};

use super::lab::{Lab, Sandbox, v4, v6};
use crate::kernel::enforcer::Posture;

const PORT: u16 = 5432;

fn shop() -> (Lab, Sandbox, Sandbox) {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let db = lab.member(0, "db", &[]);
    let web = lab.member(1, "web", &["db"]);
    (lab, db, web)
}

#[test]
fn sealing_shuts_the_lanes_and_enforcing_opens_them_again() {
    let (lab, db, web) = shop();
    let _listener = db.run(|| TcpListener::bind(("::", PORT)).unwrap());
    let ends = [
        SocketAddr::from((v4(0), PORT)),
        SocketAddr::from((v6(0), PORT)),
    ];
    for posture in [Posture::Enforcing, Posture::Sealed, Posture::Enforcing] {
        lab.enforcer.apply(posture).unwrap();
        lab.enforcer.verify().unwrap().unwrap();
        for end in ends {
            if posture == Posture::Enforcing {
                assert!(web.reaches(end), "{end}");
            } else {
                assert!(!web.reaches_soon(end), "{end}");
            }
        }
    }
}

#[test]
fn whatever_somebody_does_to_the_lanes_is_noticed_and_repaired() {
    let (lab, _db, _web) = shop();
    let text = lab.enforcer.rules_text();
    assert!(text.contains("table netdev") && text.contains("tcp flags & (syn | ack) != syn"));
    lab.enforcer.verify().unwrap().unwrap();
    for change in [
        "add rule netdev sallyport-members sp0 accept",
        "flush chain netdev sallyport-members sp1",
        "delete table netdev sallyport-members",
        "add chain netdev sallyport-members extra",
        "add table netdev another",
        "add table inet sallyport-members",
    ] {
        lab.nft(change);
        assert!(lab.enforcer.verify().unwrap().is_err(), "{change}");
        if change.ends_with("another") || change.contains("inet") {
            lab.nft(&change.replace("add", "delete"));
        }
        lab.enforcer.repair().unwrap();
        lab.enforcer.verify().unwrap().unwrap();
    }
}

#[test]
fn without_a_pair_there_are_no_lanes() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _alone = lab.member(0, "web", &["db"]);
    let _other = lab.member(1, "idle", &[]);
    let _run = lab.sandbox(2);
    assert!(!lab.enforcer.rules_text().contains("netdev"));
    lab.enforcer.verify().unwrap().unwrap();
    let _db = lab.member(3, "db", &[]);
    let text = lab.enforcer.rules_text();
    assert!(text.contains("chain sp0") && text.contains("chain sp3"));
    assert!(!text.contains("chain sp1") && !text.contains("chain sp2"));
    lab.enforcer
        .detach(&"sp3".parse().unwrap())
        .unwrap()
        .finish()
        .unwrap();
    assert!(!lab.enforcer.rules_text().contains("netdev"));
    lab.enforcer.verify().unwrap().unwrap();
}
