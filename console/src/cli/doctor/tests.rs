//! What doctor says of faked systems: each distribution family's fix, modules, settings, powers, programs.

use std::fs;
use std::path::Path;

use super::settings::Who;
use super::system::{Distribution, Package, System};
use super::{Check, State, modules, powers, programs, settings};

struct Fake(tempfile::TempDir);

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            fake.write(path, text);
        }
        fake
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }

    fn system(&self) -> System {
        System::at(self.0.path())
    }
}

fn said(checks: &[Check]) -> String {
    let line = |c: &Check| format!("{} {}\n", c.seen, c.fix.as_deref().unwrap_or_default());
    checks.iter().map(line).collect()
}

const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.8.0-50-generic\n");

#[test]
fn each_family_is_told_its_own_command() {
    for (text, family, modules) in [
        (
            "ID=debian\n",
            Distribution::Debian,
            "apt install linux-image-",
        ),
        (
            "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
            Distribution::Ubuntu,
            "apt install linux-modules-extra-6.8.0-50-generic",
        ),
        (
            "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
            Distribution::Fedora,
            "dnf install kernel-modules-6.8.0-50-generic",
        ),
        ("ID=arch\n", Distribution::Arch, "pacman -S linux"),
        ("ID=alpine\n", Distribution::Alpine, "apk add linux-lts"),
        ("ID=plan9\n", Distribution::Other, "full kernel"),
    ] {
        let fake = Fake::new(&[("etc/os-release", text), RELEASE]);
        assert_eq!(fake.system().distribution(), family);
        let fix = fake.system().install(Package::Modules);
        assert!(fix.contains(modules), "{fix}");
        assert!(!fake.system().install(Package::IdMaps).is_empty());
    }
}

#[test]
fn a_module_is_named_only_when_it_does_not_run_and_with_what_brings_it() {
    let tree = "lib/modules/6.8.0-50-generic";
    let fake = Fake::new(&[
        RELEASE,
        ("etc/os-release", "ID=debian\n"),
        ("sys/module/nf_tables/version", "1\n"),
        (
            &format!("{tree}/modules.builtin"),
            "kernel/drivers/net/veth.ko\n",
        ),
        (
            &format!("{tree}/modules.dep"),
            "kernel/net/netfilter/nft_tproxy.ko.xz: kernel/net/netfilter/nf_tables.ko.xz\n",
        ),
    ]);
    let wanted = ["veth", "nf_tables", "nft_tproxy", "nft_queue"];
    let checks = modules::checks(&fake.system(), &wanted);
    let text = said(&checks);
    assert_eq!(checks.len(), 2, "{text}");
    assert!(
        text.contains("nft_tproxy is not loaded modprobe nft_tproxy"),
        "{text}"
    );
    assert!(
        text.contains("this kernel has no nft_queue apt install"),
        "{text}"
    );
    // a container, or a kernel that was updated and not booted
    let bare = Fake::new(&[RELEASE, ("etc/os-release", "ID=arch\n")]);
    let text = said(&modules::checks(&bare.system(), &wanted));
    assert!(
        text.contains("not installed here") && text.contains("reboot"),
        "{text}"
    );
}

#[test]
fn settings_that_stand_in_the_way_are_named_with_a_better_value() {
    let fake = Fake::new(&[
        ("proc/sys/user/max_net_namespaces", "0\n"),
        ("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
        (
            "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1\n",
        ),
        ("proc/sys/net/ipv4/ping_group_range", "1\t0\n"),
        (
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 1024                 files\n",
        ),
    ]);
    let root = settings::checks(&fake.system(), Who::Root);
    let text = said(&root);
    assert_eq!(root.len(), 2, "{text}");
    assert!(
        text.contains("sysctl -w user.max_net_namespaces=15000"),
        "{text}"
    );
    assert!(text.contains("1024 open files"), "{text}");
    assert_eq!(root[0].state, State::Wrong);
    let ordinary = settings::checks(&fake.system(), Who::Ordinary);
    assert_eq!(ordinary.len(), 5, "{}", said(&ordinary));
    // a system with nothing wrong says so once
    let fine = settings::checks(&Fake::new(&[]).system(), Who::Ordinary);
    assert_eq!((fine.len(), fine[0].state), (1, State::Ok));
}

#[test]
fn each_missing_power_has_a_fix_for_where_it_is_missing() {
    let none = "CapEff:\t0000000000000000\nCapBnd:\t0000000000203400\n";
    let checks = powers::checks(&Fake::new(&[("proc/self/status", none)]).system());
    assert_eq!(checks.len(), 4);
    assert!(said(&checks).contains("AmbientCapabilities=CAP_NET_ADMIN"));
    let contained = "CapEff:\t0000000000002400\nCapBnd:\t0000000000002400\n";
    let checks = powers::checks(&Fake::new(&[("proc/self/status", contained)]).system());
    let text = said(&checks);
    assert_eq!(checks.len(), 2, "{text}");
    assert!(
        text.contains("--cap-add NET_ADMIN") && text.contains("--cap-add SYS_ADMIN"),
        "{text}"
    );
    let all = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
    let checks = powers::checks(&Fake::new(&[("proc/self/status", all)]).system());
    assert_eq!((checks.len(), checks[0].state), (1, State::Ok));
}

#[test]
fn programs_are_asked_for_only_where_something_needs_them() {
    let fake = Fake::new(&[("etc/os-release", "ID=fedora\n"), ("usr/bin/podman", "")]);
    let root = programs::checks(&fake.system(), Who::Root, &[], "root");
    assert_eq!((root.len(), root[0].state), (1, State::Ok));
    let text = said(&programs::checks(&fake.system(), Who::Ordinary, &[], "ann"));
    assert!(text.contains("`newuidmap` is not installed"), "{text}");
    assert!(text.contains("dnf install shadow-utils"), "{text}");
    assert!(
        text.contains("usermod --add-subuids 100000-165535 ann"),
        "{text}"
    );
    fake.write("etc/subuid", "bob:1:2\nann:100000:65536\n");
    fake.write("etc/subgid", "ann:100000:65536\n");
    let text = said(&programs::checks(&fake.system(), Who::Ordinary, &[], "ann"));
    assert!(!text.contains("usermod"), "{text}");
}
