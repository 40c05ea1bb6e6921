//! Initial packets: names in both versions, hellos in pieces, and what a sandbox could try to say twice.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::{Side, quic};

use super::build::{handshake, name};
use crate::detect::quic::{CONNECTIONS, Claims, Inspector, Known, Look};

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
    token: &'a [u8],
    /// Bits of the first byte that differ from an ordinary one's.
    flip: u8,
    /// Padding until here.
    least: usize,
}

const FIRST: Packet<'static> = Packet {
    version: quic::Version::V1,
    original: b"original",
    id: b"original",
    number: 0,
    token: b"tk",
    flip: 0,
    least: 1200,
};

fn fresh() -> Inspector {
    of(&Arc::default())
}

/// A session beside others.
fn of(known: &Arc<Known>) -> Inspector {
    Inspector::new(Claims::new(known.clone(), "n".parse().unwrap()))
}

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
        payload.resize(payload.len().max(self.least), 0);
        let mut header = vec![kind ^ self.flip];
        header.extend(wire.to_be_bytes());
        header.push(u8::try_from(self.id.len()).unwrap());
        header.extend(self.id);
        header.extend([3, b's', b'r', b'c', u8::try_from(self.token.len()).unwrap()]);
        header.extend(self.token);
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
        padded.resize(packet.len() + 50, 0);
        for datagram in [packet, padded] {
            assert_eq!(named(&fresh().look(&datagram)), Some("ok.example"));
        }
    }
}

#[test]
fn a_hello_in_pieces_and_out_of_order_is_put_together() {
    let whole = hello("ok.example");
    let (begin, end) = whole.split_at(30);
    let mut inspector = fresh();
    let second = Packet { number: 1, ..FIRST }.seal(&crypto(30, end));
    assert_eq!(inspector.look(&second), Look::Need);
    let copy = Packet { number: 2, ..FIRST }.seal(&crypto(30, end));
    assert_eq!(inspector.look(&copy), Look::Need, "a copy says nothing new");
    // acknowledgement, ping and padding beside it
    let frames = [&[2, 1, 0, 0, 0, 1, 0, 0][..], &crypto(0, begin)].concat();
    let look = inspector.look(&FIRST.seal(&frames));
    assert_eq!(named(&look), Some("ok.example"));
    let again = Packet { number: 3, ..FIRST }.seal(&crypto(30, end));
    assert_eq!(
        inspector.look(&again),
        Look::Middle,
        "repeated after it was judged"
    );
    // both pieces as two packets of one datagram
    let both = [FIRST.seal(&crypto(0, begin)), second].concat();
    assert_eq!(named(&fresh().look(&both)), Some("ok.example"));
}

#[test]
fn another_hello_in_the_same_handshake_is_malformed() {
    let mut inspector = fresh();
    let first = FIRST.seal(&crypto(0, &hello("ok.example")));
    assert_eq!(named(&inspector.look(&first)), Some("ok.example"));
    let again = Packet { number: 1, ..FIRST }.seal(&crypto(0, &hello("no.example")));
    assert!(matches!(inspector.look(&again), Look::Malformed(_)));
    let mut inspector = fresh();
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
    let look = fresh().look(&FIRST.seal(&crypto(0, &appended)));
    assert!(matches!(look, Look::Malformed(_)));
}

#[test]
fn another_connection_of_the_session_is_judged_again() {
    let mut inspector = fresh();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example"))));
    let other = Packet {
        original: b"another!",
        id: b"another!",
        ..FIRST
    };
    let look = inspector.look(&other.seal(&crypto(0, &hello("no.example"))));
    assert_eq!(named(&look), Some("no.example"));
    // what follows a server's answer has the server's id and the first id's keys, in either version
    for (version, number) in [(quic::Version::V1, 7), (quic::Version::V2, 8)] {
        let later = Packet {
            version,
            id: b"server",
            number,
            ..FIRST
        };
        assert_eq!(inspector.look(&later.seal(&[1])), Look::Middle);
    }
    let stranger = Packet {
        original: b"stranger",
        id: b"serverid",
        ..FIRST
    };
    assert!(matches!(
        inspector.look(&stranger.seal(&[1])),
        Look::Drop(_)
    ));
}

#[test]
fn a_hello_is_never_hidden_behind_another_handshake_in_its_datagram() {
    let other = Packet {
        original: b"another!",
        id: b"another!",
        ..FIRST
    };
    let part = other.seal(&crypto(0, &hello("ok.example")[..30]));
    let whole = FIRST.seal(&crypto(0, &hello("no.example")));
    for datagram in [
        [part.clone(), whole.clone()].concat(),
        [whole, part].concat(),
    ] {
        let look = fresh().look(&datagram);
        assert!(matches!(look, Look::Malformed(_)), "{look:?}");
    }
    // under one id, a hello is told whatever stands beside it
    let same = Packet {
        id: b"serverid",
        original: b"serverid",
        ..FIRST
    };
    let mut inspector = fresh();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example")[..30])));
    let beside = Packet {
        id: b"serverid",
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
    let mut inspector = fresh();
    inspector.look(&FIRST.seal(&crypto(0, &hello("ok.example"))));
    for number in [0xfff0, 0x1_0002, 0x1_7000, 0x1_6fff] {
        let packet = Packet { number, ..FIRST };
        assert_eq!(
            inspector.look(&packet.seal(&[1])),
            Look::Middle,
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
fn old_handshakes_make_room_and_do_not_come_back() {
    let mut inspector = fresh();
    for n in 0..=u8::try_from(CONNECTIONS).unwrap() {
        let id = [n; 8];
        let packet = Packet {
            original: &id,
            id: &id,
            ..FIRST
        };
        let look = inspector.look(&packet.seal(&crypto(0, &hello("ok.example"))));
        assert_eq!(named(&look), Some("ok.example"));
        inspector.released();
    }
    let forgotten = Packet {
        original: &[0; 8],
        id: &[0; 8],
        number: 1,
        ..FIRST
    };
    let look = inspector.look(&forgotten.seal(&crypto(10, b"tail")));
    assert!(matches!(look, Look::Drop(_)), "not even with it: {look:?}");
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
        let look = fresh().look(&FIRST.seal(&frames));
        assert!(matches!(look, Look::Malformed(_)), "{frames:?}: {look:?}");
    }
}

#[test]
fn what_is_not_an_initial_is_told_apart() {
    let mut inspector = fresh();
    for (datagram, look) in [
        (&b""[..], Look::NotQuic),
        (b"\x40short header", Look::Middle),
        (b"\x01\x00\x00\x00 wireguard", Look::NotQuic),
        (b"\x16\xfe\xfd dtls", Look::NotQuic),
        (b"\xc0\x00", Look::NotQuic),
        (b"\xc0\x00\x00\x00\x00 negotiation", Look::NotQuic),
        (b"\xc0\xff\x00\x00\x1d draft 29", Look::Pass),
        (b"\x80\x00\x00\x00\x01 no fixed bit", Look::NotQuic),
        (b"\xf0\x00\x00\x00\x01\x00\x00retry", Look::NotQuic),
        (b"\xe0\x00\x00\x00\x01\x01i\x00\x02hs", Look::Middle),
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
        let look = fresh().look(&changed);
        assert!(
            matches!(named(&look), None | Some("ok.example")),
            "byte {at}: {look:?}"
        );
    }
    for length in 0..packet.len() {
        assert_eq!(named(&fresh().look(&packet[..length])), None);
    }
}

/// A hello in two packets of this handshake.
fn halves(packet: Packet<'_>, server: &str) -> [Vec<u8>; 2] {
    let hello = hello(server);
    let (one, two) = hello.split_at(hello.len() / 2);
    let second = Packet {
        number: packet.number + 1,
        ..packet
    };
    [
        packet.seal(&crypto(0, one)),
        second.seal(&crypto(one.len(), two)),
    ]
}

#[test]
fn pieces_leave_only_with_their_own_hello() {
    let mut inspector = fresh();
    let [one, two] = halves(FIRST, "no.example");
    assert_eq!(inspector.look(&one), Look::Need);
    // other hellos in between, enough to push the half out
    for n in 0..=u8::try_from(CONNECTIONS).unwrap() {
        let id = [n; 8];
        let packet = Packet {
            original: &id,
            id: &id,
            ..FIRST
        };
        let look = inspector.look(&packet.seal(&crypto(0, &hello("ok.example"))));
        assert_eq!(named(&look), Some("ok.example"));
        assert!(inspector.released().is_empty(), "another hello's piece");
    }
    assert!(matches!(inspector.look(&two), Look::Drop(_)));
    // the twin
    let mut inspector = fresh();
    let [one, two] = halves(FIRST, "ok.example");
    inspector.look(&one);
    assert_eq!(named(&inspector.look(&two)), Some("ok.example"));
    assert_eq!(inspector.released(), [one]);
}

#[test]
fn the_pieces_of_a_hello_come_through_one_session() {
    let known = Arc::default();
    let (mut here, mut there) = (of(&known), of(&known));
    let [one, two] = halves(FIRST, "ok.example");
    assert_eq!(here.look(&one), Look::Need);
    assert!(matches!(there.look(&two), Look::Drop(_)));
    assert!(matches!(there.look(&one), Look::Drop(_)));
    assert_eq!(named(&here.look(&two)), Some("ok.example"));
    here.released();
    // also when the first session is over
    drop(here);
    assert!(matches!(of(&known).look(&two), Look::Drop(_)));
    // a handshake of which nothing was sent may be tried again
    let other = Packet {
        original: b"another!",
        id: b"another!",
        ..FIRST
    };
    let whole = other.seal(&crypto(0, &hello("ok.example")));
    let mut first = of(&known);
    first.look(&whole);
    drop(first);
    assert_eq!(named(&of(&known).look(&whole)), Some("ok.example"));
}

#[test]
fn what_a_server_drops_is_no_part_of_a_hello() {
    let hello = hello("ok.example");
    let whole = crypto(0, &hello);
    let short = Packet { least: 4, ..FIRST };
    let short_id = Packet {
        original: b"seven77",
        id: b"seven77",
        ..FIRST
    };
    for packet in [short, short_id] {
        let look = fresh().look(&packet.seal(&whole));
        assert!(matches!(look, Look::Drop(_)), "{look:?}");
    }
    // a number that comes twice
    let mut inspector = fresh();
    let (one, two) = hello.split_at(40);
    assert_eq!(inspector.look(&FIRST.seal(&crypto(0, one))), Look::Need);
    let again = inspector.look(&FIRST.seal(&crypto(40, two)));
    assert!(matches!(again, Look::Drop(_)), "{again:?}");
    // reserved bits
    let look = fresh().look(&Packet { flip: 4, ..FIRST }.seal(&whole));
    assert!(matches!(look, Look::Malformed(_)), "{look:?}");
}

#[test]
fn all_pieces_of_a_hello_are_written_in_one_manner() {
    let hello = hello("ok.example");
    let (one, two) = hello.split_at(40);
    let second = Packet { number: 1, ..FIRST };
    for (other, reads) in [
        (second, true),
        (
            Packet {
                token: b"other",
                ..second
            },
            false,
        ),
        (
            Packet {
                flip: 0x40,
                ..second
            },
            false,
        ),
        (
            Packet {
                version: quic::Version::V2,
                ..second
            },
            false,
        ),
    ] {
        let mut inspector = fresh();
        assert_eq!(inspector.look(&FIRST.seal(&crypto(0, one))), Look::Need);
        let look = inspector.look(&other.seal(&crypto(40, two)));
        if reads {
            assert_eq!(named(&look), Some("ok.example"));
        } else {
            assert!(matches!(look, Look::Malformed(_)), "{look:?}");
        }
    }
}

#[test]
fn a_cleared_fixed_bit_hides_nothing() {
    let greased = Packet {
        flip: 0x40,
        ..FIRST
    };
    let look = fresh().look(&greased.seal(&crypto(0, &hello("no.example"))));
    assert_eq!(named(&look), Some("no.example"));
}

#[test]
fn a_hello_is_not_lost_beside_what_cannot_be_read() {
    let sealed = Packet {
        original: b"stranger",
        ..FIRST
    };
    let whole = FIRST.seal(&crypto(0, &hello("no.example")));
    for datagram in [
        [whole.clone(), sealed.seal(&[1])].concat(),
        [sealed.seal(&[1]), whole].concat(),
    ] {
        let look = fresh().look(&datagram);
        assert!(matches!(look, Look::Malformed(_)), "{look:?}");
    }
}
