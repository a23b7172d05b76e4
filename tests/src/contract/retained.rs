//! Rules about retained messages.

use super::{ACME, Bench, StoreUnderTest, ZETA, log_read, logged, message, retained, seqs};
use mast_core::ids::ShardIx;
use mast_core::store::port::{Append, Restored, Write};
use mast_core::store::position::Partition;

fn kept(restored: Vec<Restored>) -> Vec<(u32, String, Vec<u8>, u64)> {
    let mut list: Vec<_> = restored
        .into_iter()
        .filter_map(|r| match r {
            Restored::Retained { seq, message, .. } => {
                Some((message.tenant.0, message.topic().to_owned(), message.payload().to_vec(), seq.0))
            }
            Restored::Key { .. } | Restored::End { .. } => None,
        })
        .collect();
    list.sort();
    list
}

/// Rule.
pub fn the_last_retained_message_of_each_topic_is_restored<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![retained(message(ACME, "r/1", b"old"))]);
    b.done(vec![retained(message(ACME, "r/2", b"b"))]);
    b.done(vec![retained(message(ACME, "r/1", b"new")), retained(message(ZETA, "r/1", b"z"))]);
    let wanted = [
        (0, "r/1".to_owned(), b"new".to_vec(), 3),
        (0, "r/2".to_owned(), b"b".to_vec(), 2),
        (1, "r/1".to_owned(), b"z".to_vec(), 4),
    ];
    assert_eq!(kept(b.store.reopen()), wanted);
    assert_eq!(kept(b.store.reopen()), wanted, "and again");
}

/// Rule.
pub fn an_empty_payload_removes_the_retained_message<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![retained(message(ACME, "r/1", b"x")), retained(message(ACME, "r/2", b"x"))]);
    assert_eq!(kept(b.store.reopen()).len(), 2);
    b.done(vec![retained(message(ACME, "r/1", b""))]);
    let left = kept(b.store.reopen());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].1, "r/2");
}

/// Rule.
pub fn a_message_can_be_logged_and_retained_at_once<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let both = Append {
        message: message(ACME, "r/1", b"x"),
        partition: Partition(0),
        log: true,
        retain: true,
        spill: None,
    };
    assert_eq!(b.done(vec![Write::Append(both)]), 1);
    assert_eq!(seqs(&b.log(log_read(&["r/+"], 0))), [1]);
    assert_eq!(kept(b.store.reopen()).len(), 1);
    assert_eq!(seqs(&b.log(log_read(&["r/+"], 0))), [1]);
}

/// Rule.
pub fn retained_messages_survive_the_trimming_of_the_log<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![retained(message(ACME, "keep", b"me"))]);
    for i in 0..500 {
        b.done(vec![logged(message(ACME, &format!("t/{}", i % 7), &[7u8; 900]))]);
    }
    for shard in 0..super::SHARDS {
        b.store.set_floor(ShardIx(shard), ACME, None);
    }
    b.store.trim();
    assert!(seqs(&b.log(log_read(&["t/#"], 0))).is_empty());
    assert_eq!(kept(b.store.reopen()).len(), 1);
}
