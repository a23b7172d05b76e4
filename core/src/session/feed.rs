//! How messages reach a receiver (a session, or a shared group): live into a bounded queue, or, behind
//! it, from the log until the live edge is met again. Nothing is lost in between, and the queue is the
//! only memory that a slow receiver costs.

use crate::ids::OpId;
use crate::message::{Message, QoS};
use crate::shard::peer::GroupRef;
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
    Retained,
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
    /// Reads the log; live logged messages are passed over, unlogged ones are spilled into it.
    pub behind: bool,
    /// Everything in the log up to here was queued or did not concern the receiver. While it is live,
    /// the shard's head takes its place.
    pub read_pos: Position,
    pub reading: Option<OpId>,
    /// Spilled messages whose append is not answered.
    pub spills: u32,
}

impl Feed {
    pub fn push(&mut self, queued: Queued) {
        self.pending_bytes += queued.message.size();
        self.pending.push_back(queued);
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.pending.pop_front()?;
        self.pending_bytes -= queued.message.size();
        Some(queued)
    }

    /// True if the queue is at one of its bounds.
    pub fn is_full(&self, max_messages: usize, max_bytes: usize) -> bool {
        self.pending.len() >= max_messages || self.pending_bytes >= max_bytes
    }

    /// Falls behind: what lies above `at` will be read from the log.
    pub fn fall_behind(&mut self, at: Position) {
        if !self.behind {
            self.behind = true;
            self.read_pos = at;
        }
    }

    /// Drops everything queued that the log can give again, and falls back to before it. What the log
    /// does not have stays queued. `head` = what has been offered so far.
    pub fn rewind(&mut self, head: &Position) {
        let mut at = if self.behind { self.read_pos.clone() } else { head.clone() };
        let mut kept = VecDeque::new();
        for queued in self.pending.drain(..) {
            match (queued.source, queued.pos) {
                (Source::Log, Some((partition, seq))) => at.lower(partition, Seq(seq.0.saturating_sub(1))),
                (Source::Log | Source::Live | Source::Retained | Source::Group { .. }, _) => {
                    kept.push_back(queued);
                }
            }
        }
        self.pending = kept;
        self.pending_bytes = self.pending.iter().map(|q| q.message.size()).sum();
        self.behind = true;
        self.read_pos = at;
    }

    /// Up to where the receiver needs nothing more from the log, its unacknowledged messages aside.
    pub fn floor(&self, head: &Position) -> Position {
        let mut at = if self.behind { self.read_pos.clone() } else { head.clone() };
        for queued in &self.pending {
            if let (Source::Log, Some((partition, seq))) = (queued.source, queued.pos) {
                at.lower(partition, Seq(seq.0.saturating_sub(1)));
            }
        }
        at
    }
}
