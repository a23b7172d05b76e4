//! Rules about keys and conditions.

use super::{Bench, StoreUnderTest, Told, check, delete, put};
use mast_core::ids::ShardIx;
use mast_core::store::port::{CommitResult, Durability, Expect, Refusal};
use mast_core::store::position::Seq;

fn conflict(part: u32, current: Option<u64>) -> CommitResult {
    CommitResult::Refused(Refusal::Conflict { part, current: current.map(Seq) })
}

/// Rule.
pub fn a_key_is_there_after_reopening_with_its_revision<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![put("a", "1", Expect::Any), put("b", "2", Expect::Any)]);
    let revision = b.done(vec![put("a", "3", Expect::Any)]);
    let wanted = [("a".to_owned(), "3".to_owned(), 3), ("b".to_owned(), "2".to_owned(), 2)];
    assert_eq!(revision, 3);
    assert_eq!(b.reopened_keys(), wanted);
    assert_eq!(b.done(vec![put("a", "4", Expect::Revision(Seq(3)))]), 4);
    assert_eq!(b.reopened_keys()[0], ("a".to_owned(), "4".to_owned(), 4));
}

/// Rule.
pub fn a_deleted_key_is_gone_after_reopening<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![put("a", "1", Expect::Any), put("b", "1", Expect::Any)]);
    assert_eq!(b.reopened_keys().len(), 2);
    b.done(vec![delete("a", Expect::Any)]);
    assert_eq!(b.reopened_keys().len(), 1);
    assert_eq!(b.reopened_keys()[0].0, "b");
    b.done(vec![put("a", "2", Expect::Absent)]);
}

/// Rule.
pub fn absent_holds_only_without_the_key<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let first = b.done(vec![put("a", "1", Expect::Absent)]);
    assert_eq!(b.commit(vec![put("a", "2", Expect::Absent)]), conflict(0, Some(first)));
    b.done(vec![delete("a", Expect::Any)]);
    b.done(vec![put("a", "3", Expect::Absent)]);
}

/// Rule.
pub fn a_revision_holds_only_for_the_last_write<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let first = b.done(vec![put("a", "1", Expect::Any)]);
    let second = b.done(vec![put("a", "2", Expect::Revision(Seq(first)))]);
    assert_eq!(b.commit(vec![put("a", "3", Expect::Revision(Seq(first)))]), conflict(0, Some(second)));
    assert_eq!(b.commit(vec![delete("a", Expect::Revision(Seq(first)))]), conflict(0, Some(second)));
    b.done(vec![delete("a", Expect::Revision(Seq(second)))]);
    assert_eq!(b.commit(vec![put("a", "4", Expect::Revision(Seq(second)))]), conflict(0, None));
}

/// Rule.
pub fn conditions_see_earlier_parts_of_the_same_commit<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![
        put("a", "1", Expect::Absent),
        check("a", Expect::Revision(Seq(1))),
        delete("a", Expect::Any),
    ]);
    let again = vec![put("a", "1", Expect::Absent), put("a", "2", Expect::Absent)];
    assert_eq!(b.commit(again), conflict(1, Some(3)));
    b.done(vec![put("a", "1", Expect::Absent)]);
}

/// Rule.
pub fn conditions_see_earlier_commits_of_the_same_batch<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    let ops: Vec<_> = (0..3).map(|_| b.op()).collect();
    for op in &ops {
        b.store.commit(ShardIx(0), *op, vec![put("a", "1", Expect::Absent)], Durability::Synced);
    }
    let ends: Vec<CommitResult> = b
        .store
        .told(ShardIx(0))
        .into_iter()
        .filter_map(|t| match t {
            Told::Commit(_, result) => Some(result),
            Told::Read(..) | Told::Committed(_) => None,
        })
        .collect();
    let done = CommitResult::Done { last: Seq(1) };
    assert_eq!(ends, [done, conflict(0, Some(1)), conflict(0, Some(1))]);
}

/// Rule.
pub fn deleting_an_absent_key_is_done<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![delete("nothing", Expect::Any)]);
    b.done(vec![delete("nothing", Expect::Absent)]);
}

/// Rule.
pub fn a_conflict_names_the_part_and_the_current_revision<S: StoreUnderTest>(store: S) {
    let mut b = Bench::new(store);
    b.done(vec![put("a", "1", Expect::Any), put("owner", "1", Expect::Any)]);
    let writes = vec![put("a", "2", Expect::Any), check("owner", Expect::Revision(Seq(7)))];
    assert_eq!(b.commit(writes), conflict(1, Some(2)));
    b.done(vec![check("a", Expect::Revision(Seq(1)))]);
}
