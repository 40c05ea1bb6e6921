//! `sallyport run` with a console: the run is submitted there and followed here, as if it ran here.
//!
//! Signals are heard from before the run is submitted: whoever interrupts while the console thinks has it cancelled as
//! soon as there is one. Refuses to own: what a run prints, which is [`logs`]'s.

use std::io::Read;

use ::console::jobs::spec::JobSpec;
use http::{Method, StatusCode};
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
        let mut signals = Signals::new()?;
        let entering = arguments.door.enter(workspace);
        let session = tokio::select! {
            session = entering => session?,
            () = signals.any() => return Ok(Outcome::Code(INTERRUPTED)),
        };
        let wish = Wish {
            path: &session.path("runs"),
            body: &body,
            quiet: arguments.quiet,
        };
        follow(&session, &wish, form, signals).await
    })
}

/// A run that is to be submitted.
struct Wish<'a> {
    path: &'a str,
    body: &'a Value,
    quiet: bool,
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

/// Submits a run of a job and follows it, as [`perform`] does with a command.
pub async fn submit_and_follow(session: &Session, path: &str, body: &Value, form: Form) -> Verdict {
    let signals = Signals::new()?;
    let wish = Wish {
        path,
        body,
        quiet: true,
    };
    follow(session, &wish, form, signals).await
}

/// Submits; comes to the run and whether somebody interrupted meanwhile. `None`: twice, so that nobody waits.
async fn submit(
    session: &Session,
    wish: &Wish<'_>,
    signals: &mut Signals,
) -> Result<Option<(Value, bool)>, Failure> {
    let call = Call::new(Method::POST, wish.path).with(wish.body);
    let submitting = session.client.call(call);
    tokio::pin!(submitting);
    let mut interrupted = false;
    loop {
        tokio::select! {
            answer = &mut submitting => return Ok(Some((answer?.body, interrupted))),
            () = signals.any() => if std::mem::replace(&mut interrupted, true) {
                show::note("sallyport: the console has not answered; `sallyport ps` says whether it runs");
                return Ok(None);
            }
        }
    }
}

/// Prints what a run prints until it ends, and ends as it does. An interrupt cancels it; a second one does not wait.
async fn follow(session: &Session, wish: &Wish<'_>, form: Form, mut signals: Signals) -> Verdict {
    let Some((run, mut interrupted)) = submit(session, wish, &mut signals).await? else {
        return Ok(Outcome::Code(INTERRUPTED));
    };
    let run_id = text(&run, "id");
    let run_id = id(&run_id)?;
    if form != Form::Table {
        form.line(&json!({ "kind": "submitted", "run": run }), String::new)?;
    } else if !wish.quiet {
        let origin = session.client.origin();
        show::note(format_args!("sallyport: run {run_id} at {origin}"));
    }
    let mut following = Follow::new(session, run_id, Printer::new(form));
    let following = following.until_over();
    // asked beside the output, which goes on, and beside the second interrupt
    let (path, nothing) = (session.path(&format!("runs/{run_id}/cancel")), json!({}));
    let cancelling = session
        .client
        .call(Call::new(Method::POST, &path).with(&nothing));
    tokio::pin!(following, cancelling);
    let mut answered = false;
    loop {
        tokio::select! {
            run = &mut following => return logs::ended(&run?, form),
            () = signals.any() => if std::mem::replace(&mut interrupted, true) {
                return Ok(Outcome::Code(INTERRUPTED));
            },
            answer = &mut cancelling, if interrupted && !answered => {
                answered = true;
                // one that ended at the same moment is followed to its end
                if let Err(error) = answer && error.status() != Some(StatusCode::CONFLICT) {
                    let failure = Failure::from(error);
                    let message = format!("the run is not cancelled: {}", failure.message);
                    return Err(Failure { message, ..failure });
                }
            }
        }
    }
}
