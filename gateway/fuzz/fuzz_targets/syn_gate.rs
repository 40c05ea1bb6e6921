//! libFuzzer entrance of the `syn_gate` target; the tests run the same body.
#![no_main]

#[path = "../targets/syn_gate.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
