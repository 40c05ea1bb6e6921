//! `sallyport run` with a console: the run is submitted there and followed here, as if it ran here.

use std::io::Read;

use ::console::jobs::spec::JobSpec;
use http::Method;
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::input::is_piped;
use super::{INTERRUPTED, Shared, Signals};
use crate::cli::logs::{self, Follow, Printer};
use crate::cli::remote::{Call, Form, Session, id, text};
use crate::cli::wait;
use crate::exit::{Failure, NOT_RUN, Outcome, Verdict};
use crate::show;

/// What the API takes as a run's input.
const LONGEST_INPUT: u64 = 256 << 10;

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let (mut spec, workspace) = arguments.submission(&shared.load_to_ask()?.gateway)?;
    let input = if is_piped() { Some(piped()?) } else { None };
    spec.input = input.is_some();
    let body = json!({ "name": name(&spec), "spec": spec, "input": input });
    let form = if shared.json { Form::Json } else { Form::Table };
    wait(async {
        let session = arguments.door.enter(workspace).await?;
        let path = session.path("runs");
        let run = session
            .client
            .call(Call::new(Method::POST, &path).with(&body))
            .await?
            .body;
        if !arguments.quiet && form == Form::Table {
            show::note(format_args!(
                "sallyport: run {} at {}",
                show::clean(&text(&run, "id")),
                session.client.origin()
            ));
        }
        follow(&session, &run, form).await
    })
}

/// A run has a name where it is of no job: that of its program.
fn name(spec: &JobSpec) -> String {
    let program = spec.command.first().map_or("run", String::as_str);
    let program = program.rsplit('/').next().unwrap_or(program);
    let name: String = program
        .chars()
        .filter(char::is_ascii_graphic)
        .take(60)
        .collect();
    if name.is_empty() {
        "run".to_owned()
    } else {
        name
    }
}

/// What is piped, if a console takes so much.
fn piped() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(LONGEST_INPUT + 1)
        .read_to_end(&mut bytes)?;
    let direct = "run it here with --direct, or give it `< /dev/null`";
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST_INPUT) {
        return Err(Failure::new("a run of a console reads at most 256 KiB")
            .hint(direct)
            .code(NOT_RUN));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new("a run of a console reads text (UTF-8) alone")
            .hint(direct)
            .code(NOT_RUN)
    })
}

/// Prints what a run prints until it ends, and ends as it does. An interrupt cancels it; a second one does not wait.
pub async fn follow(session: &Session, run: &Value, form: Form) -> Verdict {
    let run_id = text(run, "id");
    let run_id = id(&run_id)?;
    if form != Form::Table {
        form.line(&json!({ "kind": "submitted", "run": run }), String::new)?;
    }
    let mut signals = Signals::new()?;
    let mut following = Follow::new(session, run_id, Printer::new(form));
    let following = following.until_over();
    tokio::pin!(following);
    let mut cancelled = false;
    loop {
        tokio::select! {
            run = &mut following => return logs::ended(&run?, form),
            () = signals.any() => {
                if std::mem::replace(&mut cancelled, true) {
                    return Ok(Outcome::Code(INTERRUPTED));
                }
                let path = session.path(&format!("runs/{run_id}/cancel"));
                let nothing = json!({});
                let asked = session.client.call(Call::new(Method::POST, &path).with(&nothing)).await;
                // one that ended at the same moment is followed to its end
                if let Err(error) = asked && error.status() != Some(http::StatusCode::CONFLICT) {
                    return Err(error.into());
                }
            }
        }
    }
}
