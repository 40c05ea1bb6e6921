//! Applied rules read back as asked; every kind of tampering is noticed and repaired.

use std::io::Write;
use std::process::{Command, Stdio};

use netpolicy::ruleset::Queue;

use super::lab::Lab;
use crate::kernel::enforcer::Posture;

#[test]
fn applied_rules_read_back_as_asked() {
    let lab = Lab::open();
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    let _sandbox = lab.sandbox(0);
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    lab.enforcer.apply(Posture::Sealed).unwrap();
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    assert_ne!(lab.enforcer.queue(), Queue::None);
}

#[test]
fn nft_compiles_the_rendered_text_to_the_same_rules() {
    let lab = Lab::open();
    let _sandbox = lab.sandbox(0);
    let text = lab.enforcer.rules_text();
    let script = format!("flush ruleset\n{text}");
    let mut child = Command::new("nsenter")
        .args([
            &format!("--net=/run/netns/{}", lab.name()),
            "nft",
            "-f",
            "-",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}

#[test]
fn tampering_with_rules_is_noticed_and_repaired() {
    let lab = Lab::open();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandbox = lab.sandbox(0);
    for tampering in [
        "flush ruleset",
        "flush chain inet sallyport source",
        "add rule inet sallyport forward accept",
        "insert rule inet sallyport source accept",
        "flush set inet sallyport source4",
        "add element inet sallyport source4 { sp0 . 198.18.9.9 }",
        "delete element inet sallyport source6 { sp0 . fd5a::2 }",
        "add chain inet sallyport forward { policy accept ; }",
        "add table ip nat",
        "add chain inet sallyport extra { type filter hook prerouting priority -500 ; }",
        "add set inet sallyport extra { type ipv4_addr ; }",
        "delete table inet sallyport",
    ] {
        assert_eq!(lab.enforcer.verify().unwrap(), Ok(()), "before {tampering}");
        lab.nft(tampering);
        assert!(
            lab.enforcer.verify().unwrap().is_err(),
            "{tampering} went unnoticed"
        );
        if tampering == "add table ip nat" {
            lab.nft("delete table ip nat");
        }
        lab.enforcer.repair().unwrap();
    }
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}
