//! libFuzzer entrance of the `http2` target; the tests run the same body.
#![no_main]

#[path = "../targets/http2.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
