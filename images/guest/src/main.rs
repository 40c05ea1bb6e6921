//! `sally`: the one program of Sallyport that runs inside a sandbox.
//!
//! Three jobs in one small static binary, because it has to run in any Linux image and be read in one sitting:
//! `hold` keeps a pod's namespaces alive and hands the network namespace to the runner, `init` is process 1 of every
//! workload, `net explain` asks the run's broker why a destination is or is not reachable.
//!
//! Owns no secret: nothing in its arguments or environment is worth stealing. Refuses to be traced (`PR_SET_DUMPABLE`
//! 0 before anything else happens), or a workload of the same user takes it over through ptrace or `/proc/1/mem`.

mod broker;
mod hold;
mod init;
mod parcel;
mod say;
mod sys;

use std::process::ExitCode;

const HELP: &str = "\
sally: what a sandbox can ask Sallyport

  sally net explain HOST[:PORT]   would this destination be permitted, and which rule says so
        --json                    the answer as JSON
  sally version                   print the version
  sally help                      print this

The only way out of this sandbox is the gateway. Names resolve through it, connections pass it, and what it
denies is reset at once. `sally net explain` names the reason and what would change it.

Exit codes of `net explain`: 0 permitted, 1 denied, 2 could not ask.

Used by Sallyport itself: `sally hold [--door] --socket PATH`, 
`sally init --deadline-seconds N [--files] [--stdin] -- CMD...`.
";

/// What `sally` itself got wrong in its arguments, as in sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments
        .iter()
        .map(|a| a.to_str().unwrap_or_default())
        .collect();
    match words.as_slice() {
        ["hold", "--socket", path] => hold::run(path, hold::Hand::Namespace),
        ["hold", "--door", "--socket", path] => hold::run(path, hold::Hand::Door),
        ["init", "--deadline-seconds", seconds, rest @ ..] => {
            let flags = rest.iter().take_while(|word| **word != "--").count();
            let takes = init::Takes::read(rest.get(..flags).unwrap_or_default());
            // three words before the flags, `--` behind them
            let command = arguments.get(flags + 4..).unwrap_or_default();
            match (seconds.parse(), takes) {
                (Ok(seconds), Some(takes)) if !command.is_empty() => {
                    init::run(seconds, takes, command)
                }
                (Err(_), _) => usage("--deadline-seconds takes a whole number"),
                _ => usage("no such command"),
            }
        }
        ["net", "explain", "--json", destination] | ["net", "explain", destination, "--json"] => {
            broker::explain(destination, broker::Form::Json)
        }
        ["net", "explain", destination] if !destination.starts_with('-') => {
            broker::explain(destination, broker::Form::Text)
        }
        ["version" | "--version"] => {
            say::out(concat!("sally ", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        ["help" | "--help" | "-h"] | [] => {
            say::out(HELP.trim_end());
            ExitCode::SUCCESS
        }
        _ => usage("no such command"),
    }
}

fn usage(what: &str) -> ExitCode {
    say::note(format_args!("sally: {what}; see `sally help`"));
    ExitCode::from(USAGE)
}
