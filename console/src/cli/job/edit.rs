//! `sallyport job edit`: a job as a file in an editor, sent back for the version that was read.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{change, file, find, print};
use crate::cli::remote::{At, Form};
use crate::cli::wait;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

pub fn perform(at: &At, named: &str, form: Form) -> Verdict {
    let (session, job) = wait(async {
        let session = at.enter().await?;
        let job = find(&session, named).await?;
        Ok((session, job))
    })?;
    let before = file::write(&job)?;
    let draft = Draft::new(&before)?;
    edit(&draft.0)?;
    let after = file::text_of(&draft.0)?;
    if after == before {
        show::note("nothing was changed");
        return Ok(Outcome::Good);
    }
    let sent = file::parse("draft", after.as_bytes(), Path::new("."))
        .map_err(|mistakes| file::wrong(&mistakes))
        .and_then(|job_file| wait(async { change(&session, &job, &job_file.body()).await }));
    match sent {
        Ok(job) => print(&job, form),
        Err(failure) => {
            let kept = draft.keep();
            Err(Failure {
                hint: Some(format!("what you wrote is in {}", kept.display())),
                ..failure
            })
        }
    }
}

/// A file that goes when it is not needed any more.
struct Draft(PathBuf);

impl Draft {
    fn new(text: &str) -> Result<Self, Failure> {
        let path =
            std::env::temp_dir().join(format!("sallyport-job-{}.yml", ::console::clock::id()));
        // its own name and `create_new`: nobody has put a link there
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(Self(path))
    }

    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Runs the editor that the environment names.
fn edit(path: &Path) -> Result<(), Failure> {
    let named = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    // as git does it: the variable may hold arguments, the path is one of its own
    let status = Command::new("/bin/sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(path)
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the editor {editor:?} failed; nothing was changed"
    )))
}
