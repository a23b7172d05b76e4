//! Topic matching against the reference matcher; the body lives in the simulator.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mast_sim::fuzz::topic_match(data));
