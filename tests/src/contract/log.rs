//! Rules about reading the log.

use super::{
    ACME, Bench, SHARDS, StoreUnderTest, ZETA, expiring, log_read, logged, message, put, retained, seqs,
    spilled,
};
use mast_core::ids::{SessionUid, ShardIx};
use mast_core::store::port::{Expect, LogFilter, LogRead, Read, Restored};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::time::Wall;

fn filled<S: StoreUnderTest>(store: S, topics: &[&str]) -> Bench<S> {
    let mut b = Bench::new(store);
    for topic in topics {
        b.done(vec![logged(message(ACME, topic, topic.as_bytes()))]);
    }
    b
}

fn start(filter: &str, at: u64) -> LogFilter {
    LogFilter { filter: filter.into(), start: Position::at(Partition(0), Seq(at)) }
}

fn with_filters(filters: &[LogFilter]) -> LogRead {
    LogRead { filters: filters.iter().cloned().collect(), ..log_read(&[], 0) }
}

/// Rule.
pub fn a_read_returns_what_matches_in_order_and_nothing_else<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a/1", "b/1", "a/2", "a", "a/1/x", "b/2", "a/1"]);
    for (filters, wanted) in [
        (&["a/1"][..], &[1, 7][..]),
        (&["a/+"], &[1, 3, 7]),
        (&["a/#"], &[1, 3, 4, 5, 7]),
        (&["+/1", "b/2"], &[1, 2, 6, 7]),
        (&["#"], &[1, 2, 3, 4, 5, 6, 7]),
        (&["c/#", "nothing"], &[]),
    ] {
        assert_eq!(seqs(&b.log(log_read(filters, 0))), wanted, "{filters:?}");
    }
    assert_eq!(seqs(&b.log(log_read(&["#"], 3))), [4, 5, 6, 7]);
    let page = b.log(log_read(&["a/2"], 0));
    assert_eq!(page.entries[0].message.payload(), b"a/2");
    assert!(!page.entries[0].spilled);
}

/// Rule.
pub fn a_filter_start_hides_what_is_older<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "a", "b", "a"]);
    assert_eq!(seqs(&b.log(with_filters(&[start("a", 1), start("b", 3)]))), [3, 4, 5]);
    assert_eq!(seqs(&b.log(with_filters(&[start("#", 4)]))), [5]);
    assert!(seqs(&b.log(with_filters(&[start("a", 5)]))).is_empty());
}

/// Rule.
pub fn overlapping_filters_give_one_copy<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a/b", "a/c", "a/b"]);
    assert_eq!(seqs(&b.log(log_read(&["a/b", "a/+", "#", "a/b"], 0))), [1, 2, 3]);
    // A message counts if any matching filter's start does not cover it.
    assert_eq!(seqs(&b.log(with_filters(&[start("a/b", 2), start("a/+", 1), start("#", 3)]))), [2, 3]);
}

/// Rule.
pub fn a_wildcard_does_not_match_dollar_topics<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["$SYS/x", "SYS/x"]);
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [2]);
    assert_eq!(seqs(&b.log(log_read(&["+/x"], 0))), [2]);
    assert_eq!(seqs(&b.log(log_read(&["$SYS/#"], 0))), [1]);
}

/// Rule.
pub fn another_tenants_messages_are_never_read<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![logged(message(ACME, "t", b"acme")), logged(message(ZETA, "t", b"zeta"))]);
    b.done(vec![logged(message(ZETA, "only/zeta", b"zeta"))]);
    let page = b.log(log_read(&["#", "t", "only/zeta"], 0));
    assert_eq!(seqs(&page), [1]);
    assert_eq!(page.entries[0].message.tenant, ACME);
    let page = b.log(LogRead { tenant: ZETA, ..log_read(&["#"], 0) });
    assert_eq!(seqs(&page), [2, 3]);
    assert!(page.entries.iter().all(|e| e.message.tenant == ZETA && e.message.payload() == b"zeta"));
}

/// Rule.
pub fn limits_of_count_and_bytes_end_a_page_with_its_last_entry<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "a", "a", "b"]);
    let page = b.log(LogRead { max_entries: 2, ..log_read(&["a"], 0) });
    assert_eq!((seqs(&page), page.upto), (vec![1, 3], Seq(3)));
    let page = b.log(LogRead { max_entries: 0, ..log_read(&["b"], 0) });
    assert_eq!((seqs(&page), page.upto), (vec![2], Seq(2)), "at least one");
    let page = b.log(LogRead { max_bytes: 0, ..log_read(&["#"], 1) });
    assert_eq!((seqs(&page), page.upto), (vec![2], Seq(2)), "at least one");
    // Each message has 4 bytes: topic 1, properties 2, payload 1.
    let page = b.log(LogRead { max_bytes: 8, ..log_read(&["#"], 0) });
    assert_eq!((seqs(&page), page.upto), (vec![1, 2, 3], Seq(3)), "until the limit is exceeded");
    let page = b.log(LogRead { max_bytes: 7, ..log_read(&["#"], 0) });
    assert_eq!(seqs(&page), [1, 2]);
}

/// Rule.
pub fn a_page_without_matches_reaches_the_head<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "c"]);
    assert_eq!(b.log(log_read(&["nothing"], 0)).upto, Seq(3));
    assert_eq!(b.log(log_read(&["x/#", "+/y"], 1)).upto, Seq(3));
    assert_eq!(b.log(log_read(&["a"], 0)).upto, Seq(3), "also after the last match");
    b.store.reopen();
    assert_eq!(b.log(log_read(&["nothing"], 0)).upto, Seq(3));
}

/// Rule.
pub fn a_reader_above_the_announced_head_stays_where_it_is<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a"]);
    let last = b.done(vec![put("k", "1", Expect::Any)]);
    let page = b.log(log_read(&["#"], last));
    assert_eq!((seqs(&page), page.upto), (vec![], Seq(last)));
}

/// Rule.
pub fn expired_messages_are_passed_over<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![logged(expiring(ACME, "t", b"1", Some(Wall(500))))]);
    b.done(vec![logged(expiring(ACME, "t", b"2", Some(Wall(5000))))]);
    b.done(vec![logged(message(ACME, "t", b"3"))]);
    for reopened in [false, true] {
        if reopened {
            b.store.reopen();
        }
        for filter in ["t", "#"] {
            let at = |now| LogRead { now: Wall(now), ..log_read(&[filter], 0) };
            assert_eq!(seqs(&b.log(at(499))), [1, 2, 3]);
            assert_eq!(seqs(&b.log(at(500))), [2, 3], "it expires at its time");
            let page = b.log(at(6000));
            assert_eq!((seqs(&page), page.upto), (vec![3], Seq(3)));
            assert_eq!(page.entries[0].message.expires, None);
        }
    }
    let page = b.log(LogRead { now: Wall(1), ..log_read(&["t"], 0) });
    assert_eq!(page.entries[1].message.expires, Some(Wall(5000)));
}

/// Rule.
pub fn spilled_messages_are_read_by_their_sessions_alone<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![logged(message(ACME, "t", b"1"))]);
    b.done(vec![spilled(message(ACME, "t", b"2"), &[5, 6])]);
    b.done(vec![logged(message(ACME, "u", b"3"))]);
    b.done(vec![spilled(message(ACME, "u", b"4"), &[6])]);
    let of = |session: u64, filters: &[&str]| LogRead {
        spill_of: Some(SessionUid(session)),
        ..log_read(filters, 0)
    };
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [1, 3]);
    assert_eq!(seqs(&b.log(of(5, &["t"]))), [1, 2]);
    assert_eq!(seqs(&b.log(of(6, &["t"]))), [1, 2, 4]);
    assert_eq!(seqs(&b.log(of(6, &["#"]))), [1, 2, 3, 4]);
    assert_eq!(seqs(&b.log(of(7, &["#"]))), [1, 3]);
    let spilled: Vec<bool> = b.log(of(6, &["#"])).entries.iter().map(|e| e.spilled).collect();
    assert_eq!(spilled, [false, true, false, true]);
    // A filter's start does not hide what was spilled.
    let late = LogRead { filters: [start("t", 4)].into(), ..of(5, &[]) };
    assert_eq!(seqs(&b.log(late)), [2]);
}

/// Rule.
pub fn messages_that_are_only_retained_are_not_in_the_log<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![retained(message(ACME, "t", b"1")), logged(message(ACME, "t", b"2"))]);
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [2]);
    b.store.reopen();
    assert_eq!(seqs(&b.log(log_read(&["t"], 0))), [2]);
}

/// Rule.
pub fn reading_by_sequence_returns_exactly_those<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "c"]);
    b.done(vec![put("k", "1", Expect::Any), logged(message(ACME, "d", b"d"))]);
    for reopened in [false, true] {
        if reopened {
            b.store.reopen();
        }
        let seqs_wanted = [2, 3, 4, 5, 99].map(Seq).to_vec();
        let page = b.page(Read::At { partition: Partition(0), seqs: seqs_wanted });
        assert_eq!(seqs(&page), [2, 3, 5]);
        assert_eq!(page.entries[2].message.topic(), "d");
    }
}

/// Rule.
pub fn messages_come_back_byte_for_byte_after_reopening<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let big = vec![0xA5; 20_000];
    let messages = [
        message(ACME, "t/ü", b""),
        expiring(ACME, "t/big", &big, Some(Wall(77_000))),
        message(ACME, "t", b"\0\xff"),
    ];
    for m in &messages {
        b.done(vec![logged(m.clone())]);
    }
    b.store.reopen();
    let page = b.log(log_read(&["t/#"], 0));
    let got: Vec<_> = page.entries.iter().map(|e| &*e.message).collect();
    let wanted: Vec<_> = messages.iter().map(|m| &**m).collect();
    assert_eq!(got, wanted);
}

/// Rule.
pub fn a_bound_drops_the_oldest_beyond_count_and_bytes<S: StoreUnderTest>(store: S) {
    // Each message has 4 bytes.
    let mut b = filled(store, &["a", "b", "a", "a", "a"]);
    let read = log_read(&["a"], 0);
    assert_eq!(b.bound(read.clone(), 10, 1000), (0, 0, 0));
    assert_eq!(b.bound(read.clone(), 4, 16), (0, 0, 0));
    assert_eq!(b.bound(read.clone(), 3, 1000), (1, 1, 4));
    assert_eq!(b.bound(read.clone(), 10, 11), (3, 2, 8));
    assert_eq!(b.bound(read.clone(), 0, 1000), (5, 4, 16));
    assert_eq!(b.bound(LogRead { after: Seq(3), ..read }, 1, 1000), (4, 1, 4));
}

/// Rule.
pub fn what_no_shard_needs_is_trimmed_and_first_tells<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "a", "b"]);
    b.store.trim();
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [1, 2, 3, 4], "nothing goes before all shards have told");
    for shard in 0..SHARDS {
        b.store.set_floor(ShardIx(shard), ACME, Some(Position::at(Partition(0), Seq(2))));
    }
    b.store.trim();
    let page = b.log(log_read(&["#"], 0));
    assert_eq!((seqs(&page), page.first), (vec![3, 4], Seq(3)));
    let at = b.page(Read::At { partition: Partition(0), seqs: vec![Seq(1), Seq(3)] });
    assert_eq!(seqs(&at), [3]);
    for shard in 0..SHARDS {
        b.store.set_floor(ShardIx(shard), ACME, None);
    }
    b.store.trim();
    let page = b.log(log_read(&["#"], 0));
    assert_eq!((seqs(&page), page.upto, page.first), (vec![], Seq(4), Seq(5)));
}

/// Rule.
pub fn a_floor_of_one_shard_keeps_what_it_needs<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b", "a", "b"]);
    b.store.set_floor(ShardIx(0), ACME, None);
    b.store.set_floor(ShardIx(1), ACME, Some(Position::at(Partition(0), Seq(1))));
    b.store.trim();
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [2, 3, 4]);
    b.store.set_floor(ShardIx(0), ACME, Some(Position::start()));
    b.done(vec![logged(message(ACME, "c", b"c"))]);
    b.store.set_floor(ShardIx(1), ACME, Some(Position::at(Partition(0), Seq(5))));
    b.store.trim();
    assert_eq!(seqs(&b.log(log_read(&["#"], 0))), [2, 3, 4, 5]);
}

/// Rule.
pub fn the_log_goes_on_after_reopening<S: StoreUnderTest>(store: S) {
    let mut b = filled(store, &["a", "b"]);
    for round in 0..4u64 {
        let restored = b.store.reopen();
        let Some(Restored::End { head }) = restored.last() else { panic!("the end is told last") };
        assert_eq!(head.get(Partition(0)), Seq(2 + round));
        assert_eq!(b.done(vec![logged(message(ACME, "a", b"more"))]), 3 + round);
        assert_eq!(seqs(&b.log(log_read(&["#"], 0))).len() as u64, 3 + round);
    }
}
