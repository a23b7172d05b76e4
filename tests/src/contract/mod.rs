//! The contract of the store port: what every store must do, be it the embedded one, a model or JetStream.
//!
//! A store under test implements [`StoreUnderTest`]; [`contract_suite!`](crate::contract_suite) makes one test of each rule.

pub mod commits;
pub mod keys;
pub mod log;
pub mod model;
pub mod retained;

use bytes::Bytes;
use mast_core::ids::{OpId, SessionUid, ShardIx, TenantId};
use mast_core::message::{Message, MessageParts, QoS};
use mast_core::store::key::{Key, Space};
use mast_core::store::port::{
    Append, CommitResult, Committed, Durability, Expect, LogFilter, LogPage, LogRead, Read, ReadResult,
    Restored, Write,
};
use mast_core::store::position::{Partition, Position, Seq};
use mast_core::time::Wall;
use std::sync::Arc;

/// What a store told a shard.
#[derive(Clone, Debug)]
pub enum Told {
    /// A commit ended.
    Commit(OpId, CommitResult),
    /// A read ended.
    Read(OpId, ReadResult),
    /// Messages were committed.
    Committed(Arc<Committed>),
}

/// A store that the contract can drive. It has two shards and the tenants `acme` (0) and `zeta` (1).
pub trait StoreUnderTest {
    /// Asks for a commit.
    fn commit(&mut self, shard: ShardIx, op: OpId, writes: Vec<Write>, class: Durability);
    /// Asks for a read.
    fn read(&mut self, shard: ShardIx, op: OpId, read: Read);
    /// Tells what a shard needs of a tenant's log.
    fn set_floor(&mut self, shard: ShardIx, tenant: TenantId, floor: Option<Position>);
    /// Lets the store trim what it may.
    fn trim(&mut self);
    /// Runs until nothing is outstanding and returns what the shard was told since the last call, in order.
    fn told(&mut self, shard: ShardIx) -> Vec<Told>;
    /// Closes the store and opens it again; returns what it held.
    fn reopen(&mut self) -> Vec<Restored>;
}

/// Shards of a store under test.
pub const SHARDS: u16 = 2;
/// The tenant `acme`.
pub const ACME: TenantId = TenantId(0);
/// The tenant `zeta`.
pub const ZETA: TenantId = TenantId(1);
/// Names of the tenants, by number.
pub const TENANTS: [&str; 2] = ["acme", "zeta"];

/// A convenience around a store: one shard at a time, one answer at a time.
pub struct Bench<S: StoreUnderTest> {
    /// The store.
    pub store: S,
    next_op: u32,
    /// Committed events that shard 0 heard.
    pub heard: Vec<Arc<Committed>>,
}

/// A message to publish.
#[must_use]
pub fn message(tenant: TenantId, topic: &str, payload: &[u8]) -> Arc<Message> {
    expiring(tenant, topic, payload, None)
}

/// A message that expires.
#[must_use]
pub fn expiring(tenant: TenantId, topic: &str, payload: &[u8], expires: Option<Wall>) -> Arc<Message> {
    Message::new(&MessageParts {
        tenant,
        qos: QoS::AtLeastOnce,
        retain: false,
        expires,
        publisher: SessionUid(77),
        topic,
        props: &[0x01, 0x01],
        payload,
    })
}

/// An append of a message to the log.
#[must_use]
pub fn logged(message: Arc<Message>) -> Write {
    Write::Append(Append { message, partition: Partition(0), log: true, retain: false, spill: None })
}

/// An append of a retained message that no cursor needs.
#[must_use]
pub fn retained(message: Arc<Message>) -> Write {
    Write::Append(Append { message, partition: Partition(0), log: false, retain: true, spill: None })
}

/// An append for some sessions alone.
#[must_use]
pub fn spilled(message: Arc<Message>, sessions: &[u64]) -> Write {
    let spill: Arc<[SessionUid]> = sessions.iter().map(|&s| SessionUid(s)).collect();
    Write::Append(Append { message, partition: Partition(0), log: true, retain: false, spill: Some(spill) })
}

/// A session key of `acme`.
#[must_use]
pub fn key(name: &str) -> Key {
    Key::new(Space::Session, TENANTS[0], &[name.as_bytes()])
}

/// Sets a key.
#[must_use]
pub fn put(name: &str, value: &str, expect: Expect) -> Write {
    Write::Put { key: key(name), value: Bytes::copy_from_slice(value.as_bytes()), expect }
}

/// Removes a key.
#[must_use]
pub fn delete(name: &str, expect: Expect) -> Write {
    Write::Delete { key: key(name), expect }
}

/// Checks a key.
#[must_use]
pub fn check(name: &str, expect: Expect) -> Write {
    Write::Check { key: key(name), expect }
}

/// A read of `acme`'s log by filters that start at 0.
#[must_use]
pub fn log_read(filters: &[&str], after: u64) -> LogRead {
    let filters = filters.iter().map(|f| LogFilter { filter: (*f).into(), start: Position::start() });
    LogRead {
        tenant: ACME,
        filters: filters.collect(),
        spill_of: None,
        partition: Partition(0),
        after: Seq(after),
        max_entries: 1000,
        max_bytes: 1 << 20,
        now: Wall(1000),
    }
}

/// Sequences of a page.
#[must_use]
pub fn seqs(page: &LogPage) -> Vec<u64> {
    page.entries.iter().map(|e| e.seq.0).collect()
}

impl<S: StoreUnderTest> Bench<S> {
    /// Around `store`.
    pub fn new(store: S) -> Bench<S> {
        Bench { store, next_op: 0, heard: Vec::new() }
    }

    /// A fresh operation.
    pub fn op(&mut self) -> OpId {
        self.next_op += 1;
        OpId { idx: self.next_op, generation: 1 }
    }

    fn listen(&mut self) -> Vec<Told> {
        let told = self.store.told(ShardIx(0));
        for event in &told {
            if let Told::Committed(committed) = event {
                self.heard.push(committed.clone());
            }
        }
        told
    }

    /// Commits on shard 0 and waits for the end.
    pub fn commit(&mut self, writes: Vec<Write>) -> CommitResult {
        let op = self.op();
        self.store.commit(ShardIx(0), op, writes, Durability::Synced);
        let mut ends = self.listen().into_iter().filter_map(|t| match t {
            Told::Commit(done, result) if done == op => Some(result),
            Told::Commit(..) | Told::Read(..) | Told::Committed(_) => None,
        });
        let end = ends.next().expect("every commit ends");
        assert!(ends.next().is_none(), "a commit ends once");
        end
    }

    /// Commits and returns the last sequence.
    pub fn done(&mut self, writes: Vec<Write>) -> u64 {
        match self.commit(writes) {
            CommitResult::Done { last } => last.0,
            other => panic!("commit ended with {other:?}"),
        }
    }

    /// Reads on shard 0 and waits for the answer.
    pub fn read(&mut self, read: Read) -> ReadResult {
        let op = self.op();
        self.store.read(ShardIx(0), op, read);
        let mut answers = self.listen().into_iter().filter_map(|t| match t {
            Told::Read(done, result) if done == op => Some(result),
            Told::Commit(..) | Told::Read(..) | Told::Committed(_) => None,
        });
        let answer = answers.next().expect("every read is answered");
        assert!(answers.next().is_none(), "a read is answered once");
        answer
    }

    /// Reads a page.
    pub fn page(&mut self, read: Read) -> LogPage {
        match self.read(read) {
            ReadResult::Page(page) => page,
            other => panic!("read ended with {other:?}"),
        }
    }

    /// Reads the log.
    pub fn log(&mut self, read: LogRead) -> LogPage {
        self.page(Read::Log(read))
    }

    /// Reads a bound: floor, dropped messages and bytes.
    pub fn bound(&mut self, read: LogRead, max_count: u64, max_bytes: u64) -> (u64, u64, u64) {
        match self.read(Read::Bound { read, max_count, max_bytes }) {
            ReadResult::Bound { floor, dropped, dropped_bytes, .. } => (floor.0, dropped, dropped_bytes),
            other => panic!("read ended with {other:?}"),
        }
    }

    /// Reopens and returns the keys of `acme` (name, value, revision), in order.
    pub fn reopened_keys(&mut self) -> Vec<(String, String, u64)> {
        let prefix = key("");
        let restored = self.store.reopen();
        let keys = restored.into_iter().filter_map(|r| match r {
            Restored::Key { key, value, revision } => {
                let name = key.as_bytes().strip_prefix(&prefix.as_bytes()[..])?.to_vec();
                let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
                Some((text(&name), text(&value), revision.0))
            }
            Restored::Retained { .. } | Restored::End { .. } => None,
        });
        keys.collect()
    }
}

/// Makes one test of each rule of the contract, for the stores that the expression makes.
#[macro_export]
macro_rules! contract_suite {
    ($make:expr) => {
        $crate::contract_suite!(@each $make, commits:
            parts_are_numbered_consecutively_and_checks_take_no_number
            a_commit_with_a_failed_condition_changes_nothing
            messages_are_announced_to_every_shard_before_their_commit_is_done
            announcements_come_in_sequence_order_with_all_that_was_appended
            commits_without_messages_are_not_announced
            every_durability_class_ends_done
        );
        $crate::contract_suite!(@each $make, keys:
            a_key_is_there_after_reopening_with_its_revision
            a_deleted_key_is_gone_after_reopening
            absent_holds_only_without_the_key
            a_revision_holds_only_for_the_last_write
            conditions_see_earlier_parts_of_the_same_commit
            conditions_see_earlier_commits_of_the_same_batch
            deleting_an_absent_key_is_done
            a_conflict_names_the_part_and_the_current_revision
        );
        $crate::contract_suite!(@each $make, log:
            a_read_returns_what_matches_in_order_and_nothing_else
            a_filter_start_hides_what_is_older
            overlapping_filters_give_one_copy
            a_wildcard_does_not_match_dollar_topics
            another_tenants_messages_are_never_read
            limits_of_count_and_bytes_end_a_page_with_its_last_entry
            a_page_without_matches_reaches_the_head
            a_reader_above_the_announced_head_stays_where_it_is
            expired_messages_are_passed_over
            spilled_messages_are_read_by_their_sessions_alone
            messages_that_are_only_retained_are_not_in_the_log
            reading_by_sequence_returns_exactly_those
            messages_come_back_byte_for_byte_after_reopening
            a_bound_drops_the_oldest_beyond_count_and_bytes
            what_no_shard_needs_is_trimmed_and_first_tells
            a_floor_of_one_shard_keeps_what_it_needs
            the_log_goes_on_after_reopening
        );
        $crate::contract_suite!(@each $make, retained:
            the_last_retained_message_of_each_topic_is_restored
            an_empty_payload_removes_the_retained_message
            a_message_can_be_logged_and_retained_at_once
            retained_messages_survive_the_trimming_of_the_log
        );
        $crate::contract_suite!(@each $make, model:
            random_histories_read_like_a_naive_model
        );
    };
    (@each $make:expr, $group:ident: $($rule:ident)*) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $rule() { $crate::contract::$group::$rule($make); })*
        }
    };
}
