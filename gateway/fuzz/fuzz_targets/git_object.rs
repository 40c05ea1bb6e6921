//! libFuzzer entrance of the `git_object` target; the tests run the same body.
#![no_main]

#[path = "../targets/git_object.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
