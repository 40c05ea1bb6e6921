//! The files of a folder: every job in it, or every mistake.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use netpolicy::document::Mistakes;

use crate::cli::job::file::{self, Job};
use crate::exit::Failure;

/// Deeper folders are no list of jobs that a person keeps.
const DEEPEST: usize = 8;
/// A workspace of more jobs is kept by something else.
const MOST_FILES: usize = 10_000;

/// Reads them, in the order of their names.
pub fn read(path: &Path) -> Result<Vec<Job>, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("reading {}: {error}", path.display()));
    let mut files = Vec::new();
    let is_folder = fs::metadata(path).map_err(failed)?.is_dir();
    if is_folder {
        gather(path, 0, &mut files)?;
    } else {
        files.push(path.to_owned());
    }
    files.sort();
    let (mut jobs, mut mistakes): (Vec<Job>, Vec<String>) = (Vec::new(), Vec::new());
    for file in &files {
        let bytes = fs::read(file)
            .map_err(|error| Failure::new(format!("reading {}: {error}", file.display())))?;
        if is_folder && !is_job(&bytes) {
            continue;
        }
        match file::parse(
            &file.display().to_string(),
            &bytes,
            file.parent().unwrap_or(Path::new("")),
        ) {
            Ok(job) => jobs.push(job),
            Err(found) => mistakes.extend(found.iter().map(ToString::to_string)),
        }
    }
    twice(&jobs, &mut mistakes);
    if !mistakes.is_empty() {
        let mut failure = Failure::new(format!(
            "{} in what was written; nothing was sent",
            crate::show::count(mistakes.len(), "mistake")
        ));
        failure.details = mistakes;
        return Err(failure);
    }
    if jobs.is_empty() {
        return Err(
            Failure::new(format!("there is no job below {}", path.display()))
                .hint("a file of a job ends in .yml or .yaml and begins with `job:`"),
        );
    }
    Ok(jobs)
}

/// Whether a file means to be a job: policies lie in such folders too. One that is not readable is told as such.
fn is_job(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let keys = |word: &str| {
        text.lines().any(|line| {
            line.strip_prefix(word)
                .is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    keys("job") || !(keys("policy") || keys("tests"))
}

/// Two files of one job.
fn twice(jobs: &[Job], mistakes: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, &Job> = BTreeMap::new();
    for job in jobs {
        if let Some(first) = seen.insert(&job.name, job) {
            let mut found = Mistakes::new(&job.at.file);
            found.add(
                &job.at,
                format!("the job {:?} is in {} too", job.name, first.at),
            );
            if let Err(found) = found.finish::<()>(None) {
                mistakes.extend(found.iter().map(ToString::to_string));
            }
        }
    }
}

/// Links are not followed: a folder of somebody else names nothing outside of it.
fn gather(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("reading {}: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let yaml = path
            .extension()
            .is_some_and(|end| end == "yml" || end == "yaml");
        if kind.is_dir() && !hidden && depth < DEEPEST {
            gather(&path, depth + 1, files)?;
        } else if kind.is_file() && !hidden && yaml {
            files.push(path);
        }
        if files.len() > MOST_FILES {
            return Err(Failure::new(format!(
                "more than {MOST_FILES} files lie there"
            )));
        }
    }
    Ok(())
}
