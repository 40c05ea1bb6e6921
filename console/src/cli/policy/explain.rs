//! `sallyport policy explain`.

use clap::Args;

use crate::exit::{Failure, Verdict};
use crate::show::Format;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Policy file, or the name of a preset
    #[arg(value_name = "FILE|PRESET")]
    policy: String,
    /// host:port, ip:port (IPv6 in brackets) or a URL
    #[arg(value_name = "DEST")]
    destination: String,
    /// A UDP flow
    #[arg(long)]
    udp: bool,
    /// Server name that the client would send, if it is another than the host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// What the resolver would answer; repeat for several
    #[arg(long, value_name = "IP")]
    resolves_to: Vec<std::net::IpAddr>,
    /// HTTP method
    #[arg(long)]
    method: Option<String>,
    /// HTTP path
    #[arg(long)]
    path: Option<String>,
}

pub fn perform(arguments: &Arguments, _format: Format) -> Verdict {
    let _policy = super::load(&arguments.policy)?;
    Err(Failure::new("soon"))
}
