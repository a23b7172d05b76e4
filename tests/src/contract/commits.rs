//! Rules about commits and their announcement.

use super::{
    ACME, Bench, SHARDS, StoreUnderTest, Told, check, delete, key, log_read, logged, message, put, retained,
    seqs,
};
use mast_core::ids::ShardIx;
use mast_core::store::port::{CommitResult, Durability, Expect, Refusal};
use mast_core::store::position::Seq;

/// Rule.
pub fn parts_are_numbered_consecutively_and_checks_take_no_number<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    assert_eq!(b.done(vec![put("a", "1", Expect::Any)]), 1);
    let writes = vec![
        logged(message(ACME, "t", b"x")),
        check("a", Expect::Revision(Seq(1))),
        put("b", "2", Expect::Absent),
        delete("a", Expect::Any),
    ];
    assert_eq!(b.done(writes), 4);
    assert_eq!(b.done(vec![check("b", Expect::Revision(Seq(3)))]), 4, "a check takes no number");
    assert_eq!(b.done(vec![logged(message(ACME, "t", b"y"))]), 5);
}

/// Rule.
pub fn a_commit_with_a_failed_condition_changes_nothing<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![put("owner", "n1", Expect::Absent)]);
    let writes = vec![
        logged(message(ACME, "t", b"lost")),
        retained(message(ACME, "r", b"lost")),
        put("other", "lost", Expect::Any),
        delete("owner", Expect::Any),
        check("absent", Expect::Revision(Seq(9))),
    ];
    let refused = CommitResult::Refused(Refusal::Conflict { part: 4, current: None });
    assert_eq!(b.commit(writes), refused);
    assert_eq!(b.done(vec![put("x", "1", Expect::Any)]), 2, "a refused commit takes no numbers");
    assert!(seqs(&b.log(log_read(&["#"], 0))).is_empty());
    let keys: Vec<String> = b.reopened_keys().into_iter().map(|k| k.0).collect();
    assert_eq!(keys, ["owner", "x"]);
}

/// Rule.
pub fn messages_are_announced_to_every_shard_before_their_commit_is_done<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let op = b.op();
    b.store.commit(ShardIx(1), op, vec![logged(message(ACME, "t", b"x"))], Durability::Synced);
    for shard in 0..SHARDS {
        let told = b.store.told(ShardIx(shard));
        let announced =
            told.iter().position(|t| matches!(t, Told::Committed(c) if c.entries[0].seq == Seq(1)));
        let done = told.iter().position(|t| matches!(t, Told::Commit(o, _) if *o == op));
        assert!(announced.is_some(), "shard {shard} was told nothing");
        match shard {
            1 => assert!(announced < done),
            _ => assert_eq!(done, None, "only the asker hears the end"),
        }
    }
}

/// Rule.
pub fn announcements_come_in_sequence_order_with_all_that_was_appended<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    for i in 0..20u16 {
        let op = b.op();
        let topic = format!("t/{i}");
        let writes = vec![logged(message(ACME, &topic, b"x")), put(&topic, "1", Expect::Any)];
        b.store.commit(ShardIx(i % SHARDS), op, writes, Durability::Synced);
    }
    let (mut seen, mut upto) = (Vec::new(), 0);
    for told in b.store.told(ShardIx(0)) {
        if let Told::Committed(committed) = told {
            for entry in &committed.entries {
                assert!(entry.seq.0 > upto, "nothing comes after its announcement");
                seen.push((entry.seq.0, entry.append.message.topic().to_owned()));
            }
            upto = committed.upto.0;
        }
    }
    let wanted: Vec<(u64, String)> = (0..20).map(|i| (2 * i + 1, format!("t/{i}"))).collect();
    assert_eq!(seen, wanted);
    assert_eq!(upto, 40);
}

/// Rule.
pub fn commits_without_messages_are_not_announced<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![put("a", "1", Expect::Any)]);
    assert!(b.heard.is_empty());
    b.done(vec![retained(message(ACME, "r", b"x"))]);
    assert_eq!(b.heard.len(), 1, "a retained message is an append");
}

/// Rule.
pub fn every_durability_class_ends_done<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    for class in [Durability::Memory, Durability::Stored, Durability::Synced, Durability::Stored] {
        let op = b.op();
        b.store.commit(ShardIx(0), op, vec![logged(message(ACME, "t", b"x"))], class);
    }
    let told = b.store.told(ShardIx(0));
    let ends = told.iter().filter(|t| matches!(t, Told::Commit(_, CommitResult::Done { .. })));
    assert_eq!(ends.count(), 4);
    assert!(key("a").split().is_some());
}
