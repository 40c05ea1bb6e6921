//! Named sets: shipped ones (one data file), the author's own, and `packages`, which the image's settings fill.

use std::sync::OnceLock;

use super::mistake::{Mistakes, nearest, quoted};
use super::rules;
use super::tree::{self, Node};
use crate::name::{Name, Pattern};
use crate::policy::{Place, Ports, Protocol, Rule, Selector};

/// The set that the image's own settings fill.
pub const PACKAGES: &str = "packages";
/// Hosts that an image's settings can add: enough for every package manager with mirrors, too few to be a web of its own.
pub const MOST_IMAGE_HOSTS: usize = 64;

/// The one key of the file that is no set.
const DATE_KEY: &str = "date";

/// The shipped sets as they are written.
const SHIPPED: &str = include_str!("sets.yaml");

/// A shipped set's entries; their places point into `set:NAME`.
pub fn shipped(name: &str) -> Option<&'static [Rule]> {
    all()
        .iter()
        .find(|(own, _)| own == name)
        .map(|(_, rules)| rules.as_slice())
}

/// The day on which the shipped sets were last looked through.
pub fn date() -> &'static str {
    static DATE: OnceLock<String> = OnceLock::new();
    DATE.get_or_init(|| {
        let root = tree::read(SHIPPED, &mut Mistakes::new("set"));
        let date = root.as_ref().and_then(|root| rules::word(root, DATE_KEY));
        date.unwrap_or_default().to_owned()
    })
}

/// Names of the shipped sets.
pub fn names() -> impl Iterator<Item = &'static str> + use<> {
    all().iter().map(|(name, _)| name.as_str())
}

fn all() -> &'static [(String, Vec<Rule>)] {
    static ALL: OnceLock<Vec<(String, Vec<Rule>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        // the file is checked by a test; an entry with a mistake would be left out, never widened
        let mut mistakes = Mistakes::new("set");
        let root = tree::read(SHIPPED, &mut mistakes);
        let entries = root.as_ref().map(Node::entries).unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry.key != DATE_KEY)
            .map(|entry| (entry.key.clone(), named_rules(&entry.key, &entry.value)))
            .collect()
    })
}

fn named_rules(name: &str, list: &Node) -> Vec<Rule> {
    let mut mistakes = Mistakes::new("set");
    let file: std::sync::Arc<str> = format!("set:{name}").into();
    let mut rules = rules::allow_rules(Some(list), &mut mistakes);
    for rule in &mut rules {
        rule.at.file = file.clone();
    }
    rules
}

/// Whether a set of this name is shipped or means the image's own hosts.
fn is_reserved(name: &str) -> bool {
    name == PACKAGES || shipped(name).is_some()
}

/// The sets that one document can use.
pub(super) struct Sets<'a> {
    own: Vec<(&'a str, Vec<Rule>)>,
}

impl<'a> Sets<'a> {
    /// Reads the document's own sets; every entry is checked, used or not.
    pub(super) fn new(root: &'a Node, mistakes: &mut Mistakes) -> Self {
        let mut own = Vec::new();
        for entry in root.field("sets").map(Node::entries).unwrap_or_default() {
            if is_reserved(&entry.key) {
                let message = format!("the set {} has that name already", quoted(&entry.key));
                mistakes.hint(
                    &entry.at,
                    message,
                    "it is shipped or filled by the image; choose another name",
                );
            }
            own.push((
                entry.key.as_str(),
                rules::allow_rules(Some(&entry.value), mistakes),
            ));
        }
        Self { own }
    }

    /// Entries of the sets under `use`, and where `packages` stands if its hosts are not known.
    pub(super) fn used(
        &self,
        root: &Node,
        packages: Option<&[String]>,
        mistakes: &mut Mistakes,
    ) -> (Vec<Rule>, Option<Place>) {
        let mut rules: Vec<Rule> = Vec::new();
        let mut needs = None;
        let mut seen: Vec<&str> = Vec::new();
        for item in root.field("use").map(Node::items).unwrap_or_default() {
            let Some(name) = item.scalar().filter(|name| !name.is_empty()) else {
                continue;
            };
            if seen.contains(&name) {
                mistakes.hint(
                    &item.at,
                    format!("the set {} is used twice", quoted(name)),
                    "keep one",
                );
                continue;
            }
            seen.push(name);
            match (name, packages) {
                (PACKAGES, Some(hosts)) => rules.extend(from_image(hosts, &item.at, mistakes)),
                (PACKAGES, None) => needs = Some(item.at.clone()),
                _ => match self.find(name) {
                    Some(found) => rules.extend_from_slice(found),
                    None => self.unknown(item, name, mistakes),
                },
            }
        }
        (rules, needs)
    }

    fn find(&self, name: &str) -> Option<&[Rule]> {
        let own = self
            .own
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, rules)| rules.as_slice());
        own.or_else(|| shipped(name))
    }

    fn unknown(&self, item: &Node, name: &str, mistakes: &mut Mistakes) {
        let mut known: Vec<&str> = vec![PACKAGES];
        known.extend(all().iter().map(|(shipped, _)| shipped.as_str()));
        known.extend(self.own.iter().map(|(own, _)| *own));
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        mistakes.hint(&item.at, format!("there is no set {}", quoted(name)), hint);
    }
}

/// Hosts of an image's settings as `allow` entries. An image is a stranger: it gets names and the web's ports, never an
/// address, a wildcard or a port of its choice, whoever read the settings.
fn from_image(hosts: &[String], at: &Place, mistakes: &mut Mistakes) -> Vec<Rule> {
    if hosts.len() > MOST_IMAGE_HOSTS {
        let message = format!(
            "the image's settings name {} hosts, {MOST_IMAGE_HOSTS} at most",
            hosts.len()
        );
        mistakes.add(at, message);
        return Vec::new();
    }
    let mut rules = Vec::new();
    for (line, host) in (1..).zip(hosts) {
        match Name::parse_ascii(host.as_bytes()) {
            Ok(name) => rules.push(image_rule(name, line)),
            Err(error) => mistakes.add(
                at,
                format!("the image's settings name {}: {error}", quoted(host)),
            ),
        }
    }
    rules
}

fn image_rule(name: Name, line: u32) -> Rule {
    Rule {
        to: Selector::Host(Pattern::Exact(name)),
        ports: Ports::web(),
        protocol: Some(Protocol::Tcp),
        speaks: None,
        until: None,
        http: Vec::new(),
        reason: None,
        at: Place {
            file: format!("set:{PACKAGES}").into(),
            line,
            column: 1,
            commit: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::ALLOW;
    use super::super::shape::check;
    use super::*;

    #[test]
    fn shipped_sets_hold_no_mistake() {
        let mut mistakes = Mistakes::new("sets.yaml");
        let root = tree::read(SHIPPED, &mut mistakes).unwrap();
        let mut entries = 0;
        for set in root.entries().iter().filter(|set| set.key != DATE_KEY) {
            for entry in set.value.items() {
                check(entry, &ALLOW, &mut mistakes);
                entries += 1;
            }
            rules::allow_rules(Some(&set.value), &mut mistakes);
        }
        assert_eq!(mistakes.finish(Some(())), Ok(()));
        assert_eq!(
            all().iter().map(|(_, rules)| rules.len()).sum::<usize>(),
            entries
        );
        assert!(entries > 20);
    }

    #[test]
    fn the_shipped_sets_have_a_date() {
        assert!(super::super::values::day_after(date()).is_some());
    }

    #[test]
    fn code_hosts_is_the_sum_of_its_parts() {
        let parts = ["github", "gitlab", "bitbucket", "codeberg", "sourcehut"];
        let parts: Vec<Selector> = parts
            .iter()
            .flat_map(|n| shipped(n).unwrap())
            .map(|r| r.to.clone())
            .collect();
        let whole: Vec<Selector> = shipped("code-hosts")
            .unwrap()
            .iter()
            .map(|r| r.to.clone())
            .collect();
        assert_eq!(parts, whole);
    }
}
