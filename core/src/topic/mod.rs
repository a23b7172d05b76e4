//! Topic names, filters and the indexes over them.
//!
//! [`name`] and [`filter`] check what a client sent, [`index`] finds the filters that match a topic,
//! [`retained`] finds the topics that match a filter, [`interest`] answers coarsely and cheaply whether
//! another shard could have a match at all. [`naive`] is the reference all of them are tested against.

pub mod filter;
mod hash;
pub mod index;
pub mod interest;
mod level;
mod list;
pub mod naive;
pub mod name;
pub mod retained;
pub mod share;
mod slab;
mod text_table;
mod trie;

pub use filter::{check_filter, has_wildcard, matches};
pub use index::{ListId, TopicIndex};
pub use interest::{CoarseKey, Interest, TopicKeys};
pub use list::Subscriber;
pub use name::{Limits, TopicError, check_name, measure};
pub use retained::{RetainedCursor, RetainedIndex, ScanStep};
pub use share::{Shared, split_share};
