//! Runs [`mast_sim::fuzz::diff_codecs`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mast_sim::fuzz::diff_codecs(data));
