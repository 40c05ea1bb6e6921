//! `sallyport policy lints`: what `check` can warn about, and how old its list of hosts is. Also reads the lints files
//! and floors that `check` is given.

use std::path::PathBuf;

use netpolicy::decide::LayerKind;
use netpolicy::lint::{Catalogue, Code, PUBLIC_SUFFIXES};
use netpolicy::policy::Policy;
use serde_json::json;

use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

/// The shipped list and the files that add to it.
pub fn catalogue(files: &[PathBuf]) -> Result<Catalogue, Failure> {
    let mut all = Catalogue::shipped().clone();
    for path in files {
        let name = path.display().to_string();
        let text = String::from_utf8(super::read(path)?)
            .map_err(|_| Failure::new(format!("{name} is not UTF-8 text")))?;
        all = all.with(&name, &text).map_err(|mistakes| {
            let mut failure = Failure::new(format!(
                "{name} is no lints file: {}",
                show::count(mistakes.len(), "mistake")
            ))
            .code(1);
            failure.details = mistakes.iter().map(ToString::to_string).collect();
            failure
        })?;
    }
    Ok(all)
}

/// Floors above the policies: the first one named is the instance's, the second the workspace's.
pub fn floors(arguments: &[String]) -> Result<Vec<(LayerKind, Policy)>, Failure> {
    let kinds = [LayerKind::Instance, LayerKind::Workspace];
    if arguments.len() > kinds.len() {
        return Err(Failure::new("there are two floors at most")
            .hint("name the instance's first, then the workspace's"));
    }
    let named = kinds.into_iter().zip(arguments);
    named
        .map(|(kind, argument)| Ok((kind, super::load(argument)?)))
        .collect()
}

pub fn perform(files: &[PathBuf], format: Format) -> Verdict {
    let all = catalogue(files)?;
    match format {
        Format::Json => {
            let codes: Vec<_> = Code::ALL
                .iter()
                .map(|code| json!({ "code": code.word(), "meaning": code.meaning(), "needless": code.is_needless() }))
                .collect();
            let added: Vec<_> = all
                .added
                .iter()
                .map(|(file, date)| json!({ "file": file, "date": date }))
                .collect();
            show::json(&json!({
                "codes": codes,
                "hosts": all.items().len(),
                "date": all.date,
                "public_suffixes": PUBLIC_SUFFIXES,
                "added": added,
            }))?;
        }
        Format::Text => {
            let rows = Code::ALL
                .iter()
                .map(|code| [code.word().to_owned(), code.meaning().to_owned()]);
            show::out(show::table(["code", "meaning"], rows))?;
            show::out(format_args!(
                "\n{} hosts, looked through on {}; public suffixes of {PUBLIC_SUFFIXES}",
                all.items().len(),
                all.date
            ))?;
            for (file, date) in &all.added {
                show::out(format_args!(
                    "added by {}, looked through on {date}",
                    clean(file)
                ))?;
            }
        }
    }
    Ok(Outcome::Good)
}
