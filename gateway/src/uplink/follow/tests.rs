//! The picture follows the namespace, in both families.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

use super::*;

fn fresh() -> Ns {
    let fd = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        File::open("/proc/thread-self/ns/net").unwrap()
    });
    Ns::from_fd(fd.join().unwrap().into()).unwrap()
}

fn ip(ns: &Ns, script: &str) {
    let fd = ns.fd().as_fd().try_clone_to_owned().unwrap();
    let words: Vec<String> = script.split(' ').map(str::to_owned).collect();
    std::thread::spawn(move || {
        setns(fd, CloneFlags::CLONE_NEWNET).unwrap();
        assert!(
            Command::new("ip").args(&words).status().unwrap().success(),
            "{words:?}"
        );
    })
    .join()
    .unwrap();
}

fn uplink() -> Ns {
    let ns = fresh();
    for line in [
        "link set lo up",
        "link add up0 type veth peer name up1",
        "link set up1 up",
        "link set up0 up",
        "addr add 10.9.0.5/24 dev up0",
        "addr add fd09::5/64 dev up0 nodad",
        "route add 172.30.0.0/16 via 10.9.0.1",
        "route add default via 10.9.0.1",
        "route add 0.0.0.0/1 via 10.9.0.1",
        "-6 route add fd77::/48 via fd09::1",
        "-6 route add default via fd09::1",
    ] {
        ip(&ns, line);
    }
    ns
}

#[test]
fn the_picture_holds_addresses_and_near_prefixes_but_no_default_route() {
    let seen = look(&uplink()).unwrap();
    for address in ["10.9.0.5", "fd09::5", "127.0.0.1", "::1"] {
        assert!(
            seen.addresses.contains(&address.parse().unwrap()),
            "{address}"
        );
    }
    for prefix in ["10.9.0.0/24", "fd09::/64", "172.30.0.0/16", "fd77::/48"] {
        assert!(seen.prefixes.contains(&prefix.parse().unwrap()), "{prefix}");
    }
    for prefix in [
        "0.0.0.0/0",
        "0.0.0.0/1",
        "::/0",
        "127.0.0.0/8",
        "::1/128",
        "fe80::/64",
    ] {
        assert!(
            !seen.prefixes.contains(&prefix.parse().unwrap()),
            "{prefix}"
        );
    }
}

fn leads_here(ns: &Ns, address: &str) -> bool {
    let address = address.parse().unwrap();
    ns.run(move || Ok(crate::uplink::here::leads_here(address).unwrap()))
        .unwrap()
}

#[test]
fn the_kernel_says_which_addresses_are_the_machine_itself() {
    let ns = uplink();
    for (address, local) in [
        ("10.9.0.5", true),
        ("127.0.0.1", true),
        ("fd09::5", true),
        ("::1", true),
        ("10.9.0.6", false),
        ("fd09::6", false),
        ("192.0.2.1", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(leads_here(&ns, address), local, "{address}");
    }
    assert!(!leads_here(&fresh(), "192.0.2.1"), "no route at all");
}

#[tokio::test]
async fn changes_are_followed_live() {
    let ns = uplink();
    let (follower, mut view) = Follower::open(ns.duplicate().unwrap()).unwrap();
    let change = async {
        for (line, address, there) in [
            ("addr add 10.9.7.7/32 dev up0", "10.9.7.7", true),
            ("addr add fd09::77/128 dev up0 nodad", "fd09::77", true),
            ("addr del 10.9.7.7/32 dev up0", "10.9.7.7", false),
        ] {
            let other = ns.duplicate().unwrap();
            tokio::task::spawn_blocking(move || ip(&other, line))
                .await
                .unwrap();
            let address = address.parse().unwrap();
            view.wait_for(|view| view.addresses.contains(&address) == there)
                .await
                .unwrap();
        }
    };
    let followed = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            ended = follower.run() => panic!("the follower ended: {ended:?}"),
            () = change => {}
        }
    });
    followed.await.unwrap();
}

#[tokio::test]
async fn a_local_route_is_noticed_although_no_interface_has_its_addresses() {
    let ns = uplink();
    let (follower, view) = Follower::open(ns.duplicate().unwrap()).unwrap();
    let (notices, before) = (follower.notices(), view.borrow().clone());
    let none = notices.so_far();
    let other = ns.duplicate().unwrap();
    let line = "route add local 203.0.113.0/24 dev lo";
    let noticed = async {
        tokio::task::spawn_blocking(move || ip(&other, line))
            .await
            .unwrap();
        while notices.so_far() == none {
            tokio::task::yield_now().await;
        }
    };
    let followed = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            ended = follower.run() => panic!("the follower ended: {ended:?}"),
            () = noticed => {}
        }
    });
    followed.await.unwrap();
    assert_eq!(*view.borrow(), before);
}

#[tokio::test]
async fn a_new_beginning_shows_what_was_missed_and_follows_again() {
    let ns = uplink();
    let (mut follower, mut view) = Follower::open(ns.duplicate().unwrap()).unwrap();
    let add = |line: &'static str| {
        let other = ns.duplicate().unwrap();
        tokio::task::spawn_blocking(move || ip(&other, line))
    };
    add("addr add 10.9.7.7/32 dev up0").await.unwrap();
    assert!(
        !view
            .borrow()
            .addresses
            .contains(&"10.9.7.7".parse().unwrap())
    );
    follower.begin_again().await.unwrap();
    assert!(
        view.borrow_and_update()
            .addresses
            .contains(&"10.9.7.7".parse().unwrap())
    );
    let followed = tokio::time::timeout(Duration::from_secs(30), async {
        let change = async {
            add("addr add 10.9.7.8/32 dev up0").await.unwrap();
            let address = "10.9.7.8".parse().unwrap();
            view.wait_for(|view| view.addresses.contains(&address))
                .await
                .unwrap();
        };
        tokio::select! {
            ended = follower.run() => panic!("the follower ended: {ended:?}"),
            () = change => {}
        }
    });
    followed.await.unwrap();
}
