//! What the roles share on the command line: a runtime, logging, and an end when they are told to stop.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::Shared;
use crate::exit::{Failure, Outcome, Verdict};

const HELP: &str = "\
Needs the container engine's socket and the gateway's control socket. Runs until it is told to stop (SIGTERM): runs \
that are live are ended and cleaned up first. With `runner.console`, or `--console`, it also pulls work from that \
console, with the token in `runner.token_file`.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct RunnerArguments {
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    /// Pull work from the console at this address, such as https://sallyport.example.com
    #[arg(long, value_name = "URL")]
    console: Option<String>,
    /// Even by plain HTTP from another machine, inside a tunnel
    #[arg(long, requires = "console")]
    plain_http: bool,
}

pub fn runner(arguments: &RunnerArguments, shared: &Shared) -> Verdict {
    if arguments.check {
        return super::config::check(shared);
    }
    let mut config = shared.load()?.runner;
    if arguments.console.is_some() {
        config.console.clone_from(&arguments.console);
        config.plain_http |= arguments.plain_http;
        if let Some(mistake) = config.mistakes().into_iter().next() {
            return Err(Failure::new(mistake));
        }
    }
    until_told(|stop| async move {
        runner::run(config, stop).await.map_err(|error| {
            let mut failure = Failure::from_error(&error);
            failure.hint = error.hint();
            failure
        })
    })
}

/// Runs a role until SIGTERM or SIGINT asks it to stop, and then to its own end.
pub fn until_told<W>(role: impl FnOnce(CancellationToken) -> W) -> Verdict
where
    W: Future<Output = Result<(), Failure>>,
{
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let work = role(stop.clone());
        tokio::pin!(work);
        loop {
            tokio::select! {
                ended = &mut work => return ended.map(|()| Outcome::Good),
                _ = terminate.recv() => stop.cancel(),
                _ = interrupt.recv() => stop.cancel(),
            }
        }
    })
}
