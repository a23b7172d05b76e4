//! Choosing what a reader gets: merges the lists of the topics that its filters match, in sequence order.
//!
//! All of it runs under the index's lock, so every call has a budget and tells how far it came.

use super::Index;
use super::blocks::Place;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mast_core::ids::SessionUid;
use mast_core::message::Message;
use mast_core::store::port::LogRead;
use mast_core::time::Wall;
use mast_core::topic::matches;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// A filter with wildcards is resolved to topics if at most this many names share its literal beginning;
/// else the log itself is walked. One look at a name costs about as much as walking ten entries.
const RESOLVE_LIMIT: usize = 4096;

/// What a read wants, resolved against the topics that have messages.
#[derive(Debug)]
pub struct Wanted {
    slot: u32,
    /// Topic, generation of its slot, and the start below which it is not wanted.
    narrow: Vec<(u32, u32, u64)>,
    /// Filters that match too many topics to list.
    wide: Vec<(Box<str>, u64)>,
    spill_of: Option<SessionUid>,
    /// Start by topic while walking the log; `None` = not wanted.
    memo: HashMap<u32, (u32, Option<u64>), FixedState>,
}

/// A message chosen for a reader.
#[derive(Clone, Debug)]
pub struct Pick {
    /// Its sequence.
    pub seq: u64,
    /// Where it lies.
    pub place: Place,
    /// The message, if it is in memory.
    pub message: Option<Arc<Message>>,
}

/// How a slice of choosing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Nothing more up to the bound.
    Exhausted,
    /// The taker has enough; this was the last sequence taken.
    Enough(u64),
    /// The budget is used up; everything up to here was looked at.
    Budget(u64),
}

fn is_wild(filter: &str) -> bool {
    filter.bytes().any(|b| b == b'+' || b == b'#')
}

/// The literal beginning of a filter with wildcards.
fn literal_prefix(filter: &str) -> &str {
    let end = filter.find(['+', '#']).unwrap_or(filter.len());
    &filter[..end]
}

impl Wanted {
    /// Nothing yet, of the tenant in `slot`.
    #[must_use]
    pub fn new(slot: u32, read: &LogRead) -> Wanted {
        Wanted {
            slot,
            narrow: Vec::new(),
            wide: Vec::new(),
            spill_of: read.spill_of,
            memo: HashMap::with_hasher(FixedState::default()),
        }
    }

    /// Resolves filters from number `from` on, until about `budget` steps are done; returns the number
    /// to go on with.
    pub fn resolve(&mut self, index: &Index, read: &LogRead, from: usize, budget: usize) -> Option<usize> {
        let mut left = budget;
        for (i, filter) in read.filters.iter().enumerate().skip(from) {
            let start = filter.start.get(read.partition).0;
            if is_wild(&filter.filter) {
                left = left.saturating_sub(self.resolve_wild(index, &filter.filter, start));
            } else if let Some(ix) = index.tenants.find(self.slot, &filter.filter) {
                self.add(index, ix, start);
            }
            left = left.saturating_sub(1);
            if left == 0 {
                return Some(i + 1);
            }
        }
        self.dedup();
        None
    }

    fn add(&mut self, index: &Index, ix: u32, start: u64) {
        if let Some(topic) = index.tenants.topic_at(ix) {
            self.narrow.push((ix, topic.generation, start));
        }
    }

    fn resolve_wild(&mut self, index: &Index, filter: &str, start: u64) -> usize {
        let prefix = literal_prefix(filter);
        let mark = self.narrow.len();
        // `a/#` matches its parent `a` as well (MQTT 5, 4.7.1.2), which the prefix `a/` does not.
        if let Some(parent) = filter.strip_suffix("/#")
            && !is_wild(parent)
            && let Some(ix) = index.tenants.find(self.slot, parent)
        {
            self.add(index, ix, start);
        }
        for (steps, (name, ix)) in index.tenants.with_prefix(self.slot, prefix).enumerate() {
            if steps >= RESOLVE_LIMIT {
                self.narrow.truncate(mark);
                self.wide.push((filter.into(), start));
                return steps;
            }
            if matches(filter, name) {
                self.add(index, ix, start);
            }
        }
        self.narrow.len() - mark
    }

    /// One entry per topic, with the lowest start: overlapping filters give one copy.
    fn dedup(&mut self) {
        self.narrow.sort_unstable();
        self.narrow.dedup_by_key(|n| n.0);
    }

    /// The start below which a topic is not wanted, for walking the log.
    fn start_of(&mut self, index: &Index, ix: u32) -> Option<u64> {
        let topic = index.tenants.topic_at(ix)?;
        if topic.tenant != self.slot {
            return None;
        }
        if let Some((generation, start)) = self.memo.get(&ix)
            && *generation == topic.generation
        {
            return *start;
        }
        let mut start = match self.narrow.binary_search_by_key(&ix, |n| n.0) {
            Ok(i) if self.narrow[i].1 == topic.generation => Some(self.narrow[i].2),
            Ok(_) | Err(_) => None,
        };
        for (filter, from) in &self.wide {
            if start.is_none_or(|s| *from < s) && matches(filter, &topic.name) {
                start = Some(*from);
            }
        }
        self.memo.insert(ix, (topic.generation, start));
        start
    }

    /// Gives messages above `after` and not above `upto` to `take` in ascending order, until it says
    /// that it has enough. Messages expired at `now` are passed over.
    pub fn slice(
        &mut self,
        index: &Index,
        after: u64,
        upto: u64,
        now: Wall,
        budget: u32,
        take: &mut dyn FnMut(u64, &Place) -> bool,
    ) -> Slice {
        let after = after.max(index.tenants.trimmed(self.slot));
        if after >= upto {
            return Slice::Exhausted;
        }
        if self.wide.is_empty() {
            self.merge(index, after, upto, now, budget, take)
        } else {
            self.walk(index, after, upto, now, budget, take)
        }
    }

    fn spills<'a>(&self, index: &'a Index) -> Option<&'a VecDeque<u64>> {
        index.tenants.get(self.slot).spills.get(&self.spill_of?)
    }

    fn merge(
        &self,
        index: &Index,
        after: u64,
        upto: u64,
        now: Wall,
        budget: u32,
        take: &mut dyn FnMut(u64, &Place) -> bool,
    ) -> Slice {
        let lists = self.narrow.iter().filter_map(|&(ix, generation, start)| {
            let topic = index.tenants.topic_at(ix).filter(|t| t.generation == generation)?;
            Some((&topic.seqs, start.max(after)))
        });
        let lists: Vec<(&VecDeque<u64>, u64)> =
            lists.chain(self.spills(index).map(|list| (list, after))).collect();
        let mut heap = BinaryHeap::with_capacity(lists.len());
        for (i, (list, above)) in lists.iter().enumerate() {
            let at = list.partition_point(|s| s <= above);
            if let Some(&seq) = list.get(at).filter(|s| **s <= upto) {
                heap.push(Reverse((seq, i, at)));
            }
        }
        let mut left = budget;
        while let Some(Reverse((seq, i, at))) = heap.pop() {
            if left == 0 {
                return Slice::Budget(seq - 1);
            }
            left -= 1;
            if let Some(&next) = lists[i].0.get(at + 1).filter(|s| **s <= upto) {
                heap.push(Reverse((next, i, at + 1)));
            }
            let Some(place) = index.blocks.get(seq) else { continue };
            if place.expires.is_some_and(|e| e <= now) {
                continue;
            }
            if !take(seq, &place) {
                return Slice::Enough(seq);
            }
        }
        Slice::Exhausted
    }

    fn walk(
        &mut self,
        index: &Index,
        after: u64,
        upto: u64,
        now: Wall,
        budget: u32,
        take: &mut dyn FnMut(u64, &Place) -> bool,
    ) -> Slice {
        let mut left = budget;
        let mut at = after;
        loop {
            let (seq, place) = match index.blocks.next(at, upto, &mut left) {
                Ok(Some(found)) => found,
                Ok(None) => return Slice::Exhausted,
                Err(reached) => return Slice::Budget(reached),
            };
            at = seq;
            let wanted = if place.spilled {
                self.spills(index).is_some_and(|list| list.binary_search(&seq).is_ok())
            } else {
                self.start_of(index, place.topic).is_some_and(|start| seq > start)
            };
            if wanted && place.expires.is_none_or(|e| e > now) && !take(seq, &place) {
                return Slice::Enough(seq);
            }
        }
    }
}
