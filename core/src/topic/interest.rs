//! Coarse interest: could a topic have a subscriber elsewhere? Counters by leading levels, small enough that
//! every shard keeps those of all others. Says yes too often, never no wrongly.

use super::filter::{is_dollar, next_level};
use super::hash::Keyed;
use super::slab::is_sparse;
use hashbrown::HashTable;

/// What a filter counts under: its first two levels as far as they are literal. Equal on all shards of
/// a process, which share the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoarseKey(u64);

impl CoarseKey {
    /// For filters that begin with a wildcard: any topic but the `$` ones.
    pub const ANY: CoarseKey = CoarseKey(0);
}

/// The keys under which filters that match one topic can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicKeys {
    dollar: bool,
    first: CoarseKey,
    /// Absent for a topic of one level.
    second: Option<CoarseKey>,
}

/// Filters counted by [`CoarseKey`].
#[derive(Clone, Debug)]
pub struct Interest {
    hash: Keyed,
    any: u64,
    counts: HashTable<(CoarseKey, u32)>,
}

impl Interest {
    /// No interest. All shards of a process use the same `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Interest {
        Interest { hash: Keyed::new(seed), any: 0, counts: HashTable::new() }
    }

    fn key(&self, levels: &[u8]) -> CoarseKey {
        // Zero is taken by ANY.
        CoarseKey(self.hash.bytes(levels).max(1))
    }

    /// The key of a checked filter; of a shared subscription, of the filter behind its group name.
    #[must_use]
    pub fn key_of_filter(&self, filter: &str) -> CoarseKey {
        let path = filter.as_bytes();
        let (first, rest) = next_level(path);
        if matches!(first, b"+" | b"#") {
            return CoarseKey::ANY;
        }
        match rest.map(|r| next_level(r).0) {
            None | Some(b"+" | b"#") => self.key(first),
            Some(second) => self.key(&path[..first.len() + 1 + second.len()]),
        }
    }

    /// The keys of a topic name, worth computing once when several `Interest`s are asked.
    #[must_use]
    pub fn keys_of_topic(&self, topic: &str) -> TopicKeys {
        let path = topic.as_bytes();
        let (first, rest) = next_level(path);
        let two = rest.map(|r| first.len() + 1 + next_level(r).0.len());
        TopicKeys {
            dollar: is_dollar(topic),
            first: self.key(first),
            second: two.map(|n| self.key(&path[..n])),
        }
    }

    /// Counts one filter more; true if it is the first under its key.
    pub fn add(&mut self, key: CoarseKey) -> bool {
        if key == CoarseKey::ANY {
            self.any += 1;
            return self.any == 1;
        }
        // The key is a keyed hash already.
        let entry = self.counts.entry(key.0, |(k, _)| *k == key, |(k, _)| k.0).or_insert((key, 0));
        let count = &mut entry.into_mut().1;
        *count += 1;
        *count == 1
    }

    /// Counts one filter less; true if it was the last under its key. Does nothing for a key that is not
    /// counted.
    pub fn remove(&mut self, key: CoarseKey) -> bool {
        if key == CoarseKey::ANY {
            let last = self.any == 1;
            self.any = self.any.saturating_sub(1);
            return last;
        }
        let Ok(mut entry) = self.counts.find_entry(key.0, |(k, _)| *k == key) else { return false };
        entry.get_mut().1 -= 1;
        if entry.get().1 > 0 {
            return false;
        }
        entry.remove();
        if is_sparse(self.counts.len(), self.counts.capacity()) {
            self.counts.shrink_to(self.counts.len() * 2, |(k, _)| k.0);
        }
        true
    }

    /// False only if no counted filter matches `topic`.
    #[must_use]
    pub fn may_match(&self, topic: &str) -> bool {
        self.any > 0 && !is_dollar(topic)
            || !self.counts.is_empty() && self.may_match_keys(&self.keys_of_topic(topic))
    }

    /// [`may_match`](Self::may_match) with keys that any `Interest` of the same seed computed.
    #[must_use]
    pub fn may_match_keys(&self, topic: &TopicKeys) -> bool {
        self.any > 0 && !topic.dollar
            || self.has(topic.first)
            || topic.second.is_some_and(|second| self.has(second))
    }

    fn has(&self, key: CoarseKey) -> bool {
        self.counts.find(key.0, |(k, _)| *k == key).is_some()
    }

    /// True if nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.any == 0 && self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_count_under_their_leading_literal_levels() {
        let interest = Interest::new(1);
        let key = |f| interest.key_of_filter(f);
        assert_eq!(key("#"), CoarseKey::ANY);
        assert_eq!(key("+/a"), CoarseKey::ANY);
        for filter in ["a/#", "a/+", "a/+/b"] {
            assert_eq!(key(filter), key("a"), "{filter}");
        }
        for filter in ["a/b/#", "a/b/c", "a/b/+/d"] {
            assert_eq!(key(filter), key("a/b"), "{filter}");
        }
        assert_ne!(key("a"), key("a/b"));
        assert_ne!(key("a"), key("a/"));
    }

    #[test]
    fn only_the_first_and_the_last_filter_of_a_key_make_a_difference() {
        let mut interest = Interest::new(1);
        for filter in ["#", "a", "a/b/c"] {
            let key = interest.key_of_filter(filter);
            assert_eq!([interest.add(key), interest.add(key)], [true, false]);
            assert_eq!(
                [interest.remove(key), interest.remove(key), interest.remove(key)],
                [false, true, false]
            );
        }
        assert!(interest.is_empty());
    }

    #[test]
    fn topics_without_any_related_filter_are_ruled_out() {
        let mut interest = Interest::new(9);
        interest.add(interest.key_of_filter("a/b/#"));
        interest.add(interest.key_of_filter("c/+"));
        for (topic, may) in
            [("a/b", true), ("a/b/x", true), ("a/c", false), ("a", false), ("c/x", true), ("d", false)]
        {
            assert_eq!(interest.may_match(topic), may, "{topic}");
        }
        interest.add(CoarseKey::ANY);
        assert!(interest.may_match("d"));
        assert!(!interest.may_match("$SYS/d"));
    }
}
