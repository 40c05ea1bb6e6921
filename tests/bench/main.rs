//! `./dev bench`: the rows of the cost table, each beside its peers in one run on one machine, journal on.
//!
//! `--soak` loads a gateway for a time instead, and fails if it grows.
//!
//! Medians of `--reps` (default 5) interleaved measurements; `--row TEXT` picks rows by a part of their title.

#![expect(
    clippy::cast_precision_loss,
    reason = "figures are printed with two digits"
)]

mod client;
mod gateway;
mod load;
mod peers;
mod rows;
mod soak;
mod topology;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What the command line asked for.
#[derive(Debug)]
pub struct Options {
    /// Measurements of each figure.
    pub reps: usize,
    /// Only rows whose title contains this.
    pub row: Option<String>,
    /// Instead of the table: mixed load for so long, with memory that must stay flat.
    pub soak: Option<Duration>,
    /// The binary under measurement.
    pub binary: PathBuf,
}

impl Options {
    fn parse() -> Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sallyport");
        let mut options = Self {
            reps: 5,
            row: None,
            soak: None,
            binary: beside,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--reps" => options.reps = value()?.parse().context("--reps is a number")?,
                "--soak" => options.soak = options.soak.or(Some(SOAK)),
                "--duration" => options.soak = Some(time(&value()?)?),
                "--row" => options.row = Some(value()?),
                "--binary" => options.binary = value()?.into(),
                _ => bail!(
                    "unknown option {arg}; there are --reps N, --row TEXT, --soak, --duration 10m, --binary PATH"
                ),
            }
        }
        if !options.binary.is_file() {
            bail!(
                "{} is missing: build it first (`./dev bench` does)",
                options.binary.display()
            );
        }
        Ok(options)
    }

    /// Whether any row with one of these words was asked for.
    pub fn wants(&self, words: &[&str]) -> bool {
        self.row
            .as_ref()
            .is_none_or(|row| words.iter().any(|word| word.contains(row.as_str())))
    }
}

/// How long a soak lasts unless told otherwise.
const SOAK: Duration = Duration::from_mins(10);

/// Seconds or minutes: `90s`, `10m`.
fn time(text: &str) -> Result<Duration> {
    let number = |unit| text.strip_suffix(unit).map(str::parse::<u64>);
    match (number('s'), number('m')) {
        (Some(Ok(seconds @ 10..)), _) => Ok(Duration::from_secs(seconds)),
        (_, Some(Ok(minutes @ 1..=1440))) => Ok(Duration::from_mins(minutes)),
        _ => bail!("a duration is from 10s to 1440m, such as 90s or 10m"),
    }
}

fn main() -> Result<()> {
    let options = Options::parse()?;
    if let Some(duration) = options.soak {
        return soak::soak(&options, duration);
    }
    let mut table = rows::Table::default();
    rows::data_path(&options, &mut table)?;
    rows::datagrams(&options, &mut table)?;
    rows::networks(&options, &mut table)?;
    rows::decisions(&options, &mut table)?;
    rows::fairness(&options, &mut table)?;
    rows::runs(&options, &mut table)?;
    rows::console(&options, &mut table)?;
    print!("{table}");
    Ok(())
}
