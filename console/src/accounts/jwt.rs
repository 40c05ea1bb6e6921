//! ID tokens: whether a provider made one, for us, for this sign-in, now.
//!
//! OpenID Connect Core 3.1.3.7 and RFC 8725: only signatures by the provider's published keys, the algorithm by the key
//! and never by the token alone, every claim that can be checked is. Failure stance: what is missing is wrong.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Clocks differ.
const LEEWAY: i64 = 60;
/// A token that was made longer ago was kept by somebody.
const OLDEST: i64 = 10 * 60;
/// More keys are no key set.
const MOST_KEYS: usize = 64;
/// OpenID Connect Core 2.
const LONGEST_SUBJECT: usize = 255;

/// Why a token is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// It is no signed token.
    #[error("the ID token cannot be read")]
    Malformed,
    /// No algorithm that is taken, or not that of the key.
    #[error("the ID token is signed in a way that is not taken")]
    Algorithm,
    /// No key of the provider's made it.
    #[error("the ID token is signed by no key of the provider")]
    Signature,
    /// A claim is missing or wrong.
    #[error("the ID token's `{0}` does not fit")]
    Claim(&'static str),
}

/// A provider's keys (RFC 7517).
#[derive(Debug, Deserialize)]
pub struct KeySet {
    keys: Vec<Value>,
}

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Who made it.
    pub issuer: &'a str,
    /// For whom.
    pub client: &'a str,
    /// For which sign-in; `None`: it was not made at one (RFC 6749 6).
    pub nonce: Option<&'a str>,
    /// Now, in seconds.
    pub now: i64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The claims of a token that fits.
pub fn verify(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, TokenError> {
    let malformed = TokenError::Malformed;
    let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
    let (head, body) = signed.split_once('.').ok_or(malformed)?;
    if body.contains('.') {
        return Err(malformed);
    }
    let header: Header = serde_json::from_slice(&decode(head)?).map_err(|_| malformed)?;
    if header.crit.is_some() || !matches!(header.alg.as_str(), "RS256" | "ES256" | "EdDSA") {
        return Err(TokenError::Algorithm);
    }
    let signature = decode(signature)?;
    let fitting = keys.keys.iter().take(MOST_KEYS).filter_map(|key| {
        // a key of a kind that nobody here knows is no reason to refuse the others
        let key: Key = serde_json::from_value(key.clone()).ok()?;
        let named = header.kid.is_none() || key.kid == header.kid;
        let signs = key
            .purpose
            .as_deref()
            .is_none_or(|purpose| purpose == "sig");
        let alg = key.alg.as_ref().is_none_or(|alg| *alg == header.alg);
        (named && signs && alg).then_some(key)
    });
    let made = fitting
        .into_iter()
        .any(|key| is_signed(&key, &header.alg, signed.as_bytes(), &signature).unwrap_or(false));
    if !made {
        return Err(TokenError::Signature);
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&decode(body)?).map_err(|_| malformed)?;
    check(&claims, expected)?;
    Ok(claims)
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)
}

/// The key says what it is for; an RSA key checks no HMAC and a curve no RSA.
fn is_signed(key: &Key, alg: &str, signed: &[u8], signature: &[u8]) -> Option<bool> {
    let part = |text: &Option<String>| decode(text.as_deref()?).ok();
    Some(match (alg, key.kty.as_str(), key.crv.as_deref()) {
        ("RS256", "RSA", _) => {
            let (n, e) = (part(&key.n)?, part(&key.e)?);
            let key = RsaPublicKeyComponents { n, e };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok()
        }
        ("ES256", "EC", Some("P-256")) => {
            let point = [vec![4], part(&key.x)?, part(&key.y)?].concat();
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            key.verify(signed, signature).is_ok()
        }
        ("EdDSA", "OKP", Some("Ed25519")) => {
            let key = UnparsedPublicKey::new(&ED25519, part(&key.x)?);
            key.verify(signed, signature).is_ok()
        }
        _ => false,
    })
}

fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    let wrong = |name| Err(TokenError::Claim(name));
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
    let (now, leeway, oldest) = (expected.now as f64, LEEWAY as f64, OLDEST as f64);
    if text("iss") != Some(expected.issuer) {
        return wrong("iss");
    }
    let audience: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audience.contains(&expected.client) {
        return wrong("aud");
    }
    let party = claims.get("azp");
    if (party.is_some() || audience.len() > 1)
        && party.and_then(Value::as_str) != Some(expected.client)
    {
        return wrong("azp");
    }
    if time("exp").is_none_or(|exp| exp + leeway < now) {
        return wrong("exp");
    }
    if time("iat").is_none_or(|iat| iat - leeway > now || iat + oldest < now) {
        return wrong("iat");
    }
    if time("nbf").is_some_and(|nbf| nbf - leeway > now) {
        return wrong("nbf");
    }
    if expected
        .nonce
        .is_some_and(|nonce| text("nonce") != Some(nonce))
    {
        return wrong("nonce");
    }
    if text("sub").is_none_or(|sub| sub.is_empty() || sub.len() > LONGEST_SUBJECT) {
        return wrong("sub");
    }
    Ok(())
}

/// The groups that a claim names: a list of texts, and nothing that only looks like one.
pub fn groups(claims: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
    let list = claims.get(name)?.as_array()?;
    list.iter()
        .map(|group| group.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    struct Provider {
        key: EcdsaKeyPair,
        set: KeySet,
    }

    fn provider() -> Provider {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = key.public_key().as_ref()[1..].to_vec();
        let (x, y) = point.split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let set = json!({ "keys": [
            { "kty": "oct", "k": "AAAA", "kid": "1" },
            { "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "1", "use": "sig" },
        ] });
        Provider {
            key,
            set: serde_json::from_value(set).unwrap(),
        }
    }

    fn sign(provider: &Provider, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let made = provider
            .key
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(made.as_ref()))
    }

    const EXPECTED: Expected<'_> = Expected {
        issuer: "https://idp.example",
        client: "us",
        nonce: Some("n1"),
        now: 1_000_000,
    };

    fn claims() -> Value {
        json!({ "iss": "https://idp.example", "aud": "us", "sub": "7", "nonce": "n1", "iat": 1_000_000, "exp": 1_000_300 })
    }

    fn header() -> Value {
        json!({ "alg": "ES256", "kid": "1" })
    }

    #[test]
    fn a_token_of_another_maker_client_sign_in_or_time_is_refused() {
        let provider = provider();
        let token = sign(&provider, &header(), &claims());
        assert_eq!(
            verify(&token, &provider.set, &EXPECTED).unwrap()["sub"],
            "7"
        );
        for (name, value) in [
            ("iss", json!("https://idp.example/")),
            ("iss", json!("https://evil.example")),
            ("aud", json!("them")),
            ("aud", json!([])),
            ("aud", json!(["them"])),
            ("azp", json!("them")),
            ("exp", json!(999_000)),
            ("exp", json!("1000300")),
            ("iat", json!(1_000_900)),
            ("iat", json!(900_000)),
            ("nbf", json!(1_000_900)),
            ("nonce", json!("n2")),
            ("nonce", Value::Null),
            ("sub", json!("")),
            ("sub", json!(7)),
        ] {
            let mut wrong = claims();
            wrong[name] = value.clone();
            let token = sign(&provider, &header(), &wrong);
            let refused = verify(&token, &provider.set, &EXPECTED).unwrap_err();
            assert_eq!(refused, TokenError::Claim(name), "{name} = {value}");
        }
        let mut several = claims();
        several["aud"] = json!(["us", "them"]);
        let token = sign(&provider, &header(), &several);
        assert_eq!(
            verify(&token, &provider.set, &EXPECTED),
            Err(TokenError::Claim("azp"))
        );
        several["azp"] = json!("us");
        assert!(
            verify(
                &sign(&provider, &header(), &several),
                &provider.set,
                &EXPECTED
            )
            .is_ok()
        );
    }

    #[test]
    fn a_signature_that_no_key_of_the_provider_made_is_refused() {
        let (ours, theirs) = (provider(), provider());
        let good = sign(&ours, &header(), &claims());
        assert_eq!(
            verify(&good, &theirs.set, &EXPECTED),
            Err(TokenError::Signature)
        );
        for (header, refusal) in [
            (json!({ "alg": "none", "kid": "1" }), TokenError::Algorithm),
            // a public key as the secret of an HMAC
            (json!({ "alg": "HS256", "kid": "1" }), TokenError::Algorithm),
            (json!({ "alg": "RS256", "kid": "1" }), TokenError::Signature),
            (json!({ "alg": "ES256", "kid": "2" }), TokenError::Signature),
            (
                json!({ "alg": "ES256", "kid": "1", "crit": ["x"] }),
                TokenError::Algorithm,
            ),
        ] {
            let token = sign(&ours, &header, &claims());
            assert_eq!(
                verify(&token, &ours.set, &EXPECTED),
                Err(refusal),
                "{header}"
            );
        }
        let (signed, _) = good.rsplit_once('.').unwrap();
        for token in ["", "..", "a.b", &format!("{signed}."), &format!("{good}.x")] {
            assert!(verify(token, &ours.set, &EXPECTED).is_err(), "{token}");
        }
        let (head, rest) = good.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(json!({ "sub": "8" }).to_string());
        let swapped = format!("{head}.{other}.{}", rest.rsplit_once('.').unwrap().1);
        assert_eq!(
            verify(&swapped, &ours.set, &EXPECTED),
            Err(TokenError::Signature)
        );
    }

    #[test]
    fn groups_are_a_list_of_texts_and_nothing_that_looks_like_one() {
        let of = |value: Value| groups(json!({ "groups": value }).as_object().unwrap(), "groups");
        assert_eq!(of(json!(["a", "b"])), Some(vec!["a".into(), "b".into()]));
        assert_eq!(of(json!([])), Some(vec![]));
        for wrong in [
            json!("admins,users"),
            json!(7),
            json!([["admins"]]),
            json!(["a", 7]),
            json!({ "a": 1 }),
            Value::Null,
        ] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(groups(&Map::new(), "groups"), None);
    }
}
