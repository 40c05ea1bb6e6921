//! libFuzzer entrance of the `client_hello` target; the tests run the same body.
#![no_main]

#[path = "../targets/client_hello.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
