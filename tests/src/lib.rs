//! Harness of the black-box tests: a broker process, an MQTT client on a raw socket, and the registry of the
//! specification's statements; none of these know how the broker works inside. Besides, tests that need more than
//! one crate: the contract suite of the store port, and the means to run stores under it.

pub mod api;
pub mod broker;
pub mod certs;
pub mod client;
pub mod connect;
pub mod contract;
pub mod kill;
pub mod many;
pub mod packet;
pub mod raw;
pub mod registry;
pub mod slow;
pub mod store;
pub mod transcript;
pub mod twin;
pub mod ws;

pub use api::Api;
pub use broker::Broker;
pub use client::Client;
pub use connect::Connect;
pub use mast_core::codec::{Property, Reason, SubOptions, Version};
pub use packet::{Got, Pub};

/// Names the statements of the specification that a test shows: `covers!["MQTT-3.1.0-1", "v311:MQTT-3.1.0-1"]`.
/// It does nothing; [`registry`] reads it from the source text.
#[macro_export]
macro_rules! covers {
    ($($id:literal),+ $(,)?) => {};
}
