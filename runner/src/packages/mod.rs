//! The set `packages`: which hosts the package managers of an image say that they use.
//!
//! Owns the questions ([`REPORT`], a shell script that asks the image's own tools), how the answer is read ([`Reading`])
//! and what is remembered of it. No host is known here: what an image does not report is not permitted. Refuses to own
//! how the image is asked (`drive`) and what the names then permit (the policy; the gateway checks them again).
//! Failure stance: an image that cannot be asked fails the run; nothing is ever assumed.

mod reading;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use reading::Reading;

/// POSIX shell; prints lines `tool<TAB>URL`.
pub const REPORT: &str = include_str!("report.sh");

/// Images that are remembered; more than a machine runs in a day, little memory.
const REMEMBERED: usize = 256;

/// What each image said. An image's identity is its content, so it would say the same again.
#[derive(Debug, Default)]
pub struct Packages {
    read: Mutex<HashMap<String, Arc<Reading>>>,
}

impl Packages {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Arc<Reading>>) -> T) -> T {
        act(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What this image said before.
    pub fn of(&self, image_id: &str) -> Option<Arc<Reading>> {
        self.with(|read| read.get(image_id).cloned())
    }

    /// Remembers what an image said.
    pub fn keep(&self, image_id: &str, reading: &Arc<Reading>) {
        if image_id.is_empty() {
            return;
        }
        self.with(|read| {
            if read.len() >= REMEMBERED {
                read.clear();
            }
            read.insert(image_id.to_owned(), reading.clone());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_remembered_by_its_content_and_never_without_an_identity() {
        let packages = Packages::default();
        let reading = Arc::new(Reading::of(b"apt\thttps://mirror.example.net/\n"));
        packages.keep("", &reading);
        packages.keep("sha256:1", &reading);
        assert_eq!(packages.of("sha256:1"), Some(reading.clone()));
        assert_eq!(packages.of("sha256:2"), None);
        assert_eq!(packages.of(""), None);
        for n in 0..1000 {
            packages.keep(&n.to_string(), &reading);
        }
        assert!(packages.with(|read| read.len()) <= REMEMBERED);
    }
}
