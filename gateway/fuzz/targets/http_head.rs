//! Any bytes as a request, a response and a chunked body: no panic, bounded, the same whole and cut in two.

use gateway::detect::chunked::Chunks;
use gateway::detect::http::{Framing, HeadReader, MOST_HEAD, ResponseReader};

/// One run. The first byte says where to cut.
pub fn run(bytes: &[u8]) {
    let Some((cut, raw)) = bytes.split_first() else {
        return;
    };
    let cut = raw.len() * usize::from(*cut) / 256;
    request(raw, cut);
    chunks(raw, cut);
    if let Ok(Some(head)) = ResponseReader::default().advance(raw, "GET") {
        assert!(head.length <= raw.len() && (100..1000).contains(&head.status));
    }
}

fn request(raw: &[u8], cut: usize) {
    let whole = HeadReader::default().advance(raw);
    let mut reader = HeadReader::default();
    let pieces = match reader.advance(&raw[..cut]) {
        Ok(None) => reader.advance(raw),
        early => early,
    };
    assert_eq!(whole.is_err(), pieces.is_err(), "cut at {cut}");
    let Ok(Some(head)) = whole else { return };
    assert_eq!(Ok(Some(head.clone())), pieces);
    assert!(head.length <= raw.len().min(MOST_HEAD));
    let text = &raw[..head.length];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(head.minor == 0 || head.host.is_some());
    let hosts = head
        .fields
        .iter()
        .filter(|field| field.name == "host")
        .count();
    assert!(hosts <= 1);
    let lengths = head
        .fields
        .iter()
        .filter(|field| field.name == "content-length")
        .count();
    let codings = head
        .fields
        .iter()
        .filter(|field| field.name == "transfer-encoding")
        .count();
    assert!(lengths + codings <= 1);
    assert_eq!(head.framing == Framing::Chunked, codings == 1);
    assert!(
        !text
            .iter()
            .zip(text.iter().skip(1))
            .any(|(a, b)| *b == b'\n' && *a != b'\r'),
        "a bare line feed passed"
    );
    assert!(!text.contains(&0));
}

fn chunks(raw: &[u8], cut: usize) {
    let mut whole = Chunks::default();
    let used = whole.advance(raw);
    let mut pieces = Chunks::default();
    let Ok(first) = pieces.advance(&raw[..cut]) else {
        assert!(used.is_err());
        return;
    };
    let second = if pieces.is_done() {
        Ok(0)
    } else {
        pieces.advance(&raw[first..])
    };
    assert_eq!(used.is_err(), second.is_err(), "cut at {cut}");
    if let (Ok(used), Ok(second)) = (used, second) {
        assert_eq!(used, first + second);
        assert_eq!(whole.is_done(), pieces.is_done());
        assert!(used <= raw.len());
    }
}
