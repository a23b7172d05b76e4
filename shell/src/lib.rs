//! I/O around mast-core: configuration, authentication, listeners, the store, what operators see. No MQTT
//! rule lives here.

pub mod accept;
pub mod admin;
pub mod auth;
pub mod banner;
pub mod bench;
pub mod cli;
pub mod client;
pub mod config;
pub mod doctor;
pub mod driver;
pub mod engine;
pub mod listen;
pub mod obs;
pub mod serve;
pub mod store;
