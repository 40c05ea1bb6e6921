//! `sallyport version`, with the licences of what is inside.

use clap::Args;

use super::Shared;
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const LICENCE: &str = include_str!("../../../LICENSE");
const NOTICE: &str = "\
Sallyport's own code is licensed under Apache-2.0 (text below). This binary links libnftnl (GPL-2.0-or-later) and
libmnl (LGPL-2.1-or-later); Apache-2.0 and GPL-2.0 only meet in GPL-3.0, so the binary as a whole may be passed on under
GPL-3.0-or-later. The licences of all Rust crates inside are permissive; the list is in the lock file of the sources,
and `./dev test` checks it.
";

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the licences of what is inside
    #[arg(long)]
    licenses: bool,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let version = env!("CARGO_PKG_VERSION");
    if arguments.licenses {
        show::raw(&format!("{NOTICE}\n{LICENCE}"))?;
    } else if shared.format() == Format::Json {
        show::json(
            &serde_json::json!({ "version": version, "license": "GPL-3.0-or-later (sources: Apache-2.0)" }),
        )?;
    } else {
        show::out(format_args!("sallyport {version}"))?;
    }
    Ok(Outcome::Good)
}
