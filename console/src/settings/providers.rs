//! `auth.providers`: who else says who somebody is, and whom of theirs the console lets in.
//!
//! A list that lets nobody in is a mistake, and never a list that lets everybody in.

use netpolicy::document::Mistakes;
use netpolicy::document::shape::{Field, Format, Kind, Lexis, Need, Shape};
use netpolicy::document::tree::Node;

use super::Redacted;
use crate::clock::{MINUTE, Millis, SECOND};
use crate::outbound::Target;

/// A provider that speaks OpenID Connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OidcSettings {
    /// What the button says.
    pub name: String,
    /// Its issuer, letter by letter as it names itself.
    pub issuer: String,
    /// Our id there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Redacted,
    /// Who may come in; `None`: whoever the provider knows.
    pub allowed_groups: Option<Vec<String>>,
    /// The claim that lists groups.
    pub groups_claim: String,
    /// What is asked for.
    pub scopes: Vec<String>,
}

/// GitHub, or a server of one's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GitHubSettings {
    /// Our id there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Redacted,
    /// Accounts that may come in.
    pub users: Vec<String>,
    /// Organisations whose active members may.
    pub organizations: Vec<String>,
    /// Where people sign in.
    pub url: String,
    /// Where its API is.
    pub api: String,
}

/// All of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Providers {
    /// OpenID Connect.
    pub oidc: Option<OidcSettings>,
    /// GitHub.
    pub github: Option<GitHubSettings>,
    /// Who is signed in is asked about this long after the last time.
    pub recheck: Millis,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            oidc: None,
            github: None,
            recheck: SLOWEST * SECOND,
        }
    }
}

/// Seconds between two questions about somebody: providers count questions, and people who left are out within a quarter
/// of an hour, of which a slow provider may need seven minutes.
const FASTEST: Millis = 10;
const SLOWEST: Millis = 8 * MINUTE / SECOND;

impl Providers {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.oidc.is_none() && self.github.is_none()
    }
}

static LINE: Format = Format {
    expected: "a text on one line",
    pattern: None,
    fits: |text| !text.is_empty() && !text.chars().any(char::is_control),
    lexis: Lexis::Anything,
};
static URL: Format = Format {
    expected: "an address such as https://id.example.com",
    pattern: Some("^https?://"),
    fits: |text| Target::parse(text).is_ok() && !text.contains('?'),
    lexis: Lexis::Words,
};
static ACCOUNT: Format = Format {
    expected: "a name of letters, digits and hyphens",
    pattern: Some("^[A-Za-z0-9-_]+$"),
    fits: |text| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    },
    lexis: Lexis::Anything,
};

const fn field(key: &'static str, kind: Kind, need: Need, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need,
        help,
    }
}
const fn list(of: &'static Kind) -> Kind {
    Kind::List { of, min: 0 }
}

static OIDC: Shape = Shape {
    what: "the oidc provider",
    fields: &[
        field(
            "name",
            Kind::Text(&LINE),
            Need::Optional,
            "What the button says. Default Single sign-on.",
        ),
        field(
            "issuer",
            Kind::Text(&URL),
            Need::Required,
            "The provider's issuer, letter by letter as it names itself.",
        ),
        field(
            "client_id",
            Kind::Text(&LINE),
            Need::Required,
            "The id that the provider knows this console by.",
        ),
        field(
            "client_secret",
            Kind::Text(&LINE),
            Need::Required,
            "The secret that goes with it; the file must be its owner's alone.",
        ),
        field(
            "allowed_groups",
            list(&Kind::Text(&LINE)),
            Need::Optional,
            "Groups whose people may come in, letter by letter. Without it, whoever the provider knows may.",
        ),
        field(
            "groups_claim",
            Kind::Text(&LINE),
            Need::Optional,
            "The claim that lists groups. Default groups.",
        ),
        field(
            "scopes",
            list(&Kind::Text(&LINE)),
            Need::Optional,
            "What is asked for. Default openid, email, profile; offline_access lets groups be read again without a new sign-in.",
        ),
    ],
    bonds: &[],
};

static GITHUB: Shape = Shape {
    what: "the github provider",
    fields: &[
        field(
            "client_id",
            Kind::Text(&LINE),
            Need::Required,
            "The OAuth app's id.",
        ),
        field(
            "client_secret",
            Kind::Text(&LINE),
            Need::Required,
            "Its secret; the file must be its owner's alone.",
        ),
        field(
            "users",
            list(&Kind::Text(&ACCOUNT)),
            Need::Optional,
            "Accounts that may come in.",
        ),
        field(
            "organizations",
            list(&Kind::Text(&ACCOUNT)),
            Need::Optional,
            "Organisations whose active members may come in.",
        ),
        field(
            "url",
            Kind::Text(&URL),
            Need::Optional,
            "A GitHub of your own. Default https://github.com.",
        ),
        field(
            "api",
            Kind::Text(&URL),
            Need::Optional,
            "Its API. Default https://api.github.com.",
        ),
    ],
    bonds: &[],
};

/// The `auth.providers` section.
pub static PROVIDERS: Shape = Shape {
    what: "providers",
    fields: &[
        field(
            "oidc",
            Kind::Object(&OIDC),
            Need::Optional,
            "A provider that speaks OpenID Connect.",
        ),
        field("github", Kind::Object(&GITHUB), Need::Optional, "GitHub."),
        field(
            "recheck_seconds",
            Kind::Whole {
                min: FASTEST.unsigned_abs(),
                max: SLOWEST.unsigned_abs(),
            },
            Need::Optional,
            "Seconds after which a provider is asked again about who is signed in, 10 to 480. Default 480.",
        ),
    ],
    bonds: &[],
};

/// From a section whose shape was checked.
pub fn read(section: &Node, mistakes: &mut Mistakes) -> Providers {
    Providers {
        oidc: section.field("oidc").and_then(|node| oidc(node, mistakes)),
        github: section
            .field("github")
            .and_then(|node| github(node, mistakes)),
        // what does not fit its shape was noted
        recheck: text(section, "recheck_seconds")
            .and_then(|seconds| seconds.parse::<Millis>().ok())
            .map_or(SLOWEST * SECOND, |seconds| seconds.saturating_mul(SECOND)),
    }
}

fn text(node: &Node, key: &str) -> Option<String> {
    node.field(key).and_then(Node::scalar).map(str::to_owned)
}

fn texts(node: &Node, key: &str) -> Option<Vec<String>> {
    let items = node.field(key)?.items();
    Some(
        items
            .iter()
            .filter_map(Node::scalar)
            .map(str::to_owned)
            .collect(),
    )
}

fn oidc(node: &Node, mistakes: &mut Mistakes) -> Option<OidcSettings> {
    let allowed_groups = texts(node, "allowed_groups");
    let nobody = |groups: &Vec<String>| groups.iter().all(|group| group.trim().is_empty());
    if let Some(field) = node.field("allowed_groups")
        && (field.is_null() || allowed_groups.as_ref().is_some_and(nobody))
    {
        let message = "`allowed_groups` lists nobody: no one could sign in";
        mistakes.hint(
            &field.at,
            message,
            "name a group, or leave the key out to let everybody in whom the provider knows",
        );
        return None;
    }
    let usual = || ["openid", "email", "profile"].map(str::to_owned).to_vec();
    let scopes = texts(node, "scopes").unwrap_or_else(usual);
    if !scopes.iter().any(|scope| scope == "openid") {
        mistakes.add(&node.at, "`scopes` needs openid");
    }
    Some(OidcSettings {
        name: text(node, "name").unwrap_or_else(|| "Single sign-on".to_owned()),
        issuer: text(node, "issuer")?,
        client_id: text(node, "client_id")?,
        client_secret: Redacted::new(text(node, "client_secret")?),
        allowed_groups,
        groups_claim: text(node, "groups_claim").unwrap_or_else(|| "groups".to_owned()),
        scopes,
    })
}

fn github(node: &Node, mistakes: &mut Mistakes) -> Option<GitHubSettings> {
    let users = texts(node, "users").unwrap_or_default();
    let organizations = texts(node, "organizations").unwrap_or_default();
    if users.is_empty() && organizations.is_empty() {
        let message = "the github provider lists nobody: no one could sign in";
        mistakes.hint(
            &node.at,
            message,
            "name accounts under `users` or organisations under `organizations`",
        );
        return None;
    }
    let url = |key: &str, usual: &str| {
        let url = text(node, key).unwrap_or_else(|| usual.to_owned());
        url.trim_end_matches('/').to_owned()
    };
    Some(GitHubSettings {
        client_id: text(node, "client_id")?,
        client_secret: Redacted::new(text(node, "client_secret")?),
        users,
        organizations,
        url: url("url", "https://github.com"),
        api: url("api", "https://api.github.com"),
    })
}

#[cfg(test)]
mod tests {
    use netpolicy::document::{text, tree};

    use crate::settings::ConsoleConfig;

    use super::*;

    fn read(written: &str) -> Result<ConsoleConfig, Vec<String>> {
        let mut mistakes = Mistakes::new("config.yml");
        let text = text::decode(written.as_bytes(), &mut mistakes).unwrap();
        let root = tree::read(text, &mut mistakes).unwrap();
        let gateway = gateway::config::GatewayConfig::default();
        let config = ConsoleConfig::read(&root, &gateway, &mut mistakes);
        let told = mistakes.finish(Some(config));
        told.map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    const IDS: &str = "client_id: a, client_secret: s3cret";

    #[test]
    fn a_provider_is_asked_again_no_faster_than_it_bears_and_no_slower_than_was_promised() {
        let with = |line: &str| {
            read(&format!(
                "app: {{ url: \"https://s.example\" }}\nauth: {{ providers: {{ github: {{ {IDS}, users: [mona] }}{line} }} }}\n"
            ))
        };
        for (line, seconds) in [
            ("", 480),
            (", recheck_seconds: 10", 10),
            (", recheck_seconds: 480", 480),
        ] {
            assert_eq!(with(line).unwrap().providers.recheck, seconds * SECOND);
        }
        for wrong in ["9", "0", "-1", "481", "1e2", "soon", "[]"] {
            let refused = with(&format!(", recheck_seconds: {wrong}"));
            assert!(refused.is_err(), "{wrong}: {refused:?}");
        }
    }

    #[test]
    fn a_list_of_nobody_starts_nothing() {
        for provider in [
            format!("github: {{ {IDS} }}"),
            format!("github: {{ {IDS}, users: [], organizations: [] }}"),
            format!("github: {{ {IDS}, organizations: [\" \"] }}"),
            format!("oidc: {{ {IDS}, issuer: \"https://id.example\", allowed_groups: [] }}"),
            format!("oidc: {{ {IDS}, issuer: \"https://id.example\", allowed_groups: [\"\"] }}"),
            format!("oidc: {{ {IDS}, issuer: \"https://id.example\", allowed_groups: null }}"),
            format!("oidc: {{ {IDS} }}"),
        ] {
            let refused = read(&format!(
                "app: {{ url: \"https://s.example\" }}\nauth: {{ providers: {{ {provider} }} }}\n"
            ));
            assert!(refused.is_err(), "{provider}: {refused:?}");
        }
        for provider in [
            format!("github: {{ {IDS}, users: [mona] }}"),
            format!("github: {{ {IDS}, organizations: [crew] }}"),
            format!("oidc: {{ {IDS}, issuer: \"https://id.example\", allowed_groups: [crew] }}"),
            format!("oidc: {{ {IDS}, issuer: \"https://id.example\" }}"),
        ] {
            let written = format!("auth: {{ providers: {{ {provider} }} }}\n");
            let fits = read(&format!("app: {{ url: \"https://s.example\" }}\n{written}"));
            let config = fits.unwrap_or_else(|told| panic!("{provider}: {told:?}"));
            assert!(config.holds_secret() && !format!("{config:?}").contains("s3cret"));
            assert!(
                read(&written).unwrap_err()[0].contains("app.url"),
                "{provider}"
            );
        }
    }
}
