//! What was found out about topics lately: of a connection, about the topic it published to last (devices
//! publish to few topics, so the checks of its name, the rights and the matching are usually known already);
//! of a shard, which lists match what comes from other shards and from the log.

use crate::authz::Verdict;
use crate::ids::TenantId;
use crate::topic::ListId;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// Topics that a shard remembers: a power of two.
const ROUTES: usize = 1024;
/// Longer names are not remembered, so that the table's size is bounded, bytes.
const NAME_MAX: usize = 256;

/// The cache of one connection: one topic.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    topic: String,
    /// Version of settings and rules that the verdict comes from; 0 = nothing is known.
    rules: u64,
    /// Why the publisher may not publish to it, if it may not.
    pub denied: Option<Verdict>,
    /// That depends on QoS or RETAIN, so it holds for one publish alone.
    pub by_quality: bool,
    /// Lists of the live index, as of its generation.
    live: Option<(u64, SmallVec<[ListId; 4]>)>,
    /// Whether the durable index matches, as of its generation.
    durable: Option<(u64, bool)>,
}

impl RouteCache {
    /// True if `topic` is well-formed and what is known holds for it.
    #[inline]
    pub fn knows(&self, topic: &str, rules: u64) -> bool {
        self.rules == rules && self.topic == topic
    }

    /// Begins anew for a topic that was checked.
    pub fn learn(&mut self, topic: &str, rules: u64, denied: Option<Verdict>, by_quality: bool) {
        self.topic.clear();
        self.topic.push_str(topic);
        self.rules = rules;
        self.denied = denied;
        self.by_quality = by_quality;
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

/// A topic that came without its publisher's connection.
#[derive(Debug, Default)]
struct Route {
    tenant: u32,
    topic: String,
    generation: u64,
    lists: SmallVec<[ListId; 4]>,
}

/// The shard's table: one place for each topic, the last to come stays.
#[derive(Debug)]
pub(crate) struct RouteTable {
    hasher: FixedState,
    /// Empty until the first topic comes.
    routes: Vec<Route>,
}

impl RouteTable {
    /// Empty; `seed` places the topics.
    pub fn new(seed: u64) -> RouteTable {
        RouteTable { hasher: FixedState::with_seed(seed), routes: Vec::new() }
    }

    fn place(&self, topic: &str) -> usize {
        self.hasher.hash_one(topic) as usize % ROUTES
    }

    /// Lists that match, if they are known for this state of the tenant's index.
    #[inline]
    pub fn lists(&self, tenant: TenantId, topic: &str, generation: u64) -> Option<&[ListId]> {
        let route = self.routes.get(self.place(topic))?;
        let known = route.generation == generation && route.tenant == tenant.0 && route.topic == topic;
        known.then_some(&*route.lists)
    }

    /// Remembers them.
    pub fn set(&mut self, tenant: TenantId, topic: &str, generation: u64, lists: &[ListId]) {
        if topic.len() > NAME_MAX {
            return;
        }
        if self.routes.is_empty() {
            self.routes.resize_with(ROUTES, Route::default);
        }
        let place = self.place(topic);
        if let Some(route) = self.routes.get_mut(place) {
            route.tenant = tenant.0;
            route.topic.clear();
            route.topic.push_str(topic);
            route.generation = generation;
            route.lists = SmallVec::from_slice(lists);
        }
    }
}
