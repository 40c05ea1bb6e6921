//! Initial packets: names in both versions, hellos in pieces, and what a sandbox could try to say twice.

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::{Side, quic};

use super::build::{handshake, name};
use crate::detect::quic::{CONNECTIONS, Inspector, Look};

fn hello(server: &str) -> Vec<u8> {
    handshake(Some(&[name(server.as_bytes())]))
}

fn varint(value: usize) -> [u8; 4] {
    (u32::try_from(value).unwrap() | 0x8000_0000).to_be_bytes()
}

fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset), &varint(data.len()), data].concat()
}

#[derive(Clone, Copy)]
struct Packet<'a> {
    version: quic::Version,
    /// What the keys come from.
    original: &'a [u8],
    /// What stands in the header.
    id: &'a [u8],
    number: u64,
}

const FIRST: Packet<'static> = Packet {
    version: quic::Version::V1,
    original: b"original",
    id: b"original",
    number: 0,
};

impl Packet<'_> {
    fn seal(self, frames: &[u8]) -> Vec<u8> {
        let (wire, kind) = match self.version {
            quic::Version::V2 => (0x6b33_43cf_u32, 0xd1),
            _ => (1, 0xc1),
        };
        let suite = TLS13_AES_128_GCM_SHA256
            .tls13()
            .unwrap()
            .quic_suite()
            .unwrap();
        let keys = suite.keys(self.original, Side::Client, self.version).local;
        let mut payload = frames.to_vec();
        payload.resize(payload.len().max(4), 0);
        let mut header = vec![kind];
        header.extend(wire.to_be_bytes());
        header.push(u8::try_from(self.id.len()).unwrap());
        header.extend(self.id);
        header.extend([3, b's', b'r', b'c', 2, b't', b'k']);
        header.extend(varint(payload.len() + 2 + 16));
        let at = header.len();
        header.extend(&self.number.to_be_bytes()[6..]);
        let tag = keys
            .packet
            .encrypt_in_place(self.number, &header, &mut payload)
            .unwrap();
        let mut whole = [&header[..], &payload, tag.as_ref()].concat();
        let sample = whole[at + 4..at + 20].to_vec();
        let (head, tail) = whole.split_at_mut(at);
        keys.header
            .encrypt_in_place(&sample, &mut head[0], &mut tail[..2])
            .unwrap();
        whole
    }
}

fn named(look: &Look) -> Option<&str> {
    match look {
        Look::Hello(hello) => hello.name.as_ref().map(netpolicy::name::Name::as_str),
        _ => None,
    }
}

#[test]
fn an_initial_shows_its_name_in_both_versions() {
    for version in [quic::Version::V1, quic::Version::V2] {
        let packet = Packet { version, ..FIRST }.seal(&crypto(0, &hello("ok.example")));
        let mut padded = packet.clone();
        padded.resize(1200, 0);
        for datagram in [packet, padded] {
            assert_eq!(
                named(&Inspector::default().look(&datagram)),
                Some("ok.example")
            );
        }
    }
}

#[test]
fn a_hello_in_pieces_and_out_of_order_is_put_together() {
    let whole = hello("ok.example");
    let (begin, end) = whole.split_at(30);
    let mut inspector = Inspector::default();
    let second = Packet { number: 1, ..FIRST }.seal(&crypto(30, end));
    assert_eq!(inspector.look(&second), Look::Need);
    assert_eq!(
        inspector.look(&second),
        Look::Need,
        "a copy says nothing new"
    );
    // acknowledgement, ping and padding beside it
    let frames = [&[2, 1, 0, 0, 0, 1, 0, 0][..], &crypto(0, begin)].concat();
    let look = inspector.look(&FIRST.seal(&frames));
    assert_eq!(named(&look), Some("ok.example"));
    assert_eq!(
        inspector.look(&second),
        Look::Pass,
        "repeated after it was judged"
    );
    // both pieces as two packets of one datagram
    let both = [FIRST.seal(&crypto(0, begin)), second].concat();
    assert_eq!(named(&Inspector::default().look(&both)), Some("ok.example"));
}

#[test]
fn another_hello_in_the_same_handshake_is_malformed() {
    let mut inspector = Inspector::default();
    let first = FIRST.seal(&crypto(0, &hello("ok.example")));
    assert_eq!(named(&inspector.look(&first)), Some("ok.example"));
    let again = Packet { number: 1, ..FIRST }.seal(&crypto(0, &hello("no.example")));
    assert!(matches!(inspector.look(&again), Look::Malformed(_)));
    let mut inspector = Inspector::default();
    let both = [
        crypto(0, &hello("ok.example")),
        crypto(0, &hello("no.example")),
    ]
    .concat();
    assert!(matches!(
        inspector.look(&FIRST.seal(&both)),
        Look::Malformed(_)
    ));
    let appended = [hello("ok.example"), hello("no.example")].concat();
    let look = Inspector::default().look(&FIRST.seal(&crypto(0, &appended)));
    assert!(matches!(look, Look::Malformed(_)));
}

#[test]
fn another_connection_of_the_session_is_judged_again() {
    let mut inspector = Inspector::default();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example"))));
    let other = Packet {
        original: b"another",
        id: b"another",
        ..FIRST
    };
    let look = inspector.look(&other.seal(&crypto(0, &hello("no.example"))));
    assert_eq!(named(&look), Some("no.example"));
    // what follows a server's answer has the server's id and the first id's keys, in either version
    for version in [quic::Version::V1, quic::Version::V2] {
        let later = Packet {
            version,
            id: b"server",
            number: 7,
            ..FIRST
        };
        assert_eq!(inspector.look(&later.seal(&[1])), Look::Pass);
    }
    let stranger = Packet {
        original: b"stranger",
        id: b"server",
        ..FIRST
    };
    assert_eq!(inspector.look(&stranger.seal(&[1])), Look::Sealed);
}

#[test]
fn a_hello_is_never_hidden_behind_another_handshake_in_its_datagram() {
    let other = Packet {
        original: b"another",
        id: b"another",
        ..FIRST
    };
    let part = other.seal(&crypto(0, &hello("ok.example")[..30]));
    let whole = FIRST.seal(&crypto(0, &hello("no.example")));
    for datagram in [
        [part.clone(), whole.clone()].concat(),
        [whole, part].concat(),
    ] {
        let look = Inspector::default().look(&datagram);
        assert!(matches!(look, Look::Malformed(_)), "{look:?}");
    }
    // under one id, a hello is told whatever stands beside it
    let same = Packet {
        id: b"server",
        original: b"server",
        ..FIRST
    };
    let mut inspector = Inspector::default();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example")[..30])));
    let beside = Packet {
        id: b"server",
        number: 1,
        ..FIRST
    };
    let both = [
        same.seal(&crypto(0, &hello("no.example"))),
        beside.seal(&[1]),
    ]
    .concat();
    assert_eq!(named(&inspector.look(&both)), Some("no.example"));
}

#[test]
fn packet_numbers_are_read_as_the_far_end_reads_them() {
    let mut inspector = Inspector::default();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example"))));
    for number in [0xfff0, 0x1_0002, 0x1_7000, 0x1_6fff] {
        let packet = Packet { number, ..FIRST };
        assert_eq!(
            inspector.look(&packet.seal(&[1])),
            Look::Pass,
            "{number:#x}"
        );
    }
    let conflict = Packet {
        number: 0x1_7001,
        ..FIRST
    };
    let look = inspector.look(&conflict.seal(&crypto(0, &hello("no.example"))));
    assert!(matches!(look, Look::Malformed(_)));
}

#[test]
fn old_handshakes_make_room_and_come_back_only_with_their_whole_hello() {
    let mut inspector = Inspector::default();
    for n in 0..=u8::try_from(CONNECTIONS).unwrap() {
        let id = [n; 8];
        let packet = Packet {
            original: &id,
            id: &id,
            ..FIRST
        };
        let look = inspector.look(&packet.seal(&crypto(0, &hello("ok.example"))));
        assert_eq!(named(&look), Some("ok.example"));
    }
    let forgotten = Packet {
        original: &[0; 8],
        id: &[0; 8],
        number: 1,
        ..FIRST
    };
    assert_eq!(
        inspector.look(&forgotten.seal(&crypto(10, b"tail"))),
        Look::Need
    );
}

#[test]
fn frames_that_no_initial_carries_and_endless_hellos_are_malformed() {
    for frames in [
        vec![8, 0, 1, 2],
        vec![6, 0x40, 0, 0x44],
        crypto(16 * 1024, b"x"),
        vec![2, 1, 0, 0x7f, 0xff],
        vec![0x1d, 0, 0],
    ] {
        let look = Inspector::default().look(&FIRST.seal(&frames));
        assert!(matches!(look, Look::Malformed(_)), "{frames:?}: {look:?}");
    }
}

#[test]
fn what_is_not_an_initial_is_told_apart() {
    let mut inspector = Inspector::default();
    for (datagram, look) in [
        (&b""[..], Look::NotQuic),
        (b"\x40short header", Look::Pass),
        (b"\x01\x00\x00\x00 wireguard", Look::NotQuic),
        (b"\x16\xfe\xfd dtls", Look::NotQuic),
        (b"\xc0\x00", Look::NotQuic),
        (b"\xc0\x00\x00\x00\x00 negotiation", Look::NotQuic),
        (b"\xc0\xff\x00\x00\x1d draft 29", Look::Pass),
        (b"\x80\x00\x00\x00\x01 no fixed bit", Look::NotQuic),
        (b"\xf0\x00\x00\x00\x01\x00\x00retry", Look::NotQuic),
        (b"\xe0\x00\x00\x00\x01\x01i\x00\x02hs", Look::Pass),
    ] {
        assert_eq!(
            inspector.look(datagram),
            look,
            "{}",
            datagram.escape_ascii()
        );
    }
}

#[test]
fn no_changed_byte_changes_the_name() {
    let packet = FIRST.seal(&crypto(0, &hello("ok.example")));
    for at in 0..packet.len() {
        let mut changed = packet.clone();
        changed[at] ^= 0x10;
        let look = Inspector::default().look(&changed);
        assert!(
            matches!(named(&look), None | Some("ok.example")),
            "byte {at}: {look:?}"
        );
    }
    for length in 0..packet.len() {
        assert_eq!(named(&Inspector::default().look(&packet[..length])), None);
    }
}
