//! Rules that go through iptables: read back as asked, every kind of tampering noticed and repaired, nothing of the other
//! kind left behind. What packets meet is tested with the rest of this module, which runs once more on these rules.

use netpolicy::ruleset::Queue;

use super::lab::{Lab, fresh_ns};
use crate::kernel::backend::{Backend, Enforcement};
use crate::kernel::enforcer::{Config, Enforcer, Posture};
use crate::kernel::error::KernelError;

impl Lab {
    fn iptables(&self, program: &str, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        let out = self.exec(program, &words);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {words:?}: {said}");
    }

    fn again(&self, enforcement: Enforcement) -> Enforcer {
        Enforcer::open(Config {
            enforcement,
            ..self.enforcer.config().clone()
        })
        .unwrap()
    }
}

#[test]
fn applied_tables_read_back_as_asked() {
    let lab = Lab::of_iptables();
    let verified = || lab.enforcer.verify().unwrap();
    assert_eq!(lab.enforcer.backend(), Backend::Iptables);
    assert_ne!(lab.enforcer.queue(), Queue::None);
    assert_eq!(verified(), Ok(()));
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandboxes = [lab.sandbox(0), lab.sandbox(1), lab.sandbox(2)];
    assert_eq!(verified(), Ok(()));
    lab.enforcer
        .detach(&"sp1".parse().unwrap())
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(verified(), Ok(()));
    lab.enforcer.apply(Posture::Sealed).unwrap();
    assert_eq!(verified(), Ok(()));
    let text = lab.enforcer.rules_text();
    assert!(
        text.starts_with("# enforcement: iptables\n# IPv6\n"),
        "{text}"
    );
    assert!(
        text.contains("-A source4 -s 198.18.0.2/32 -i sp0 -j RETURN"),
        "{text}"
    );
    assert!(!text.contains("-i sp1 "), "{text}");
}

#[test]
fn tampering_with_tables_is_noticed_and_repaired() {
    let lab = Lab::of_iptables();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandbox = lab.sandbox(0);
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        for tampering in [
            "-t raw -F",
            "-t mangle -F PREROUTING",
            "-t raw -P PREROUTING ACCEPT",
            "-P FORWARD ACCEPT",
            "-P OUTPUT ACCEPT",
            "-I FORWARD -j ACCEPT",
            "-t raw -I PREROUTING -j ACCEPT",
            "-t raw -N extra",
            "-t raw -D PREROUTING 1",
            "-t mangle -R to_door 1 -p tcp -j TPROXY --on-port 9041 --tproxy-mark 1",
            "-t nat -A PREROUTING -j RETURN",
            "-t security -P INPUT DROP",
        ] {
            let what = format!("{program} {tampering}");
            assert_eq!(lab.enforcer.verify().unwrap(), Ok(()), "before {what}");
            lab.iptables(program, tampering);
            assert!(
                lab.enforcer.verify().unwrap().is_err(),
                "{what} went unnoticed"
            );
            match tampering.split(' ').nth(1) {
                Some("nat") => lab.iptables(program, "-t nat -F"),
                Some("security") => lab.iptables(program, "-t security -P INPUT ACCEPT"),
                _ => {}
            }
            lab.enforcer.repair().unwrap();
        }
    }
    lab.iptables("sysctl", "-qw net.ipv4.ipfrag_high_thresh=100000");
    assert!(
        lab.enforcer.verify().unwrap().is_err(),
        "reassembly went unnoticed"
    );
    lab.enforcer.repair().unwrap();
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}

#[test]
fn a_network_is_let_in_and_shut_out_whatever_others_did_to_the_tables() {
    let lab = Lab::of_iptables();
    lab.enforcer.apply(Posture::Enforcing).unwrap();
    let _sandboxes = [lab.sandbox(0), lab.sandbox(1)];
    lab.iptables("iptables-legacy", "-t raw -F source4");
    let removal = lab.enforcer.detach(&"sp0".parse().unwrap()).unwrap();
    assert_eq!(
        lab.enforcer.verify().unwrap(),
        Ok(()),
        "the rest is as asked"
    );
    removal.finish().unwrap();
    lab.iptables("ip6tables-legacy", "-t raw -F");
    lab.iptables("ip6tables-legacy", "-t raw -X");
    let refused = lab.attach(3, fresh_ns());
    assert!(refused.is_err(), "half of a network is none");
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
    let _after = lab.sandbox(4);
    assert_eq!(lab.enforcer.verify().unwrap(), Ok(()));
}

#[test]
fn members_of_a_group_are_refused_with_the_reason_and_leave_no_link() {
    let lab = Lab::of_iptables();
    let refused = lab.try_member(0, "web").unwrap_err();
    assert!(matches!(refused, KernelError::NeedsNftables), "{refused}");
    assert!(refused.to_string().contains("needs nf_tables"));
    assert!(lab.enforcer.live_links().unwrap().is_empty());
    let _alone = lab.sandbox(1);
}

#[test]
fn a_gateway_of_the_other_kind_takes_everything_over_and_leaves_nothing() {
    let lab = Lab::of_iptables();
    let _sandbox = lab.sandbox(0);
    let legacy = |program| {
        let out = lab.exec(program, &[]);
        String::from_utf8(out.stdout).unwrap()
    };
    let tables = || String::from_utf8(lab.exec("nft", &["list", "tables"]).stdout).unwrap();
    let other = lab.again(Enforcement::Nftables);
    assert_eq!(other.verify().unwrap().map_err(|m| m.what), Ok(()));
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        let text = legacy(program);
        assert!(!text.contains("-A ") && !text.contains("DROP"), "{text}");
    }
    assert!(tables().contains("table inet sallyport"));
    let back = lab.again(Enforcement::Iptables);
    assert_eq!(back.verify().unwrap().map_err(|m| m.what), Ok(()));
    assert_eq!(tables(), "");
    assert!(legacy("ip6tables-legacy-save").contains(":PREROUTING DROP"));
}

#[test]
fn auto_takes_nf_tables_where_the_kernel_has_it() {
    let lab = Lab::of_iptables();
    assert_eq!(lab.again(Enforcement::Auto).backend(), Backend::Nftables);
}
