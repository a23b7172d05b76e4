//! The store port: what the core asks of durable storage, and how it is answered.
//!
//! One write, [`Commit`](port::Write), all or nothing; reads by filter from a position, by sequence, by key. The embedded
//! journal, the JetStream adapter and the simulator's model answer the same requests and pass the same
//! contract suite.

pub mod key;
pub mod port;
pub mod position;
