//! The browser app: its page for every address that it draws, and its files. Built by `./dev build`, carried in the binary.
//!
//! The page is made anew for each answer, with a nonce for the style sheets that its libraries make; files have their
//! hash in their name and are kept for ever. Nothing here knows who asks: what the app shows comes from the API.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::{HeaderMap, HeaderValue, header};

use super::app::App;
use super::problem::Problem;
use super::stack;

/// A file of the app.
#[derive(Debug)]
struct File {
    /// Its path on this server.
    path: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

/// Whatever was built when this was compiled.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/web.rs"));
/// Says how to build the app.
const NOT_BUILT: &str = include_str!("front.html");
/// What stands for the nonce in the page.
const NONCE: &str = "%STYLE_NONCE%";
/// Addresses that the app draws; `web/src/router.tsx` has the same.
const PAGES: [&str; 5] = [
    "/",
    "/account",
    "/admin/{page}",
    "/device",
    "/w/{workspace}/{*page}",
];
/// A name with a hash in it never means other bytes.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// A name without.
const FOR_AN_HOUR: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The app's page and files.
pub fn routes() -> Vec<(&'static str, MethodRouter<App>)> {
    let pages = PAGES.into_iter().map(|path| (path, get(page)));
    let files = FILES.iter().filter(|file| file.path != "/index.html");
    pages
        .chain(files.map(|file| (file.path, get(answer))))
        .collect()
}

async fn page() -> Result<Response, Problem> {
    let index = FILES.iter().find(|file| file.path == "/index.html");
    let Some(index) = index.and_then(|file| std::str::from_utf8(file.plain).ok()) else {
        return Ok(Html(NOT_BUILT).into_response());
    };
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).map_err(|error| {
        tracing::error!(%error, "the system gives no random numbers");
        Problem::internal()
    })?;
    let nonce = u128::from_le_bytes(bits);
    let nonce = format!("{nonce:032x}");
    let policy = HeaderValue::from_str(&stack::policy_with_styles(&nonce))
        .map_err(|_| Problem::internal())?;
    let page = Html(index.replace(NONCE, &nonce));
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], page).into_response())
}

async fn answer(request: Request) -> Response {
    let path = request.uri().path();
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Problem::not_found().into_response();
    };
    let (bytes, coding) = match (file.brotli, file.gzip) {
        (Some(packed), _) if takes(request.headers(), "br") => (packed, Some("br")),
        (_, Some(packed)) if takes(request.headers(), "gzip") => (packed, Some("gzip")),
        _ => (file.plain, None),
    };
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(kind(file.path)),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_name(header::ACCEPT_ENCODING),
    );
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    let kept = if path.starts_with("/assets/") {
        FOR_EVER
    } else {
        FOR_AN_HOUR
    };
    headers.insert(header::CACHE_CONTROL, kept);
    response
}

/// Whether a client takes a coding (RFC 9110 12.5.3): it names it, and not with a weight of nought.
fn takes(headers: &HeaderMap, coding: &str) -> bool {
    let named = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|one| {
            let mut parts = one.split(';').map(str::trim);
            let named = parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(coding));
            named && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::testing::Console;
    use super::*;
    use crate::store::testing::each;

    #[tokio::test]
    async fn every_page_has_a_nonce_of_its_own_or_says_how_to_build_the_app() {
        each(async |store| {
            let console = Console::on(store);
            let mut seen = Vec::new();
            for path in ["/", "/account", "/admin/users", "/w/some/runs/one"] {
                let answer = console.ask(Method::GET, path, &[]).await;
                assert_eq!(answer.status, 200, "{path}");
                assert_eq!(answer.headers["cache-control"], "no-store");
                if FILES.is_empty() {
                    assert!(answer.text.contains("./dev build"), "{}", answer.text);
                    continue;
                }
                let policy = answer.headers["content-security-policy"].to_str().unwrap();
                let nonce = policy.split("'nonce-").nth(1).unwrap();
                let nonce = nonce.split('\'').next().unwrap().to_owned();
                assert!(answer.text.contains(&format!("content=\"{nonce}\"")));
                assert!(!answer.text.contains(NONCE) && !answer.text.contains("<style"));
                assert!(policy.contains("script-src 'self';"), "{policy}");
                assert!(!seen.contains(&nonce), "{nonce} again");
                seen.push(nonce);
            }
            for path in [
                "/w",
                "/w/some",
                "/admin/users/x",
                "/assets/nothing.js",
                "/index.html",
            ] {
                let answer = console.ask(Method::GET, path, &[]).await;
                assert_eq!(answer.status, 404, "{path}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn every_address_that_the_app_draws_is_a_page() {
        let router = include_str!("../../web/src/router.tsx");
        each(async |store| {
            let console = Console::on(store);
            let (mut parent, mut drawn) = ("", 0);
            for line in router.lines() {
                for (word, path) in [("=> root", ""), ("=> workspace", "/w/some")] {
                    if line.contains(&format!("getParentRoute: () {word}")) {
                        parent = path;
                    }
                }
                let written = line.split("path: \"").nth(1);
                let Some(path) = written.and_then(|rest| rest.split('"').next()) else {
                    continue;
                };
                // what has pages below it is none itself
                if path == "/w/$workspace" {
                    continue;
                }
                let path = format!("{parent}{}", path.replace('$', ""));
                let answer = console.ask(Method::GET, &path, &[]).await;
                assert_eq!(answer.status, 200, "{path}");
                assert!(
                    answer.headers["content-type"]
                        .to_str()
                        .unwrap()
                        .starts_with("text/html")
                );
                drawn += 1;
            }
            assert!(drawn > 15, "{drawn}");
        })
        .await;
    }

    #[tokio::test]
    async fn files_come_packed_to_who_takes_that_and_are_kept_for_ever() {
        each(async |store| {
            let console = Console::on(store);
            let scripts = FILES
                .iter()
                .filter(|file| file.path.starts_with("/assets/"));
            for file in scripts {
                let ask = async |takes| {
                    let headers = [("accept-encoding", takes)];
                    console.ask(Method::GET, file.path, &headers).await
                };
                let plain = ask("br;q=0, identity").await;
                assert_eq!(plain.status, 200, "{}", file.path);
                assert!(!plain.headers.contains_key("content-encoding"));
                assert!(
                    plain.headers["cache-control"]
                        .to_str()
                        .unwrap()
                        .contains("immutable")
                );
                assert_ne!(plain.headers["content-type"], "application/octet-stream");
                if file.brotli.is_some() {
                    let packed = ask("gzip, deflate, br").await;
                    assert_eq!(packed.headers["content-encoding"], "br");
                }
                if file.gzip.is_some() {
                    assert_eq!(ask("GZIP").await.headers["content-encoding"], "gzip");
                }
            }
        })
        .await;
    }
}
