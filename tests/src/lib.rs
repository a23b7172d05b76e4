//! Tests of mast that need more than one crate: the contract suite of the store port, and the means to run stores under it.

pub mod contract;
pub mod store;
