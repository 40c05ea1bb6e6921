//! From text to sections: a spanned tree; the gateway reads its own section, the runner's is read key by key, so that
//! one mistake does not hide the next.

use console::settings::ConsoleConfig;
use gateway::config::GatewayConfig;
use netpolicy::document::tree::{self, Node, Value};
use netpolicy::document::{Mistake, Mistakes, mistake, text};
use runner::RunnerConfig;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::Config;

/// Sections that a file may have.
pub const SECTIONS: [&str; 6] = ["gateway", "runner", "console", "app", "auth", "workspaces"];

/// Reads a whole file.
pub fn config(file: &str, bytes: &[u8]) -> Result<Config, Vec<Mistake>> {
    let mut mistakes = Mistakes::new(file);
    let config = read(bytes, &mut mistakes);
    mistakes.finish(config)
}

fn read(bytes: &[u8], mistakes: &mut Mistakes) -> Option<Config> {
    let text = text::decode(bytes, mistakes)?;
    let root = tree::read(text, mistakes)?;
    if !matches!(root.value, Value::Map(_)) {
        mistakes.hint(
            &root.at,
            format!("a configuration is a mapping, not {}", root.what()),
            "begin with `gateway:`",
        );
        return None;
    }
    for entry in root.entries() {
        if !SECTIONS.contains(&entry.key.as_str()) {
            let message = format!(
                "a configuration has no section {}",
                mistake::quoted(&entry.key)
            );
            let hint = mistake::nearest(&entry.key, SECTIONS).map_or_else(
                || format!("sections are {}", SECTIONS.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            mistakes.hint(&entry.at, message, hint);
        }
    }
    let gateway = GatewayConfig::read(
        root.field("gateway").filter(|section| !section.is_null()),
        mistakes,
    );
    let runner: Option<RunnerConfig> = section(&root, "runner", mistakes);
    // what the console takes from a gateway section with mistakes is not used: nothing starts then
    let console = ConsoleConfig::read(&root, &gateway.clone().unwrap_or_default(), mistakes);
    let (gateway, mut runner) = (gateway?, runner?);
    if root
        .field("runner")
        .and_then(|section| section.field("control"))
        .is_none()
    {
        // one file describes one installation: its runner speaks to its gateway unless it says otherwise
        runner.control.clone_from(&gateway.control);
    }
    for message in runner.mistakes() {
        note(&root, &message, mistakes);
    }
    Some(Config {
        gateway,
        runner,
        console,
    })
}

/// A message `gateway.pools.v4: what is wrong`, at the place of the deepest key that was written.
fn note(root: &Node, message: &str, mistakes: &mut Mistakes) {
    let path = message.split(':').next().unwrap_or_default();
    let mut at = root.at.clone();
    let mut node = root;
    for key in path.split('.') {
        let Some(entry) = node.entry(key) else { break };
        at = entry.at.clone();
        node = &entry.value;
    }
    mistakes.add(&at, message);
}

fn section<T: DeserializeOwned>(root: &Node, name: &str, mistakes: &mut Mistakes) -> Option<T> {
    let whole = match root.field(name) {
        Some(node) if !node.is_null() => node,
        _ => return serde_json::from_value(Json::Object(Map::new())).ok(),
    };
    if !matches!(whole.value, Value::Map(_)) {
        mistakes.add(
            &whole.at,
            format!("`{name}` is a mapping, not {}", whole.what()),
        );
        return None;
    }
    match serde_json::from_value(json(whole)) {
        Ok(section) => Some(section),
        Err(error) => {
            let before = mistakes.count();
            isolate::<T>(whole, &mut Vec::new(), mistakes);
            if mistakes.count() == before {
                mistakes.add(&whole.at, reason(&error));
            }
            None
        }
    }
}

/// Reads every key as if it stood alone, and goes into mappings that are wrong.
fn isolate<T: DeserializeOwned>(node: &Node, path: &mut Vec<String>, mistakes: &mut Mistakes) {
    for entry in node.entries() {
        path.push(entry.key.clone());
        if let Err(error) = serde_json::from_value::<T>(alone(path, json(&entry.value))) {
            let before = mistakes.count();
            isolate::<T>(&entry.value, path, mistakes);
            if mistakes.count() == before {
                tell(entry, &error, mistakes);
            }
        }
        path.pop();
    }
}

fn tell(entry: &tree::Entry, error: &serde_json::Error, mistakes: &mut Mistakes) {
    let reason = reason(error);
    let known: Vec<&str> = reason.split('`').skip(3).step_by(2).collect();
    if reason.starts_with("unknown field") {
        let message = format!("there is no setting {}", mistake::quoted(&entry.key));
        match mistake::nearest(&entry.key, known.iter().copied()) {
            Some(near) => mistakes.hint(&entry.at, message, format!("did you mean `{near}`?")),
            None => mistakes.hint(
                &entry.at,
                message,
                format!("settings here are {}", known.join(", ")),
            ),
        }
    } else {
        mistakes.add(&entry.value.at, format!("`{}`: {reason}", entry.key));
    }
}

/// What serde says, without its place: there is a better one.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ")
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn alone(path: &[String], value: Json) -> Json {
    path.iter().rev().fold(value, |inner, key| {
        Json::Object(Map::from_iter([(key.clone(), inner)]))
    })
}

/// The tree as JSON. Only plain scalars can be something else than a text.
fn json(node: &Node) -> Json {
    match &node.value {
        // reported where it stands; nothing is built from a text with mistakes
        Value::Refused => Json::Null,
        Value::List(items) => Json::Array(items.iter().map(json).collect()),
        Value::Map(entries) => {
            let kept = entries.iter().filter(|e| !e.value.is_null());
            Json::Object(kept.map(|e| (e.key.clone(), json(&e.value))).collect())
        }
        Value::Scalar { text, plain: true } => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            digits
                if digits.len() < 19
                    && digits.bytes().all(|b| b.is_ascii_digit())
                    && canonical(digits) =>
            {
                digits
                    .parse::<u64>()
                    .map_or_else(|_| Json::String(text.clone()), Json::from)
            }
            _ => Json::String(text.clone()),
        },
        Value::Scalar { text, .. } => Json::String(text.clone()),
    }
}

fn canonical(digits: &str) -> bool {
    digits == "0" || (!digits.is_empty() && !digits.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        config("config.yml", text.as_bytes())
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let found = mistakes(
            "gateway:\n  contrl: /x\n  namespace: [a]\nrunner:\n  pool: many\n  polo: 1\nconsoles: {}\n",
        );
        assert_eq!(found.len(), 5, "{found:#?}");
        assert!(
            found[0].starts_with("config.yml:2:3: ") && found[0].contains("`control`"),
            "{found:#?}"
        );
        assert!(found[1].starts_with("config.yml:3:"), "{found:#?}");
        assert!(found[2].starts_with("config.yml:5:9: `pool`"), "{found:#?}");
        assert!(
            found[3].contains("no setting \"polo\"") && found[3].contains("did you mean `pool`?"),
            "{found:#?}"
        );
        assert!(found[4].contains("no section \"consoles\""), "{found:#?}");
    }

    #[test]
    fn duplicate_keys_aliases_and_second_documents_are_mistakes() {
        for text in [
            "gateway: {}\ngateway: {}\n",
            "gateway: &a {}\nrunner: *a\n",
            "gateway: {}\n---\nrunner: {}\n",
            "- x\n",
            "",
        ] {
            assert!(config("f", text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_empty_section_is_all_defaults() {
        let read = config("f", b"gateway:\nrunner: {}\n").unwrap();
        let defaults = Config::default();
        assert_eq!(read.gateway, defaults.gateway);
        assert_eq!(read.runner, defaults.runner);
        assert_eq!(read.console, defaults.console);
    }

    #[test]
    fn every_mistake_of_the_consoles_sections_is_told() {
        let found = mistakes(
            "console:\n  listen: here\n  databse: /x\n  management: { listen: \"10.0.0.1:1\" }\n  trusted_proxies: [ten]\napp:\n  url: sally.example/x\nauth: { email_password: perhaps }\nworkspaces: []\n",
        );
        assert_eq!(found.len(), 7, "{found:#?}");
        assert!(found[1].contains("did you mean `database`?"), "{found:#?}");
    }

    #[test]
    fn the_runner_speaks_to_the_gateway_of_its_own_file() {
        let read = config("f", b"gateway: { control: /run/one/control.sock }\n").unwrap();
        assert_eq!(read.runner.control, read.gateway.control);
        let read = config(
            "f",
            b"gateway: { control: /run/one/c.sock }\nrunner: { control: /run/two/c.sock }\n",
        )
        .unwrap();
        assert_eq!(read.runner.control.to_str(), Some("/run/two/c.sock"));
    }
}
