//! A commit object: its tree, its parents, its signature and exactly the bytes that were signed.
//!
//! What git's own reader tolerates (a second signature, a signature for another hash, NUL bytes, a header twice) is how
//! one object comes to say two things. Here it is refused. Pure.

use super::names::Oid;

/// What a commit says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The tree.
    pub tree: Oid,
    /// The parents.
    pub parents: Vec<Oid>,
    /// The signature, if there is one.
    pub signature: Option<String>,
    /// What it signs: the object without the signature's header.
    pub payload: Vec<u8>,
}

/// Why bytes are no commit that can be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Reads a commit object.
pub fn read(bytes: &[u8]) -> Result<Commit, Malformed> {
    let end = find(bytes, b"\n\n").ok_or(Malformed("it has no end of its headers"))?;
    let head = bytes.get(..=end).unwrap_or_default();
    if bytes.contains(&0) {
        return Err(Malformed("it contains NUL bytes"));
    }
    let mut payload = Vec::with_capacity(bytes.len());
    let (mut trees, mut parents, mut signatures) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: &[u8] = b"";
    for line in head.split_inclusive(|b| *b == b'\n') {
        let (key, value) = match line.iter().position(|b| *b == b' ') {
            Some(0) => (before, line.get(1..).unwrap_or_default()),
            Some(space) => (
                line.get(..space).unwrap_or_default(),
                line.get(space + 1..).unwrap_or_default(),
            ),
            None => return Err(Malformed("it has a header without a value")),
        };
        let goes_on = line.first() == Some(&b' ');
        match key {
            b"gpgsig" if goes_on => signatures
                .last_mut()
                .map(|s: &mut Vec<u8>| s.extend_from_slice(value))
                .unwrap_or_default(),
            b"gpgsig" => signatures.push(value.to_vec()),
            b"tree" if !goes_on => trees.push(object(value)?),
            b"parent" if !goes_on => parents.push(object(value)?),
            // A name of a header that looks like a signature to somebody else.
            _ if key.to_ascii_lowercase().starts_with(b"gpgsig") => {
                return Err(Malformed(
                    "it has a signature for another kind of repository",
                ));
            }
            _ => {}
        }
        if key != b"gpgsig" {
            payload.extend_from_slice(line);
        }
        before = key;
    }
    payload.extend_from_slice(bytes.get(end + 1..).unwrap_or_default());
    let mut trees = trees.into_iter();
    let (Some(tree), None) = (trees.next(), trees.next()) else {
        return Err(Malformed("it does not name exactly one tree"));
    };
    if signatures.len() > 1 {
        return Err(Malformed("it has more than one signature"));
    }
    let signature = signatures.pop().map(String::from_utf8).transpose();
    let signature = signature.map_err(|_| Malformed("its signature is no text"))?;
    Ok(Commit {
        tree,
        parents,
        signature,
        payload,
    })
}

fn object(value: &[u8]) -> Result<Oid, Malformed> {
    let text = std::str::from_utf8(value)
        .ok()
        .and_then(|t| t.strip_suffix('\n'));
    text.and_then(|t| t.parse().ok())
        .ok_or(Malformed("it names an object that has no form"))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "tree 0123456789012345678901234567890123456789\n";
    const PARENT: &str = "parent 1123456789012345678901234567890123456789\n";
    const WHO: &str = "author A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n";
    const SIGNATURE: &str =
        "gpgsig -----BEGIN SSH SIGNATURE-----\n AAAA\n -----END SSH SIGNATURE-----\n";

    #[test]
    fn the_payload_is_the_object_without_the_signature_byte_for_byte() {
        let text =
            format!("{TREE}{PARENT}{WHO}{SIGNATURE}encoding x\n\nsubject\n\ngpgsig not a header\n");
        let commit = read(text.as_bytes()).unwrap();
        assert_eq!(commit.payload, text.replace(SIGNATURE, "").into_bytes());
        let signature = "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n";
        assert_eq!(commit.signature.as_deref(), Some(signature));
        assert_eq!(commit.parents.len(), 1);
    }

    /// GIT-08
    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let other = SIGNATURE.replace("gpgsig ", "gpgsig-sha256 ");
        let shouted = SIGNATURE.replace("gpgsig ", "GPGSIG ");
        for text in [
            format!("{TREE}{WHO}{SIGNATURE}{SIGNATURE}\nx"),
            format!("{TREE}{WHO}{SIGNATURE}{other}\nx"),
            format!("{TREE}{WHO}{other}\nx"),
            format!("{TREE}{WHO}{shouted}\nx"),
            format!("{TREE}{TREE}{WHO}\nx"),
            format!("{WHO}\nx"),
            format!("{TREE}{WHO}\nx\0y"),
            format!("{TREE}{WHO}odd\n\nx"),
            "tree 0123\n\nx".to_owned(),
            TREE.to_owned(),
            String::new(),
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(
            read(format!("{TREE}{WHO}\nx").as_bytes())
                .unwrap()
                .signature
                .is_none()
        );
    }

    /// A signature in the middle of another header's value would be cut from the payload of one reader only.
    #[test]
    fn a_signature_inside_another_header_is_that_headers_text() {
        let text = format!("{TREE}{WHO}mergetag object x\n gpgsig -----BEGIN\n y\n\nz");
        let commit = read(text.as_bytes()).unwrap();
        assert_eq!(
            (commit.signature, commit.payload),
            (None, text.into_bytes())
        );
    }
}
