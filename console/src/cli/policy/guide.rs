//! `sallyport policy reasons` and `sets`: what denials mean and what to do, and what the shipped sets hold.

use netpolicy::document::sets;
use netpolicy::guide::{advice, reason_page};
use netpolicy::policy::{Rule, Selector, Speaks};
use netpolicy::reason::Reason;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

pub fn reasons(code: Option<&str>, format: Format) -> Verdict {
    let page = |reason: Reason| json!({ "code": reason.code(), "help": reason.help(), "advice": advice(reason) });
    match (code.map(find).transpose()?, format) {
        (Some(reason), Format::Text) => show::raw(&reason_page(reason))?,
        (Some(reason), Format::Json) => show::json(&page(reason))?,
        (None, Format::Json) => {
            let all: Vec<Value> = Reason::ALL.iter().map(|reason| page(*reason)).collect();
            show::json(&all)?;
        }
        (None, Format::Text) => {
            let rows = Reason::ALL
                .iter()
                .map(|reason| [reason.code().to_owned(), reason.help().to_owned()]);
            show::out(show::table(["code", "meaning"], rows))?;
        }
    }
    Ok(Outcome::Good)
}

fn find(code: &str) -> Result<Reason, Failure> {
    let found = Reason::ALL
        .iter()
        .copied()
        .find(|reason| reason.code() == code);
    found.ok_or_else(|| {
        let near = netpolicy::document::mistake::nearest(
            code,
            Reason::ALL.iter().map(|reason| reason.code()),
        );
        let failure = Failure::new(format!("{code} is no reason code")).code(2);
        match near {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure.hint("`sallyport policy reasons` lists them"),
        }
    })
}

pub fn sets(name: Option<&str>, format: Format) -> Verdict {
    let date = sets::date();
    if let Some(name) = name {
        let rules = sets::shipped(name).ok_or_else(|| {
            let names: Vec<&str> = sets::names().collect();
            Failure::new(format!("{name} is no shipped set"))
                .code(2)
                .hint(format!("there are {}", names.join(", ")))
        })?;
        match format {
            Format::Json => {
                let entries: Vec<Value> = rules.iter().map(entry).collect();
                show::json(&json!({ "set": name, "date": date, "entries": entries }))?;
            }
            Format::Text => {
                let rows = rules
                    .iter()
                    .map(|rule| [selector(rule), rule.ports.to_string()]);
                show::out(show::table(["host", "ports"], rows))?;
                show::out(format_args!("\nlooked through on {date}"))?;
            }
        }
        return Ok(Outcome::Good);
    }
    match format {
        Format::Json => {
            show::json(&json!({ "date": date, "sets": sets::names().collect::<Vec<_>>() }))?;
        }
        Format::Text => {
            let size = |name: &str| sets::shipped(name).map_or(0, <[Rule]>::len);
            let rows = sets::names().map(|name| [name.to_owned(), size(name).to_string()]);
            show::out(show::table(["set", "entries"], rows))?;
            show::out(format_args!(
                "\nlooked through on {date}; `packages` is read from the image"
            ))?;
        }
    }
    Ok(Outcome::Good)
}

fn entry(rule: &Rule) -> Value {
    json!({ "host": selector(rule), "ports": rule.ports.to_string(), "speaks": rule.speaks.map(Speaks::word) })
}

fn selector(rule: &Rule) -> String {
    match &rule.to {
        Selector::Host(pattern) => pattern.to_string(),
        Selector::Cidr(net) => net.to_string(),
    }
}
