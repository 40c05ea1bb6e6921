//! The words of one rule while it is put together, in the order in which `iptables-save` prints them: addresses,
//! protocol, matches, target.

use std::net::IpAddr;

use super::Line;
use crate::ruleset::expr::{ACK, Expr, FIN, FlowMark, IpFamily, RST, SYN, Transport};
use crate::ruleset::{METER_SIZE, METER_TIMEOUT, SetName, burst};

/// `XT_HASHLIMIT_SCALE_v2`: what the kernel divides by a rate.
const SCALE: u32 = 1_000_000;

/// What has been said of one rule so far.
#[derive(Default)]
pub(super) struct Words {
    destination: Option<String>,
    protocol: Option<Transport>,
    port: Option<u16>,
    flags: Option<(u8, u8)>,
    icmp: Option<u8>,
    icmpv6: Option<u8>,
    matches: Vec<String>,
}

impl Words {
    /// Takes a match; `false`: it is none that these words exist for.
    pub(super) fn take(&mut self, expr: &Expr) -> bool {
        match expr {
            Expr::Family(_) => {}
            Expr::Protocol(transport) => self.protocol = Some(*transport),
            Expr::Fragment4 => self.u32("0x4&0x3fff=0x1:0x3fff"),
            Expr::MayCut4 => self.u32("0x4&0x4000=0x0"),
            // A fragment header behind another extension header is dropped with that one.
            Expr::Fragment6 => self.u32("0x3&0xff=0x2c"),
            Expr::Options4 => self.u32("0x0>>0x18&0xf=0x6:0xf"),
            Expr::NextHeader6(number) => self.u32(&format!("0x3&0xff={number:#x}")),
            Expr::To(address) => {
                let length = if address.is_ipv4() { 32 } else { 128 };
                self.destination = Some(format!("{address}/{length}"));
            }
            Expr::ToNet(net) => self.destination = Some(net.to_string()),
            Expr::HopLimit(limit) => self.say(["-m", "hl", "--hl-eq", &limit.to_string()]),
            Expr::IcmpType(kind) => self.icmp = Some(*kind),
            Expr::Icmpv6Type(kind) => self.icmpv6 = Some(*kind),
            Expr::PortClosed(family) => self.u32(closed(*family)),
            Expr::Port(port) => self.port = Some(*port),
            Expr::Flags { mask, value } => self.flags = Some((*mask, *value)),
            Expr::Mark(mark) => self.say(["-m", "mark", "--mark", &mark_text(*mark)]),
            Expr::Over { meter, rate } => self.over(*meter, *rate),
            // What is done to a packet, and members of sets, which are chains. Named, so that a new match finds its words.
            Expr::SourceNotIn(_)
            | Expr::DestinationIn(_)
            | Expr::Count(_)
            | Expr::Untrack
            | Expr::SetMark(_)
            | Expr::Tproxy { .. }
            | Expr::Queue(_)
            | Expr::QueueCompat(_)
            | Expr::RejectReset
            | Expr::Reject(_)
            | Expr::Goto(_)
            | Expr::End(_) => return false,
        }
        true
    }

    pub(super) fn say<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        self.matches.extend(words.into_iter().map(str::to_owned));
    }

    fn u32(&mut self, test: &str) {
        self.say(["-m", "u32", "--u32", test]);
    }

    /// The kernel keeps the table of a name with the rate that it was made with: the name carries the rate.
    fn over(&mut self, meter: SetName, rate: u32) {
        let rate = exact(rate);
        self.say(["-m", "hashlimit", "--hashlimit-above"]);
        let rest = [
            format!("{rate}/sec"),
            "--hashlimit-burst".to_owned(),
            burst(rate).min(SCALE).to_string(),
            "--hashlimit-mode".to_owned(),
            "srcip".to_owned(),
            "--hashlimit-name".to_owned(),
            format!("{}-{rate}", meter.as_str()),
            "--hashlimit-htable-max".to_owned(),
            METER_SIZE.to_string(),
            "--hashlimit-htable-expire".to_owned(),
            (METER_TIMEOUT * 1000).to_string(),
        ];
        self.matches.extend(rest);
    }

    /// The whole line.
    pub(super) fn line(self, comment: &str, target: impl IntoIterator<Item = String>) -> Line {
        let mut words = Vec::new();
        let mut say = |parts: &[&str]| words.extend(parts.iter().map(|part| (*part).to_owned()));
        if let Some(destination) = &self.destination {
            say(&["-d", destination]);
        }
        let name = self.protocol.map(transport_name);
        if let Some(name) = name {
            say(&["-p", name]);
        }
        if self.port.is_some() || self.flags.is_some() {
            say(&["-m", name.unwrap_or_default()]);
        }
        if let Some(port) = self.port {
            say(&["--dport", &port.to_string()]);
        }
        if let Some((mask, value)) = self.flags {
            say(&["--tcp-flags", &flag_names(mask), &flag_names(value)]);
        }
        if let Some(kind) = self.icmp {
            say(&["-m", "icmp", "--icmp-type", &kind.to_string()]);
        }
        if let Some(kind) = self.icmpv6 {
            say(&["-m", "icmp6", "--icmpv6-type", &kind.to_string()]);
        }
        words.extend(self.matches);
        if !comment.is_empty() {
            words.extend(["-m", "comment", "--comment", comment].map(str::to_owned));
        }
        words.extend(target);
        Line(words)
    }
}

/// A port unreachable that quotes the plain header of a UDP packet.
const fn closed(family: IpFamily) -> &'static str {
    match family {
        // Behind as many words of header as it says: type and code; of the quoted header, 8 further on, version and
        // length, and the protocol.
        IpFamily::V4 => {
            "0x0>>0x16&0x3c@0x0>>0x10=0x303&&0x0>>0x16&0x3c@0x5&0xff=0x45&&0x0>>0x16&0x3c@0xe&0xff=0x11"
        }
        // The same behind the plain header, the only one that it is looked for behind.
        IpFamily::V6 => "0x3&0xff=0x3a&&0x28>>0x10=0x104&&0x33&0xff=0x11",
    }
}

/// The nearest rate that the kernel can hold and that reads back as written.
const fn exact(rate: u32) -> u32 {
    let rate = if rate == 0 { 1 } else { rate };
    let cost = SCALE / if rate > SCALE { SCALE } else { rate };
    SCALE / cost
}

pub(super) fn mark_text(mark: FlowMark) -> String {
    format!("{:#x}", mark as u32)
}

/// The address that TPROXY redirects to: any.
pub(super) const fn anywhere(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "0.0.0.0",
        IpFamily::V6 => "::",
    }
}

pub(super) const fn family_of(address: IpAddr) -> IpFamily {
    match address {
        IpAddr::V4(_) => IpFamily::V4,
        IpAddr::V6(_) => IpFamily::V6,
    }
}

const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Icmp => "icmp",
        Transport::Icmpv6 => "ipv6-icmp",
    }
}

fn flag_names(flags: u8) -> String {
    let names: Vec<&str> = [(FIN, "FIN"), (SYN, "SYN"), (RST, "RST"), (ACK, "ACK")]
        .into_iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| name)
        .collect();
    if names.is_empty() {
        "NONE".to_owned()
    } else {
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_one_that_the_kernel_holds_exactly() {
        for rate in (0..20_000).chain([50_000, 333_333, 999_999, 1_000_000, u32::MAX]) {
            let exact = exact(rate);
            assert_eq!(SCALE / (SCALE / exact), exact, "{rate}");
            assert!(exact >= rate.clamp(1, SCALE), "{rate}");
        }
        assert_eq!(
            [exact(2_000), exact(5_000), exact(7_000)],
            [2_000, 5_000, 7_042]
        );
    }
}
