//! Lists that come page by page, bounded in pages, entries and bytes: a console whose lists never end is none, and takes
//! no more memory of this machine than the longest list has.

use serde_json::Value;

use super::call::CallError;
use super::client::Client;
use super::id;

/// Pages of a list.
const MOST_PAGES: usize = 500;
/// Entries of a page: as many as are asked for.
const PAGE: usize = 200;
/// Bytes of all pages; a workspace's thousand jobs with long policies have fewer.
const MOST_BYTES: usize = 256 << 20;

/// What came so far.
#[derive(Default)]
struct Gathered {
    items: Vec<Value>,
    bytes: usize,
}

impl Gathered {
    /// Takes a page of so many bytes in; comes to the cursor of the next one, or to what is odd.
    fn take(&mut self, mut page: Value, bytes: usize) -> Result<Option<String>, &'static str> {
        let next = page.get("next").and_then(Value::as_str).map(str::to_owned);
        let Some(Value::Array(found)) = page.get_mut("items") else {
            return Err("a list without `items`");
        };
        self.bytes = self.bytes.saturating_add(bytes);
        if found.len() > PAGE || self.bytes > MOST_BYTES {
            return Err("a list that is too large");
        }
        self.items.append(found);
        Ok(next)
    }
}

impl Client {
    /// Every element of a paged list.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, CallError> {
        let (mut gathered, mut cursor) = (Gathered::default(), String::new());
        let join = if path.contains('?') { '&' } else { '?' };
        for _ in 0..MOST_PAGES {
            let page = self
                .get(&format!("{path}{join}limit={PAGE}&cursor={cursor}"))
                .await?;
            let next = gathered.take(page.body, page.bytes);
            match next.map_err(|what| self.odd(what))? {
                None => return Ok(gathered.items),
                Some(next) if next == cursor || id(&next).is_err() => break,
                Some(next) => cursor = next,
            }
        }
        Err(self.odd("a list that does not end"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_has_no_more_entries_and_bytes_than_lists_have() {
        let page = |entries: usize| json!({ "items": vec![1; entries], "next": "n" });
        let mut gathered = Gathered::default();
        assert!(gathered.take(page(PAGE + 1), 1).is_err());
        let whole = 64 << 20;
        for _ in 0..3 {
            assert_eq!(gathered.take(page(PAGE), whole), Ok(Some("n".to_owned())));
        }
        assert_eq!(gathered.items.len(), 3 * PAGE);
        assert!(gathered.take(page(1), whole).is_err(), "{}", gathered.bytes);
    }
}
