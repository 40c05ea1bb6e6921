//! Anchors that left the machine's disk: a fake syslog daemon keeps them, and they convict whoever has the key.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use super::super::syslog::Target;
use super::super::verify::{Kind, verify_against};
use super::super::*;
use super::{Lab, edit, open};

/// A journal that anchors to a daemon, which writes a file as daemons do.
struct Anchored {
    lab: Lab,
    daemon: UnixDatagram,
}

impl Anchored {
    fn new() -> Self {
        let mut lab = Lab::new();
        let path = lab.dir.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        daemon
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        lab.config.syslog = Some(Target::Socket(path));
        Self { lab, daemon }
    }

    fn write(&self, flows: u64) {
        let journal = self.lab.journal();
        for flow in 0..flows {
            journal.append(open(flow, "a")).unwrap();
        }
        journal.tick(true).unwrap();
        journal.close().unwrap();
    }

    fn message(&self) -> String {
        let mut buffer = [0; 2048];
        let length = self.daemon.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// What the daemon would have written: two anchors among other programs' lines.
    fn file(&self) -> PathBuf {
        let path = self.lab.dir.path().join("messages");
        let mut text = "Nov 29 12:00:00 gw sshd[1]: session opened\n".to_owned();
        for _ in 0..2 {
            let message = self.message();
            let (_, message) = message.split_once(" anchor - ").unwrap();
            text.extend(["Nov 29 12:00:01 gw sallyport[7]: ", message, "\n"]);
        }
        fs::write(&path, text + "Nov 29 12:00:02 gw kernel: {not ours}\n").unwrap();
        path
    }

    fn report(&self, file: &std::path::Path, key: Option<&str>) -> Report {
        verify_against(&self.lab.config.dir, file, key).unwrap()
    }
}

#[test]
fn a_journal_written_anew_with_its_own_key_is_found_by_what_syslog_kept() {
    let anchored = Anchored::new();
    anchored.write(20);
    let file = anchored.file();
    let report = anchored.report(&file, None);
    assert!(report.ok(), "{:?}", report.findings);
    assert!(report.anchors >= 1, "{report:?}");
    // Root on the machine: same key, other lines, fresh anchors on the same disk.
    fs::remove_dir_all(&anchored.lab.config.dir).unwrap();
    fs::remove_file(&anchored.lab.config.anchors).unwrap();
    anchored.write(20);
    assert!(
        verify(&anchored.lab.config.dir).unwrap().ok(),
        "nothing on this disk knows"
    );
    let kinds: Vec<Kind> = anchored
        .report(&file, None)
        .findings
        .iter()
        .map(|f| f.kind)
        .collect();
    assert!(kinds.contains(&Kind::Replaced), "{kinds:?}");
}

#[test]
fn a_cut_and_resigned_end_is_found_by_what_syslog_kept() {
    let anchored = Anchored::new();
    anchored.write(20);
    let file = anchored.file();
    let config = &anchored.lab.config;
    edit(anchored.lab.segments().last().unwrap(), |lines| {
        lines.truncate(1);
    });
    fs::remove_file(config.dir.join(super::super::keep::HEAD)).unwrap();
    fs::remove_file(&config.anchors).unwrap();
    anchored.lab.journal().close().unwrap();
    assert!(
        verify(&config.dir).unwrap().ok(),
        "nothing on this disk knows"
    );
    assert!(!anchored.report(&file, None).ok());
}

#[test]
fn another_gateways_anchors_are_told_apart_by_key_and_a_damaged_one_is_found() {
    let (ours, other) = (Anchored::new(), Anchored::new());
    ours.write(5);
    other.write(5);
    let (file, others) = (ours.file(), other.file());
    let both = ours.lab.dir.path().join("both");
    fs::write(
        &both,
        [fs::read(&file).unwrap(), fs::read(others).unwrap()].concat(),
    )
    .unwrap();
    let key = ours.report(&file, None).key.unwrap();
    let report = ours.report(&both, Some(&key));
    assert!(report.ok(), "{:?}", report.findings);
    assert!(
        !ours.report(&both, None).ok(),
        "without a key a foreign anchor counts"
    );
    let damaged = fs::read_to_string(&file)
        .unwrap()
        .replace("\"seq\":", "\"seq\":9");
    fs::write(&both, damaged).unwrap();
    assert!(
        ours.report(&both, Some(&key))
            .findings
            .iter()
            .all(|f| f.kind == Kind::Signature)
    );
    assert!(!ours.report(&both, Some(&key)).ok());
}

#[test]
fn a_daemon_that_is_away_or_does_not_read_costs_an_anchor_and_nothing_else() {
    let anchored = Anchored::new();
    let journal = anchored.lab.journal();
    for flow in 0..3000 {
        // nobody reads: the socket's buffer fills, and no tick waits for it
        if flow % 10 == 0 {
            journal.append(open(flow, "a")).unwrap();
        }
        journal.tick(true).unwrap();
    }
    fs::remove_file(anchored.lab.dir.path().join("log")).unwrap();
    journal.tick(true).unwrap();
    journal.append(open(1, "a")).unwrap();
    journal.close().unwrap();
    assert!(anchored.lab.report().ok());
}

#[test]
fn a_server_is_reached_over_udp() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut lab = Lab::new();
    lab.config.syslog = Some(Target::Server(server.local_addr().unwrap()));
    lab.journal().close().unwrap();
    let mut buffer = [0; 2048];
    let length = server.recv(&mut buffer).unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    assert!(
        text.starts_with("<85>1 2") && text.contains(" sallyport "),
        "{text}"
    );
}
