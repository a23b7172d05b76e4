//! The retained index against a map, and its scans against the reference matcher while topics come and go.

use mast_core::topic::naive::naive_matches;
use mast_core::topic::{RetainedCursor, RetainedIndex, ScanStep};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Characters on both sides of '/' and '$' in byte order, because scans jump by byte order.
const LEVELS: [&str; 10] = ["", "a", "b", "$x", "a-b", "a!", "0", "a0", "%", "ü"];

fn level() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => prop::sample::select(&LEVELS[..4]), 3 => prop::sample::select(&LEVELS[..])]
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5).prop_map(|l| l.join("/")).prop_filter("empty", |t| !t.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let part = prop_oneof![2 => level(), 2 => Just("+")];
    (prop::collection::vec(part, 0..4), any::<bool>())
        .prop_map(|(mut levels, multi)| {
            if multi || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("empty", |f| !f.is_empty())
}

fn scan_all(index: &RetainedIndex<u32>, filter: &str, step: u32) -> Vec<(String, u32)> {
    let mut cursor = RetainedCursor::new(filter);
    let mut out = Vec::new();
    loop {
        let mut budget = step;
        let answer = index.scan(&mut cursor, &mut budget, &mut out);
        if answer == ScanStep::Done {
            assert!(cursor.is_done());
            return out;
        }
        assert_eq!(budget, 0, "a step that does not finish uses its budget");
    }
}

fn expected(model: &BTreeMap<String, u32>, filter: &str) -> Vec<(String, u32)> {
    model.iter().filter(|(t, _)| naive_matches(filter, t)).map(|(t, v)| (t.clone(), *v)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_scan_finds_exactly_the_matching_topics_at_any_pace(
        topics in prop::collection::btree_map(topic(), any::<u32>(), 0..80),
        filters in prop::collection::vec(filter(), 1..6), step in 1u32..9,
    ) {
        let mut index = RetainedIndex::new(1);
        for (topic, value) in &topics {
            index.set(topic, *value);
        }
        for filter in filters {
            let wanted = expected(&topics, &filter);
            prop_assert_eq!(&scan_all(&index, &filter, step), &wanted, "{}", filter);
            prop_assert_eq!(&scan_all(&index, &filter, u32::MAX), &wanted, "{}", filter);
        }
        for topic in topics.keys() {
            prop_assert_eq!(scan_all(&index, topic, 1), vec![(topic.clone(), topics[topic])]);
        }
    }

    #[test]
    fn a_scan_reports_once_what_stays_and_at_most_once_what_comes_or_goes(
        topics in prop::collection::btree_set(topic(), 0..60),
        changes in prop::collection::vec((topic(), any::<bool>()), 0..60),
        filter in filter(), step in 1u32..6,
    ) {
        let mut index = RetainedIndex::new(1);
        for topic in &topics {
            index.set(topic, 0);
        }
        let changed: BTreeSet<&String> = changes.iter().map(|(topic, _)| topic).collect();
        let (mut cursor, mut out) = (RetainedCursor::new(&filter), Vec::new());
        let mut changes = changes.iter();
        loop {
            let mut budget = step;
            if index.scan(&mut cursor, &mut budget, &mut out) == ScanStep::Done {
                break;
            }
            for (topic, set) in changes.by_ref().take(3) {
                if *set { index.set(topic, 1) } else { index.remove(topic) };
            }
        }
        let mut names: Vec<&String> = out.iter().map(|(name, _)| name).collect();
        let reported = names.len();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), reported, "reported twice");
        for name in &names {
            prop_assert!(naive_matches(&filter, name));
            prop_assert!(topics.contains(*name) || changed.contains(name));
        }
        for topic in topics.iter().filter(|t| !changed.contains(t) && naive_matches(&filter, t)) {
            prop_assert!(names.contains(&topic), "{} was skipped", topic);
        }
    }

    #[test]
    fn the_index_is_a_map(ops in prop::collection::vec((topic(), any::<bool>(), any::<u32>()), 0..200)) {
        let (mut index, mut model) = (RetainedIndex::new(5), BTreeMap::new());
        for (topic, set, value) in ops {
            if set {
                prop_assert_eq!(index.set(&topic, value), model.insert(topic.clone(), value));
            } else {
                prop_assert_eq!(index.remove(&topic), model.remove(&topic));
            }
            prop_assert_eq!(index.get(&topic), model.get(&topic));
            prop_assert_eq!(index.len(), model.len());
            prop_assert_eq!(index.name_bytes(), model.keys().map(String::len).sum::<usize>());
        }
        prop_assert!(index.iter().eq(model.iter().map(|(t, v)| (t.as_str(), v))));
        for topic in model.keys() {
            index.remove(topic);
        }
        prop_assert!(index.is_empty());
        prop_assert!(index.heap_bytes() < 8192);
    }
}

fn devices() -> RetainedIndex<u32> {
    let mut index = RetainedIndex::new(1);
    for n in 0..10_000u32 {
        for sensor in 0..10 {
            index.set(&format!("site{}/d{n}/s{sensor}", n % 10), n);
        }
    }
    index
}

fn visits(index: &RetainedIndex<u32>, filter: &str) -> (usize, u32) {
    let mut budget = u32::MAX;
    let mut out = Vec::new();
    assert_eq!(index.scan(&mut RetainedCursor::new(filter), &mut budget, &mut out), ScanStep::Done);
    (out.len(), u32::MAX - budget)
}

/// Bounds on the names visited: what a subscription costs must follow what it can match.
#[test]
fn a_scan_visits_no_unrelated_subtrees() {
    let index = devices();
    // One name behind the end of a range tells that it is the end.
    assert_eq!(visits(&index, "site3/d13/s1"), (1, 1));
    assert_eq!(visits(&index, "site3/d13/#"), (10, 11));
    assert_eq!(visits(&index, "site3/d13/+"), (10, 11));
    assert_eq!(visits(&index, "site3/#"), (10_000, 10_001));
    assert_eq!(visits(&index, "nowhere/#"), (0, 1));
    assert_eq!(visits(&index, "zzz/+/x"), (0, 0));
    // Each of the ten sites is entered once, found not to have the device, and left.
    let (found, visited) = visits(&index, "+/d13/s1");
    assert!(found == 1 && visited <= 120, "{visited}");
    // Among ten topics of a device one matches: neighbours are stepped over, the rest jumped.
    let (found, visited) = visits(&index, "site3/+/s5");
    assert!(found == 1000 && visited <= 11_000, "{visited}");
    let (found, visited) = visits(&index, "+");
    assert!(found == 0 && visited <= 60, "{visited}");
}

#[test]
fn a_scan_can_be_stopped_at_any_match_and_goes_on_behind_it() {
    let index = devices();
    let mut cursor = RetainedCursor::new("site3/#");
    let mut names = Vec::new();
    loop {
        let mut room = 7;
        let step = index.scan_with(&mut cursor, &mut u32::MAX.clone(), |name, _| {
            names.push(name.to_owned());
            room -= 1;
            if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if step == ScanStep::Done {
            break;
        }
    }
    assert_eq!(names.len(), 10_000);
    assert!(names.is_sorted());
}

/// [MQTT-4.7.2-1]
#[test]
fn a_leading_wildcard_jumps_over_all_dollar_topics() {
    let mut index = RetainedIndex::new(1);
    for n in 0..1000 {
        index.set(&format!("$SYS/{n}"), 0);
    }
    index.set("a", 0);
    index.set("!", 0);
    let (found, visited) = visits(&index, "#");
    assert!(found == 2 && visited <= 8, "{visited}");
    assert_eq!(visits(&index, "$SYS/#").0, 1000);
}
