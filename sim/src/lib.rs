//! mast-sim: deterministic simulation of the broker. Real shards and handshakes run in a world of events
//! with model clients and a model store; oracles judge what comes out. A run is repeated by its scenario,
//! a scenario by its seed.
#![warn(missing_docs)]

pub mod client;
pub mod draw;
pub mod facts;
pub mod fuzz;
pub mod hash;
pub mod ledger;
pub mod marks;
pub mod oracles;
pub mod rights;
pub mod scenario;
pub mod shrink;
pub mod subscription;
pub mod world;
