//! SUBSCRIBE and UNSUBSCRIBE, and the retained messages that follow.

pub(crate) mod fence;
pub(crate) mod gate;
pub(crate) mod request;
pub(crate) mod scan;
