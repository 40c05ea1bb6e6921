//! OpenPGP signatures, judged by `gpgv` with a fixed keyring.
//!
//! Only its status lines count (doc/DETAILS of GnuPG): exactly one signature, GOODSIG and VALIDSIG of class 00 (a binary
//! document), and none of the words that say otherwise. Its exit code alone is not enough: it is 0 for an expired or
//! revoked key. Key servers, agents and trust databases have no part in it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::{SignatureError, Signer};
use crate::source::program::{Limits, Program};

/// How such a signature begins.
pub const BEGIN: &str = "-----BEGIN PGP SIGNATURE-----\n";
const END: &str = "-----END PGP SIGNATURE-----\n";
/// Words that end it, whatever else is said.
const REFUSED: [&str; 9] = [
    "BADSIG",
    "ERRSIG",
    "EXPSIG",
    "EXPKEYSIG",
    "REVKEYSIG",
    "NO_PUBKEY",
    "NODATA",
    "UNEXPECTED",
    "FAILURE",
];

/// Judges a signature.
pub async fn judge(
    payload: &[u8],
    signature: &str,
    keyring: &Path,
    scratch: &Path,
) -> Result<Signer, SignatureError> {
    if !signature.ends_with(END) || signature.matches("-----BEGIN").count() != 1 {
        return Err(SignatureError::Malformed(
            "it is not exactly one signature".to_owned(),
        ));
    }
    let file = scratch.join("signature");
    let mut written = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&file)?;
    written.write_all(signature.as_bytes())?;
    let limits = Limits {
        file: 1 << 20,
        memory: 1 << 30,
        time: Duration::from_secs(20),
    };
    let program = Program {
        name: "gpgv",
        environment: vec![("GNUPGHOME".into(), scratch.into())],
        limits,
    };
    let (home, keyring, file) = (
        scratch.display().to_string(),
        keyring.display().to_string(),
        file.display().to_string(),
    );
    let arguments = [
        "--homedir",
        &home,
        "--status-fd",
        "1",
        "--weak-digest",
        "SHA1",
        "--weak-digest",
        "MD5",
        "--keyring",
        &keyring,
        "--",
        &file,
        "-",
    ];
    let printed = program.run(&arguments, payload, 64 << 10).await?;
    let code = printed.code;
    verdict(&String::from_utf8_lossy(&printed.out), code)
}

/// What the status lines say.
fn verdict(status: &str, code: Option<i32>) -> Result<Signer, SignatureError> {
    let lines: Vec<Vec<&str>> = status
        .lines()
        .filter_map(|line| line.strip_prefix("[GNUPG:] "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of = |word: &str| lines.iter().filter(|l| l.first() == Some(&word)).count();
    if let Some(word) = REFUSED.iter().find(|word| of(word) > 0) {
        return Err(match *word {
            "BADSIG" => SignatureError::Wrong,
            word => SignatureError::NotVerified(word.to_owned()),
        });
    }
    let valid: Vec<&Vec<&str>> = lines
        .iter()
        .filter(|l| l.first() == Some(&"VALIDSIG"))
        .collect();
    let ([valid], 1, 1, Some(0)) = (valid.as_slice(), of("GOODSIG"), of("NEWSIG"), code) else {
        return Err(SignatureError::NotVerified(
            "no single good signature".to_owned(),
        ));
    };
    // VALIDSIG fpr date timestamp expires version reserved pubkey-algo hash-algo class [primary-fpr]
    match (valid.get(1), valid.get(9)) {
        (Some(fingerprint), Some(&"00")) => Ok(format!("openpgp:{fingerprint}")),
        _ => Err(SignatureError::NotVerified(
            "not a signature of a binary document".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG AB a <a@example.com>\n[GNUPG:] VALIDSIG F0 2026-01-01 1 0 4 0 22 10 00 F0\n";

    /// GIT-08
    #[test]
    fn only_one_good_signature_of_a_binary_document_counts() {
        assert_eq!(verdict(GOOD, Some(0)).unwrap(), "openpgp:F0");
        let bad = [
            String::new(),
            format!("{GOOD}{GOOD}"),
            GOOD.replace("GOODSIG", "EXPKEYSIG"),
            GOOD.replace("GOODSIG", "REVKEYSIG"),
            GOOD.replace(" 00 F0", " 01 F0"),
            GOOD.replace("[GNUPG:] GOODSIG", "GOODSIG"),
            GOOD.replace("VALIDSIG", "TRUST_ULTIMATE"),
            format!("{GOOD}[GNUPG:] ERRSIG A 1 2 3 4 5\n"),
            format!("{GOOD}[GNUPG:] NEWSIG\n"),
        ];
        for status in bad {
            assert!(verdict(&status, Some(0)).is_err(), "{status}");
        }
        assert!(verdict(GOOD, Some(1)).is_err() && verdict(GOOD, None).is_err());
        // a name that looks like a status line stays a name: it has no line of its own
        assert!(verdict("[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG AB x [GNUPG:] VALIDSIG F0 d 1 0 4 0 22 10 00 F0\n", Some(0)).is_err());
    }
}
