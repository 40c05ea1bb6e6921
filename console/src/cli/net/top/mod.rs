//! `sallyport net top`: what every network does, now: rates, flows, names by bytes, denials with their reasons.
//!
//! Asks the gateway at an interval and follows its record in between; a gateway that is away is waited for. Owns the
//! loop and the terminal; [`model`] adds up, [`render`] draws.

mod model;
mod render;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use gateway::control::Client;
use gateway::control::api::NetworkView;
use gateway::control::client::Lines;
use gateway::record::Line;
use tokio::time::Instant;

use super::follow::last;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};
use model::Model;

/// Rows and columns of a terminal that does not say.
const USUAL: (u16, u16) = (24, 100);

/// How to watch.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only these networks
    pub names: Vec<String>,
    /// Seconds between two looks
    #[arg(short, long, default_value_t = 1.0, value_name = "SECONDS")]
    pub interval: f64,
    /// Looks, then end [default: until interrupted]
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
}

/// Watches until interrupted.
pub async fn watch(client: &Client, arguments: &Arguments, format: Format) -> Verdict {
    if !(0.1..=3600.0).contains(&arguments.interval) {
        return Err(Failure::new("the interval is 0.1 to 3600 seconds").code(2));
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut model = Model::new(&arguments.names);
    let mut records = Records::begin(client).await?;
    let networks = client.networks().await?;
    there(&arguments.names, &networks)?;
    model.networks(&networks, &client.flows(None).await?, Instant::now());
    let screen = std::io::stdout().is_terminal() && format == Format::Text;
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        let due = Instant::now() + interval;
        records.collect(client, &mut model, due).await;
        let answer = match client.networks().await {
            Ok(networks) => client.flows(None).await.map(|flows| (networks, flows)),
            Err(error) => Err(error),
        };
        let trouble = match &answer {
            Ok((networks, flows)) => {
                model.networks(networks, flows, Instant::now());
                None
            }
            Err(error) => Some(error.to_string()),
        };
        draw(&model, records.cursor, trouble.as_deref(), screen, format)?;
        model.next();
        shown += 1;
    }
    Ok(Outcome::Good)
}

/// A name that no network has now would be an empty table for ever.
fn there(names: &[String], networks: &[NetworkView]) -> Result<(), Failure> {
    let missing = names
        .iter()
        .find(|name| !networks.iter().any(|n| n.id.as_str() == name.as_str()));
    match missing {
        Some(name) => Err(Failure::new(format!("there is no network {name}"))
            .hint("`sallyport net ls` lists them")),
        None => Ok(()),
    }
}

fn draw(
    model: &Model,
    cursor: u64,
    trouble: Option<&str>,
    screen: bool,
    format: Format,
) -> Result<(), Failure> {
    if format == Format::Json {
        return show::json_line(&model.json(cursor, trouble));
    }
    let (rows, columns) =
        terminal_size::terminal_size().map_or(USUAL, |(columns, rows)| (rows.0, columns.0));
    let lines = render::frame(model, trouble, usize::from(columns));
    if !screen {
        return show::out(format_args!("{}\n", lines.join("\n")));
    }
    // Each line ends by clearing what an earlier frame left there; nothing flickers.
    let mut frame = "\u{1b}[H".to_owned();
    for line in lines.iter().take(usize::from(rows).saturating_sub(1)) {
        frame.push_str(line);
        frame.push_str("\u{1b}[K\n");
    }
    frame.push_str("\u{1b}[J");
    show::out(frame)
}

/// The record, followed across restarts of the gateway.
struct Records {
    lines: Option<Lines<Line>>,
    cursor: u64,
}

impl Records {
    async fn begin(client: &Client) -> Result<Self, Failure> {
        let cursor = last(client).await?;
        let lines = Some(client.follow_records(cursor).await?);
        Ok(Self { lines, cursor })
    }

    /// Takes in what is recorded until the time has come.
    async fn collect(&mut self, client: &Client, model: &mut Model, due: Instant) {
        loop {
            let Some(lines) = &mut self.lines else {
                self.lines = client.follow_records(self.cursor).await.ok();
                if self.lines.is_none() {
                    return tokio::time::sleep_until(due).await;
                }
                continue;
            };
            match tokio::time::timeout_at(due, lines.next()).await {
                Ok(Ok(Some(line))) => {
                    self.cursor = line.seq;
                    model.record(&line);
                }
                // The gateway went away; whatever it records next is read from the cursor.
                Ok(Ok(None) | Err(_)) => {
                    self.lines = None;
                    return tokio::time::sleep_until(due).await;
                }
                Err(_) => return,
            }
        }
    }
}
