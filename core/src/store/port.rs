//! Requests to the store and their answers. The core emits the former as effects and receives the
//! latter as inputs; it never sees a file or a stream.

use super::key::Key;
use super::position::{Partition, Position, Seq};
use crate::ids::{SessionUid, TenantId};
use crate::message::Message;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

/// When a commit counts as done, and so when its acknowledgement may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In the memory of the store: lost when the process ends.
    Memory,
    /// Written: survives the process, not the power.
    Stored,
    /// Written and synced to stable storage.
    #[default]
    Synced,
}

/// One part of a commit. A commit is all or nothing, and its parts apply in order.
#[derive(Clone, Debug)]
pub enum Write {
    /// Append a message.
    Append(Append),
    /// Set a key. Its new revision is the sequence of the commit's record.
    Put {
        /// Which key.
        key: Key,
        /// New value.
        value: Bytes,
        /// Condition; a failed one refuses the whole commit.
        expect: Expect,
    },
    /// Remove a key; removing an absent one is done.
    Delete {
        /// Which key.
        key: Key,
        /// Condition; a failed one refuses the whole commit.
        expect: Expect,
    },
    /// Change nothing, but refuse the whole commit unless the condition holds. This is how every write
    /// of a session hangs on the session's owner.
    Check {
        /// Which key.
        key: Key,
        /// Condition.
        expect: Expect,
    },
}

/// A message to append.
#[derive(Clone, Debug)]
pub struct Append {
    /// The message; its tenant and topic are in it.
    pub message: Arc<Message>,
    /// Partition of the tenant's set that its topic belongs to.
    pub partition: Partition,
    /// Keep it in the log, for cursors.
    pub log: bool,
    /// Make it the topic's retained message; an empty payload removes it [MQTT-3.3.1-6].
    pub retain: bool,
    /// Appended only for these sessions (a slow consumer's overflow): nobody else ever reads it.
    pub spill: Option<Arc<[SessionUid]>>,
}

/// A condition on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists and its last write has this revision.
    Revision(Seq),
}

/// How a commit ended. *Unknown* is not *refused*: it may have been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// Applied, and the durability class holds.
    Done {
        /// Sequence of the commit's last part; parts are numbered consecutively up to it (checks take no number).
        last: Seq,
    },
    /// Not applied, and never will be.
    Refused(Refusal),
    /// No answer within the deadline.
    Unknown,
}

/// Why a commit or read was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A condition failed.
    Conflict {
        /// Index of the failed part in the commit.
        part: u32,
        /// The key's revision now; `None` if absent.
        current: Option<Seq>,
    },
    /// No space, or a quota of the store is used up: MQTT 0x97.
    Full,
    /// The store cannot write at present (read-only, failed sync, no leader): MQTT 0x80.
    Unavailable,
    /// Larger than the store takes.
    TooLarge,
}

/// A read. `partition` names one entry of the reader's vector position; a reader of several partitions asks for each.
#[derive(Clone, Debug)]
pub enum Read {
    /// The next messages after a position that match any of the filters.
    Log(LogRead),
    /// Exactly these sequences; expired or trimmed ones are missing from the answer.
    At {
        /// Partition of the sequences.
        partition: Partition,
        /// Ascending.
        seqs: Vec<Seq>,
    },
    /// How far a session's start must move forward so that what matches after it keeps the limits.
    Bound {
        /// What the session would read.
        read: LogRead,
        /// At most this many messages may remain.
        max_count: u64,
        /// At most this many bytes (topic + properties + payload) may remain.
        max_bytes: u64,
    },
}

/// A read of the log by filters.
#[derive(Clone, Debug)]
pub struct LogRead {
    /// The tenant whose messages are read; others are never looked at.
    pub tenant: TenantId,
    /// Filters with their own starts; a message counts if it matches a filter whose start does not cover it.
    pub filters: Arc<[LogFilter]>,
    /// Also deliver what was spilled for this session.
    pub spill_of: Option<SessionUid>,
    /// Also deliver messages published with QoS 0 (they are in the log only where kept on purpose).
    pub partition: Partition,
    /// Read what lies above this sequence.
    pub after: Seq,
    /// Stop after this many messages (at least 1).
    pub max_entries: u32,
    /// Stop once this many bytes are exceeded; at least one message is returned.
    pub max_bytes: u32,
    /// Messages that have expired at this time are passed over.
    pub now: Wall,
}

/// A filter of a log read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The topic filter (a shared subscription's inner filter).
    pub filter: Box<str>,
    /// Messages up to here are older than the subscription.
    pub start: Position,
}

/// The answer to a read.
#[derive(Clone, Debug)]
pub enum ReadResult {
    /// Answer to [`Read::Log`] and [`Read::At`], in ascending order.
    Page(LogPage),
    /// Answer to [`Read::Bound`].
    Bound {
        /// Skip everything up to here (0 = nothing to skip).
        floor: Seq,
        /// Messages that this drops.
        dropped: u64,
        /// Their bytes.
        dropped_bytes: u64,
        /// Messages that remain.
        kept: u64,
        /// Their bytes.
        kept_bytes: u64,
        /// What was looked at: all up to here.
        upto: Seq,
    },
    /// The store could not read.
    Failed(Refusal),
}

/// A page of the log.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// Matching messages.
    pub entries: Vec<LogEntry>,
    /// Sequences of matching messages that the store holds but can never read again, ascending.
    pub lost: Vec<Seq>,
    /// Everything up to here was looked at: the next read starts after it. Never above what is committed.
    pub upto: Seq,
    /// Lowest sequence that was still in the log: if the reader's `after` + 1 is below it, the session may have lost its tail by age.
    pub first: Seq,
}

/// One message of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its sequence.
    pub seq: Seq,
    /// The message.
    pub message: Arc<Message>,
    /// It was spilled for the asking session: no filter start applies.
    pub spilled: bool,
}

/// What every shard of a node is told of each commit that contains appends, in sequence order, once the
/// durability class of the commit holds. This event, and not the publish, starts delivery.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Partition of all entries.
    pub partition: Partition,
    /// Ascending.
    pub entries: Vec<CommittedEntry>,
    /// Everything up to here has been announced, so a reader at this sequence is at the live edge.
    pub upto: Seq,
}

/// One appended message.
#[derive(Clone, Debug)]
pub struct CommittedEntry {
    /// Its sequence.
    pub seq: Seq,
    /// As it was appended.
    pub append: Append,
}

/// One record that the store held when it was opened.
#[derive(Clone, Debug)]
pub enum Restored {
    /// A key.
    Key {
        /// Which.
        key: Key,
        /// Its value.
        value: Bytes,
        /// Sequence of its last write.
        revision: Seq,
    },
    /// A retained message.
    Retained {
        /// Partition.
        partition: Partition,
        /// Sequence.
        seq: Seq,
        /// The message, payload not empty.
        message: Arc<Message>,
    },
    /// All has been told; the log stands here.
    End {
        /// Last committed sequences.
        head: Position,
    },
}
