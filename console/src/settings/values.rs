//! Values of the console's settings that are more than text: where the store is, what people type, what is not shown.

use std::fmt;
use std::path::PathBuf;

use http::Uri;
use netpolicy::name::Name;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Redacted(String);

impl Redacted {
    /// Hides it.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a URL carries a password.
    pub fn has_password(&self) -> bool {
        let authority = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let authority = authority.split(['/', '?']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        user.contains(':') || self.0.contains("password=")
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Where the store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server; the URL may hold a password.
    Postgres(Redacted),
}

impl Database {
    /// From a setting.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Some(Self::Postgres(Redacted::new(text.to_owned())));
        }
        let path = text.strip_prefix("sqlite://").unwrap_or(text);
        let fits = path.starts_with('/') && !path.ends_with('/') && !path.contains(['\0', '?']);
        fits.then(|| Self::Sqlite(path.into()))
    }
}

/// What people type to reach the console: an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppUrl {
    /// `https` or `http`.
    pub scheme: Scheme,
    /// Name or address, lower case, as a `Host` header has it.
    pub host: String,
    /// The port, also where the text leaves it to the scheme.
    pub port: u16,
}

/// How people reach the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Encrypted, by a reverse proxy or built in.
    Https,
    /// In the clear.
    Http,
}

impl Scheme {
    /// The port that needs no naming.
    pub const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

impl AppUrl {
    /// From a setting: scheme, host, perhaps a port, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let scheme = match uri.scheme_str()? {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return None,
        };
        let authority = uri.authority()?;
        let plain = !authority.as_str().contains('@')
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !text.contains('#')
            && !authority.host().is_empty();
        plain.then(|| Self {
            scheme,
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(scheme.port()),
        })
    }

    /// As an `Origin` header has it.
    pub fn origin(&self) -> String {
        if self.port == self.scheme.port() {
            format!("{}://{}", self.scheme.word(), self.host)
        } else {
            format!("{}://{}:{}", self.scheme.word(), self.host, self.port)
        }
    }

    /// Its name, where it is one.
    pub fn name(&self) -> Option<Name> {
        Name::parse(&self.host).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_url_is_an_origin_and_nothing_else() {
        for wrong in [
            "sally.example",
            "ftp://sally.example",
            "https://",
            "https://u@sally.example",
            "https://sally.example/x",
            "https://sally.example/?q",
            "https://sally.example/#f",
        ] {
            assert_eq!(AppUrl::parse(wrong), None, "{wrong}");
        }
        for (text, origin) in [
            ("https://Sally.example/", "https://sally.example"),
            ("http://[::1]:8420", "http://[::1]:8420"),
            ("https://sally.example:443", "https://sally.example"),
        ] {
            assert_eq!(AppUrl::parse(text).unwrap().origin(), origin);
        }
    }

    #[test]
    fn a_database_is_a_path_or_postgres_and_its_password_is_not_shown() {
        assert_eq!(Database::parse("console.db"), None);
        assert_eq!(Database::parse("mysql://x"), None);
        assert!(matches!(
            Database::parse("/var/x.db"),
            Some(Database::Sqlite(_))
        ));
        let parsed = Database::parse("postgres://a:geheim@h/d").unwrap();
        assert!(!format!("{parsed:?}").contains("geheim"));
        let Database::Postgres(url) = parsed else {
            panic!()
        };
        assert!(url.has_password());
        assert!(!Redacted::new("postgres://a@h/d".into()).has_password());
    }
}
