//! The dated list of hosts that are wider than they look, and what authors add to it.
//!
//! One shipped file (`catalogue.yaml`); a file of the same form adds entries and says which warnings were judged and
//! accepted. Adding never takes away: only `accept` silences, each with its host and a reason.

use std::sync::LazyLock;

use super::{Code, Lint};
use crate::document::forms::HOST;
use crate::document::grammar::field;
use crate::document::mistake::Mistakes;
use crate::document::rules::{pattern, word};
use crate::document::shape::{self, Kind as Value, Need, Shape};
use crate::document::tree::{self, Node};
use crate::document::values::{DATE, WORDS};
use crate::name::Pattern;

/// The shipped list as it is written.
const SHIPPED: &str = include_str!("catalogue.yaml");

/// Where the public suffixes come from; a test compares it with what is built in.
pub const PUBLIC_SUFFIXES: &str = "psl 2.1.247";

/// Why a host is in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Strangers can have a part of it.
    ManyOwners,
    /// It takes data from anybody.
    Uploads,
    /// It resolves names.
    Resolver,
    /// It fetches or forwards.
    Relay,
}

impl Kind {
    const KEYS: [(&'static str, Self); 4] = [
        ("many_owners", Self::ManyOwners),
        ("uploads", Self::Uploads),
        ("resolvers", Self::Resolver),
        ("relays", Self::Relay),
    ];

    /// The code of its warnings.
    pub const fn code(self) -> Code {
        match self {
            Self::ManyOwners => Code::ManyOwners,
            Self::Uploads => Code::Uploads,
            Self::Resolver => Code::Resolver,
            Self::Relay => Code::Relay,
        }
    }
}

/// One host of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Which.
    pub host: Pattern,
    /// Why.
    pub kind: Kind,
    /// What it holds, in words.
    pub note: String,
}

/// A warning that somebody has judged.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Accepted {
    code: Code,
    host: Option<Pattern>,
}

/// What is known about hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalogue {
    /// The day on which the shipped list was last looked through.
    pub date: String,
    /// Dates of the files that were added, with their names.
    pub added: Vec<(String, String)>,
    items: Vec<Item>,
    accepted: Vec<Accepted>,
}

static ITEM: Shape = Shape {
    what: "an entry of the list",
    fields: &[
        field(
            "host",
            Need::Required,
            Value::Text(&HOST),
            "A name, or *.NAME for everything below it.",
        ),
        field(
            "note",
            Need::Optional,
            Value::Text(&WORDS),
            "What it holds, in words.",
        ),
    ],
    bonds: &[],
};

static ACCEPT: Shape = Shape {
    what: "an accept entry",
    fields: &[
        field(
            "code",
            Need::Required,
            Value::Word(&CODES),
            "The code of the warning.",
        ),
        field(
            "host",
            Need::Optional,
            Value::Text(&HOST),
            "Only for entries that name this, as it is written there.",
        ),
        field(
            "reason",
            Need::Required,
            Value::Text(&WORDS),
            "Why it is accepted, in words.",
        ),
    ],
    bonds: &[],
};

/// Words of [`Code::ALL`], for the grammar; a test holds them together.
const CODES: [&str; 13] = [
    "expired",
    "dead",
    "outside_floor",
    "denied",
    "shadowed",
    "duplicate",
    "public_suffix",
    "many_owners",
    "uploads",
    "resolver",
    "relay",
    "wide_network",
    "lookalike",
];

static ITEMS: Value = Value::Object(&ITEM);
static ACCEPTS: Value = Value::Object(&ACCEPT);

static CATALOGUE: Shape = Shape {
    what: "a lints file",
    fields: &[
        field(
            "date",
            Need::Required,
            Value::Text(&DATE),
            "The day on which it was last looked through.",
        ),
        field(
            "many_owners",
            Need::Optional,
            Value::List { of: &ITEMS, min: 0 },
            "Strangers can have a part of these.",
        ),
        field(
            "uploads",
            Need::Optional,
            Value::List { of: &ITEMS, min: 0 },
            "These take data from anybody.",
        ),
        field(
            "resolvers",
            Need::Optional,
            Value::List { of: &ITEMS, min: 0 },
            "These resolve names.",
        ),
        field(
            "relays",
            Need::Optional,
            Value::List { of: &ITEMS, min: 0 },
            "These fetch or forward to anywhere.",
        ),
        field(
            "accept",
            Need::Optional,
            Value::List {
                of: &ACCEPTS,
                min: 0,
            },
            "Warnings that were judged.",
        ),
    ],
    bonds: &[],
};

impl Catalogue {
    /// The shipped list.
    pub fn shipped() -> &'static Self {
        static SHIPPED_LIST: LazyLock<Catalogue> = LazyLock::new(|| {
            let mut mistakes = Mistakes::new("catalogue.yaml");
            // a test holds the file at no mistake; an entry with one would be left out
            read(SHIPPED, &mut mistakes).unwrap_or_else(|| Catalogue {
                date: String::new(),
                added: Vec::new(),
                items: Vec::new(),
                accepted: Vec::new(),
            })
        });
        &SHIPPED_LIST
    }

    /// This list and a file of the same form.
    pub fn with(&self, file: &str, text: &str) -> super::Read {
        let mut mistakes = Mistakes::new(file);
        let more = read(text, &mut mistakes);
        let more = mistakes.finish(more)?;
        let mut all = self.clone();
        all.added.push((file.to_owned(), more.date));
        all.items.extend(more.items);
        all.accepted.extend(more.accepted);
        Ok(all)
    }

    /// All hosts.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Whether somebody judged this warning. `host` is what the entry names, if it names a host.
    pub(super) fn accepts(&self, lint: &Lint, host: Option<&Pattern>) -> bool {
        self.accepted.iter().any(|accepted| {
            accepted.code == lint.code
                && accepted
                    .host
                    .as_ref()
                    .is_none_or(|wanted| Some(wanted) == host)
        })
    }
}

fn read(text: &str, mistakes: &mut Mistakes) -> Option<Catalogue> {
    let root = tree::read(text, mistakes)?;
    shape::check(&root, &CATALOGUE, mistakes);
    let mut items = Vec::new();
    for (key, kind) in Kind::KEYS {
        for entry in root.field(key).map(Node::items).unwrap_or_default() {
            let Some(host) = entry.field("host").and_then(|host| pattern(host, mistakes)) else {
                continue;
            };
            items.push(Item {
                host,
                kind,
                note: word(entry, "note")
                    .unwrap_or("see the lints file")
                    .to_owned(),
            });
        }
    }
    let accepted = root.field("accept").map(Node::items).unwrap_or_default();
    let accepted = accepted
        .iter()
        .filter_map(|entry| {
            let code = Code::ALL
                .into_iter()
                .find(|code| word(entry, "code") == Some(code.word()))?;
            let host = match entry.field("host") {
                Some(host) => Some(pattern(host, mistakes)?),
                None => None,
            };
            Some(Accepted { code, host })
        })
        .collect();
    Some(Catalogue {
        date: word(&root, "date")?.to_owned(),
        added: Vec::new(),
        items,
        accepted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_holds_no_mistake_and_nothing_twice() {
        let mut mistakes = Mistakes::new("catalogue.yaml");
        let list = read(SHIPPED, &mut mistakes);
        let list = mistakes.finish(list).unwrap();
        assert!(list.items.len() > 100);
        for (at, item) in list.items.iter().enumerate() {
            let again = list.items[..at]
                .iter()
                .find(|other| other.host == item.host && other.kind == item.kind);
            assert_eq!(again, None);
        }
        for kind in [Kind::ManyOwners, Kind::Uploads, Kind::Resolver, Kind::Relay] {
            assert!(list.items.iter().any(|item| item.kind == kind));
        }
    }

    #[test]
    fn the_grammar_knows_every_code() {
        assert_eq!(CODES, Code::ALL.map(Code::word));
    }

    #[test]
    fn the_public_suffixes_are_those_that_are_named() {
        let lock = include_str!("../../../Cargo.lock");
        let (name, version) = PUBLIC_SUFFIXES.split_once(' ').unwrap();
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(
            lock.contains(&entry),
            "the list changed: look through catalogue.yaml, then name the new version"
        );
    }

    #[test]
    fn a_file_adds_and_accepts_and_its_mistakes_have_places() {
        let text = "date: 2027-01-31\nuploads:\n  - { host: paste.acme.example }\naccept:\n  - { code: uploads, host: api.github.com, reason: we judged it }\n";
        let all = Catalogue::shipped().with("mine.yaml", text).unwrap();
        assert_eq!(all.items.len(), Catalogue::shipped().items.len() + 1);
        assert_eq!(
            all.added,
            [("mine.yaml".to_owned(), "2027-01-31".to_owned())]
        );
        let wrong = "date: soon\nuploads: [{ hots: x.example.com }]\naccept: [{ code: everything, reason: lazy }]\nuplods: []\n";
        let mistakes = Catalogue::shipped().with("mine.yaml", wrong).unwrap_err();
        let lines: Vec<u32> = mistakes.iter().map(|mistake| mistake.at.line).collect();
        assert_eq!(lines, [1, 2, 2, 3, 4], "{mistakes:#?}");
    }
}
