//! `sallyport policy diff`: what changes from one policy to another, by what they decide.

use clap::Args;
use netpolicy::diff::{Effect, diff};
use serde_json::json;

use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format, clean};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The policy of before: a file or a preset
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The policy of after: a file or a preset
    #[arg(value_name = "AFTER")]
    after: String,
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    let (before, after) = (
        super::load(&arguments.before)?,
        super::load(&arguments.after)?,
    );
    let changes = diff(&before, &after, gateway::context::now());
    match format {
        Format::Json => show::json(&json!({ "same": changes.is_empty(), "changes": changes }))?,
        Format::Text if changes.is_empty() => show::out("both decide the same")?,
        Format::Text => {
            for change in &changes {
                let sign = match change.effect {
                    Effect::Wider => '+',
                    Effect::Narrower => '-',
                    Effect::Other => '~',
                };
                show::out(format_args!("{sign} {}", clean(&change.text)))?;
            }
        }
    }
    Ok(if changes.is_empty() {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}
