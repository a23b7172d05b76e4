//! Runs [`mast_sim::fuzz::session_script`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mast_sim::fuzz::session_script(data));
