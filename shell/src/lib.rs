//! I/O around mast-core: listeners, configuration, authentication, observability and the command line.

pub mod auth;
pub mod banner;
pub mod cli;
pub mod client;
pub mod config;
pub mod listen;
pub mod obs;
pub mod serve;
