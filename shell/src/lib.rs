//! I/O around mast-core: listeners, configuration, authentication, observability and the command line.

pub mod auth;
pub mod config;
pub mod listen;
