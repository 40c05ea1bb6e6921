//! `sallyport run`: one command in a sandbox. Its streams are the command's, its exit code too.
//!
//! Owns: arguments, the stream to the terminal, cancellation; what is given to the command is [`input`]'s. The roles are found or started by [`services`], the
//! summary is written by [`summary`]. Refuses to own: how a run is driven.

mod arguments;
mod input;
pub mod services;
mod submit;
mod summary;
mod tree;

use std::io::Write;

use runner::{EndReason, Event, RunId, RunnerError};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use arguments::{Arguments, What};
use input::Giving;
use services::Services;
pub use submit::submit_and_follow;

use super::{Shared, wait};
use crate::exit::{Failure, NOT_RUN, Outcome, Verdict};
use crate::show::{self, Format};

/// What a shell says of a command that an interrupt ended (128 + SIGINT).
const INTERRUPTED: u8 = 130;

impl From<RunnerError> for Failure {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Refused(refused) => refused.into(),
            RunnerError::Connect { .. } => {
                Self::from_error(&error).hint("is it running? `sallyport up` starts it")
            }
            other => Self::from_error(&other),
        }
    }
}

impl From<runner::Failure> for Failure {
    fn from(failure: runner::Failure) -> Self {
        Self {
            message: failure.message,
            hint: failure.hint,
            details: failure.mistakes,
            code: Some(NOT_RUN),
        }
    }
}

pub fn perform(arguments: Arguments, shared: &Shared) -> Verdict {
    if !arguments.direct && arguments.door.is_configured()? {
        return submit::perform(&arguments, shared);
    }
    let config = shared.load()?;
    let quiet = arguments.quiet;
    let (job, brought) = arguments.job(&config.gateway)?;
    let format = shared.format();
    wait(async {
        let mut signals = Signals::new()?;
        let client = runner::Client::new(&config.runner.socket);
        loop {
            let starting = Services::ready(&config, shared.config.as_deref(), quiet);
            let services = tokio::select! {
                services = starting => services?,
                () = signals.any() => return Ok(Outcome::Code(INTERRUPTED)),
            };
            let outcome = match client.run(&job).await {
                // it was asked to stop in between: another is started when it is gone
                Err(RunnerError::Refused(refused)) if refused.code == runner::api::STOPPING => None,
                Err(error) => Some(Err(error.into())),
                Ok(stream) => {
                    let view = View { format, quiet };
                    let giving = Giving::new(&client, &brought);
                    follow(&client, stream, giving, &mut signals, view)
                        .await
                        .transpose()
                }
            };
            services.release().await;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    })
}

#[derive(Clone, Copy)]
struct View {
    format: Format,
    quiet: bool,
}

/// The signals that cancel a run.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Follows a run to its end; `None` if the runner stopped before it began, so that another runner may be asked.
async fn follow(
    client: &runner::Client,
    mut stream: runner::Stream,
    mut giving: Giving<'_>,
    signals: &mut Signals,
    view: View,
) -> Result<Option<Outcome>, Failure> {
    let mut run: Option<RunId> = None;
    let mut cancelled = false;
    loop {
        let event = tokio::select! {
            event = stream.next() => event?,
            failure = giving.broken() => {
                // what came in is not what was to come in: the runner ends the run, and this is why
                return Err(failure);
            }
            () = signals.any() => {
                // the second one does not wait for the clean-up: dropping the stream ends the run as well
                if std::mem::replace(&mut cancelled, true) {
                    return Ok(Some(Outcome::Code(INTERRUPTED)));
                }
                if let Some(run) = &run {
                    client.cancel(run).await?;
                }
                continue;
            }
        };
        let Some(event) = event else {
            return Err(Failure::new("the runner went away before the run ended")
                .hint("`sallyport doctor` names the cause"));
        };
        if !cancelled && giving.can_begin_again() && never_begun(&event) {
            return Ok(None);
        }
        if let Event::Accepted { run: id } = &event {
            run = Some(id.clone());
            giving.begin(id);
            if cancelled {
                client.cancel(id).await?;
            }
        }
        if view.format == Format::Json {
            show::json_line(&event)?;
        } else {
            tell(&event, view.quiet)?;
        }
        match event {
            Event::Ended {
                reason: EndReason::Cancelled,
                ..
            }
            | Event::Failed(_)
                if cancelled =>
            {
                return Ok(Some(Outcome::Code(INTERRUPTED)));
            }
            Event::Ended { code, .. } => {
                let code = u8::try_from(code).unwrap_or(NOT_RUN);
                return Ok(Some(Outcome::Code(code)));
            }
            Event::Failed(failure) => return Err(failure.into()),
            _ => {}
        }
    }
}

fn never_begun(event: &Event) -> bool {
    matches!(event, Event::Failed(failure) if failure.code == runner::api::STOPPING)
}

/// Passes output on as it is, and words to standard error.
fn tell(event: &Event, quiet: bool) -> Result<(), Failure> {
    match event {
        Event::Stdout(data) => pass(&mut std::io::stdout().lock(), &data.data)?,
        Event::Stderr(data) => pass(&mut std::io::stderr().lock(), &data.data)?,
        Event::OutputLimit { bytes } => {
            show::note(format_args!(
                "sallyport: output is dropped from here on, after {}",
                show::bytes(*bytes)
            ));
        }
        Event::Ended {
            reason, leftovers, ..
        } => {
            for leftover in leftovers {
                show::note(format_args!(
                    "sallyport: not cleaned up yet: {}",
                    show::clean(leftover)
                ));
            }
            match reason {
                EndReason::Exited => {}
                EndReason::OutOfMemory => {
                    show::note("sallyport: out of memory; raise it with --memory");
                }
                EndReason::TimedOut => {
                    show::note("sallyport: the timeout ended it; raise it with --timeout");
                }
                EndReason::Cancelled => show::note("sallyport: cancelled"),
                EndReason::NetworkLost => show::note("sallyport: its network was taken away"),
                EndReason::RunnerStopped => show::note("sallyport: the runner stopped"),
            }
        }
        Event::Preparing { step } if !quiet => {
            show::note(format_args!("sallyport: {}", show::clean(step)));
        }
        Event::Started(started) if !quiet => {
            for text in &started.notes {
                show::alert(&format!("sallyport: {text}"));
            }
        }
        Event::Flows(flows) if !quiet => summary::print(flows),
        Event::Preparing { .. }
        | Event::Flows(_)
        | Event::Accepted { .. }
        | Event::Started(_)
        | Event::Failed(_) => {}
    }
    Ok(())
}

/// Writes and flushes; a reader that went away does not end the run, the command must not notice.
fn pass(to: &mut impl Write, bytes: &[u8]) -> Result<(), Failure> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
