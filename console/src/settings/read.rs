//! From the checked tree to the console's settings.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use gateway::config::GatewayConfig;
use ipnet::IpNet;
use netpolicy::document::Mistakes;
use netpolicy::document::shape::{check, flag};
use netpolicy::document::tree::Node;

use super::{AppUrl, ConsoleConfig, Database, SECTIONS, Scheme, TlsFiles};

/// Builds the settings; every mistake is noted, and what is wrong stays at its default.
pub fn config(root: &Node, gateway: &GatewayConfig, mistakes: &mut Mistakes) -> ConsoleConfig {
    let there = |name: &str| root.field(name).filter(|node| !node.is_null());
    for (name, shape) in SECTIONS {
        if let Some(section) = there(name) {
            check(section, shape, mistakes);
        }
    }
    let mut config = ConsoleConfig::beside(gateway);
    if let Some(section) = there("console") {
        console(section, &mut config, mistakes);
    }
    let url = there("app").and_then(|section| section.field("url"));
    config.url = url.and_then(|node| text(node, AppUrl::parse, URL, mistakes));
    let in_clear = config
        .url
        .as_ref()
        .is_some_and(|url| url.scheme == Scheme::Http);
    if let Some(node) = url.filter(|_| in_clear && config.tls.is_some()) {
        // links and redirects would name an address where nobody speaks HTTP
        mistakes.add(&node.at, "`tls` needs an https `app.url`");
    }
    let switch =
        |section: &str, key: &str| there(section).and_then(|s| s.field(key)).and_then(flag);
    config.email_password = switch("auth", "email_password").unwrap_or(true);
    if let Some(section) = there("auth").and_then(|auth| auth.field("providers")) {
        config.providers = super::providers::read(section, mistakes);
        if !config.providers.is_empty() && config.url.is_none() {
            let message = "`providers` needs `app.url`: a provider sends people back to it";
            mistakes.add(&section.at, message);
        }
    }
    config.mail = there("mail").and_then(|section| super::mail::read(section, mistakes));
    config.outbound = super::outbound::read(there("network"), mistakes);
    config.workspaces = switch("workspaces", "enabled").unwrap_or(true);
    config
}

const URL: &str = "`url` is http:// or https://, a name, perhaps a port, and nothing else";
const LISTEN: &str = "`listen` is an address with a port such as 127.0.0.1:8420";
const DATABASE: &str = "`database` is an absolute path or postgres://USER:PASSWORD@HOST/NAME";
const MANAGEMENT: &str = "`listen` is a loopback address with a port such as 127.0.0.1:8421";
const PROXY: &str = "`trusted_proxies` has addresses or prefixes such as 10.20.0.0/16";

fn console(section: &Node, config: &mut ConsoleConfig, mistakes: &mut Mistakes) {
    if let Some(folder) = section.field("state_dir").and_then(Node::scalar) {
        config.state_dir = PathBuf::from(folder);
        config.database = Database::Sqlite(config.state_dir.join("console.db"));
        config.key_file = config.state_dir.join("instance.key");
    }
    if let Some(file) = section.field("key_file").and_then(Node::scalar) {
        config.key_file = PathBuf::from(file);
    }
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let listen = section.field("listen");
    if let Some(listen) = listen.and_then(|node| shown(node, address, LISTEN, mistakes)) {
        config.listen = listen;
    }
    let database = section.field("database");
    if let Some(found) = database.and_then(|node| text(node, Database::parse, DATABASE, mistakes)) {
        config.database = found;
    }
    let management = section
        .field("management")
        .and_then(|node| node.field("listen"));
    let loopback = |text: &str| address(text).filter(|address| address.ip().is_loopback());
    config.management = management.and_then(|node| shown(node, loopback, MANAGEMENT, mistakes));
    config.retention = super::retention::read(section.field("retention"), mistakes);
    let file = |key: &str| {
        let tls = section.field("tls")?;
        Some(PathBuf::from(tls.field(key).and_then(Node::scalar)?))
    };
    config.tls = file("certificate")
        .zip(file("key"))
        .map(|(certificate, key)| TlsFiles { certificate, key });
    let proxies = section
        .field("trusted_proxies")
        .map_or(&[][..], Node::items);
    config.trusted_proxies = proxies
        .iter()
        .filter_map(|node| shown(node, prefix, PROXY, mistakes))
        .collect();
}

fn prefix(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// The same as [`text`], where what was written is no secret and is shown.
fn shown<T>(
    node: &Node,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let expected = format!("{expected}, not {}", node.what());
    text(node, parse, &expected, mistakes)
}

/// A scalar that parses; otherwise the mistake, at its place. What is no scalar its shape has reported.
fn text<T>(
    node: &Node,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let scalar = node.scalar()?;
    let parsed = parse(scalar);
    if parsed.is_none() {
        mistakes.add(&node.at, expected);
    }
    parsed
}

#[cfg(test)]
mod tests {
    use netpolicy::document::{text, tree};

    use super::*;

    fn told(written: &str) -> Vec<String> {
        let mut mistakes = Mistakes::new("config.yml");
        let text = text::decode(written.as_bytes(), &mut mistakes).unwrap();
        let root = tree::read(text, &mut mistakes).unwrap();
        config(&root, &GatewayConfig::default(), &mut mistakes);
        let told = mistakes.finish(Some(()));
        let told = told.map_err(|all| all.iter().map(ToString::to_string).collect());
        told.err().unwrap_or_default()
    }

    #[test]
    fn a_certificate_of_its_own_needs_an_address_that_says_https() {
        let tls = "console: { tls: { certificate: /c.pem, key: /k.pem } }\n";
        let wrong = told(&format!("app: {{ url: \"http://s.example\" }}\n{tls}"));
        assert!(
            wrong.len() == 1 && wrong[0].contains("https `app.url`"),
            "{wrong:?}"
        );
        for fine in [
            format!("app: {{ url: \"https://s.example\" }}\n{tls}"),
            "app: { url: \"http://s.example\" }\n".to_owned(),
            tls.to_owned(),
        ] {
            assert_eq!(told(&fine), Vec::<String>::new(), "{fine}");
        }
    }
}
