//! `sallyport net capture`: a network's packets as pcapng, to a file, a pipe or another program.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use gateway::control::Client;
use gateway::control::api::CaptureRequest;

use super::id;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

/// What to capture, and where to.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the network
    pub name: String,
    /// File to write; - for standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after so long
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Only such frames: [not] tcp|udp|icmp|icmp6|arp|ip|ip6|host ADDRESS|port NUMBER, joined by `and`
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub filter: String,
}

/// Captures until the end, or until interrupted.
pub async fn capture(client: &Client, arguments: &Arguments) -> Verdict {
    let mut out = open(arguments)?;
    let request = CaptureRequest {
        filter: arguments.filter.clone(),
        count: arguments.count,
        seconds: arguments.seconds,
    };
    let mut chunks = client.capture(&id(&arguments.name)?, &request).await?;
    let mut bytes = 0_u64;
    loop {
        tokio::select! {
            chunk = chunks.next() => {
                let Some(chunk) = chunk? else { break };
                bytes += chunk.len() as u64;
                match out.write_all(&chunk).and_then(|()| out.flush()) {
                    Ok(()) => {}
                    // the reader has seen enough
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
                    Err(error) => return Err(error.into()),
                }
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    show::note(format_args!(
        "{} of packets of {}",
        show::bytes(bytes),
        arguments.name
    ));
    Ok(Outcome::Good)
}

fn open(arguments: &Arguments) -> Result<Box<dyn Write>, Failure> {
    match &arguments.write {
        Some(path) if path.as_os_str() != "-" => {
            // Contents of connections: for whoever asked, and nobody else.
            let file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)
                .map_err(|e| Failure::new(format!("opening {}: {e}", path.display())))?;
            Ok(Box::new(file))
        }
        _ if std::io::stdout().is_terminal() => Err(Failure::new(
            "packets are not text: they do not go to a terminal",
        )
        .hint("name a file with -w, or pipe: `sallyport net capture NAME | tcpdump -nr -`")),
        _ => Ok(Box::new(std::io::stdout())),
    }
}
