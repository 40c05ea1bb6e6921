//! libFuzzer entrance of the `address` target; its body is in `targets.rs`, where the tests use it too.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::address(data));
