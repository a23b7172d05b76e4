//! Runs [`mast_sim::fuzz::roundtrip`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mast_sim::fuzz::roundtrip(data));
