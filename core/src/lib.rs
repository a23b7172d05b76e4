//! mast-core: all MQTT logic of the broker as a deterministic, sans-IO state machine.
//!
//! The crate knows no clock, socket, thread, file or random source: time and entropy come in with every
//! input, work goes out as effects. `no_std` is the cheapest proof of that.
//!
//! Entry points: [`conn::handshake`] admits a connection, [`shard::Shard`] runs it.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ask;
pub mod authz;
pub mod codec;
pub mod conn;
pub mod ids;
pub mod message;
pub mod rng;
pub mod settings;
pub mod shard;
pub mod store;
pub mod sys;
pub mod tenant;
pub mod time;
pub mod timer;
pub mod topic;

mod group;
mod publish;
mod quota;
mod session;
mod subscribe;
