//! The session's cookie.

use http::{HeaderMap, HeaderValue, header};

use super::SESSION;
use crate::clock::SECOND;
use crate::settings::{AppUrl, Scheme};

/// Under https a browser then takes it from this very host only, and never in the clear (RFC 6265bis 4.1.3.2).
const SECURE: &str = "__Host-sallyport_session";
const PLAIN: &str = "sallyport_session";

/// The same for the way back from a sign-in provider.
const SECURE_SIGN_IN: &str = "__Host-sallyport_sign_in";
const PLAIN_SIGN_IN: &str = "sallyport_sign_in";

/// Its name; by what people type, whatever a proxy says about a single request.
fn name(url: Option<&AppUrl>) -> &'static str {
    if is_secure(url) { SECURE } else { PLAIN }
}

fn sign_in_name(url: Option<&AppUrl>) -> &'static str {
    if is_secure(url) {
        SECURE_SIGN_IN
    } else {
        PLAIN_SIGN_IN
    }
}

fn is_secure(url: Option<&AppUrl>) -> bool {
    url.is_some_and(|url| url.scheme == Scheme::Https)
}

/// The secret that a request carries. Two cookies of the name are none: which one is whose, nobody can say.
pub fn read(headers: &HeaderMap, url: Option<&AppUrl>) -> Option<String> {
    named(headers, name(url))
}

/// The secret of a sign-in that is under way at a provider.
pub fn read_sign_in(headers: &HeaderMap, url: Option<&AppUrl>) -> Option<String> {
    named(headers, sign_in_name(url))
}

fn named(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let mut found = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned());
    let first = found.next();
    if found.next().is_some() { None } else { first }
}

/// Hands a session's secret to a browser.
pub fn set(secret: &str, url: Option<&AppUrl>) -> Option<HeaderValue> {
    value(name(url), secret, SESSION / SECOND, url)
}

/// Hands the secret of a sign-in at a provider to a browser, or, empty and for no time, takes it back.
pub fn set_sign_in(secret: &str, seconds: i64, url: Option<&AppUrl>) -> Option<HeaderValue> {
    value(sign_in_name(url), secret, seconds, url)
}

/// Makes a browser forget it.
pub fn clear(url: Option<&AppUrl>) -> Option<HeaderValue> {
    value(name(url), "", 0, url)
}

fn value(name: &str, secret: &str, seconds: i64, url: Option<&AppUrl>) -> Option<HeaderValue> {
    let secure = if is_secure(url) { "; Secure" } else { "" };
    let text =
        format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_https_the_cookie_is_secure_and_bound_to_the_host() {
        let url = AppUrl::parse("https://sally.example");
        let set = set("sps_x", url.as_ref()).unwrap();
        assert_eq!(
            set.to_str().unwrap(),
            "__Host-sallyport_session=sps_x; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax; Secure"
        );
    }

    #[test]
    fn two_cookies_of_the_name_are_none() {
        let of = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            read(&headers, None)
        };
        assert_eq!(of(&["a=b; sallyport_session=x"]).as_deref(), Some("x"));
        assert_eq!(of(&["sallyport_session=x; sallyport_session=y"]), None);
        assert_eq!(of(&["sallyport_session=x", "sallyport_session=y"]), None);
        assert_eq!(of(&["Xsallyport_session=x"]), None);
    }
}
