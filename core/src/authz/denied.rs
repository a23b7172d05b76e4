//! What clients of a tenant were denied: counted by client, action and topic, in bounded memory. Who is denied the
//! same thing a million times is one entry; the entries that were not touched for longest give way.

use super::principal::{Access, Verdict};
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Most bytes kept of a client id or topic. Longer ones that differ behind it are different entries.
const KEPT: usize = 256;

/// One kind of denied attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The client id; its beginning, if it is long.
    pub client_id: Box<str>,
    /// What was attempted.
    pub access: Access,
    /// The topic or filter; its beginning, if it is long.
    pub topic: Box<str>,
    /// How often.
    pub count: u64,
    /// First time since the entry is there.
    pub first: Wall,
    /// Last time.
    pub last: Wall,
    /// The verdict of the last time.
    pub verdict: Verdict,
    /// The rule of the last time, in words.
    pub why: Box<str>,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    /// Rules that `why` was made from.
    rules: u64,
    /// Touched since the hand last passed.
    fresh: bool,
    denied: Denied,
}

/// The record of one tenant on one shard.
#[derive(Clone, Debug)]
pub struct Denials {
    hasher: FixedState,
    entries: Vec<Entry>,
    places: HashMap<u64, usize, FixedState>,
    /// Where the search for an entry that gives way goes on.
    hand: usize,
    /// Entries that gave way.
    forgotten: u64,
}

/// An attempt that was denied.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The client id.
    pub client_id: &'a str,
    /// What was attempted.
    pub access: Access,
    /// The topic or filter.
    pub topic: &'a str,
    /// The verdict.
    pub verdict: Verdict,
}

impl Denials {
    /// Empty; `seed` places the entries.
    #[must_use]
    pub fn new(seed: u64) -> Denials {
        let hasher = FixedState::with_seed(seed);
        let places = HashMap::with_hasher(hasher.clone());
        Denials { hasher, entries: Vec::new(), places, hand: 0, forgotten: 0 }
    }

    /// Counts an attempt. `most` = entries that may be kept; `rules` = which rules are in use; `why` is asked
    /// where the reason is not known yet.
    pub fn note(
        &mut self,
        most: usize,
        now: Wall,
        attempt: &Attempt<'_>,
        rules: u64,
        why: impl FnOnce() -> String,
    ) {
        if most == 0 {
            return;
        }
        let hash = self.hash(attempt);
        if let Some(entry) = self.places.get(&hash).and_then(|at| self.entries.get_mut(*at)) {
            entry.fresh = true;
            entry.denied.count += 1;
            entry.denied.last = now;
            if entry.rules != rules || entry.denied.verdict != attempt.verdict {
                entry.rules = rules;
                entry.denied.verdict = attempt.verdict;
                entry.denied.why = why().into();
            }
            return;
        }
        let denied = Denied {
            client_id: Box::from(beginning(attempt.client_id)),
            access: attempt.access,
            topic: Box::from(beginning(attempt.topic)),
            count: 1,
            first: now,
            last: now,
            verdict: attempt.verdict,
            why: why().into(),
        };
        let entry = Entry { hash, rules, fresh: false, denied };
        if self.entries.len() < most {
            self.places.insert(hash, self.entries.len());
            self.entries.push(entry);
        } else {
            self.replace(entry);
        }
    }

    fn hash(&self, attempt: &Attempt<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        attempt.client_id.hash(&mut hasher);
        attempt.access.hash(&mut hasher);
        attempt.topic.hash(&mut hasher);
        hasher.finish()
    }

    /// The first entry from the hand on that was not touched since it passed last gives way.
    fn replace(&mut self, entry: Entry) {
        let len = self.entries.len();
        // Each entry is passed at most once before one is found that it has made stale.
        for _ in 0..=len {
            let at = self.hand % len;
            self.hand = at + 1;
            let Some(old) = self.entries.get_mut(at) else { return };
            if core::mem::take(&mut old.fresh) {
                continue;
            }
            self.places.remove(&old.hash);
            self.places.insert(entry.hash, at);
            *old = entry;
            self.forgotten += 1;
            return;
        }
    }

    /// All entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Denied> {
        self.entries.iter().map(|e| &e.denied)
    }

    /// How many entries gave way to others.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// As much as is kept of a text.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEPT)]
}

#[cfg(test)]
mod tests {
    use super::{Attempt, Denials};
    use crate::authz::{Access, Layer, Verdict};
    use crate::time::Wall;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn attempt<'a>(client_id: &'a str, topic: &'a str) -> Attempt<'a> {
        let verdict = Verdict { allowed: false, layer: Layer::NoRule, rule: None };
        Attempt { client_id, access: Access::Publish, topic, verdict }
    }

    #[test]
    fn equal_attempts_are_one_entry_with_its_count_and_times() {
        let mut denials = Denials::new(1);
        for n in 0..1000 {
            denials.note(8, Wall(n), &attempt("a", "t"), 1, || "one".into());
        }
        denials.note(8, Wall(5), &attempt("b", "t"), 1, || "two".into());
        let mut seen: Vec<_> =
            denials.iter().map(|d| (&*d.client_id, d.count, d.first.0, d.last.0, &*d.why)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [("a", 1000, 0, 999, "one"), ("b", 1, 5, 5, "two")]);
        denials.note(8, Wall(6), &attempt("b", "t"), 2, || "three".into());
        assert!(denials.iter().any(|d| &*d.why == "three" && d.count == 2), "new rules, new reason");
    }

    #[test]
    fn memory_is_bounded_and_what_is_tried_again_and_again_stays() {
        let mut denials = Denials::new(1);
        let long = "x".repeat(100_000);
        for n in 0..10_000 {
            denials.note(16, Wall(n), &attempt("often", "t"), 1, String::new);
            denials.note(16, Wall(n), &attempt(&format!("{n}{long}"), &long), 1, String::new);
        }
        assert_eq!(denials.iter().count(), 16);
        assert!(denials.iter().all(|d| d.client_id.len() + d.topic.len() <= 512));
        assert!(denials.iter().any(|d| d.count == 10_000), "it was touched all the time");
        assert_eq!(denials.forgotten(), 10_001 - 16);
        denials.note(0, Wall(0), &attempt("off", "t"), 1, String::new);
        assert!(denials.iter().all(|d| &*d.client_id != "off"));
    }
}
