//! I/O around mast-core.

pub mod store;
