//! `sallyport doctor --console`: the console's deployment checklist in the terminal, the rows that its page has.

use console::api::checklist::{CheckItem, Checklist, look};
use console::store::Store;

use crate::cli::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

/// Rows without which nothing else is worth much: that they cannot be looked at is no better than bad.
const NEEDED: [&str; 2] = ["firewall", "selftest"];

pub fn perform(shared: &Shared) -> Verdict {
    let config = shared.load()?.console;
    let list = wait(async {
        let failed = |error: &console::store::StoreError| {
            let mut failure = Failure::from_error(error);
            failure.hint = error.hint().map(str::to_owned);
            failure
        };
        let store = Store::existing(&config.database).await;
        let store = store.map_err(|error| failed(&error))?;
        let list = look(&config, &store).await;
        store.close().await;
        list.map_err(|error| failed(&error))
    })?;
    match shared.format() {
        Format::Json => show::json(&list)?,
        Format::Text => print(&list)?,
    }
    Ok(if list.items.iter().any(counts) {
        Outcome::Negative
    } else {
        Outcome::Good
    })
}

/// Whether a row makes the exit code 1.
fn counts(item: &CheckItem) -> bool {
    item.state == "bad" || (item.state != "good" && NEEDED.contains(&item.id))
}

fn print(list: &Checklist) -> Result<(), Failure> {
    for item in &list.items {
        let word = match item.state {
            "good" => "ok",
            "bad" => "BAD",
            state => state,
        };
        show::out(format_args!(
            "{word:<8} {:<15} {}: {}",
            item.id,
            item.title,
            show::clean(&item.found)
        ))?;
        if let Some(fix) = &item.fix {
            show::out(format_args!(
                "{:<8} {:<15} fix: {}",
                "",
                "",
                show::clean(fix)
            ))?;
        }
    }
    show::out(format_args!(
        "{} of {} as they should be",
        list.good, list.of
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_counts_and_a_firewall_that_nobody_sees_does_too() {
        let item = |id, state| CheckItem {
            id,
            title: "t",
            state,
            found: String::new(),
            fix: None,
        };
        for (id, state, expected) in [
            ("ports", "good", false),
            ("ports", "unknown", false),
            ("ports", "bad", true),
            ("firewall", "unknown", true),
            ("selftest", "unknown", true),
            ("firewall", "good", false),
        ] {
            assert_eq!(counts(&item(id, state)), expected, "{id} {state}");
        }
    }
}
