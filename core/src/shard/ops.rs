//! Operations that wait for an answer from outside, and what happens then. Each has a deadline: no
//! answer is an outcome too.

use crate::ask::Asked;
use crate::conn::handshake::Admission;
use crate::ids::{ConnId, OpId, SessionId, TenantId};
use crate::session::will::Will;
use crate::shard::slab::Slab;
use crate::time::Mono;
use alloc::boxed::Box;

/// A session's CONNECT whose state must be stored before CONNACK.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub conn: ConnId,
    pub session: SessionId,
    pub present: bool,
    pub admission: Box<Admission>,
    /// The will that waited before this CONNECT: it stands if the CONNECT fails.
    pub previous: Option<Box<Will>>,
}

/// The id of a received QoS 2 message on its way to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundId {
    pub session: SessionId,
    pub packet_id: u16,
    /// An earlier try of it was never answered.
    pub again: bool,
}

/// A retained publish that holds room among its tenant's retained messages: whose, and its topic.
pub(crate) type HeldRoom = (TenantId, Box<str>);

/// What an outstanding operation is for.
#[derive(Debug)]
pub(crate) enum Op {
    /// Session record at CONNECT.
    Connect(Box<Connecting>),
    /// A publish of a client: `number` in its acknowledgement queue, or none for QoS 0. `key` is the
    /// (topic, QoS) whose later publishes must not overtake it.
    Publish {
        conn: ConnId,
        number: Option<u64>,
        key: u64,
        inbound: Option<InboundId>,
        retained: Option<HeldRoom>,
    },
    /// PUBREL: the packet id leaves the store before PUBCOMP.
    Release { conn: ConnId, session: SessionId, packet_id: u16 },
    /// Part of a SUBACK's or UNSUBACK's gate.
    Gate { idx: u32, generation: u32 },
    /// A session's cursor and window, as of `version`; `flush` = the watermark waits for it.
    Cursor { session: SessionId, version: u64, flush: bool },
    /// A spilled message of a session.
    Spill { session: SessionId },
    /// A page of the log for a session.
    Page { session: SessionId },
    /// The limits of an absent session, before its first page.
    Bound { session: SessionId },
    /// What is kept for an absent session.
    Backlog { session: SessionId },
    /// Bodies of in-flight messages after a restart.
    Revive { session: SessionId },
    /// The record of a session that went away.
    Away {
        session: SessionId,
        /// With the cursor.
        cursor: bool,
    },
    /// The end of a session: its records are deleted, its will goes out.
    End {
        /// It goes out with this commit, or not at all.
        will: bool,
    },
    /// A will. `again` = an earlier try got no answer.
    Will { session: SessionId, will: Box<Will>, again: bool },
    /// A spilled message of a group.
    GroupSpill { idx: u32, generation: u32 },
    /// A page of the log for a group.
    GroupPage { idx: u32, generation: u32 },
    /// A group's cursor.
    GroupCursor { idx: u32, generation: u32 },
    /// How far this shard's idle live sessions have come.
    Watermark,
    /// What administration asked for.
    Asked { token: u64, then: Asked },
    /// Re-authentication of a connection.
    Auth { conn: ConnId },
}

/// The outstanding operations.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slab: Slab<(Mono, Op)>,
}

impl Ops {
    pub fn begin(&mut self, deadline: Mono, op: Op) -> OpId {
        let (idx, generation) = self.slab.insert((deadline, op));
        OpId { idx, generation }
    }

    /// The operation, unless its deadline was faster.
    pub fn end(&mut self, id: OpId) -> Option<Op> {
        self.slab.remove(id.idx, id.generation).map(|(_, op)| op)
    }

    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Operations whose deadline has come, taken out, in slot order.
    pub fn overdue(&mut self, now: Mono) -> alloc::vec::Vec<(OpId, Op)> {
        let late: alloc::vec::Vec<(u32, u32)> = self
            .slab
            .iter()
            .filter(|(_, _, (deadline, _))| *deadline <= now)
            .map(|(idx, generation, _)| (idx, generation))
            .collect();
        late.into_iter()
            .filter_map(|(idx, generation)| {
                let (_, op) = self.slab.remove(idx, generation)?;
                Some((OpId { idx, generation }, op))
            })
            .collect()
    }
}
