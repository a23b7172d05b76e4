//! What a connection found out about the topic it published to last: devices publish to few topics, so
//! the checks of its name, the rights and the matching are usually known already.

use crate::topic::ListId;
use alloc::string::String;
use smallvec::SmallVec;

/// The cache of one connection: one topic.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    topic: String,
    /// Version of settings and rules that the verdict comes from; 0 = nothing is known.
    rules: u64,
    /// The publisher may not publish to it.
    pub denied: bool,
    /// Lists of the live index, as of its generation.
    live: Option<(u64, SmallVec<[ListId; 4]>)>,
    /// Whether the durable index matches, as of its generation.
    durable: Option<(u64, bool)>,
}

impl RouteCache {
    /// True if `topic` is well-formed and `denied` holds for it.
    #[inline]
    pub fn knows(&self, topic: &str, rules: u64) -> bool {
        self.rules == rules && self.topic == topic
    }

    /// Begins anew for a topic that was checked.
    pub fn learn(&mut self, topic: &str, rules: u64, denied: bool) {
        self.topic.clear();
        self.topic.push_str(topic);
        self.rules = rules;
        self.denied = denied;
        self.live = None;
        self.durable = None;
    }

    /// Lists that match, if they are known for this state of the index.
    #[inline]
    pub fn lists(&self, topic: &str, generation: u64) -> Option<&[ListId]> {
        match &self.live {
            Some((known, lists)) if *known == generation && self.topic == topic => Some(lists),
            Some(_) | None => None,
        }
    }

    /// True if the lists of its topic are known for this state of the index.
    #[inline]
    pub fn knows_lists(&self, generation: u64) -> bool {
        matches!(&self.live, Some((known, _)) if *known == generation)
    }

    /// True if it is known for this state of the index whether a durable subscription matches its topic.
    #[inline]
    pub fn knows_durable(&self, generation: u64) -> bool {
        matches!(self.durable, Some((known, _)) if known == generation)
    }

    /// Remembers the lists of its topic.
    pub fn set_lists(&mut self, topic: &str, generation: u64, lists: &[ListId]) {
        if self.rules != 0 && self.topic == topic {
            self.live = Some((generation, SmallVec::from_slice(lists)));
        }
    }

    /// Whether a durable subscription matches, if that is known for this state of the index.
    #[inline]
    pub fn durable(&self, topic: &str, generation: u64) -> Option<bool> {
        self.durable.filter(|(known, _)| *known == generation && self.topic == topic).map(|(_, d)| d)
    }

    /// Remembers it.
    pub fn set_durable(&mut self, topic: &str, generation: u64, durable: bool) {
        if self.rules != 0 && self.topic == topic {
            self.durable = Some((generation, durable));
        }
    }
}
