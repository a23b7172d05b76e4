//! A subscription as its client knows it: what was asked for, what was granted, and since when.

use crate::scenario::FilterSpec;
use mast_core::topic::naive::naive_matches;

/// A subscription as its client knows it.
#[derive(Clone, Debug)]
pub struct SubFacts {
    /// As sent.
    pub spec: FilterSpec,
    /// Subscription identifier.
    pub id: u32,
    /// When its first SUBSCRIBE was sent, µs.
    pub asked: u64,
    /// Since when it is granted without a change that matters for what is owed, µs.
    pub since: Option<u64>,
    /// Granted QoS.
    pub granted: u8,
    /// It was granted at some time, or may have been.
    pub ever: bool,
    /// An UNSUBSCRIBE was sent.
    pub leaving: bool,
    /// A SUBSCRIBE or UNSUBSCRIBE is unanswered, or was never answered.
    pub unsure: bool,
}

impl SubFacts {
    /// The filter without `$share/group/`.
    #[must_use]
    pub fn inner(&self) -> &str {
        inner(&self.spec.filter)
    }

    /// Whether it matches.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        naive_matches(self.inner(), topic)
    }

    /// It belongs to a shared group.
    #[must_use]
    pub fn shared(&self) -> bool {
        self.spec.filter.starts_with("$share/")
    }
}

/// The filter without `$share/group/`.
#[must_use]
pub fn inner(filter: &str) -> &str {
    filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/')).map_or(filter, |(_, inner)| inner)
}
