//! How messages reach a receiver (a session, or a shared group): live into a bounded queue, or, behind
//! it, from the log until the live edge is met again. Nothing is lost in between, and the queue is the
//! only memory that a slow receiver costs.

use crate::ids::OpId;
use crate::message::{Message, QoS};
use crate::shard::EMBEDDED;
use crate::shard::peer::GroupRef;
use crate::store::port::CommitResult;
use crate::store::position::{Partition, Position, Seq};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use smallvec::SmallVec;

/// Where a queued message came from, and so who must hear of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the log or its live feed: the cursor covers it.
    Log,
    /// Live and in no log.
    Live,
    /// A retained message.
    Retained {
        /// Number of the session's replay that it belongs to; 0 = of none that is remembered.
        replay: u64,
    },
    /// Assigned by a group's leader.
    Group {
        /// Which group.
        group: GroupRef,
        /// Number of the delivery.
        delivery: u64,
    },
}

/// A message that waits for one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub message: Arc<Message>,
    pub pos: Option<(Partition, Seq)>,
    pub source: Source,
    pub qos: QoS,
    pub retain: bool,
    pub sub_ids: SmallVec<[u32; 1]>,
}

/// The receiving end.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    pub pending: VecDeque<Queued>,
    pub pending_bytes: usize,
    /// QoS 0 messages among them: live QoS 0 must not overtake these.
    pub pending_qos0: usize,
    /// Reads the log; live logged messages are passed over, unlogged ones are spilled into it.
    pub behind: bool,
    /// Everything in the log up to here was queued or did not concern the receiver. While it is live,
    /// the shard's head takes its place.
    pub read_pos: Position,
    /// The last message of the log that was offered live: a huge fan-out reaches its receivers one after
    /// the other, so this may be ahead of the shard's head.
    pub offered: Option<(Partition, Seq)>,
    /// The log has something for the receiver up to here: until it has read it, it is behind.
    pub due: Option<(Partition, Seq)>,
    /// Of a receiver with overflow of its own: what the log has above this reaches it as overflow too, so that
    /// everything comes in the order in which it came here. Overflow is appended late, behind what it came before.
    pub overflows_from: Option<(Partition, Seq)>,
    pub reading: Option<OpId>,
    /// Spilled messages whose append is not answered.
    pub spills: u32,
}

impl Feed {
    pub fn push(&mut self, queued: Queued) {
        self.pending_bytes += queued.message.size();
        self.pending_qos0 += usize::from(queued.qos == QoS::AtMostOnce);
        self.pending.push_back(queued);
    }

    /// Puts back what [`Feed::pop`] gave.
    pub fn push_front(&mut self, queued: Queued) {
        self.pending_bytes += queued.message.size();
        self.pending_qos0 += usize::from(queued.qos == QoS::AtMostOnce);
        self.pending.push_front(queued);
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.pending.pop_front()?;
        self.pending_bytes -= queued.message.size();
        self.pending_qos0 -= usize::from(queued.qos == QoS::AtMostOnce);
        Some(queued)
    }

    /// Counts the queue anew after entries were taken from its middle.
    pub fn recount(&mut self) {
        self.pending_bytes = self.pending.iter().map(|q| q.message.size()).sum();
        self.pending_qos0 = self.pending.iter().filter(|q| q.qos == QoS::AtMostOnce).count();
    }

    /// True if the queue is at one of its bounds.
    pub fn is_full(&self, max_messages: usize, max_bytes: usize) -> bool {
        self.pending.len() >= max_messages || self.pending_bytes >= max_bytes
    }

    /// True at the live edge with nothing of the log waiting to be sent.
    pub fn is_idle(&self) -> bool {
        !self.behind && !self.pending.iter().any(|q| q.source == Source::Log)
    }

    /// Up to where the log was offered to the receiver; `head` = to all receivers.
    pub fn edge(&self, head: &Position) -> Position {
        if self.behind {
            return self.read_pos.clone();
        }
        let mut edge = head.clone();
        if let Some((partition, seq)) = self.offered {
            edge.raise(partition, seq);
        }
        edge
    }

    /// Falls behind: what was not offered yet will be read from the log.
    pub fn fall_behind(&mut self, head: &Position) {
        if !self.behind {
            self.read_pos = self.edge(head);
            self.behind = true;
        }
    }

    /// A message of the log is left for the receiver to read.
    pub fn leave_to_log(&mut self, pos: (Partition, Seq)) {
        if self.due.is_none_or(|due| due.1 < pos.1) {
            self.due = Some(pos);
        }
    }

    /// From now on everything that comes is overflow.
    pub fn begin_overflow(&mut self, head: &Position) {
        if self.overflows_from.is_none() {
            let due = self.due.map_or(Seq(0), |(_, seq)| seq);
            let from = due.max(head.get(EMBEDDED)).max(self.read_pos.get(EMBEDDED));
            self.overflows_from = Some((EMBEDDED, from));
        }
    }

    /// True if a message of the log reaches the receiver as overflow.
    pub fn overflows(&self, (_, seq): (Partition, Seq)) -> bool {
        self.overflows_from.is_some_and(|(_, from)| seq > from)
    }

    /// An overflow is in the log, or will never be.
    pub fn spill_answered(&mut self, result: &CommitResult) {
        self.spills = self.spills.saturating_sub(1);
        if let CommitResult::Done { last } = result {
            self.leave_to_log((EMBEDDED, *last));
        }
    }

    /// Is at the live edge again, if it has read all that the log has for it. `head` = what was offered to all.
    pub fn catch_up(&mut self, head: &Position) {
        let read = self.due.is_none_or(|(partition, seq)| self.read_pos.covers(partition, seq));
        if self.spills == 0 && read && self.read_pos.covers_all(head) {
            self.behind = false;
            self.due = None;
            self.overflows_from = None;
        }
    }

    /// Drops everything queued that the log or a replay can give again, and falls back to before it. What
    /// they do not have stays queued. `head` = what has been offered so far. Returns how many retained
    /// messages of QoS 0 went, which no replay gives again.
    pub fn rewind(&mut self, head: &Position) -> u64 {
        let mut lost = 0;
        let mut at = self.edge(head);
        let mut kept = VecDeque::new();
        for queued in self.pending.drain(..) {
            match (queued.source, queued.pos) {
                (Source::Log, Some((partition, seq))) => at.lower(partition, Seq(seq.0.saturating_sub(1))),
                (Source::Retained { .. }, _) => lost += u64::from(queued.qos == QoS::AtMostOnce),
                (Source::Log | Source::Live | Source::Group { .. }, _) => kept.push_back(queued),
            }
        }
        self.pending = kept;
        self.recount();
        self.behind = true;
        self.read_pos = at;
        lost
    }

    /// Up to where the receiver needs nothing more from the log, its unacknowledged messages aside.
    pub fn floor(&self, head: &Position) -> Position {
        let mut at = self.edge(head);
        for queued in &self.pending {
            if let (Source::Log, Some((partition, seq))) = (queued.source, queued.pos) {
                at.lower(partition, Seq(seq.0.saturating_sub(1)));
            }
        }
        at
    }
}
