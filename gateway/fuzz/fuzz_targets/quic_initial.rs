//! libFuzzer entrance of the `quic_initial` target; the tests run the same body.
#![no_main]

#[path = "../targets/quic_initial.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
