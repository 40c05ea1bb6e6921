//! libFuzzer entrance of the `document` target; its body is in `targets.rs`, where the tests use it too.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::document(data));
