//! Members: services of one app reach the siblings that they declared, and nobody else.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lab::capture::Capture;
use lab::client::{ask, connect, connect_within, resolve4, resolve6};
use lab::dns::{code, kind};
use lab::namespace::Namespace;
use lab::raw::{self, protocol};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

const PORT: u16 = 5432;
const SHORT: Duration = Duration::from_millis(600);

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

/// Echoes on TCP and UDP, both families, until the test ends.
fn serve(sandbox: &Sandbox) {
    let tcp = sandbox.run(|| TcpListener::bind(("::", PORT)).expect("listen"));
    let udp = sandbox.run(|| UdpSocket::bind(("::", PORT)).expect("bind"));
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let _ = stream.write_all(buffer.get(..length).unwrap_or_default());
                }
            });
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(buffer.get(..length).unwrap_or_default(), from);
        }
    });
}

fn echoes_on(stream: &mut TcpStream) -> bool {
    let mut back = [0; 4];
    stream.write_all(b"ping").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"ping"
}

fn reaches(from: &Sandbox, to: IpAddr) -> bool {
    from.run(|| match connect_within(SocketAddr::new(to, PORT), SHORT) {
        lab::client::Connect::Open(mut stream) => echoes_on(&mut stream),
        _ => false,
    })
}

/// More than any buffer on the way, so that whole segments of every size pass.
fn carries_bulk(from: &Sandbox, to: IpAddr) -> bool {
    let stream = from.run(|| connect(SocketAddr::new(to, PORT)).expect_open());
    let mut writer = stream.try_clone().expect("clone");
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy).is_ok());
    let mut back = vec![0; sent.len()];
    let read = { &stream }.read_exact(&mut back).is_ok();
    writing.join().expect("writer") && read && back == sent
}

fn datagrams(from: &Sandbox, to: IpAddr) -> bool {
    from.run(|| {
        let to = SocketAddr::new(to, PORT);
        lab::client::datagram(to, b"ping", SHORT).is_ok_and(|back| back == b"ping")
    })
}

fn v4(address: IpAddr) -> Ipv4Addr {
    if let IpAddr::V4(ip) = address {
        ip
    } else {
        Ipv4Addr::UNSPECIFIED
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    if let IpAddr::V6(ip) = address {
        ip
    } else {
        Ipv6Addr::UNSPECIFIED
    }
}

#[test]
fn a_service_reaches_a_sibling_that_it_needs_by_name_and_is_not_reached_back() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    let idle = lab.member("shop", "idle", "", policies::NONE);
    for sandbox in [&db, &web, &idle] {
        serve(sandbox);
    }
    for name in ["db", "db.internal"] {
        assert_eq!(web.run(|| resolve4(name)), [db.v4()], "{name}");
        assert_eq!(web.run(|| resolve6(name)), [db.v6()], "{name}");
    }
    for to in [db.v4(), db.v6()] {
        assert!(reaches(&web, to), "tcp to {to}");
        assert!(carries_bulk(&web, to), "bulk to {to}");
        assert!(datagrams(&web, to), "udp to {to}");
    }
    for (from, to) in [
        (&db, &web),
        (&db, &idle),
        (&idle, &db),
        (&idle, &web),
        (&web, &idle),
    ] {
        assert!(
            !reaches(from, to.v4()) && !reaches(from, to.v6()),
            "{} reached {}",
            from.name(),
            to.name()
        );
    }
    // datagrams go both ways between the two that know each other, and no other way
    assert!(datagrams(&db, web.v4()) && datagrams(&db, web.v6()));
    for (from, to) in [(&idle, &db), (&web, &idle)] {
        assert!(
            !datagrams(from, to.v4()) && !datagrams(from, to.v6()),
            "{} reached {}",
            from.name(),
            to.name()
        );
    }
    for (sandbox, name) in [
        (&db, "web"),
        (&web, "idle"),
        (&idle, "db"),
        (&idle, "db.internal"),
    ] {
        let answer = sandbox.run(|| ask(name, kind::A)).expect("an answer");
        assert_eq!(
            answer.code(),
            code::NXDOMAIN,
            "{name} as {}",
            sandbox.name()
        );
    }
}

#[test]
fn members_of_other_apps_and_runs_stay_apart() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::INTERNET_PRIVATE);
    let own = lab.member("shop", "web", "db", policies::INTERNET_PRIVATE);
    let stranger = lab.member("blog", "web", "db", policies::INTERNET_PRIVATE);
    let run = lab.sandbox(policies::INTERNET_PRIVATE);
    serve(&db);
    serve(&run);
    assert!(reaches(&own, db.v4()), "the permitted twin");
    for outsider in [&stranger, &run] {
        assert!(
            !reaches(outsider, db.v4()) && !reaches(outsider, db.v6()),
            "{}",
            outsider.name()
        );
        assert!(!datagrams(outsider, db.v4()), "{}", outsider.name());
        assert_eq!(
            outsider.run(|| ask("db", kind::A)).map(|a| a.addresses()),
            Some(vec![]),
            "{}",
            outsider.name()
        );
    }
    assert!(!reaches(&own, run.v4()) && !reaches(&own, run.v6()));
    // a run still has what its policy gives it
    let far = SocketAddr::new(
        lab::topology::ip(lab::topology::PUBLIC4),
        lab::origin::port::ECHO,
    );
    assert!(run.run(|| connect(far).is_open()) && own.run(|| connect(far).is_open()));
}

#[test]
fn forged_frames_of_a_member_reach_no_sibling() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    let cache = lab.member("shop", "cache", "db", policies::NONE);
    serve(&db);
    let seen = Capture::start(db.namespace(), &["eth0"]);
    let mark = seen.mark();
    // another member's, another network's and a stranger's source
    for source in [
        v4(cache.v4()),
        Ipv4Addr::new(198, 18, 0, 1),
        Ipv4Addr::new(8, 8, 8, 8),
    ] {
        let datagram = raw::udp(source.into(), db.v4(), (4000, PORT), b"forged");
        web.run(|| raw::send4(&raw::ipv4(source, v4(db.v4()), protocol::UDP, 0, &datagram)))
            .expect("send");
        let segment = raw::syn(source.into(), db.v4(), (4001, PORT));
        web.run(|| raw::send4(&raw::ipv4(source, v4(db.v4()), protocol::TCP, 0, &segment)))
            .expect("send");
    }
    let datagram = raw::udp(cache.v6(), db.v6(), (4000, PORT), b"forged");
    web.run(|| {
        raw::send6(&raw::ipv6(
            v6(cache.v6()),
            v6(db.v6()),
            protocol::UDP,
            &datagram,
        ))
    })
    .expect("send");
    forge_neighbours(&web, &db, &cache);
    // a vlan tag around what would be permitted
    let inner = raw::ipv4(
        v4(web.v4()),
        v4(db.v4()),
        protocol::ICMP,
        0,
        &raw::echo4(b"forged"),
    );
    let tagged = [&[0, 7, 8, 0], inner.as_slice()].concat();
    web.run(|| raw::send_frame("eth0", [0xff; 6], 0x8100, &tagged))
        .expect("send");
    assert!(datagrams(&web, db.v4()), "the permitted twin comes last");
    let frames = seen.since(mark);
    assert!(
        frames.iter().any(|f| f.source == Some(web.v4())),
        "the capture sees what is permitted"
    );
    let forged: Vec<_> = frames
        .iter()
        .filter(|f| f.holds(b"forged") || f.ethertype == 0x0806 || f.touches(cache.v4()))
        .collect();
    assert!(
        forged.is_empty(),
        "{} frames, first {:?}",
        forged.len(),
        forged.first()
    );
    assert!(
        reaches(&cache, db.v4()) && reaches(&cache, db.v6()),
        "nobody believed the forged neighbours"
    );
}

/// Claims a sibling's and the gateway's addresses, by ARP and neighbour advertisement, to everybody.
fn forge_neighbours(web: &Sandbox, db: &Sandbox, cache: &Sandbox) {
    for claimed in [cache.v4(), lab::topology::ip(lab::topology::SERVICE4)] {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9];
        arp.extend_from_slice(&v4(claimed).octets());
        arp.extend_from_slice(&[2, 0, 0, 0, 0, 8]);
        arp.extend_from_slice(&v4(db.v4()).octets());
        web.run(|| raw::send_frame("eth0", [0xff; 6], 0x0806, &arp))
            .expect("send");
    }
    let mut advertisement = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    advertisement.extend_from_slice(&v6(cache.v6()).octets());
    advertisement.extend_from_slice(&[2, 1, 2, 0, 0, 0, 0, 9]);
    for to in [v6(db.v6()), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)] {
        let packet = raw::ipv6(v6(cache.v6()), to, protocol::ICMP6, &advertisement);
        web.run(|| raw::send_frame("eth0", [0xff; 6], 0x86dd, &packet))
            .expect("send");
    }
}

/// A packet with four bytes of IPv4 options (no-operation).
fn under_options(from: Ipv4Addr, to: Ipv4Addr, number: u8, payload: &[u8]) -> Vec<u8> {
    let plain = raw::ipv4(from, to, number, 0, &[&[1, 1, 1, 1], payload].concat());
    let part = |range: std::ops::Range<usize>| plain.get(range).unwrap_or_default();
    let header = |sum: [u8; 2]| [&[0x46], part(1..10), &sum, part(12..24)].concat();
    let sum = raw::checksum(&[&header([0, 0])]);
    [header(sum.to_be_bytes()).as_slice(), payload].concat()
}

#[test]
fn a_needed_service_cannot_open_a_connection_in_fragments_or_under_options() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    serve(&web);
    serve(&db);
    let seen = Capture::start(web.namespace(), &["eth0"]);
    let mark = seen.mark();
    let (from, to) = (v4(db.v4()), v4(web.v4()));
    let segment = raw::syn(db.v4(), web.v4(), (4002, PORT));
    let datagram = raw::udp(db.v4(), web.v4(), (4004, PORT), b"broken");
    let packets = [
        raw::ipv4(from, to, protocol::TCP, 0x2000, &segment[..8]),
        raw::ipv4(from, to, protocol::TCP, 1, &segment[8..]),
        raw::ipv4(from, to, protocol::TCP, 0, &segment),
        under_options(from, to, protocol::TCP, &segment),
        raw::ipv4(from, to, protocol::UDP, 0x2000, &datagram),
        under_options(from, to, protocol::UDP, &datagram),
    ];
    for packet in &packets {
        db.run(|| raw::send4(packet)).expect("send");
    }
    // the same in IPv6, behind a destination options header
    let segment6 = raw::syn(db.v6(), web.v6(), (4003, PORT));
    let hidden = [&[protocol::TCP, 0, 1, 4, 0, 0, 0, 0], segment6.as_slice()].concat();
    db.run(|| raw::send6(&raw::ipv6(v6(db.v6()), v6(web.v6()), 60, &hidden)))
        .expect("send");
    assert!(datagrams(&db, web.v4()), "the permitted twin comes last");
    let arrived: Vec<_> = seen
        .since(mark)
        .into_iter()
        .filter(|f| f.touches(db.v4()) || f.touches(db.v6()))
        .filter(|f| f.protocol != protocol::UDP || f.holds(b"broken"))
        .collect();
    assert!(
        arrived.is_empty(),
        "{} frames, first {:?}",
        arrived.len(),
        arrived.first()
    );
    assert!(reaches(&web, db.v4()), "answers still come back");
}

#[test]
fn a_killed_gateway_adopts_its_members_and_their_connections_outlive_it() {
    let mut lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    serve(&db);
    serve(&web);
    let mut stream = web.run(|| connect(SocketAddr::new(db.v4(), PORT)).expect_open());
    assert!(echoes_on(&mut stream));
    lab.gateway_mut().kill();
    assert!(!reaches(&db, web.v4()), "killing the gateway opens nothing");
    lab.gateway_mut().launch();
    eventually("the members to be adopted", || {
        reaches(&web, db.v4()).then_some(())
    });
    assert!(
        echoes_on(&mut stream),
        "a connection between siblings survives"
    );
    assert!(!reaches(&db, web.v4()) && !reaches(&db, web.v6()));
    eventually("the name to be known again", || {
        (web.run(|| resolve4("db")) == [db.v4()]).then_some(())
    });
}

#[test]
fn a_detached_member_is_unreachable_and_the_last_one_takes_the_lanes_along() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    serve(&db);
    assert!(reaches(&web, db.v4()), "the permitted twin");
    let tables = || {
        String::from_utf8_lossy(
            &lab.gateway()
                .namespace()
                .exec(&["nft", "list", "tables"])
                .stdout,
        )
        .into_owned()
    };
    assert!(tables().contains("netdev"), "{}", tables());
    lab.detach(&db).expect(0);
    assert!(!tables().contains("netdev"), "{}", tables());
    let answer = web.run(|| ask("db", kind::A)).expect("an answer");
    assert_eq!(answer.code(), code::NXDOMAIN);
    // another instance of the service is found under the same name
    let db = lab.member("shop", "db", "", policies::NONE);
    serve(&db);
    assert_eq!(web.run(|| resolve4("db")), [db.v4()]);
    assert!(reaches(&web, db.v4()) && !tables().is_empty());
    lab.detach(&web).expect(0);
    lab.detach(&db).expect(0);
    assert!(!tables().contains("netdev"), "{}", tables());
}

#[test]
fn lanes_that_somebody_changes_are_put_back_and_a_deleted_link_leaves_the_others() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    let cache = lab.member("shop", "cache", "db", policies::NONE);
    serve(&db);
    let gateway = lab.gateway().namespace();
    gateway.exec(&["nft", "flush", "table", "netdev", "sallyport-members"]);
    eventually("the lanes to come back", || {
        reaches(&web, db.v4()).then_some(())
    });
    let links = gateway.exec(&["ip", "-o", "link", "show"]);
    let alias = |name: &str| -> Option<String> {
        let text = String::from_utf8_lossy(&links.stdout).into_owned();
        let line = text
            .lines()
            .find(|l| l.contains(&format!("alias {name}")))?
            .to_owned();
        line.split([':', '@'])
            .nth(1)
            .map(|link| link.trim().to_owned())
    };
    let link = alias(cache.name()).expect("a link with its network's name");
    gateway.exec(&["ip", "link", "del", &link]);
    eventually("the lost member to be dropped", || {
        let list = lab.sallyport(&["net", "ls", "--json"]).expect(0);
        (!list.out.contains(cache.name())).then_some(())
    });
    eventually("the others to go on", || {
        reaches(&web, db.v4()).then_some(())
    });
}

#[test]
fn memberships_that_contradict_are_refused() {
    let lab = lab();
    let _db = lab.member("shop", "db", "", policies::NONE);
    let namespace = Namespace::new("refused");
    let policy = lab
        .file("refused.yml", policies::NONE)
        .display()
        .to_string();
    for (service, needs, says) in [
        ("db", "", "already"),
        ("broker", "", "reserved"),
        ("localhost", "", "reserved"),
        ("web", "proxy", "reserved"),
        ("a.b", "", "service name"),
        ("web", "web", "itself"),
    ] {
        let netns = namespace.path().display().to_string();
        let mut arguments = vec![
            "net", "attach", "--netns", &netns, "--policy", &policy, "--group", "shop",
        ];
        arguments.extend(["--service", service]);
        if !needs.is_empty() {
            arguments.extend(["--needs", needs]);
        }
        let said = lab.sallyport(&arguments);
        assert_ne!(said.code, Some(0), "{service} {needs}");
        assert!(said.err.contains(says), "{service} {needs}: {}", said.err);
    }
    // the namespace was left as it was
    let said = lab.attach_member(&namespace, ("shop", "web", "db"), policies::NONE);
    said.expect(0);
}
