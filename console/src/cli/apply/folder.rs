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

/// What becomes of jobs that no file is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// They are left alone.
    Stay,
    /// They are removed: a file that is not looked at would remove a job, and is a mistake.
    Go,
}

/// Reads them, in the order of their names.
pub fn read(path: &Path, others: Others) -> Result<Vec<Job>, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("reading {}: {error}", path.display()));
    let mut files = Vec::new();
    let is_folder = fs::metadata(path).map_err(failed)?.is_dir();
    if is_folder {
        gather(path, 0, others, &mut files)?;
    } else if others == Others::Go {
        return Err(Failure::new(format!(
            "{} is one file, and --prune would remove every other job",
            path.display()
        ))
        .hint("--prune takes the folder with the files of all jobs"));
    } else {
        files.push(path.to_owned());
    }
    files.sort();
    let (mut jobs, mut mistakes): (Vec<Job>, Vec<String>) = (Vec::new(), Vec::new());
    for file in &files {
        let bytes = file::bytes_of(file)?;
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
    begins(bytes, "job") || !(begins(bytes, "policy") || begins(bytes, "tests"))
}

/// Whether a line begins with this key.
fn begins(bytes: &[u8], key: &str) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.lines().any(|line| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(':'))
    })
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

/// Links are not followed: a folder of somebody else names nothing outside of it. What a dot hides is for other programs (git,
/// editors), but a job that lies there is no job that nobody wants any more.
fn gather(
    folder: &Path,
    depth: usize,
    others: Others,
    files: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("reading {}: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
        let yaml = path
            .extension()
            .is_some_and(|end| end == "yml" || end == "yaml");
        if entry.file_name().to_string_lossy().starts_with('.') {
            if others == Others::Go
                && kind.is_file()
                && yaml
                && begins(&file::bytes_of(&path)?, "job")
            {
                return Err(unseen(&path));
            }
            continue;
        }
        if kind.is_dir() && depth < DEEPEST {
            gather(&path, depth + 1, others, files)?;
        } else if kind.is_file() && yaml {
            files.push(path);
        } else if others == Others::Go && (yaml || path.is_dir()) {
            return Err(unseen(&path));
        }
        if files.len() > MOST_FILES {
            return Err(Failure::new(format!(
                "more than {MOST_FILES} files lie there"
            )));
        }
    }
    Ok(())
}

/// Where files of jobs may lie that are not looked at.
fn unseen(path: &Path) -> Failure {
    Failure::new(format!(
        "{} is not looked at, and --prune would remove the jobs that it is of",
        path.display()
    ))
    .hint(format!(
        "links are not followed, nor names that begin with a dot, nor folders deeper than {DEEPEST}; nothing was sent"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(path: &Path, others: Others) -> Result<Vec<String>, String> {
        let read = read(path, others).map_err(|failure| failure.message)?;
        Ok(read.into_iter().map(|job| job.name).collect())
    }

    type Put<'a> = &'a dyn Fn(&Path);

    #[test]
    fn nothing_is_removed_for_a_file_that_was_not_looked_at() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("b.yml"), "job: b\n").unwrap();
        let deep = |folder: &Path| {
            let below = folder.join("1/2/3/4/5/6/7/8/9");
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("b.yml"), "job: b\n").unwrap();
        };
        let file =
            |folder: &Path| symlink(outside.path().join("b.yml"), folder.join("b.yml")).unwrap();
        let whole = |folder: &Path| symlink(outside.path(), folder.join("more")).unwrap();
        let hidden = |folder: &Path| fs::write(folder.join(".b.yml"), "job: b\n").unwrap();
        let unseen: [(&str, Put<'_>); 4] = [
            ("9", &deep),
            ("b.yml", &file),
            ("more", &whole),
            (".b.yml", &hidden),
        ];
        for (named, put) in unseen {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("a.yml"), "job: a\n").unwrap();
            // links and folders that hold no job are no reason
            symlink("/nonexistent", folder.path().join("README.md")).unwrap();
            fs::write(folder.path().join(".gitlab-ci.yml"), "jobs: {}\n").unwrap();
            fs::create_dir(folder.path().join(".git")).unwrap();
            fs::write(folder.path().join(".git/x.yml"), "job: x\n").unwrap();
            assert_eq!(names(folder.path(), Others::Go).unwrap(), ["a"]);
            put(folder.path());
            let refused = names(folder.path(), Others::Go).unwrap_err();
            assert!(
                refused.contains(&format!("{named} is not looked at")),
                "{refused}"
            );
            assert_eq!(names(folder.path(), Others::Stay).unwrap(), ["a"]);
        }
    }

    #[test]
    fn one_file_removes_no_other_job_and_none_is_read_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yml");
        fs::write(&file, "job: a\n").unwrap();
        assert!(names(&file, Others::Go).unwrap_err().contains("--prune"));
        assert_eq!(names(&file, Others::Stay).unwrap(), ["a"]);
        let long = names(Path::new("/dev/zero"), Others::Stay).unwrap_err();
        assert!(long.contains("is longer than"), "{long}");
    }
}
