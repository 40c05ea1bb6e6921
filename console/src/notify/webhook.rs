//! A webhook: a POST that its receiver can check.
//!
//! Signed as Standard Webhooks 1.0 says: HMAC-SHA256 over id, time and body, so that nothing is sent again later under
//! another time. Redirects are not followed; an answer is read to its status and no further than [`ANSWER`].

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, header};
use zeroize::Zeroizing;

use super::{Undelivered, chain};
use crate::clock::{self, SECOND};
use crate::outbound::Purpose;
use crate::server::app::App;
use crate::store::notifications::{Delivery, KIND, Notification};
use crate::vault::{Place, VaultError};

/// What an answer may say; nobody reads it.
const ANSWER: usize = 64 << 10;
/// What the text of a signing key begins with.
const PREFIX: &str = "whsec_";

/// A new signing key, as its receiver is told it.
pub fn fresh_key() -> Result<Zeroizing<String>, VaultError> {
    let mut bits = Zeroizing::new([0_u8; 32]);
    getrandom::fill(bits.as_mut()).map_err(|_| VaultError::Random)?;
    Ok(Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(bits))))
}

/// The signature of a message; `None`: this is no key.
pub fn signature(key: &str, id: &str, seconds: i64, body: &str) -> Option<String> {
    let bits = Zeroizing::new(STANDARD.decode(key.strip_prefix(PREFIX)?).ok()?);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &bits);
    let made = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(made.as_ref())))
}

pub(super) async fn send(
    app: &App,
    whom: &Notification,
    delivery: &Delivery,
) -> Result<String, Undelivered> {
    let place = Place {
        kind: KIND,
        id: &whom.id,
        workspace: &whom.workspace_id,
        version: 1,
    };
    let sealed = app
        .store
        .sealed(KIND, &whom.id, &whom.workspace_id, 1)
        .await;
    let sealed = sealed.map_err(|error| chain(&error))?;
    let sealed = sealed.ok_or_else(|| chain(&VaultError::Tampered))?;
    let key = app.vault.open(&app.store, &place, &sealed).await;
    let key = key.map_err(|error| chain(&error))?;
    let key = std::str::from_utf8(&key).unwrap_or_default();
    let seconds = clock::now() / SECOND;
    let signed = signature(key, &delivery.id, seconds, &delivery.body);
    let signed = signed.ok_or_else(|| chain(&VaultError::Tampered))?;
    let request = Request::post(&whom.address)
        .header(header::CONTENT_TYPE, "application/json")
        .header("webhook-id", &delivery.id)
        .header("webhook-timestamp", seconds)
        .header("webhook-signature", signed)
        .body(Bytes::from(delivery.body.clone()));
    let request = request.map_err(|error| chain(&error))?;
    let answer = app.outbound.call(Purpose::Member, request, ANSWER).await;
    let status = answer.map_err(|error| chain(&error))?.status();
    if status.is_success() {
        Ok(format!("answered {status}"))
    } else {
        Err(Undelivered(format!("answered {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_the_standard_says_it_is() {
        // the example of the Standard Webhooks specification
        let made = signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(
            made.as_deref(),
            Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        );
        assert_eq!(signature("no key", "id", 1, ""), None);
        assert_ne!(*fresh_key().unwrap(), *fresh_key().unwrap());
    }
}
