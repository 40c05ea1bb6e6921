//! ID tokens: whether a provider made one, for us, for this sign-in, now.
//!
//! OpenID Connect Core 3.1.3.7 and RFC 8725. The library reads the token, checks its signature by the provider's published
//! keys, and audience, issuer and times; what it leaves to its callers stands here: which algorithms, which keys, the
//! age, the party, the nonce. Failure stance: what is missing is wrong.

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::{self, SECOND};

/// Clocks differ, in seconds.
const LEEWAY: u32 = 60;
/// A token that was made longer ago was kept by somebody; in seconds.
const OLDEST: u32 = 10 * 60;
/// More keys are no key set.
const MOST_KEYS: usize = 64;
/// OpenID Connect Core 2.
const LONGEST_SUBJECT: usize = 255;
/// Those that need the provider's private key. One with a shared secret would take a published key for the secret.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Why a token is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// It is no signed token, or is signed in a way that nobody here knows.
    #[error("the ID token cannot be read")]
    Malformed,
    /// No algorithm that is taken.
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
#[derive(Clone, Debug, Deserialize)]
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
}

/// The claims of a token that fits.
pub fn verify(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, TokenError> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Malformed)?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenError::Algorithm);
    }
    let mut validation = Validation::new(header.alg);
    validation.leeway = LEEWAY.into();
    validation.validate_nbf = true;
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client]);
    validation.set_required_spec_claims(&["iss", "aud", "exp", "sub"]);
    for key in fitting(keys, &header) {
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation) {
            Ok(read) => {
                check(&read.claims, expected)?;
                return Ok(read.claims);
            }
            Err(error) => match refusal(&error) {
                // perhaps the next key's
                TokenError::Signature => {}
                other => return Err(other),
            },
        }
    }
    Err(TokenError::Signature)
}

/// The keys that may have made a token, by what they say about themselves.
fn fitting<'a>(keys: &'a KeySet, header: &'a Header) -> impl Iterator<Item = DecodingKey> + 'a {
    keys.keys.iter().take(MOST_KEYS).filter_map(|key| {
        // a key of a kind that nobody here knows is no reason to refuse the others
        let key: Jwk = serde_json::from_value(key.clone()).ok()?;
        let said = &key.common;
        let named = header.kid.is_none() || said.key_id == header.kid;
        let purpose = said.public_key_use.as_ref();
        let signs = purpose.is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let alg = said.key_algorithm;
        let fits = alg.is_none_or(|alg| alg == KeyAlgorithm::from(header.alg));
        let key = DecodingKey::from_jwk(&key).ok()?;
        // an RSA key checks no HMAC and a curve no RSA
        (named && signs && fits && key.family() == header.alg.family()).then_some(key)
    })
}

fn refusal(error: &Error) -> TokenError {
    match error.kind() {
        ErrorKind::MissingRequiredClaim(name) | ErrorKind::InvalidClaimFormat(name) => {
            let known = ["iss", "aud", "exp", "nbf"];
            let name = known.into_iter().find(|known| known == name);
            TokenError::Claim(name.unwrap_or("sub"))
        }
        ErrorKind::InvalidIssuer => TokenError::Claim("iss"),
        ErrorKind::InvalidAudience => TokenError::Claim("aud"),
        ErrorKind::ExpiredSignature => TokenError::Claim("exp"),
        ErrorKind::ImmatureSignature => TokenError::Claim("nbf"),
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
        ErrorKind::Json(_) | ErrorKind::InvalidToken | ErrorKind::Base64(_) => {
            TokenError::Malformed
        }
        _ => TokenError::Signature,
    }
}

/// What the library leaves to its callers.
fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let wrong = |name| Err(TokenError::Claim(name));
    // the library takes a list of issuers, too, if one of them fits
    if text("iss") != Some(expected.issuer) {
        return wrong("iss");
    }
    let several = claims.get("aud").and_then(Value::as_array);
    let several = several.is_some_and(|audience| audience.len() > 1);
    let party = claims.get("azp");
    if (party.is_some() || several) && party.and_then(Value::as_str) != Some(expected.client) {
        return wrong("azp");
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
    let now = (clock::now() / SECOND) as f64;
    let made = claims.get("iat").and_then(Value::as_f64);
    if made.is_none_or(|made| made - f64::from(LEEWAY) > now || made + f64::from(OLDEST) < now) {
        return wrong("iat");
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
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
    };

    /// Seconds from now.
    fn at(offset: i64) -> i64 {
        clock::now() / SECOND + offset
    }

    fn claims() -> Value {
        json!({ "iss": "https://idp.example", "aud": "us", "sub": "7", "nonce": "n1", "iat": at(0), "exp": at(300) })
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
            (
                "iss",
                json!(["https://idp.example", "https://evil.example"]),
            ),
            ("aud", json!({ "us": true })),
            ("exp", json!(at(-1000))),
            ("exp", json!(at(300).to_string())),
            ("exp", json!(-1)),
            ("exp", Value::Null),
            ("iat", json!(at(900))),
            ("iat", json!(at(-100_000))),
            ("iat", Value::Null),
            ("nbf", json!(at(900))),
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
            (json!({ "alg": "none", "kid": "1" }), TokenError::Malformed),
            // a public key as the secret of an HMAC
            (json!({ "alg": "HS256", "kid": "1" }), TokenError::Algorithm),
            (json!({ "alg": "RS256", "kid": "1" }), TokenError::Signature),
            (json!({ "alg": "ES256", "kid": "2" }), TokenError::Signature),
            (
                json!({ "alg": "ES256", "kid": "1", "crit": ["x"] }),
                TokenError::Malformed,
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
