//! The subscribers of one filter: one inline, some in a sorted vector, many in a vector with an index.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// What the index keeps for one subscriber of a filter: a small record, found again by its key.
pub trait Subscriber: Copy {
    /// Identifies the subscriber within one filter. Chosen by the broker, not by clients.
    type Key: Copy + Eq + Ord + Hash;
    /// The key of this record; it never changes.
    fn key(&self) -> Self::Key;
}

/// Up to here a list is sorted and moved (16 KiB of 16-byte records: under 0.5 µs).
const SORTED_MAX: usize = 1024;
/// A list of this size goes back to the sorted form.
const SORTED_AGAIN: usize = SORTED_MAX / 2;

/// A list of subscribers with different keys. Never empty while a filter owns it.
#[derive(Clone, Debug)]
pub(super) enum SubList<S> {
    One(S),
    /// Sorted by key: O(log n) to find, O(n) small moves to change.
    Sorted(Vec<S>),
    /// In order of arrival, the last filling the gap of a removed one: O(1) to find and to change.
    Indexed(Box<Indexed<S>>),
}

/// A long list and the place of every key in it.
#[derive(Clone, Debug)]
pub(super) struct Indexed<S> {
    items: Vec<S>,
    places: HashTable<u32>,
}

impl<S> Default for SubList<S> {
    fn default() -> Self {
        SubList::Sorted(Vec::new())
    }
}

impl<S: Subscriber> SubList<S> {
    pub(super) fn as_slice(&self) -> &[S] {
        match self {
            SubList::One(s) => core::slice::from_ref(s),
            SubList::Sorted(v) => v,
            SubList::Indexed(x) => &x.items,
        }
    }

    pub(super) fn get(&self, key: S::Key) -> Option<&S> {
        match self {
            SubList::One(s) => (s.key() == key).then_some(s),
            SubList::Sorted(v) => v.binary_search_by_key(&key, S::key).ok().and_then(|at| v.get(at)),
            SubList::Indexed(x) => x.find(key).and_then(|at| x.items.get(at)),
        }
    }

    /// Adds `sub`, or puts it in the place of the one with its key, which is returned.
    pub(super) fn insert(&mut self, sub: S) -> Option<S> {
        match self {
            SubList::One(s) if s.key() == sub.key() => Some(core::mem::replace(s, sub)),
            SubList::One(s) => {
                let pair = if s.key() < sub.key() { [*s, sub] } else { [sub, *s] };
                *self = SubList::Sorted(pair.to_vec());
                None
            }
            SubList::Sorted(v) => match v.binary_search_by_key(&sub.key(), S::key) {
                Ok(at) => Some(core::mem::replace(&mut v[at], sub)),
                Err(at) if v.len() < SORTED_MAX => {
                    v.insert(at, sub);
                    None
                }
                Err(_) => {
                    let mut indexed = Indexed::new(core::mem::take(v));
                    let replaced = indexed.insert(sub);
                    *self = SubList::Indexed(Box::new(indexed));
                    replaced
                }
            },
            SubList::Indexed(x) => x.insert(sub),
        }
    }

    /// Removes and returns the subscriber with `key`. A list may be empty afterwards.
    pub(super) fn remove(&mut self, key: S::Key) -> Option<S> {
        match self {
            SubList::One(s) => {
                let found = (s.key() == key).then_some(*s)?;
                *self = SubList::default();
                Some(found)
            }
            SubList::Sorted(v) => {
                let found = v.remove(v.binary_search_by_key(&key, S::key).ok()?);
                match v.as_slice() {
                    [only] => *self = SubList::One(*only),
                    _ if v.len() * 4 <= v.capacity() => v.shrink_to(v.len() * 2),
                    _ => {}
                }
                Some(found)
            }
            SubList::Indexed(x) => {
                let found = x.remove(key)?;
                if x.items.len() <= SORTED_AGAIN {
                    let mut items = core::mem::take(&mut x.items);
                    items.sort_unstable_by_key(S::key);
                    items.shrink_to_fit();
                    *self = SubList::Sorted(items);
                }
                Some(found)
            }
        }
    }

    /// Heap bytes behind this list.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            SubList::One(_) => 0,
            SubList::Sorted(v) => v.capacity() * size_of::<S>(),
            SubList::Indexed(x) => {
                size_of::<Indexed<S>>()
                    + x.items.capacity() * size_of::<S>()
                    + super::slab::table_bytes(x.places.capacity(), size_of::<u32>())
            }
        }
    }
}

/// Keys are the broker's own numbers, so a fixed seed is enough here.
fn hash_key<K: Hash>(key: K) -> u64 {
    FixedState::with_seed(0x6d61_7374).hash_one(key)
}

impl<S: Subscriber> Indexed<S> {
    fn new(items: Vec<S>) -> Indexed<S> {
        let mut places = HashTable::with_capacity(items.len() + 1);
        for (at, item) in items.iter().enumerate() {
            places.insert_unique(hash_key(item.key()), at as u32, |&at| hash_key(items[at as usize].key()));
        }
        Indexed { items, places }
    }

    fn find(&self, key: S::Key) -> Option<usize> {
        self.places.find(hash_key(key), |&at| self.items[at as usize].key() == key).map(|&at| at as usize)
    }

    fn insert(&mut self, sub: S) -> Option<S> {
        if let Some(at) = self.find(sub.key()) {
            return Some(core::mem::replace(&mut self.items[at], sub));
        }
        let at = self.items.len() as u32;
        self.items.push(sub);
        let items = &self.items;
        self.places.insert_unique(hash_key(sub.key()), at, |&at| hash_key(items[at as usize].key()));
        None
    }

    fn remove(&mut self, key: S::Key) -> Option<S> {
        let items = &self.items;
        let entry = self.places.find_entry(hash_key(key), |&at| items[at as usize].key() == key).ok()?;
        let (at, _) = entry.remove();
        let last = self.items.len() as u32 - 1;
        if at != last {
            let moved = self.items[last as usize].key();
            if let Some(place) = self.places.find_mut(hash_key(moved), |&p| p == last) {
                *place = at;
            }
        }
        let found = self.items.swap_remove(at as usize);
        if self.items.len() * 4 <= self.items.capacity() {
            self.items.shrink_to(self.items.len() * 2);
            let items = &self.items;
            self.places.shrink_to(items.len() * 2, |&at| hash_key(items[at as usize].key()));
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::collections::BTreeMap;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Sub {
        key: u64,
        value: u64,
    }

    impl Subscriber for Sub {
        type Key = u64;
        fn key(&self) -> u64 {
            self.key
        }
    }

    #[test]
    fn a_list_of_one_costs_no_more_than_a_vector() {
        assert_eq!(size_of::<SubList<Sub>>(), 24);
    }

    #[test]
    fn a_list_behaves_like_a_map_through_all_its_forms() {
        let (mut list, mut model, mut rng) = (SubList::default(), BTreeMap::new(), Rng::new(5));
        for round in 0..60_000u64 {
            // Grows for a third of the time, then shrinks to nothing.
            let grow = round < 20_000;
            let key = rng.below(4_000);
            if rng.below(10) < if grow { 8 } else { 2 } {
                let sub = Sub { key, value: round };
                assert_eq!(list.insert(sub), model.insert(key, sub));
            } else {
                assert_eq!(list.remove(key), model.remove(&key));
            }
            assert_eq!(list.as_slice().len(), model.len());
            assert_eq!(list.get(key), model.get(&key));
            if round % 500 == 0 {
                let mut items = list.as_slice().to_vec();
                let sorted = items.is_sorted_by_key(|s| s.key);
                assert!(sorted || items.len() > SORTED_AGAIN);
                items.sort_by_key(|s| s.key);
                assert!(items.iter().eq(model.values()));
            }
        }
        for key in 0..4_000 {
            assert_eq!(list.remove(key), model.remove(&key));
        }
        assert!(list.as_slice().is_empty());
        assert_eq!(list.heap_bytes(), 0);
    }
}
