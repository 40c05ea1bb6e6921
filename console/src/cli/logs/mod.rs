//! `sallyport logs`: what a run printed, and with `-f` what it prints, until it ends; then with its exit code.
//!
//! Bytes go on as they are where a program reads them; on a terminal what a run says can colour its own lines and do
//! nothing else. A connection that breaks is made again after the last event, and output is read on from its last byte,
//! so nothing is lost or doubled.

mod follow;
mod terminal;

use clap::Args;
use serde_json::Value;

use super::remote::{At, Form, id, text};
use super::{Shared, wait};
use crate::exit::{Failure, NOT_RUN, Outcome, Verdict};
use crate::show;

pub use follow::{Follow, Printer};

/// What a shell says of a command that an interrupt ended.
const CANCELLED: u8 = 130;
/// What `timeout` says.
const TIMED_OUT: u8 = 124;

const HELP: &str = "\
With -f the exit code is the run's: the command's own, 124 after the timeout, 130 when it was cancelled, 125 when it \
could not be run or was lost. What a run prints on standard error is printed there.

Examples:
  sallyport logs -f 0199f3a2-7d1c-7000-8a51-3c2b9d7e4f10
  sallyport logs -f \"$(sallyport job run nightly -o json | jq -r .id)\"
  sallyport logs 0199f3a2-7d1c-7000-8a51-3c2b9d7e4f10 > run.log";

/// `sallyport logs`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// The run's id
    run: String,
    /// Go on until it ends, and end as it does
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    at: At,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    wait(async {
        let session = arguments.at.enter().await?;
        let mut following = Follow::new(&session, id(&arguments.run)?, Printer::new(form));
        if !arguments.follow {
            following.read_on().await?;
            following.printer.end()?;
            return Ok(Outcome::Good);
        }
        let run = following.until_over().await?;
        ended(&run, form)
    })
}

/// Says how a run ended, and ends so.
pub fn ended(run: &Value, form: Form) -> Verdict {
    let state = text(run, "state");
    if form != Form::Table {
        form.line(
            &serde_json::json!({ "kind": "ended", "run": run }),
            String::new,
        )?;
    } else if state != "succeeded" {
        show::note(format_args!("sallyport: {}", super::runs::line(run)));
    }
    let code = run.get("exit_code").and_then(Value::as_i64);
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(Outcome::Code(match (state.as_str(), code) {
        ("succeeded", _) => 0,
        ("timed_out", _) => TIMED_OUT,
        ("cancelled", _) => CANCELLED,
        // a failure never ends as a success does, whatever code the console names
        (_, Some(code)) if code != 0 => code,
        _ => NOT_RUN,
    }))
}

/// Writes and flushes; a reader that went away is told, so that nothing more is read for it.
fn write(to: &mut impl std::io::Write, bytes: &[u8]) -> Result<(), Failure> {
    to.write_all(bytes)
        .and_then(|()| to.flush())
        .map_err(|error| {
            let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
            // 128 + SIGPIPE, as a shell says it of any command whose reader is gone
            let failure = Failure::from(error);
            if gone { failure.code(141) } else { failure }
        })
}
