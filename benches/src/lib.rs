//! Placeholder module doc, replaced by the crate's owner.
