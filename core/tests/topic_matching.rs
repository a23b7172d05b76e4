//! Every matcher against the reference matcher, on alphabets small enough that the rare cases are common.

use mast_core::topic::naive::naive_matches;
use mast_core::topic::{
    CoarseKey, Interest, Limits, ListId, Subscriber, TopicError, TopicIndex, check_filter, check_name,
    matches,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sub {
    key: u16,
    value: u32,
}

impl Subscriber for Sub {
    type Key = u16;
    fn key(&self) -> u16 {
        self.key
    }
}

/// Levels as clients might choose them to confuse a matcher, two of them longer than what is kept inline.
const LEVELS: [&str; 8] = ["", "a", "b", "$x", "$", "a-b", "0", "a-level-name-longer-than-any-inline-buffer"];

fn level() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => prop::sample::select(&LEVELS[..4]), 1 => prop::sample::select(&LEVELS[..])]
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..6)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("empty", |t| !t.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let part = prop_oneof![2 => level(), 1 => Just("+")];
    (prop::collection::vec(part, 0..5), any::<bool>())
        .prop_map(|(mut levels, multi)| {
            if multi || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("empty", |f| !f.is_empty())
}

#[derive(Clone, Debug)]
enum Op {
    Insert(String, u16),
    Remove(String, u16),
    /// Removes the nth of the existing (filter, key) pairs.
    RemoveExisting(usize),
    Match(String),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u16..4;
    prop_oneof![
        6 => (filter(), key.clone()).prop_map(|(f, k)| Op::Insert(f, k)),
        2 => (topic(), key.clone()).prop_map(|(f, k)| Op::Insert(f, k)),
        1 => (filter(), key).prop_map(|(f, k)| Op::Remove(f, k)),
        4 => any::<usize>().prop_map(Op::RemoveExisting),
        6 => topic().prop_map(Op::Match),
    ]
}

type Model = BTreeMap<(String, u16), Sub>;

/// The index and what it should hold.
struct Checked {
    index: TopicIndex<Sub>,
    model: Model,
    clock: u32,
}

impl Checked {
    fn new(seed: u64) -> Checked {
        Checked { index: TopicIndex::new(seed), model: Model::new(), clock: 0 }
    }

    fn filters(&self) -> usize {
        let mut names: Vec<_> = self.model.keys().map(|(f, _)| f).collect();
        names.dedup();
        names.len()
    }

    fn apply(&mut self, op: Op) {
        let (generation, filters) = (self.index.generation(), self.filters());
        match op {
            Op::Insert(filter, key) => {
                self.clock += 1;
                let sub = Sub { key, value: self.clock };
                assert_eq!(self.index.insert(&filter, sub), self.model.insert((filter, key), sub));
            }
            Op::Remove(filter, key) => self.remove(filter, key),
            Op::RemoveExisting(nth) if !self.model.is_empty() => {
                let pair = self.model.keys().nth(nth % self.model.len()).cloned();
                let (filter, key) = pair.expect("nth is below the length");
                self.remove(filter, key);
            }
            Op::RemoveExisting(_) => {}
            Op::Match(topic) => self.compare(&topic),
        }
        let same_filters = filters == self.filters();
        assert_eq!(self.index.generation() == generation, same_filters, "generation contract");
        assert_eq!(self.index.filter_count(), self.filters());
        assert_eq!(self.index.subscriber_count(), self.model.len());
        assert_eq!(self.index.is_empty(), self.model.is_empty());
    }

    fn remove(&mut self, filter: String, key: u16) {
        let removed = self.index.remove(&filter, key);
        assert_eq!(removed, self.model.remove(&(filter.clone(), key)));
        assert_eq!(self.index.get(&filter, key), None);
    }

    fn compare(&self, topic: &str) {
        let mut lists = Vec::new();
        self.index.matches(topic, &mut lists);
        let mut distinct = lists.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), lists.len(), "a list was found twice");
        let mut found: Vec<Sub> = lists.iter().flat_map(|&id| self.index.list(id)).copied().collect();
        let hits = self.model.iter().filter(|((f, _), _)| naive_matches(f, topic));
        let mut wanted: Vec<Sub> = hits.map(|(_, sub)| *sub).collect();
        found.sort_by_key(|s| s.value);
        wanted.sort_by_key(|s| s.value);
        assert_eq!(found, wanted, "{topic}");
        for ((filter, key), sub) in &self.model {
            assert_eq!(self.index.get(filter, *key), Some(sub));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn generated_names_and_filters_pass_their_checks(topic in topic(), filter in filter()) {
        let limits = Limits::default();
        prop_assert_eq!(check_name(&topic, &limits), Ok(()));
        prop_assert_eq!(check_filter(&filter, &limits), Ok(()));
        let refused = filter.contains(['+', '#']).then_some(TopicError::Wildcard);
        prop_assert_eq!(check_name(&filter, &limits).err(), refused);
    }

    #[test]
    fn the_direct_matcher_agrees_with_the_reference(filter in filter(), topic in topic()) {
        prop_assert_eq!(matches(&filter, &topic), naive_matches(&filter, &topic));
        prop_assert!(matches(&topic, &topic));
    }

    #[test]
    fn the_index_agrees_with_the_reference_through_any_history(
        ops in prop::collection::vec(op(), 1..80), seed in any::<u64>(),
    ) {
        let mut checked = Checked::new(seed);
        for op in ops {
            checked.apply(op);
        }
    }

    #[test]
    fn removing_everything_leaves_nothing_behind(
        subs in prop::collection::vec((filter(), 0u16..3), 1..100), seed in any::<u64>(),
    ) {
        let mut checked = Checked::new(seed);
        for (filter, key) in subs.clone() {
            checked.apply(Op::Insert(filter, key));
        }
        for (filter, key) in subs {
            checked.apply(Op::Remove(filter, key));
        }
        prop_assert!(checked.index.is_empty());
        prop_assert_eq!(checked.index.filter_count(), 0);
        prop_assert_eq!(checked.index.tree_size(), (0, 0));
        prop_assert!(checked.index.heap_bytes() < 8192, "{}", checked.index.heap_bytes());
    }

    #[test]
    fn coarse_interest_never_misses_a_match(
        filters in prop::collection::vec(filter(), 1..5), removed in any::<usize>(), topic in topic(),
    ) {
        let mut interest = Interest::new(3);
        for filter in &filters {
            interest.add(interest.key_of_filter(filter));
        }
        // One is there twice and goes once: the other must still count.
        let again = interest.key_of_filter(&filters[removed % filters.len()]);
        interest.add(again);
        prop_assert!(!interest.remove(again));
        let keys = Interest::new(3).keys_of_topic(&topic);
        prop_assert_eq!(interest.may_match(&topic), interest.may_match_keys(&keys));
        if filters.iter().any(|f| naive_matches(f, &topic)) {
            prop_assert!(interest.may_match(&topic));
        }
        for filter in &filters {
            interest.remove(interest.key_of_filter(filter));
        }
        prop_assert!(interest.is_empty());
        prop_assert!(!interest.may_match(&topic));
    }
}

#[test]
fn lists_found_once_stay_valid_while_subscribers_join_and_leave() {
    let mut index = TopicIndex::new(1);
    for filter in ["a/b", "a/+", "#"] {
        index.insert(filter, Sub { key: 0, value: 0 });
    }
    let mut lists: Vec<ListId> = Vec::new();
    index.matches("a/b", &mut lists);
    let generation = index.generation();
    for key in 1..3000 {
        for filter in ["a/b", "a/+", "#"] {
            index.insert(filter, Sub { key, value: 1 });
        }
    }
    assert_eq!(index.generation(), generation);
    assert_eq!(lists.iter().map(|&id| index.list(id).len()).collect::<Vec<_>>(), [3000, 3000, 3000]);
    for key in 1..3000 {
        index.remove("#", key);
    }
    assert_eq!(index.generation(), generation);
    index.remove("#", 0);
    assert_ne!(index.generation(), generation);
}

/// The depth of a topic is data, never stack: far beyond any limit.
#[test]
fn topics_of_ten_thousand_levels_are_matched_without_recursion() {
    let deep = "a/".repeat(10_000) + "a";
    let plus = "+/".repeat(10_000) + "+";
    let mut index = TopicIndex::new(1);
    for filter in [deep.as_str(), &plus, &(plus.clone() + "/#"), "#"] {
        index.insert(filter, Sub { key: 1, value: 1 });
        assert!(matches(filter, &deep));
    }
    let mut lists = Vec::new();
    index.matches(&deep, &mut lists);
    assert_eq!(lists.len(), 4);
    for filter in [deep.as_str(), &plus, &(plus.clone() + "/#"), "#"] {
        assert!(index.remove(filter, 1).is_some());
    }
    assert_eq!(index.tree_size(), (0, 0));
}

#[test]
fn equal_histories_give_equal_results_whatever_the_order_of_memory() {
    let run = || {
        let mut index = TopicIndex::new(42);
        for n in 0..2000u32 {
            let filter = match n % 3 {
                0 => format!("s/{}/#", n % 50),
                1 => format!("s/+/{}", n % 70),
                _ => format!("s/{}/{}", n % 50, n % 70),
            };
            let key = (n % 97) as u16;
            if n % 5 == 4 {
                index.remove(&filter, key)
            } else {
                index.insert(&filter, Sub { key, value: n })
            };
        }
        let mut lists = Vec::new();
        for n in 0..100 {
            index.matches(&format!("s/{}/{}", n % 50, n % 70), &mut lists);
        }
        lists.iter().flat_map(|&id| index.list(id).to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn filters_that_begin_with_a_wildcard_count_as_interest_in_anything() {
    let interest = Interest::new(7);
    assert_eq!(interest.key_of_filter("+"), CoarseKey::ANY);
    assert_eq!(interest.key_of_filter("#"), CoarseKey::ANY);
    assert_ne!(interest.key_of_filter("/#"), CoarseKey::ANY);
}
