//! libFuzzer entrance of the `proxy_request` target; the tests run the same body.
#![no_main]

#[path = "../targets/proxy_request.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
