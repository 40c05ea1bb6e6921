//! Which name a request asked for, and which page sent it: refuses other hosts and other sites.
//!
//! A name that was rebound to this machine is another `Host`. A page of another site that makes a browser change
//! something here shows by `Sec-Fetch-Site` or `Origin`; a program that sends neither has no cookie to abuse.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri, header};

use super::problem::Problem;
use crate::settings::AppUrl;

/// Whether the request's host is this console. A request in absolute form must agree with its header.
pub fn host(parts: &Parts, url: Option<&AppUrl>) -> Result<(), Problem> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let named = hosts.next().and_then(|value| value.to_str().ok());
    let once = hosts.next().is_none();
    let agrees = parts
        .uri
        .authority()
        .is_none_or(|a| Some(a.as_str()) == named);
    if once && agrees && named.is_some_and(|named| is_ours(named, url)) {
        return Ok(());
    }
    let help = match url {
        Some(url) => format!("ask for {}", url.origin()),
        None => "ask for http://localhost with the port, or set `app.url` in the configuration"
            .to_owned(),
    };
    Err(Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "other_host",
        "this is not the host that was asked for",
    )
    .help(help))
}

fn is_ours(named: &str, url: Option<&AppUrl>) -> bool {
    let Ok(uri) = format!("http://{named}").parse::<Uri>() else {
        return false;
    };
    let Some(authority) = uri
        .authority()
        .filter(|a| a.as_str() == named && !named.contains('@'))
    else {
        return false;
    };
    let name = authority.host().to_ascii_lowercase();
    let ours = url.is_some_and(|url| {
        url.host == name && authority.port_u16().unwrap_or(url.scheme.port()) == url.port
    });
    ours || is_loopback(&name)
}

/// A name that leads nowhere but to this machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a request that may change something comes from a page of this console, or from no page at all.
pub fn site(parts: &Parts, url: Option<&AppUrl>) -> Result<(), Problem> {
    if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let site = parts.headers.get("sec-fetch-site");
    let own = match (site, parts.headers.get(header::ORIGIN)) {
        (Some(site), _) => matches!(site.as_bytes(), b"same-origin" | b"none"),
        (None, Some(origin)) => origin
            .to_str()
            .is_ok_and(|origin| is_own(origin, &parts.headers, url)),
        (None, None) => true,
    };
    if own {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "other_site",
        "a page of another site sent this request",
    ))
}

fn is_own(origin: &str, headers: &HeaderMap, url: Option<&AppUrl>) -> bool {
    if url.is_some_and(|url| url.origin() == origin) {
        return true;
    }
    // Loopback names carry no certificate. A page in the clear of any other name may be anybody's who is on the way.
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let named = host.and_then(|host| host.parse::<Authority>().ok());
    named.is_some_and(|named| is_loopback(named.host()))
        && host.is_some_and(|host| origin.strip_prefix("http://") == Some(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: Method, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn other_hosts_are_refused() {
        let url = AppUrl::parse("https://sally.example").unwrap();
        for (wrong, right) in [
            ("evil.example", "sally.example"),
            ("sally.example:8420", "Sally.example:443"),
            ("sally.example@evil.example", "localhost:8420"),
            ("localhost.evil.example", "127.0.0.1:8420"),
            ("192.0.2.1", "[::1]:8420"),
        ] {
            assert!(
                host(&parts(Method::GET, &[("host", wrong)]), Some(&url)).is_err(),
                "{wrong}"
            );
            assert!(
                host(&parts(Method::GET, &[("host", right)]), Some(&url)).is_ok(),
                "{right}"
            );
        }
        let two = parts(
            Method::GET,
            &[("host", "localhost"), ("host", "evil.example")],
        );
        assert!(host(&two, None).is_err());
        assert!(host(&parts(Method::GET, &[]), None).is_err());
        let absolute = http::Request::builder()
            .uri("http://evil.example/")
            .header("host", "localhost")
            .body(())
            .unwrap();
        assert!(host(&absolute.into_parts().0, None).is_err());
    }

    #[test]
    fn other_sites_change_nothing() {
        let url = AppUrl::parse("https://sally.example").unwrap();
        let own = ("host", "sally.example");
        for headers in [
            [own, ("sec-fetch-site", "cross-site")],
            [own, ("sec-fetch-site", "same-site")],
            [own, ("origin", "null")],
            [own, ("origin", "https://evil.example")],
            [own, ("origin", "https://sub.sally.example")],
            // the same name in the clear, which whoever is on the way can answer for
            [own, ("origin", "http://sally.example")],
        ] {
            let refused = site(&parts(Method::POST, &headers), Some(&url));
            assert!(refused.is_err(), "{headers:?}");
            assert!(site(&parts(Method::GET, &headers), Some(&url)).is_ok());
        }
        for headers in [
            [own, ("sec-fetch-site", "same-origin")],
            [own, ("origin", "https://sally.example")],
            [
                ("host", "localhost:8420"),
                ("origin", "http://localhost:8420"),
            ],
            [own, ("accept", "*/*")],
        ] {
            assert!(
                site(&parts(Method::DELETE, &headers), Some(&url)).is_ok(),
                "{headers:?}"
            );
        }
    }
}
