//! Text to a tree in which every value knows its place. The grammar is YAML without what hides meaning.
//!
//! Refused, each with its place: anchors, aliases, tags, merge keys, keys that are not plain words, duplicate keys, a
//! second document, unusual characters, and documents larger, deeper or richer than any person writes. Values keep their
//! text: nothing is converted before the checker says what should stand there, so `22:22`, `010` or `no` never become
//! something else.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::mistake::{Mistakes, quoted};
use super::text;
use crate::policy::Place;

/// Largest document: a thousand times a long policy.
pub const MOST_BYTES: usize = 1 << 20;
/// Deepest nesting: ten times what the grammar has.
pub const MOST_DEPTH: usize = 64;
/// Most values: a list of all rules that a decision is measured with, several times over.
pub const MOST_NODES: usize = 200_000;

/// A value and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it begins.
    pub at: Place,
    /// What it is.
    pub value: Value,
}

/// What stands at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A scalar. `plain` is one without quotes, which may mean a number, a flag or nothing.
    Scalar {
        /// Its text.
        text: String,
        /// Not quoted and not a block.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping; keys are distinct.
    Map(Vec<Entry>),
    /// Something that was refused and reported (an alias), so that nothing more is to be said about it.
    Refused,
}

/// One key of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub at: Place,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// The entry of a mapping.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|entry| entry.key == key)
    }

    /// The value under a key of a mapping.
    pub fn field(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The elements, if it is a list; else none.
    pub fn items(&self) -> &[Node] {
        if let Value::List(items) = &self.value {
            items
        } else {
            &[]
        }
    }

    /// The entries, if it is a mapping; else none.
    pub fn entries(&self) -> &[Entry] {
        if let Value::Map(entries) = &self.value {
            entries
        } else {
            &[]
        }
    }

    /// The text of a scalar, quoted or not.
    pub fn scalar(&self) -> Option<&str> {
        if let Value::Scalar { text, .. } = &self.value {
            Some(text)
        } else {
            None
        }
    }

    /// The text of an unquoted scalar.
    pub fn plain(&self) -> Option<&str> {
        if let Value::Scalar { text, plain: true } = &self.value {
            Some(text)
        } else {
            None
        }
    }

    /// Whether nothing stands here (`key:` alone, `~`, `null`).
    pub fn is_null(&self) -> bool {
        matches!(self.plain(), Some("" | "~" | "null" | "Null" | "NULL"))
    }

    /// What stands here, for messages.
    pub fn what(&self) -> String {
        match &self.value {
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Refused => "an alias".to_owned(),
            Value::Scalar { .. } if self.is_null() => "nothing".to_owned(),
            Value::Scalar { text, .. } => quoted(text),
        }
    }
}

/// Reads a text into a tree. `None` when there is nothing to check; mistakes are noted either way.
pub fn read(text: &str, mistakes: &mut Mistakes) -> Option<Node> {
    let start = mistakes.place(1, 1);
    if text.len() > MOST_BYTES {
        let message = format!(
            "the document has {} bytes; {MOST_BYTES} are the most",
            text.len()
        );
        mistakes.add(&start, message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let before = mistakes.count();
    text::check(text, mistakes);
    if mistakes.count() > before {
        // what such a text means is anybody's guess; its other mistakes would be guesses too
        return None;
    }
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        text,
        mistakes,
        nodes: 0,
    };
    let root = reader.document();
    if root.is_none() && reader.mistakes.count() == before {
        reader.mistakes.add(&start, "the document is empty");
    }
    root
}

/// Reading stopped; the mistake is noted.
struct Stop;

struct Reader<'a, 'm> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    text: &'a str,
    mistakes: &'m mut Mistakes,
    nodes: usize,
}

impl<'a> Reader<'a, '_> {
    fn document(&mut self) -> Option<Node> {
        let mut root = None;
        loop {
            let (event, span) = self.next().ok()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    let at = self.place(span);
                    self.mistakes.hint(
                        &at,
                        "a second document begins here",
                        "one file holds one document",
                    );
                    return root;
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next().ok()?;
                    root = Some(self.node(event, span, 0).ok()?);
                }
                _ => return root,
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => {
                let (line, column) = (error.marker().line(), error.marker().col() + 1);
                let message = format!("this is not YAML: {}", printable(error.info()));
                let tab = self.tab_near(line).filter(|_| error.info().contains("tab"));
                if let Some((line, column)) = tab {
                    let at = self.mistakes.place(line, column);
                    let hint = "indent with spaces; a tab is no indent";
                    self.mistakes.hint(&at, message, hint);
                } else {
                    let at = self.mistakes.place(line, column);
                    self.mistakes.add(&at, message);
                }
                Err(Stop)
            }
            None => Err(Stop),
        }
    }

    /// Where a line, or the one after it, is indented with a tab: the parser may stop where the line before ends.
    fn tab_near(&self, line: usize) -> Option<(usize, usize)> {
        let numbered = (1..).zip(self.text.lines());
        let mut near = numbered.filter(|(number, _)| (line..=line + 1).contains(number));
        near.find_map(|(number, text)| {
            let indent = text
                .find(|c: char| !c.is_whitespace())
                .unwrap_or(text.len());
            let tab = text.find('\t').filter(|tab| *tab < indent)?;
            Some((number, tab + 1))
        })
    }

    fn place(&self, span: Span) -> Place {
        // the parser counts lines from 1 and columns from 0
        self.mistakes.place(span.start.line(), span.start.col() + 1)
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Stop> {
        let at = self.place(span);
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            self.mistakes.add(
                &at,
                format!("the document has more than {MOST_NODES} values"),
            );
            return Err(Stop);
        }
        if depth > MOST_DEPTH {
            self.mistakes.add(
                &at,
                format!("the document is nested deeper than {MOST_DEPTH} levels"),
            );
            return Err(Stop);
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.decorations(&at, anchor, tag.is_some());
                self.visible(&at, &text);
                Value::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.decorations(&at, anchor, tag.is_some());
                Value::List(self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.decorations(&at, anchor, tag.is_some());
                Value::Map(self.map(depth)?)
            }
            Event::Alias(_) => {
                self.mistakes.hint(
                    &at,
                    "an alias is not allowed",
                    "write the value out where it belongs",
                );
                Value::Refused
            }
            _ => return Err(Stop),
        };
        Ok(Node { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            let Some(text) = self.key(&key) else { continue };
            if let Some(line) = lines.get(&text) {
                let message = format!("the key {} stands here twice", quoted(&text));
                self.mistakes.hint(
                    &key.at,
                    message,
                    format!("it was given on line {line}; keep one"),
                );
                continue;
            }
            lines.insert(text.clone(), key.at.line);
            entries.push(Entry {
                key: text,
                at: key.at,
                value,
            });
        }
    }

    fn key(&mut self, key: &Node) -> Option<String> {
        match key.scalar() {
            Some("<<") => {
                self.mistakes.hint(
                    &key.at,
                    "a merge key is not allowed",
                    "write the entries out where they belong",
                );
                None
            }
            Some(text) if !text.is_empty() => Some(text.to_owned()),
            _ => {
                self.mistakes
                    .add(&key.at, format!("a key is a word, not {}", key.what()));
                None
            }
        }
    }

    fn decorations(&mut self, at: &Place, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.mistakes.hint(
                at,
                "an anchor is not allowed",
                "remove `&name`; values are written out",
            );
        }
        if tagged {
            self.mistakes.hint(
                at,
                "a tag is not allowed",
                "remove `!name`; the grammar says what stands where",
            );
        }
    }

    /// Escapes in quoted texts can make what the text itself may not hold.
    fn visible(&mut self, at: &Place, text: &str) {
        let found = text.chars().find_map(|c| {
            text::unusual(c)
                .filter(|_| c != '\n' && c != '\t')
                .map(|what| (c, what))
        });
        if let Some((character, what)) = found {
            let message = format!(
                "{what} (U+{:04X}) cannot stand in a document",
                u32::from(character)
            );
            self.mistakes
                .hint(at, message, "remove the escape that makes it");
        }
    }
}

/// The parser's own words, which may repeat a character of the document.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect()
}
