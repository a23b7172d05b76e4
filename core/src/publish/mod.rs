//! A message's way in: checks, storing, fan-out.

pub(crate) mod fanout;
pub(crate) mod ingress;
