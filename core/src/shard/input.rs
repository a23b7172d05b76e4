//! What goes into a shard and what comes out: the door that the shell, the simulator, the fuzzers and
//! the tests all use.

use super::peer::PeerMsg;
use crate::ask::{Answer, Ask};
use crate::conn::handshake::{Admission, AuthAnswer, AuthQuestion};
use crate::ids::{ConnId, OpId, ShardIx, TenantId};
use crate::settings::Settings;
use crate::store::port::{CommitResult, Committed, Durability, Read, ReadResult, Restored, Write};
use crate::store::position::Position;
use crate::tenant::Tenancy;
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One event for a shard.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection whose CONNECT was admitted. The driver chose `conn`: a slot that is free.
    Admit {
        /// The connection's handle from now on.
        conn: ConnId,
        /// What the handshake found out.
        admission: Box<Admission>,
    },
    /// Bytes arrived. All of them are taken.
    Received {
        /// From where.
        conn: ConnId,
        /// Any cut of the stream.
        bytes: &'a [u8],
    },
    /// The socket is gone (end of stream, error, or after `Effect::Close`). The slot is free after this.
    Closed {
        /// Which.
        conn: ConnId,
    },
    /// A message from another shard of this node, in the order it was sent.
    Peer {
        /// Its sender.
        from: ShardIx,
        /// The message.
        msg: PeerMsg,
    },
    /// Appends were committed; in sequence order.
    Committed(Arc<Committed>),
    /// A commit ended.
    CommitDone {
        /// The operation.
        op: OpId,
        /// How.
        result: CommitResult,
    },
    /// A read ended.
    ReadDone {
        /// The operation.
        op: OpId,
        /// Its answer.
        result: ReadResult,
    },
    /// Re-authentication ended.
    AuthDone {
        /// The operation.
        op: OpId,
        /// The answer.
        answer: AuthAnswer,
    },
    /// A record that the store held at start. Before any connection; ends with [`Restored::End`].
    Restore(Restored),
    /// Time passed: timers are due.
    Tick,
    /// New settings, tenants and rules; the old ones stay for what they already admitted. All shards are told of a
    /// new tenant before the first of its clients is admitted anywhere.
    Reconfigure {
        /// The settings.
        settings: Box<Settings>,
        /// The tenants, and what holds for each.
        tenancy: Tenancy,
    },
    /// A question or command of administration; answered by [`Effect::Answer`] with the same token.
    Ask {
        /// To match the answer.
        token: u64,
        /// What.
        ask: Ask,
    },
    /// Memory is short: connections that hold much of it and are owed nothing are cut.
    Relieve,
    /// Say goodbye to all clients and write what must last; [`Outbox::drained`] tells when that is done.
    Drain {
        /// The reason for MQTT 5 clients.
        reason: crate::codec::Reason,
    },
}

/// What the driver shall do. Effects are in order; a driver executes them all before the next input.
#[derive(Debug)]
pub enum Effect {
    /// Close the socket: with a FIN once its output is written, or at once.
    Close {
        /// Which.
        conn: ConnId,
        /// Write what waits first.
        flush: bool,
    },
    /// Stop reading this socket.
    Pause {
        /// Which.
        conn: ConnId,
    },
    /// Read this socket again.
    Resume {
        /// Which.
        conn: ConnId,
    },
    /// Send a message to another shard.
    Peer {
        /// To whom.
        to: ShardIx,
        /// What.
        msg: PeerMsg,
    },
    /// Commit to the store.
    Commit {
        /// Operation to answer.
        op: OpId,
        /// The parts, all or nothing.
        writes: Vec<Write>,
        /// When it counts as done.
        class: Durability,
    },
    /// Read from the store.
    Read {
        /// Operation to answer.
        op: OpId,
        /// What.
        read: Read,
    },
    /// Ask authentication about an AUTH packet of a running connection.
    Auth {
        /// Operation to answer.
        op: OpId,
        /// Whose.
        conn: ConnId,
        /// The step.
        question: AuthQuestion,
    },
    /// This shard's sessions of the tenant need nothing at or below this position any more.
    Floor {
        /// Whose.
        tenant: TenantId,
        /// How far.
        floor: Position,
    },
    /// The answer to an [`Input::Ask`].
    Answer {
        /// From the question.
        token: u64,
        /// What.
        answer: Answer,
    },
    /// Something that an operator should see.
    Log(LogEvent),
}

/// Events for the log. The driver renders, rate-limits and escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A peer broke the protocol and was disconnected.
    Violation {
        /// Whose connection.
        conn: ConnId,
        /// MQTT 5 reason code.
        reason: u8,
        /// What it did.
        why: &'static str,
        /// Statement of the specification, if one is named.
        statement: &'static str,
    },
    /// A connection was taken over by another with the same client id.
    TakenOver {
        /// The loser.
        conn: ConnId,
    },
    /// A store operation failed; what waited for it was answered with an error.
    StoreTrouble {
        /// What the operation was for.
        what: &'static str,
        /// Outcome in a word.
        outcome: &'static str,
    },
    /// A stored record could not be understood; it was left in the store and not used.
    BadRecord {
        /// The record's space.
        space: &'static str,
    },
    /// A rule of the code was broken and one session was ended to contain it.
    Invariant {
        /// Which.
        what: &'static str,
    },
}

/// What one `poll` gives to the driver.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Connections whose output buffer got bytes; each at most once per poll.
    pub dirty: Vec<ConnId>,
    /// In order.
    pub effects: Vec<Effect>,
    /// A drain is complete: nothing waits for the store and no client is left.
    pub drained: bool,
}

/// Whether there is more to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The budget ended first: poll again (after looking at sockets).
    More,
    /// Nothing to do until an input or `wake`.
    Idle {
        /// When a timer is due.
        wake: Option<Mono>,
    },
}
