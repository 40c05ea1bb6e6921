//! The grammar of policy files: text to spanned tree to checked policy, every mistake at once.
//!
//! `text` (what may stand in a document) -> `tree` (values with their places) -> `shape` (structure, by the tables in
//! `grammar`, which also give the JSON Schema) -> `build` (meaning). A document with one mistake gives no policy at all.
//! [`tree`], [`shape`], [`values`] and [`mistake`] serve the configuration file too.

pub mod bounds;
mod build;
mod entries;
pub(crate) mod forms;
pub mod grammar;
pub mod mistake;
mod presets;
pub(crate) mod rules;
mod scalar;
mod schema;
pub mod sets;
pub mod shape;
pub mod text;
pub mod tree;
pub mod values;

#[cfg(test)]
mod tests;

use sha2::{Digest, Sha256};

use crate::ids::PolicyHash;
use crate::policy::Policy;

pub use mistake::{Mistake, Mistakes};
pub use presets::{PRESETS, preset, preset_text};
pub use schema::document as json_schema;

/// Reads one policy document. `file` is what mistakes name. `packages` resolves the set `packages` (hosts read from the
/// image), if known; without it a policy that uses the set is checked and says so in [`Policy::needs_packages`].
pub fn parse(file: &str, text: &str, packages: Option<&[String]>) -> Result<Policy, Vec<Mistake>> {
    let mut mistakes = Mistakes::new(file);
    let policy = read(text, packages, &mut mistakes);
    mistakes.finish(policy)
}

/// Reads one policy document from bytes, which may turn out to be no text.
pub fn parse_bytes(
    file: &str,
    bytes: &[u8],
    packages: Option<&[String]>,
) -> Result<Policy, Vec<Mistake>> {
    let mut mistakes = Mistakes::new(file);
    let text = text::decode(bytes, &mut mistakes);
    let policy = text.and_then(|text| read(text, packages, &mut mistakes));
    mistakes.finish(policy)
}

fn read(text: &str, packages: Option<&[String]>, mistakes: &mut Mistakes) -> Option<Policy> {
    let root = tree::read(text, mistakes)?;
    shape::check(&root, &grammar::POLICY, mistakes);
    let uses_packages = root.field("use").is_some_and(|used| {
        used.items()
            .iter()
            .any(|set| set.scalar() == Some(sets::PACKAGES))
    });
    let hash = hash(text, packages.filter(|_| uses_packages));
    build::policy(&root, hash, packages, mistakes)
}

/// SHA-256 of the text, and of the image's hosts where they are part of what the policy permits.
fn hash(text: &str, packages: Option<&[String]>) -> PolicyHash {
    let mut hasher = Sha256::new();
    hasher.update(text);
    if let Some(hosts) = packages {
        // NUL cannot stand in a document, so no text equals another text with hosts
        hasher.update(b"\0packages");
        for host in hosts {
            hasher.update(b"\0");
            hasher.update(host);
        }
    }
    PolicyHash(hasher.finalize().into())
}

/// JSON Schema (2020-12) of the document.
pub fn schema() -> serde_json::Value {
    let help = "Who may reach what: a policy of Sallyport. Checks that a schema cannot express are made by `sallyport policy check`.";
    schema::document(&grammar::POLICY, "Sallyport policy", help)
}
