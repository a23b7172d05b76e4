//! The `mast` binary.
fn main() {}
