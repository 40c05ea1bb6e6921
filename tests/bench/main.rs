//! `./dev bench`: the rows of the cost table, each beside its peers in one run on one machine, journal on.
//!
//! Medians of `--reps` (default 5) interleaved measurements; `--row TEXT` picks rows by a part of their title.

#![expect(
    clippy::cast_precision_loss,
    reason = "figures are printed with two digits"
)]

mod gateway;
mod load;
mod peers;
mod rows;
mod topology;
mod usage;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// What the command line asked for.
#[derive(Debug)]
pub struct Options {
    /// Measurements of each figure.
    pub reps: usize,
    /// Only rows whose title contains this.
    pub row: Option<String>,
    /// The binary under measurement.
    pub binary: PathBuf,
}

impl Options {
    fn parse() -> Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sallyport");
        let mut options = Self {
            reps: 5,
            row: None,
            binary: beside,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--reps" => options.reps = value()?.parse().context("--reps is a number")?,
                "--row" => options.row = Some(value()?),
                "--binary" => options.binary = value()?.into(),
                _ => bail!("unknown option {arg}; there are --reps N, --row TEXT, --binary PATH"),
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

fn main() -> Result<()> {
    let options = Options::parse()?;
    let mut table = rows::Table::default();
    rows::data_path(&options, &mut table)?;
    rows::datagrams(&options, &mut table)?;
    rows::networks(&options, &mut table)?;
    rows::decisions(&options, &mut table)?;
    rows::runs(&options, &mut table)?;
    print!("{table}");
    Ok(())
}
