//! The rows of the table and how each is measured.

mod console;
mod data_path;
mod datagrams;
mod decisions;
mod fairness;
mod networks;
mod runs;

pub use console::console;
pub use data_path::data_path;
pub use datagrams::datagrams;
pub use decisions::decisions;
pub use fairness::fairness;
pub use networks::networks;
pub use runs::runs;

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use crate::usage::{cpu_time, own_cpu_time};

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

/// CPU time that comes along with a rate, repetition by repetition: what a shared machine's neighbours change least.
#[derive(Debug)]
pub struct Costs {
    run: Duration,
    between: RefCell<Samples>,
    whole: RefCell<Samples>,
}

type Samples = Vec<(&'static str, Vec<f64>)>;

impl Costs {
    /// For measurements that last `run` and give something a second.
    pub fn new(run: Duration) -> Self {
        Self {
            run,
            between: RefCell::default(),
            whole: RefCell::default(),
        }
    }

    /// Measures a rate, and what each unit of it costs: the process between client and origin, if there is one, and the
    /// whole with the load at both ends.
    pub fn beside(
        &self,
        who: &'static str,
        between: Option<u32>,
        rate: impl FnOnce() -> anyhow::Result<f64>,
    ) -> anyhow::Result<f64> {
        let spent = || between.map_or(Ok(Duration::ZERO), cpu_time);
        let (process, load) = (spent()?, own_cpu_time()?);
        let rate = rate()?;
        let process = spent()?.saturating_sub(process);
        let whole = own_cpu_time()?.saturating_sub(load) + process;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / (rate * self.run.as_secs_f64());
        if between.is_some() {
            push(&self.between, who, each(process));
        }
        push(&self.whole, who, each(whole));
        Ok(rate)
    }

    /// Two rows.
    pub fn rows(self, titles: [&'static str; 2], unit: &'static str) -> [Row; 2] {
        let [between, whole] = titles;
        [(between, self.between), (whole, self.whole)].map(|(title, samples)| Row {
            title,
            unit,
            aim: "printed",
            figures: samples
                .into_inner()
                .into_iter()
                .map(|(who, values)| Figure {
                    who,
                    median: median(values),
                })
                .collect(),
        })
    }
}

fn push(samples: &RefCell<Samples>, who: &'static str, value: f64) {
    let mut samples = samples.borrow_mut();
    match samples.iter_mut().find(|(name, _)| *name == who) {
        Some((_, values)) => values.push(value),
        None => samples.push((who, vec![value])),
    }
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
