//! Any bytes as the first of a TLS flow, whole and cut in two: one answer, no panic, and a name is always a host name.

use gateway::detect::hello::{HelloReader, Progress};

/// One run. The first byte says where to cut.
pub fn run(bytes: &[u8]) {
    let Some((cut, raw)) = bytes.split_first() else {
        return;
    };
    let whole = HelloReader::default().advance(raw);
    let cut = raw.len() * usize::from(*cut) / 256;
    let mut reader = HelloReader::default();
    let pieces = match reader.advance(&raw[..cut]) {
        Progress::Need => reader.advance(raw),
        early => early,
    };
    match (&whole, &pieces) {
        // the same kind of refusal; which mistake is met first may depend on what has arrived
        (Progress::Malformed(_), Progress::Malformed(_)) => {}
        _ => assert_eq!(whole, pieces, "cut at {cut}"),
    }
    if let Progress::Hello(hello) = whole {
        assert!(hello.alpn.len() <= 8);
        if let Some(name) = hello.name {
            assert!(raw.len() > name.as_str().len());
            assert!(
                !name.as_str().ends_with(|c: char| c.is_ascii_digit())
                    || name.as_str().contains(|c: char| c.is_ascii_alphabetic())
            );
        }
    }
}
