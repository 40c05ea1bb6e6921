//! Members: services of one app reach the siblings that they declared, and nobody else.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lab::client::{SURELY, ask, connect, connect_within, resolve4, resolve6};
use lab::dns::{code, kind};
use lab::namespace::Namespace;
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

pub const PORT: u16 = 5432;
const SHORT: Duration = Duration::from_millis(600);

pub fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

/// Echoes on TCP and UDP, both families, until the test ends.
pub fn serve(sandbox: &Sandbox) {
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
    let patient = stream.set_read_timeout(Some(SURELY)).is_ok();
    patient
        && stream.write_all(b"ping").is_ok()
        && stream.read_exact(&mut back).is_ok()
        && &back == b"ping"
}

/// What must be reached, within a patient time.
pub fn reaches(from: &Sandbox, to: IpAddr) -> bool {
    echoes_within(from, to, SURELY)
}

/// What must not be reached, or not yet.
pub fn reaches_soon(from: &Sandbox, to: IpAddr) -> bool {
    echoes_within(from, to, SHORT)
}

fn echoes_within(from: &Sandbox, to: IpAddr, limit: Duration) -> bool {
    from.run(|| match connect_within(SocketAddr::new(to, PORT), limit) {
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

/// Whether a datagram that must come back does.
pub fn datagrams(from: &Sandbox, to: IpAddr) -> bool {
    datagrams_within(from, to, SURELY)
}

fn datagrams_within(from: &Sandbox, to: IpAddr, limit: Duration) -> bool {
    from.run(|| {
        let to = SocketAddr::new(to, PORT);
        lab::client::datagram(to, b"ping", limit).is_ok_and(|back| back == b"ping")
    })
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
            !reaches_soon(from, to.v4()) && !reaches_soon(from, to.v6()),
            "{} reached {}",
            from.name(),
            to.name()
        );
    }
    // datagrams go both ways between the two that know each other, and no other way
    assert!(datagrams(&db, web.v4()) && datagrams(&db, web.v6()));
    for (from, to) in [(&idle, &db), (&web, &idle)] {
        assert!(
            !datagrams_within(from, to.v4(), SHORT) && !datagrams_within(from, to.v6(), SHORT),
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
            !reaches_soon(outsider, db.v4()) && !reaches_soon(outsider, db.v6()),
            "{}",
            outsider.name()
        );
        let came_back = datagrams_within(outsider, db.v4(), SHORT);
        assert!(!came_back, "{}", outsider.name());
        assert_eq!(
            outsider.run(|| ask("db", kind::A)).map(|a| a.addresses()),
            Some(vec![]),
            "{}",
            outsider.name()
        );
    }
    assert!(!reaches_soon(&own, run.v4()) && !reaches_soon(&own, run.v6()));
    // a run still has what its policy gives it
    let far = SocketAddr::new(
        lab::topology::ip(lab::topology::PUBLIC4),
        lab::origin::port::ECHO,
    );
    assert!(run.run(|| connect(far).is_open()) && own.run(|| connect(far).is_open()));
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
    assert!(
        !reaches_soon(&db, web.v4()),
        "killing the gateway opens nothing"
    );
    lab.gateway_mut().launch();
    eventually("the members to be adopted", || {
        reaches_soon(&web, db.v4()).then_some(())
    });
    assert!(
        echoes_on(&mut stream),
        "a connection between siblings survives"
    );
    assert!(!reaches_soon(&db, web.v4()) && !reaches_soon(&db, web.v6()));
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
        reaches_soon(&web, db.v4()).then_some(())
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
        reaches_soon(&web, db.v4()).then_some(())
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
