//! Grammar as tables: which keys a mapping has and what stands under each. One table gives the checker and the JSON
//! Schema, so that they cannot disagree.
//!
//! Used for policy documents and for the configuration file. Checking a tree against a [`Shape`] notes every structural
//! mistake; whoever builds values afterwards may skip what does not fit, it has been reported.

use super::mistake::{Mistakes, nearest, quoted};
pub use super::scalar::{flag, is_text, whole};
use super::tree::{Node, Value};
use super::values;
use crate::policy::Place;

const PLAIN_DIGITS: &str = "write it in plain digits, without quotes or leading zeros";

/// A mapping: its keys and what holds between them.
#[derive(Debug)]
pub struct Shape {
    /// What it is called in messages (`a policy`, `an allow entry`).
    pub what: &'static str,
    /// Its keys.
    pub fields: &'static [Field],
    /// What holds between keys.
    pub bonds: &'static [Bond],
}

/// One key of a [`Shape`].
#[derive(Debug)]
pub struct Field {
    /// The key.
    pub key: &'static str,
    /// What stands under it.
    pub kind: Kind,
    /// Whether it must be there.
    pub need: Need,
    /// One sentence for the schema and for editors.
    pub help: &'static str,
}

/// Whether a key must be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// It must.
    Required,
    /// It may be left out.
    Optional,
}

/// What stands under a key or in a list.
#[derive(Debug)]
pub enum Kind {
    /// A text of some form.
    Text(&'static Format),
    /// `true` or `false`.
    Flag,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A whole number within bounds.
    Whole {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A list with at least so many elements.
    List {
        /// What its elements are.
        of: &'static Kind,
        /// Fewest elements.
        min: usize,
    },
    /// A mapping with known keys.
    Object(&'static Shape),
    /// A mapping with keys of the author's choice.
    Named {
        /// What the keys look like.
        keys: &'static Format,
        /// What stands under each.
        of: &'static Kind,
    },
    /// Any of several kinds; `expected` says which in words.
    Either {
        /// The kinds.
        of: &'static [Kind],
        /// What to write, in words.
        expected: &'static str,
    },
}

/// The form of a text.
#[derive(Debug)]
pub struct Format {
    /// What to write, in words (`a date like 2027-01-31`).
    pub expected: &'static str,
    /// The same as a regular expression for the schema, if it can be said that way.
    pub pattern: Option<&'static str>,
    /// Whether a text has the form.
    pub fits: fn(&str) -> bool,
    /// Whether a date or number without quotes may stand here.
    pub lexis: Lexis,
}

/// Which unquoted scalars a text may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lexis {
    /// Not one that some YAML reader takes for a number, a flag or nothing: such a text needs quotes.
    Words,
    /// Any; the form leaves no doubt.
    Anything,
}

/// What holds between keys of one mapping.
#[derive(Debug)]
pub enum Bond {
    /// Exactly one of these keys.
    OneOf(&'static [&'static str]),
    /// The first key needs the second.
    Needs(&'static str, &'static str),
    /// The first key needs the second, unless a third key has this value.
    NeedsUnless(&'static str, &'static str, (&'static str, &'static str)),
    /// These two keys exclude each other; the text says why.
    Apart(&'static str, &'static str, &'static str),
    /// The first key, when it has this value, excludes the other key; the text says why.
    ApartIf {
        /// A key of kind [`Kind::Word`].
        key: &'static str,
        /// Its value.
        word: &'static str,
        /// The excluded key.
        other: &'static str,
        /// Why.
        why: &'static str,
    },
    /// Two keys that exclude each other when they have these values; the text says why.
    ApartWords(
        (&'static str, &'static str),
        (&'static str, &'static str),
        &'static str,
    ),
}

/// Checks a mapping against its table. Every mistake is noted.
pub fn check(node: &Node, shape: &Shape, mistakes: &mut Mistakes) {
    let Value::Map(entries) = &node.value else {
        mistakes.hint(
            &node.at,
            format!("{} is a mapping, not {}", shape.what, node.what()),
            keys_hint(shape),
        );
        return;
    };
    for entry in entries {
        match shape.fields.iter().find(|field| field.key == entry.key) {
            Some(field) => check_kind(&entry.value, &field.kind, &named(&entry.key), mistakes),
            None => unknown_key(&entry.at, &entry.key, shape, mistakes),
        }
    }
    for field in shape
        .fields
        .iter()
        .filter(|field| field.need == Need::Required)
    {
        if node.entry(field.key).is_none() {
            let message = format!("{} needs `{}`", shape.what, field.key);
            mistakes.hint(
                &node.at,
                message,
                format!("`{}`: {}", field.key, field.help),
            );
        }
    }
    for bond in shape.bonds {
        check_bond(node, bond, shape, mistakes);
    }
}

/// Checks one value against its kind. `name` is what messages call it.
pub fn check_kind(node: &Node, kind: &Kind, name: &str, mistakes: &mut Mistakes) {
    match kind {
        _ if node.value == Value::Refused => {}
        Kind::Object(shape) => check(node, shape, mistakes),
        Kind::List { of, min } => check_list(node, of, *min, name, mistakes),
        Kind::Named { keys, of } => check_named(node, keys, of, name, mistakes),
        Kind::Either { of, expected } => {
            if let Some(kind) = of.iter().find(|kind| shape_fits(node, kind)) {
                check_kind(node, kind, name, mistakes);
            } else {
                let message = format!("{name} is {expected}, not {}", node.what());
                let hint = of.iter().find_map(|kind| meant(node, kind));
                note(node, message, hint, mistakes);
            }
        }
        Kind::Text(format) => check_text(node, format, name, mistakes),
        Kind::Flag if flag(node).is_some() => {}
        Kind::Flag => mistakes.hint(
            &node.at,
            format!("{name} is true or false, not {}", node.what()),
            "write true or false",
        ),
        Kind::Word(words) => check_word(node, words, name, mistakes),
        Kind::Whole { min, max } if whole(node).is_some_and(|n| (*min..=*max).contains(&n)) => {}
        Kind::Whole { min, max } => {
            let message = format!(
                "{name} is a whole number from {min} to {max}, not {}",
                node.what()
            );
            // a number that is out of range has its digits already
            let hint = whole(node).is_none();
            let hint = hint.then(|| PLAIN_DIGITS.to_owned());
            note(node, message, hint, mistakes);
        }
    }
}

fn check_list(node: &Node, of: &Kind, min: usize, name: &str, mistakes: &mut Mistakes) {
    let Value::List(items) = &node.value else {
        let hint = in_brackets(node, of);
        let hint = hint.unwrap_or_else(|| "write `- ` before each element, or `[]`".to_owned());
        let message = format!("{name} is a list, not {}", node.what());
        mistakes.hint(&node.at, message, hint);
        return;
    };
    if items.len() < min {
        mistakes.hint(
            &node.at,
            format!("{name} is empty"),
            "name at least one, or remove the key",
        );
    }
    for item in items {
        check_kind(item, of, &format!("an element of {name}"), mistakes);
    }
}

fn check_named(node: &Node, keys: &Format, of: &Kind, name: &str, mistakes: &mut Mistakes) {
    let Value::Map(entries) = &node.value else {
        mistakes.add(
            &node.at,
            format!("{name} is a mapping, not {}", node.what()),
        );
        return;
    };
    for entry in entries {
        if !(keys.fits)(&entry.key) {
            let message = format!("{} is no name for an entry of {name}", quoted(&entry.key));
            mistakes.hint(&entry.at, message, format!("write {}", keys.expected));
        }
        check_kind(&entry.value, of, &named(&entry.key), mistakes);
    }
}

fn check_text(node: &Node, format: &Format, name: &str, mistakes: &mut Mistakes) {
    let Some(text) = node.scalar() else {
        mistakes.add(
            &node.at,
            format!("{name} is {}, not {}", format.expected, node.what()),
        );
        return;
    };
    if node.is_null() {
        mistakes.add(
            &node.at,
            format!("{name} is empty; write {}", format.expected),
        );
    } else if format.lexis == Lexis::Words && !is_text(node) {
        let message = format!(
            "{name} is a text, and {} without quotes is not one to every reader",
            quoted(text)
        );
        mistakes.hint(
            &node.at,
            message,
            format!("write it in quotes if the text is meant: {text:?}"),
        );
    } else if !(format.fits)(text) {
        let message = format!("{name} is {}, not {}", format.expected, node.what());
        note(node, message, values::meant(format, text), mistakes);
    }
}

fn note(node: &Node, message: String, hint: Option<String>, mistakes: &mut Mistakes) {
    match hint {
        Some(hint) => mistakes.hint(&node.at, message, hint),
        None => mistakes.add(&node.at, message),
    }
}

/// What was probably meant by a value that is not of this kind.
fn meant(node: &Node, kind: &Kind) -> Option<String> {
    match kind {
        Kind::Text(format) => values::meant(format, node.scalar()?),
        Kind::List { of, .. } => in_brackets(node, of),
        Kind::Either { of, .. } => of.iter().find_map(|kind| meant(node, kind)),
        _ => None,
    }
}

/// One element where a list of them belongs.
fn in_brackets(node: &Node, of: &Kind) -> Option<String> {
    let text = node.scalar().filter(|_| shape_fits(node, of))?;
    Some(match node.plain() {
        Some(plain) => format!("write [{plain}]"),
        None => format!("write [{text:?}]"),
    })
}

fn check_word(node: &Node, words: &[&str], name: &str, mistakes: &mut Mistakes) {
    let said = node.scalar().unwrap_or_default();
    if words.contains(&said) {
        return;
    }
    let list = words.join(", ");
    let message = format!("{name} is one of {list}, not {}", node.what());
    match nearest(said, words.iter().copied()) {
        Some(near) => mistakes.hint(&node.at, message, format!("did you mean `{near}`?")),
        None => mistakes.add(&node.at, message),
    }
}

fn check_bond(node: &Node, bond: &Bond, shape: &Shape, mistakes: &mut Mistakes) {
    match bond {
        Bond::OneOf(keys) => {
            let there: Vec<&str> = keys
                .iter()
                .copied()
                .filter(|key| node.entry(key).is_some())
                .collect();
            let names = keys
                .iter()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(" or ");
            match there.len() {
                1 => {}
                0 => mistakes.add(&node.at, format!("{} needs {names}", shape.what)),
                _ => mistakes.hint(
                    &node.at,
                    format!("{} has {names}, not both", shape.what),
                    "split it in two",
                ),
            }
        }
        Bond::Needs(key, other) => {
            if let (Some(entry), None) = (node.entry(key), node.entry(other)) {
                mistakes.add(&entry.at, format!("`{key}` needs `{other}` beside it"));
            }
        }
        Bond::NeedsUnless(key, other, (free, word)) => {
            let is_free = node.field(free).and_then(Node::scalar) == Some(word);
            if let (false, Some(entry), None) = (is_free, node.entry(key), node.entry(other)) {
                mistakes.add(&entry.at, format!("`{key}` needs `{other}` beside it"));
            }
        }
        Bond::Apart(key, other, why) => {
            if let (Some(_), Some(entry)) = (node.entry(key), node.entry(other)) {
                mistakes.add(
                    &entry.at,
                    format!("`{other}` cannot stand beside `{key}`: {why}"),
                );
            }
        }
        Bond::ApartIf {
            key,
            word,
            other,
            why,
        } => {
            let said = node.field(key).and_then(Node::scalar) == Some(word);
            if let (true, Some(entry)) = (said, node.entry(other)) {
                mistakes.add(
                    &entry.at,
                    format!("`{other}` cannot stand beside `{key}: {word}`: {why}"),
                );
            }
        }
        Bond::ApartWords((key, word), (other, said), why) => {
            let has = |key, word| node.field(key).and_then(Node::scalar) == Some(word);
            if has(key, word)
                && has(other, said)
                && let Some(entry) = node.entry(other)
            {
                let message =
                    format!("`{other}: {said}` cannot stand beside `{key}: {word}`: {why}");
                mistakes.add(&entry.at, message);
            }
        }
    }
}

fn unknown_key(at: &Place, key: &str, shape: &Shape, mistakes: &mut Mistakes) {
    let message = format!("{} has no key {}", shape.what, quoted(key));
    let hint = match nearest(key, shape.fields.iter().map(|field| field.key)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => keys_hint(shape),
    };
    mistakes.hint(at, message, hint);
}

fn keys_hint(shape: &Shape) -> String {
    let keys: Vec<&str> = shape.fields.iter().map(|field| field.key).collect();
    format!("its keys are {}", keys.join(", "))
}

fn named(key: &str) -> String {
    format!("`{}`", key.escape_debug().take(60).collect::<String>())
}

/// Whether a value has the outer shape of a kind, so that its mistakes are the ones to report.
fn shape_fits(node: &Node, kind: &Kind) -> bool {
    match (&node.value, kind) {
        (Value::List(_), Kind::List { .. })
        | (Value::Map(_), Kind::Object(_) | Kind::Named { .. }) => true,
        (Value::Scalar { .. }, Kind::Word(words)) => {
            node.scalar().is_some_and(|said| words.contains(&said))
        }
        (Value::Scalar { .. }, Kind::Whole { min, max }) => {
            whole(node).is_some_and(|n| (*min..=*max).contains(&n))
        }
        (Value::Scalar { .. }, Kind::Text(format)) => {
            node.scalar().is_some_and(|text| (format.fits)(text))
        }
        (Value::Scalar { .. }, Kind::Flag) => flag(node).is_some(),
        (_, Kind::Either { of, .. }) => of.iter().any(|kind| shape_fits(node, kind)),
        _ => false,
    }
}
