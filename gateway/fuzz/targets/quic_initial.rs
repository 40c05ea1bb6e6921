//! Any bytes as datagrams of a session, raw and as frames inside an Initial that opens: one answer, no panic, no name that
//! is none, and no second hello in a handshake that was judged.

use std::sync::Arc;

use gateway::detect::quic::{Claims, Inspector, Known, Look};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::{Side, quic};

/// The connection id of every sealed Initial here.
const ID: [u8; 8] = *b"original";

/// One run. The first byte says how; the rest is cut into datagrams by its own length bytes.
pub fn run(bytes: &[u8]) {
    let Some((how, mut rest)) = bytes.split_first() else {
        return;
    };
    let network = "n".parse().expect("an id");
    let mut inspector = Inspector::new(Claims::new(Arc::<Known>::default(), network));
    let mut hellos = 0;
    let mut number = 0;
    while let Some((length, tail)) = rest.split_first() {
        let (piece, tail) = tail.split_at((usize::from(*length) * 8).min(tail.len()));
        rest = tail;
        let look = if how & 1 == 0 {
            inspector.look(piece)
        } else {
            number += 1;
            inspector.look(&initial(how & 2 != 0, number, piece))
        };
        if let Look::Hello(hello) = look {
            hellos += 1;
            if let Some(name) = hello.name {
                assert!(bytes.len() > name.as_str().len());
            }
        }
    }
    assert!(
        how & 1 == 0 || hellos <= 1,
        "{hellos} hellos in one handshake"
    );
}

/// An Initial packet of these frames, as a client seals it.
pub fn initial(two: bool, number: u8, frames: &[u8]) -> Vec<u8> {
    let (version, wire, kind) = if two {
        (quic::Version::V2, 0x6b33_43cf_u32, 0xd0)
    } else {
        (quic::Version::V1, 1, 0xc0)
    };
    let suite = TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite);
    let keys = suite
        .expect("a QUIC suite")
        .keys(&ID, Side::Client, version);
    let mut payload = frames.to_vec();
    // a server drops what is shorter
    payload.resize(payload.len().max(1200), 0);
    let length = u16::try_from(payload.len() + 17).expect("short") | 0x4000;
    let mut header = vec![kind];
    header.extend(wire.to_be_bytes());
    header.push(8);
    header.extend(ID);
    header.extend([0, 0]);
    header.extend(length.to_be_bytes());
    header.push(number);
    let tag = keys
        .local
        .packet
        .encrypt_in_place(u64::from(number), &header, &mut payload)
        .expect("sealing");
    payload.extend(tag.as_ref());
    let at = header.len() - 1;
    let mut packet = header;
    packet.extend(payload);
    let sample = packet[at + 4..at + 20].to_vec();
    let (head, tail) = packet.split_at_mut(at);
    keys.local
        .header
        .encrypt_in_place(&sample, &mut head[0], &mut tail[..1])
        .expect("protection");
    packet
}
