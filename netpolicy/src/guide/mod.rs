//! What people read about policies: a reference of every field with an example, and a page for each reason code.
//!
//! Both are made from what the program itself works with: fields, forms and help come from the grammar's tables, codes
//! from the one list of reasons. What is written by hand (examples, advice) stands in two data files beside this one;
//! tests hold them complete and every example right.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::document::grammar;
use crate::document::mistake::Mistakes;
use crate::document::shape::{Field, Kind, Need, Shape};
use crate::document::tree::{self, Node};
use crate::reason::Reason;

const REASONS: &str = include_str!("reasons.md");
const EXAMPLES: &str = include_str!("examples.yaml");

/// Key (`allow entry.host`) and text of every example.
static ALL_EXAMPLES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let mut mistakes = Mistakes::new("examples.yaml");
    let root = tree::read(EXAMPLES, &mut mistakes);
    let entries = root.as_ref().map(Node::entries).unwrap_or_default();
    let pairs = entries
        .iter()
        .filter_map(|entry| Some((entry.key.clone(), entry.value.scalar()?.to_owned())));
    pairs.collect()
});

/// The advice on a reason: what happened, what to do in the sandbox, what to do about the policy.
pub fn advice(reason: Reason) -> &'static str {
    let title = format!("## {}\n", reason.code());
    let after = REASONS.split_once(&title).map(|(_, after)| after);
    let page = after.map(|after| after.split("\n## ").next().unwrap_or_default());
    // a test holds every code at a page; the one sentence is true in any case
    page.map_or(reason.help(), str::trim_end)
}

/// The page of a reason as Markdown. Where the advice begins with the same sentence, that is said once.
pub fn reason_page(reason: Reason) -> String {
    let (code, help, advice) = (reason.code(), reason.help(), advice(reason));
    let (said, again) = (first_words(help), first_words(advice));
    if said.starts_with(&again) || again.starts_with(&said) {
        format!("# {code}\n\n{advice}\n")
    } else {
        format!("# {code}\n\n{help}\n\n{advice}\n")
    }
}

/// A text up to its first stop, to tell sentences that say the same.
fn first_words(text: &str) -> String {
    let first = text.split(['.', ';', ':']).next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").to_lowercase().replace('`', "")
}

/// The reference of policy files as Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Policy files\n\nOne YAML document. Unknown and repeated keys, aliases, anchors, tags and invisible characters are mistakes; all\nmistakes are told at once, each with its place. `sallyport policy check FILE` checks a file,\n`sallyport policy schema` prints the JSON Schema for editors.\n",
    );
    for shape in shapes() {
        let _ = write!(out, "\n## {}\n", title(shape));
        for field in shape.fields {
            section(&mut out, shape, field);
        }
    }
    out
}

fn section(out: &mut String, shape: &Shape, field: &Field) {
    let need = match field.need {
        Need::Required => "required",
        Need::Optional => "optional",
    };
    // writing to a String cannot fail
    let _ = write!(
        out,
        "\n### `{}`\n\n{} ({need}, {})\n",
        field.key,
        field.help,
        form(&field.kind)
    );
    if let Some(example) = example(shape, field) {
        let _ = write!(out, "\n```yaml\n{example}```\n");
    }
}

/// The example of a field.
fn example(shape: &Shape, field: &Field) -> Option<&'static str> {
    let key = format!("{}.{}", title(shape), field.key);
    ALL_EXAMPLES
        .iter()
        .find(|(own, _)| *own == key)
        .map(|(_, text)| text.as_str())
}

/// What stands under a key, in words.
fn form(kind: &Kind) -> String {
    match kind {
        Kind::Text(format) => format.expected.to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Word(words) => format!("one of {}", words.join(", ")),
        Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        Kind::List { of, .. } => match of {
            Kind::Object(shape) => format!("a list; see {}", title(shape)),
            other => format!("a list, each {}", form(other)),
        },
        Kind::Object(shape) => format!("see {}", title(shape)),
        Kind::Named { of, .. } => format!("names of your choice, under each {}", form(of)),
        Kind::Either { expected, .. } => (*expected).to_owned(),
    }
}

/// A shape's name without its article.
fn title(shape: &Shape) -> &'static str {
    let what = shape.what;
    what.strip_prefix("an ")
        .or_else(|| what.strip_prefix("a "))
        .unwrap_or(what)
}

/// The document's shape and those below it, each once.
fn shapes() -> Vec<&'static Shape> {
    let mut found: Vec<&'static Shape> = vec![&grammar::POLICY];
    let mut next = 0;
    while let Some(shape) = found.get(next).copied() {
        next += 1;
        for field in shape.fields {
            if let Some(inner) = below(&field.kind)
                && !found.iter().any(|known| known.what == inner.what)
            {
                found.push(inner);
            }
        }
    }
    found
}

fn below(kind: &'static Kind) -> Option<&'static Shape> {
    match kind {
        Kind::Object(shape) => Some(shape),
        Kind::List { of, .. } | Kind::Named { of, .. } => below(of),
        Kind::Text(_) | Kind::Flag | Kind::Word(_) | Kind::Whole { .. } | Kind::Either { .. } => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary::NOW;
    use crate::document;
    use crate::lint::{self, Catalogue, Setting};

    /// The example as a document.
    fn whole(example: &str) -> String {
        let head = |key: &str, line: &str| {
            if example.contains(key) {
                String::new()
            } else {
                line.to_owned()
            }
        };
        let policy = if example.starts_with("policy:") {
            String::new()
        } else {
            "policy: example\n".to_owned()
        };
        format!(
            "{policy}{}{example}",
            head("network:", "network: domains\n")
        )
    }

    /// Whether a document says something under this field.
    fn uses(node: &Node, kind: &Kind, shape: &Shape, key: &str) -> bool {
        match kind {
            Kind::Object(own) => {
                (own.what == shape.what && node.entry(key).is_some())
                    || own.fields.iter().any(|field| {
                        node.field(field.key)
                            .is_some_and(|node| uses(node, &field.kind, shape, key))
                    })
            }
            Kind::List { of, .. } => node.items().iter().any(|node| uses(node, of, shape, key)),
            Kind::Named { of, .. } => node
                .entries()
                .iter()
                .any(|entry| uses(&entry.value, of, shape, key)),
            _ => false,
        }
    }

    #[test]
    fn every_field_of_the_schema_has_an_example_that_uses_it_and_checks() {
        let mut fields = 0;
        for shape in shapes() {
            for field in shape.fields {
                let text = example(shape, field)
                    .unwrap_or_else(|| panic!("no example of {}.{}", title(shape), field.key));
                let text = whole(text);
                let policy = document::parse("example.yaml", &text, None)
                    .unwrap_or_else(|m| panic!("{text}\n{m:#?}"));
                let setting = Setting {
                    now: NOW,
                    catalogue: Catalogue::shipped(),
                    floors: &[],
                };
                assert_eq!(lint::check(&policy, &setting), [], "{text}");
                let s = crate::arbitrary::job(policy);
                for tested in crate::explain::run_tests(&s, NOW) {
                    assert!(tested.passed, "{text}\n{tested:#?}");
                }
                let root = tree::read(&text, &mut Mistakes::new("example.yaml")).unwrap();
                assert!(
                    uses(&root, &Kind::Object(&grammar::POLICY), shape, field.key),
                    "{text} does not use {}",
                    field.key
                );
                fields += 1;
            }
        }
        assert_eq!(ALL_EXAMPLES.len(), fields, "an example is for no field");
    }

    /// Every key of a schema, at any depth.
    fn keys(schema: &serde_json::Value, into: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            into.extend(properties.keys().cloned());
            properties.values().for_each(|value| keys(value, into));
        }
        for below in ["items", "additionalProperties"] {
            if let Some(value) = schema.get(below) {
                keys(value, into);
            }
        }
    }

    #[test]
    fn the_reference_names_every_key_of_the_published_schema() {
        let text = reference();
        let mut all = Vec::new();
        keys(&document::schema(), &mut all);
        assert!(all.len() > 30);
        for key in all {
            assert!(text.contains(&format!("### `{key}`")), "{key} is missing");
        }
    }

    #[test]
    fn no_page_says_its_first_sentence_twice_and_budgets_say_what_raises_them() {
        for reason in Reason::ALL {
            // lines are wrapped wherever a sentence is long
            let page = reason_page(*reason).to_lowercase().replace('`', "");
            let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
            let first = first_words(advice(*reason));
            assert_eq!(page.matches(&first).count(), 1, "{reason}: {page}");
        }
        for (reason, key) in [
            (Reason::LimitFlows, "limits.flows"),
            (Reason::LimitRate, "limits.rate"),
            (Reason::LimitUpload, "limits.upload"),
            (Reason::LimitDownload, "limits.download"),
            (Reason::LimitNames, "limits.names"),
            (Reason::LimitRecords, "limits.records"),
        ] {
            assert!(reason.help().contains(key), "{reason}");
            assert!(reason_page(reason).contains(key), "{reason}");
        }
    }

    #[test]
    fn every_reason_has_a_page_with_what_to_do_and_no_page_is_left_over() {
        let titles: Vec<&str> = REASONS
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let codes: Vec<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(titles, codes);
        for reason in Reason::ALL {
            let page = advice(*reason);
            assert!(page.contains("In the sandbox: "), "{reason}: {page}");
            assert!(
                page.contains("In the policy: ") || page.contains("On the machine: "),
                "{reason}: {page}"
            );
            assert!(
                reason
                    .guide()
                    .contains(&format!("sallyport policy reasons {reason}"))
            );
        }
    }
}
