//! Builds ClientHellos field by field.

/// An extension.
pub(super) fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &length16(value)].concat()
}

/// A vector with a two-byte length.
pub(super) fn length16(value: &[u8]) -> Vec<u8> {
    [
        &u16::try_from(value.len()).unwrap().to_be_bytes()[..],
        value,
    ]
    .concat()
}

/// The server_name extension with these (kind, name) entries.
pub(super) fn names(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = entries
        .iter()
        .flat_map(|(kind, name)| [&[*kind][..], &length16(name)].concat())
        .collect();
    extension(0, &length16(&list))
}

/// The usual server_name extension.
pub(super) fn name(name: &[u8]) -> Vec<u8> {
    names(&[(0, name)])
}

/// A handshake message with these extensions; `None` leaves the block away.
pub(super) fn handshake(extensions: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(32);
    body.extend([9; 32]);
    // a GREASE suite first, as browsers send it
    body.extend(length16(&[0x0a, 0x0a, 0x13, 0x01, 0x13, 0x02]));
    body.extend([1, 0]);
    if let Some(extensions) = extensions {
        body.extend(length16(&extensions.concat()));
    }
    message(&body)
}

/// A ClientHello message of any body.
pub(super) fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1][..], &length[1..], body].concat()
}

/// Cuts a handshake message into records of at most `size` bytes.
pub(super) fn records(handshake: &[u8], size: usize) -> Vec<u8> {
    handshake
        .chunks(size)
        .flat_map(|fragment| record(22, fragment))
        .collect()
}

pub(super) fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &length16(fragment)].concat()
}

/// A whole hello for one name in one record.
pub(super) fn hello(server_name: &[u8]) -> Vec<u8> {
    records(&handshake(Some(&[name(server_name)])), 16_384)
}

/// The bytes of a captured hello.
pub(super) fn captured(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(byte).collect()
}
