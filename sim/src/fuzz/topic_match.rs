//! The topic index, the direct matcher and the retained index against the reference matcher, on operations
//! decoded from bytes.

use mast_core::topic::naive::naive_matches;
use mast_core::topic::{
    Interest, Limits, RetainedCursor, RetainedIndex, ScanStep, Subscriber, TopicIndex, check_filter,
    check_name, has_wildcard, matches,
};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sub {
    key: u8,
    value: u32,
}

impl Subscriber for Sub {
    type Key = u8;
    fn key(&self) -> u8 {
        self.key
    }
}

/// Levels by number: few, so that paths meet, and on both sides of '/' in byte order.
const LEVELS: [&str; 16] =
    ["", "a", "b", "$x", "+", "#", "a", "+", "a-b", "a0", "$", "%", "#", "ü", "b", "seventeen-bytes-x"];

/// Operations and what they should have left behind.
struct Run<'a> {
    data: &'a [u8],
    index: TopicIndex<Sub>,
    subs: BTreeMap<(String, u8), Sub>,
    interest: Interest,
    retained: RetainedIndex<u32>,
    topics: BTreeMap<String, u32>,
    clock: u32,
}

/// Decodes `data` into subscriptions, cancellations, retained topics and lookups, and compares every
/// answer with the reference.
///
/// # Panics
/// When an index disagrees with the reference or leaves something behind.
pub fn topic_match(data: &[u8]) {
    let Some((&seed, data)) = data.split_first() else { return };
    let mut run = Run {
        data,
        index: TopicIndex::new(u64::from(seed)),
        subs: BTreeMap::new(),
        interest: Interest::new(u64::from(seed)),
        retained: RetainedIndex::new(u64::from(seed)),
        topics: BTreeMap::new(),
        clock: 0,
    };
    while run.step() {}
    run.remove_everything();
}

impl Run<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(first)
    }

    /// A path of one to eight levels, two levels to a byte.
    fn path(&mut self, levels: u8) -> Option<String> {
        let mut path = String::new();
        let mut pair = 0;
        for n in 0..=levels {
            if n % 2 == 0 {
                pair = self.byte()?;
            } else {
                pair >>= 4;
            }
            if n > 0 {
                path.push('/');
            }
            path.push_str(LEVELS[(pair & 15) as usize]);
        }
        Some(path)
    }

    fn step(&mut self) -> bool {
        let Some(op) = self.byte() else { return false };
        let Some(path) = self.path(op & 7) else { return false };
        let key = op >> 6;
        self.clock += 1;
        let limits = Limits::default();
        let is_name = check_name(&path, &limits).is_ok();
        let is_filter = check_filter(&path, &limits).is_ok();
        assert_eq!(is_name, is_filter && !has_wildcard(&path), "{path:?}");
        match (op >> 3) & 7 {
            0..=2 if is_filter => self.subscribe(path, key),
            3 if is_filter => self.unsubscribe(path, key),
            4 if is_name => self.retain(path),
            5 if is_name => {
                assert_eq!(self.retained.remove(&path), self.topics.remove(&path));
            }
            6 if is_filter => self.scan(&path, u32::from(key) + 1),
            7 if is_name => self.look_up(&path),
            _ => {}
        }
        true
    }

    fn subscribe(&mut self, filter: String, key: u8) {
        let (generation, known) = (self.index.generation(), self.subs.keys().any(|(f, _)| *f == filter));
        let sub = Sub { key, value: self.clock };
        if self.index.get(&filter, key).is_none() {
            self.interest.add(self.interest.key_of_filter(&filter));
        }
        assert_eq!(self.index.insert(&filter, sub), self.subs.insert((filter, key), sub));
        assert_eq!(self.index.generation() == generation, known);
    }

    fn unsubscribe(&mut self, filter: String, key: u8) {
        let removed = self.index.remove(&filter, key);
        if removed.is_some() {
            self.interest.remove(self.interest.key_of_filter(&filter));
        }
        assert_eq!(removed, self.subs.remove(&(filter, key)));
    }

    fn retain(&mut self, topic: String) {
        assert_eq!(self.retained.set(&topic, self.clock), self.topics.insert(topic, self.clock));
    }

    fn look_up(&self, topic: &str) {
        let mut lists = Vec::new();
        self.index.matches(topic, &mut lists);
        let mut found: Vec<u32> = lists.iter().flat_map(|&id| self.index.list(id)).map(|s| s.value).collect();
        found.sort_unstable();
        let mut wanted = Vec::new();
        for ((filter, _), sub) in &self.subs {
            let hit = naive_matches(filter, topic);
            assert_eq!(matches(filter, topic), hit, "{filter:?} {topic:?}");
            if hit {
                wanted.push(sub.value);
            }
        }
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{topic:?}");
        assert!(wanted.is_empty() || self.interest.may_match(topic), "{topic:?}");
    }

    fn scan(&self, filter: &str, step: u32) {
        let (mut cursor, mut out) = (RetainedCursor::new(filter), Vec::new());
        while self.retained.scan(&mut cursor, &mut step.clone(), &mut out) == ScanStep::More {}
        let hits = self.topics.iter().filter(|(topic, _)| naive_matches(filter, topic));
        assert!(hits.eq(out.iter().map(|(topic, value)| (topic, value))), "{filter:?}: {out:?}");
    }

    fn remove_everything(mut self) {
        for (filter, key) in self.subs.keys().cloned().collect::<Vec<_>>() {
            self.unsubscribe(filter, key);
        }
        assert!(self.index.is_empty() && self.interest.is_empty());
        assert_eq!(self.index.tree_size(), (0, 0));
        for topic in self.topics.keys() {
            assert!(self.retained.remove(topic).is_some());
        }
        assert!(self.retained.is_empty());
    }
}
