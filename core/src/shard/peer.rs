//! Messages between the shards of a node. They are small, ordered per pair of shards, and carry messages
//! as shared pointers; a message between nodes will carry the same contents.

use crate::ids::{ConnId, SessionId, SessionUid, ShardIx, TenantId};
use crate::message::{Message, QoS};
use crate::publish::batch::RouteBatch;
use crate::quota::ledger::QuotaMsg;
use crate::store::position::{Partition, Position, Seq};
use crate::topic::{CoarseKey, RetainedCursor};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Which kind of interest a shard announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterestKind {
    /// Some subscriber here wants live copies.
    Live,
    /// Some persistent session or durable group here needs the message in the log.
    Durable,
}

/// A change of a shard's coarse interest.
#[derive(Clone, Debug)]
pub struct InterestChange {
    /// Whose topics.
    pub tenant: TenantId,
    /// Live or durable.
    pub kind: InterestKind,
    /// The leading levels.
    pub key: CoarseKey,
    /// Begins or ends.
    pub on: bool,
}

/// Names a shared group: its shard leads it under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupRef {
    /// The leader.
    pub leader: ShardIx,
    /// Slot in the leader's table.
    pub idx: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// A member session of a group, on whatever shard it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberRef {
    /// Its shard.
    pub shard: ShardIx,
    /// Its session there.
    pub session: SessionId,
    /// Identity over reuse and restarts.
    pub uid: SessionUid,
}

/// A session that joins a group.
#[derive(Clone, Debug)]
pub struct GroupJoin {
    /// The tenant of session and group.
    pub tenant: TenantId,
    /// `$share/<group>/…`.
    pub group: Box<str>,
    /// The inner filter.
    pub filter: Box<str>,
    /// Who.
    pub member: MemberRef,
    /// Maximum QoS of its subscription.
    pub qos: QoS,
    /// It outlives its connections.
    pub persistent: bool,
    /// How many messages it may hold unacknowledged; 0 = not connected.
    pub window: u16,
    /// Where its subscription starts, if it is restored from the store and not new.
    pub start: Option<Position>,
    /// Answer with [`PeerMsg::Joined`] carrying this.
    pub token: u64,
}

/// How a delivery to a group member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledged, or sent where no acknowledgement is due.
    Done,
    /// Not begun or not acknowledged, and the member gives it back: send it to another.
    Returned,
}

/// A message between shards.
#[derive(Clone, Debug)]
pub enum PeerMsg {
    /// Interest of the sender changed. Answered by `InterestSeen` with the same token. Without changes:
    /// the sender has told all that it restored.
    Interest {
        /// To match the answer.
        token: u64,
        /// The changes.
        changes: Vec<InterestChange>,
    },
    /// To the sender itself, behind all that waits for it: a SUBSCRIBE of the connection waits for this.
    Fence {
        /// Which.
        conn: ConnId,
    },
    /// The interest change is in effect here.
    InterestSeen {
        /// From the request.
        token: u64,
    },
    /// For an absent session of the sender nothing more may be kept, or something again.
    Full {
        /// Whose.
        tenant: TenantId,
        /// The session.
        session: SessionUid,
        /// What it would get.
        filters: Arc<[Box<str>]>,
        /// It is full.
        full: bool,
    },
    /// An unlogged message for whoever matches here.
    Route {
        /// The message.
        message: Arc<Message>,
    },
    /// Several such messages, in order.
    Routes(Box<RouteBatch>),
    /// Read retained messages of a tenant whose retained index the receiver holds.
    RetainedRead {
        /// Whose.
        tenant: TenantId,
        /// Place in the scan, moved along with the answers.
        cursor: Box<RetainedCursor>,
        /// Wait until the index has passed this sequence of this partition.
        fence: (Partition, Seq),
        /// At most so many.
        max: u32,
        /// To match the answer.
        token: u64,
    },
    /// A page of retained messages.
    RetainedPage {
        /// From the request.
        token: u64,
        /// Where the next page begins.
        cursor: Box<RetainedCursor>,
        /// Messages with their sequence.
        entries: Vec<(Seq, Arc<Message>)>,
        /// Nothing follows.
        done: bool,
    },
    /// Read single retained messages: bodies of what was in flight when the node died.
    RetainedGet {
        /// Whose.
        tenant: TenantId,
        /// For which session of the sender.
        session: SessionId,
        /// Wait until the index has passed this sequence of this partition.
        fence: (Partition, Seq),
        /// Their topics.
        names: Vec<Box<str>>,
    },
    /// What of them there is.
    RetainedGot {
        /// From the request.
        session: SessionId,
        /// Messages with their sequence.
        entries: Vec<(Seq, Arc<Message>)>,
    },
    /// Join, or change what is known of a member.
    GroupJoin(Box<GroupJoin>),
    /// The member is in the group.
    Joined {
        /// From the request.
        token: u64,
        /// The member.
        member: SessionId,
        /// The group.
        group: GroupRef,
        /// False if the group is full.
        ok: bool,
    },
    /// Leave a group for good.
    GroupLeave {
        /// The group.
        group: GroupRef,
        /// Who.
        member: MemberRef,
    },
    /// A member came online (window above 0) or went away (0).
    GroupPresence {
        /// The group.
        group: GroupRef,
        /// Who.
        member: MemberRef,
        /// Its window.
        window: u16,
    },
    /// A message for one member.
    GroupDeliver {
        /// The group.
        group: GroupRef,
        /// Number of this delivery in the group.
        delivery: u64,
        /// Who gets it.
        member: MemberRef,
        /// The message.
        message: Arc<Message>,
        /// Where it is in the log, if it is.
        seq: Option<(Partition, Seq)>,
        /// Effective QoS.
        qos: QoS,
    },
    /// An absent member shall hand back its unacknowledged QoS 1 messages.
    GroupRecall {
        /// The group.
        group: GroupRef,
        /// Who.
        member: MemberRef,
    },
    /// A delivery ended.
    GroupSettled {
        /// The group.
        group: GroupRef,
        /// Number of the delivery.
        delivery: u64,
        /// By whom.
        member: MemberRef,
        /// How.
        outcome: Settled,
    },
    /// About the limits of a tenant that is spread over the shards.
    Quota(Box<QuotaMsg>),
    /// Counters of a tenant on the sender's shard, for `$SYS` on its home shard.
    SysReport {
        /// Whose.
        tenant: TenantId,
        /// See [`crate::sys::TenantCounters`].
        counters: Box<crate::sys::TenantCounters>,
    },
}
