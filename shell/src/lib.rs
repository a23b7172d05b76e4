//! I/O around mast-core.
