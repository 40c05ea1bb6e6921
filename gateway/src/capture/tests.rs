//! A reader of pcapng that trusts nothing reads what the writer wrote; hostile frames harm neither writer nor filter.

use proptest::prelude::*;

use super::filter::Filter;
use super::pcapng::{self, Packet, Section};
use crate::kernel::Seen;

/// A block: its kind, its fixed part and options.
#[derive(Debug)]
struct Block {
    kind: u32,
    body: Vec<u8>,
}

/// Splits a file into blocks, checking lengths at both ends.
fn blocks(mut bytes: &[u8]) -> Vec<Block> {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (kind, length) = (word(bytes, 0), word(bytes, 4) as usize);
        assert!(length % 4 == 0 && length >= 12, "{length}");
        assert_eq!(
            word(bytes, length - 4) as usize,
            length,
            "the length at the end"
        );
        all.push(Block {
            kind,
            body: bytes[8..length - 4].to_vec(),
        });
        bytes = &bytes[length..];
    }
    all
}

/// Options after a fixed part.
fn options(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let (code, length) = (half(0), usize::from(half(2)));
        if code == 0 {
            assert_eq!(
                (length, bytes.len()),
                (0, 4),
                "the end of options is the end"
            );
            return all;
        }
        all.push((code, bytes[4..4 + length].to_vec()));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

fn section() -> Section {
    Section {
        link: "sp0".to_owned(),
        description: "network dev of run r1".to_owned(),
        comment: "policy 0101 generation 3".to_owned(),
        filter: "tcp and port 443".to_owned(),
    }
}

fn seen(captured: usize, length: usize) -> Seen {
    Seen {
        captured,
        length,
        at_ns: 1_790_000_000_123_456_789,
        to_sandbox: true,
    }
}

#[test]
fn the_file_says_whose_it_is_and_under_which_policy() {
    let all = blocks(&pcapng::begin(&section()));
    assert_eq!((all[0].kind, all[1].kind), (0x0A0D_0D0A, 1));
    assert_eq!(all[0].body[..4], 0x1A2B_3C4D_u32.to_le_bytes());
    let told = options(&all[1].body[8..]);
    let text = |code: u16| {
        let (_, value) = told.iter().find(|(c, _)| *c == code).unwrap();
        String::from_utf8(value.clone()).unwrap()
    };
    assert_eq!(text(1), "policy 0101 generation 3");
    assert_eq!(text(2), "sp0");
    assert_eq!(text(3), "network dev of run r1");
    assert_eq!(text(9), "\u{9}", "times are nanoseconds");
    assert_eq!(text(11), "\u{0}tcp and port 443");
}

#[test]
fn counts_and_remarks_can_be_read() {
    let all = blocks(&pcapng::statistics(1000, 7, 5));
    let told = options(&all[0].body[12..]);
    assert_eq!(
        told,
        [
            (4, 1000_u64.to_le_bytes().to_vec()),
            (5, 7_u64.to_le_bytes().to_vec())
        ]
    );
    let all = blocks(&pcapng::remark("generation 4", 5));
    assert_eq!(options(&all[0].body[20..]), [(1, b"generation 4".to_vec())]);
    // a text that is far too long for an option is cut at a character
    let long = Section {
        description: "ü".repeat(50_000),
        ..section()
    };
    assert_eq!(blocks(&pcapng::begin(&long)).len(), 2);
}

proptest! {
    #[test]
    fn every_frame_comes_back_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 0_usize..100) {
        let mut file = pcapng::begin(&section());
        let seen = seen(bytes.len(), bytes.len() + cut);
        pcapng::packet(&mut file, &Packet { seen, bytes: &bytes });
        let all = blocks(&file);
        let body = &all[2].body;
        let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        prop_assert_eq!((u64::from(word(4)) << 32) | u64::from(word(8)), seen.at_ns);
        prop_assert_eq!((word(12) as usize, word(16) as usize), (bytes.len(), bytes.len() + cut));
        prop_assert_eq!(&body[20..20 + bytes.len()], &bytes[..]);
        let told = options(&body[20 + bytes.len().next_multiple_of(4)..]);
        prop_assert_eq!(told, vec![(2, vec![2, 0, 0, 0])]);
    }

    #[test]
    fn no_frame_confuses_a_filter(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3) {
        let mut frame = bytes;
        if frame.len() > 14 {
            let ether: u16 = [0x0800, 0x86dd, 0x0806][usize::try_from(kind).unwrap()];
            frame[12..14].copy_from_slice(&ether.to_be_bytes());
        }
        for text in ["tcp", "udp and port 53", "host 198.18.0.5", "host fd00::1", "icmp6", "arp"] {
            let (is, is_not): (Filter, Filter) = (text.parse().unwrap(), format!("not {text}").parse().unwrap());
            let single = !text.contains("and");
            prop_assert!(!single || is.takes(&frame) != is_not.takes(&frame), "{}", text);
        }
        prop_assert!("".parse::<Filter>().unwrap().takes(&frame));
    }
}

/// An IPv4 frame with a TCP or UDP header.
fn v4(protocol: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(0x0800_u16.to_be_bytes());
    let mut packet = vec![0x46, 0, 0, 0, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 198, 18, 0, 5, 203, 0, 113, 9]);
    packet.extend([1; 4]);
    packet.extend(ports[0].to_be_bytes());
    packet.extend(ports[1].to_be_bytes());
    frame.extend(packet);
    frame
}

fn takes(filter: &str, frame: &[u8]) -> bool {
    filter.parse::<Filter>().unwrap().takes(frame)
}

#[test]
fn words_choose_by_protocol_address_and_port() {
    let frame = v4(6, 0, [40_000, 443]);
    for yes in [
        "tcp",
        "ip",
        "port 443",
        "port 40000",
        "host 203.0.113.9 and tcp",
        "not udp and not port 80",
        "tcp port 443",
    ] {
        assert!(takes(yes, &frame), "{yes}");
    }
    for no in [
        "udp",
        "ip6",
        "arp",
        "port 80",
        "host 203.0.113.8",
        "not tcp",
        "tcp and port 80",
    ] {
        assert!(!takes(no, &frame), "{no}");
    }
    assert!(
        !takes("port 443", &v4(6, 7, [40_000, 443])),
        "a later fragment has no ports"
    );
    // the same behind extension headers of IPv6
    let mut six = vec![0; 12];
    six.extend(0x86dd_u16.to_be_bytes());
    six.extend([0x60, 0, 0, 0, 0, 0, 0, 64]);
    six.extend([0xfd; 32]);
    six.extend([17, 0, 0, 0, 0, 0, 0, 0]);
    six.extend([0, 53, 0, 53]);
    assert!(takes("udp and port 53 and ip6", &six));
}

#[test]
fn a_word_that_is_none_is_named() {
    for (text, named) in [
        ("tcp or udp", "or"),
        ("host example.com", "host"),
        ("port 70000", "port"),
        ("not", ""),
        ("and tcp", "and"),
        (&"tcp ".repeat(40), "so many words"),
    ] {
        let error = text.parse::<Filter>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{named:?}")), "{text}: {error}");
    }
}
