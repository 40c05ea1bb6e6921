//! The rows of the table and how each is measured.

mod data_path;
mod decisions;
mod networks;
mod runs;

pub use data_path::data_path;
pub use decisions::decisions;
pub use networks::networks;
pub use runs::runs;

use std::fmt;

/// One figure: the median of its measurements.
#[derive(Debug)]
pub struct Figure {
    /// Who was measured.
    pub who: &'static str,
    /// Median.
    pub median: f64,
}

/// One row: figures of one kind, measured in turn.
#[derive(Debug)]
pub struct Row {
    /// What is measured.
    pub title: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// The aim, in words.
    pub aim: &'static str,
    /// Ours first, then the peers.
    pub figures: Vec<Figure>,
}

/// All rows that were measured.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds a row and says so at once: a bench that fails later still told what it had.
    pub fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.0.push(row);
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}; aim: {})", self.title, self.unit, self.aim)?;
        let ours = self.figures.first().map_or(f64::NAN, |x| x.median);
        for figure in &self.figures {
            writeln!(
                f,
                "    {:<34} {:>12.2}   ratio {:.2}",
                figure.who,
                figure.median,
                ours / figure.median
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nMedians; ratio is the first line of a row over this line.\n"
        )?;
        self.0.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

/// The middle of some measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A measurement to repeat.
pub type Measure<'a> = (&'static str, Box<dyn FnMut() -> anyhow::Result<f64> + 'a>);

/// Measures each in turn, `reps` times over, so that a slow minute of the machine hits all alike.
pub fn in_turn(reps: usize, mut measures: Vec<Measure<'_>>) -> anyhow::Result<Vec<Figure>> {
    let mut values = vec![Vec::with_capacity(reps); measures.len()];
    for _ in 0..reps {
        for ((_, measure), values) in measures.iter_mut().zip(&mut values) {
            values.push(measure()?);
        }
    }
    let names = measures.into_iter().map(|(who, _)| who);
    Ok(names
        .zip(values)
        .map(|(who, values)| Figure {
            who,
            median: median(values),
        })
        .collect())
}
