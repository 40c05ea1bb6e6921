//! libFuzzer entrance of the `dns_message` target; the tests run the same body.
#![no_main]

#[path = "../targets/dns_message.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
