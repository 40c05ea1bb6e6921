//! `sallyport completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use crate::exit::{Outcome, Verdict};
use crate::show;

const HELP: &str = "\
Examples:
  sallyport completions bash > /etc/bash_completion.d/sallyport
  sallyport completions zsh > \"${fpath[1]}/_sallyport\"
  sallyport completions fish > ~/.config/fish/completions/sallyport.fish";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Which shell
    shell: Shell,
}

pub fn perform(arguments: &Arguments) -> Verdict {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut super::tree(),
        "sallyport",
        &mut script,
    );
    show::raw(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Good)
}
