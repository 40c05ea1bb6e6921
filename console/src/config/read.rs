//! From text to sections: a spanned tree, each section checked against its own table, so that one mistake does not hide
//! the next.

use std::path::PathBuf;

use console::settings::ConsoleConfig;
use gateway::config::GatewayConfig;
use netpolicy::document::tree::{self, Node, Value};
use netpolicy::document::{Mistake, Mistakes, mistake, shape, text};
use runner::RunnerConfig;
use serde_json::Value as Json;

use super::Config;

/// Sections that a file may have.
pub const SECTIONS: [&str; 8] = [
    "gateway",
    "runner",
    "console",
    "app",
    "auth",
    "mail",
    "network",
    "workspaces",
];

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
    let section = root.field("runner").filter(|section| !section.is_null());
    let runner = runner(section, mistakes);
    // what the console takes from a gateway section with mistakes is not used: nothing starts then
    let console = ConsoleConfig::read(&root, &gateway.clone().unwrap_or_default(), mistakes);
    let (gateway, written) = (gateway?, runner?);
    let runner = beside(&gateway, written, section);
    for message in runner.mistakes() {
        note(&root, &message, mistakes);
    }
    Some(Config {
        gateway,
        runner,
        console,
    })
}

/// The runner's section as it is written; `None` if there were mistakes (they are noted).
fn runner(section: Option<&Node>, mistakes: &mut Mistakes) -> Option<RunnerConfig> {
    let Some(section) = section else {
        return Some(RunnerConfig::default());
    };
    let before = mistakes.count();
    shape::check(section, &runner::config::SHAPE, mistakes);
    if mistakes.count() != before {
        return None;
    }
    match serde_json::from_value(json(section)) {
        Ok(runner) => Some(runner),
        Err(error) => {
            mistakes.add(&section.at, error.to_string());
            None
        }
    }
}

/// One file describes one installation: its runner speaks to its gateway and lives below that gateway's folders, unless
/// it says otherwise.
fn beside(gateway: &GatewayConfig, written: RunnerConfig, section: Option<&Node>) -> RunnerConfig {
    let usual = RunnerConfig::under(&gateway.state_dir, &gateway.run_dir);
    let says = |key: &str| section.is_some_and(|section| section.field(key).is_some());
    let path = |key: &str, own: PathBuf, usual: PathBuf| if says(key) { own } else { usual };
    RunnerConfig {
        control: path("control", written.control, gateway.control.clone()),
        socket: path("socket", written.socket, usual.socket),
        state_dir: path("state_dir", written.state_dir, usual.state_dir),
        run_dir: path("run_dir", written.run_dir, usual.run_dir),
        engine: written.engine,
        pool: written.pool,
        max_runs: written.max_runs,
        console: written.console,
        ca_file: written.ca_file,
        plain_http: written.plain_http,
        token_file: path("token_file", written.token_file, usual.token_file),
        limits: written.limits,
    }
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

/// The tree as JSON. Only plain scalars can be something else than a text.
pub fn json(node: &Node) -> Json {
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
        assert!(
            found[2].starts_with("config.yml:5:9: ") && found[2].contains("`pool`"),
            "{found:#?}"
        );
        assert!(
            found[3].contains("polo") && found[3].contains("did you mean `pool`?"),
            "{found:#?}"
        );
        assert!(found[4].contains("no section \"consoles\""), "{found:#?}");
    }

    #[test]
    fn the_runners_section_is_told_whole_and_in_words_of_people() {
        let found = mistakes(
            "runner:\n  engine: dokcer\n  poool: 3\n  max_runs: 0\n  socket: rel.sock\n  pool: \"-1\"\n  limits: { image: \"--x\", isolation: strong, pid: 3 }\n",
        );
        assert_eq!(found.len(), 8, "{found:#?}");
        for (line, words) in [
            (2, "absolute path of a socket"),
            (3, "did you mean `pool`?"),
            (4, "max_runs"),
            (5, "an absolute path"),
            (6, "pool"),
            (7, "the name of an image"),
            (7, "hardened"),
            (7, "did you mean `pids`?"),
        ] {
            let at = format!("config.yml:{line}:");
            assert!(
                found
                    .iter()
                    .any(|m| m.starts_with(&at) && m.contains(words)),
                "{line} {words}: {found:#?}"
            );
        }
        for word in ["usize", "u64", "invalid type", "unknown field"] {
            assert!(!found.iter().any(|m| m.contains(word)), "{found:#?}");
        }
        // what holds between settings is told, too
        let found = mistakes("runner: { limits: { pids: 10, max_pids: 5 } }\n");
        assert_eq!(found.len(), 1, "{found:#?}");
    }

    #[test]
    fn a_runner_lives_below_the_folders_of_its_own_gateway() {
        let read = config(
            "f",
            b"gateway: { state_dir: /var/lib/two, run_dir: /run/two }\n",
        )
        .unwrap();
        let under = |path: &PathBuf, folder: &str| path.starts_with(folder);
        assert!(under(&read.runner.state_dir, "/var/lib/two"));
        assert!(under(&read.runner.run_dir, "/run/two"));
        assert!(under(&read.runner.socket, "/run/two"));
        assert_eq!(read.runner.control, read.gateway.control);
        let read = config(
            "f",
            b"gateway: { run_dir: /run/two }\nrunner: { run_dir: /run/three }\n",
        )
        .unwrap();
        assert_eq!(read.runner.run_dir.to_str(), Some("/run/three"));
        assert!(under(&read.runner.socket, "/run/two"));
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
