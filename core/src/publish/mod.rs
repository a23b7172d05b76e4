//! A message's way in: checks, storing, fan-out.

pub mod batch;
pub(crate) mod cache;
pub(crate) mod fanout;
pub(crate) mod ingress;
