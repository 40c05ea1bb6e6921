//! What the network of a run saw, on standard error.

use netpolicy::policy::Protocol;
use runner::summary::{Group, Summary};

use crate::show::{bytes, clean, note};

/// Prints permitted, denied and failed destinations, each with why.
pub fn print(summary: &Summary) {
    let nothing =
        summary.permitted.is_empty() && summary.denied.is_empty() && summary.failed.is_empty();
    if nothing && summary.complete {
        return;
    }
    match &summary.network {
        Some(network) => note(format_args!("sallyport: flows (network {network})")),
        None => note("sallyport: flows"),
    }
    for (word, groups) in [
        ("permitted", &summary.permitted),
        ("denied", &summary.denied),
        ("failed", &summary.failed),
    ] {
        for group in groups {
            note(format_args!("  {word:<10} {}", clean(&line(group))));
        }
    }
    if summary.left_out > 0 {
        note(format_args!(
            "  and {} more; `sallyport record export` has all",
            summary.left_out
        ));
    }
    if !summary.complete {
        note("  the record was not read to its end; `sallyport record export` has all");
    }
}

fn line(group: &Group) -> String {
    let what = if group.look_up { "look-up of " } else { "" };
    let protocol = match group.protocol {
        _ if group.look_up => "",
        Protocol::Tcp => "",
        Protocol::Udp => " udp",
        Protocol::Icmp => " icmp",
    };
    let often = if group.count > 1 {
        format!(" x{}", group.count)
    } else {
        String::new()
    };
    let moved = match group.up.saturating_add(group.down) {
        0 => String::new(),
        _ => format!(", {} up, {} down", bytes(group.up), bytes(group.down)),
    };
    let reason = group
        .reason
        .map_or_else(String::new, |reason| format!(": {}", reason.code()));
    let rule = group
        .rule
        .as_ref()
        .map_or_else(String::new, |rule| format!(" ({})", rule.line()));
    format!(
        "{what}{}{protocol}{often}{moved}{reason}{rule}",
        group.destination
    )
}
