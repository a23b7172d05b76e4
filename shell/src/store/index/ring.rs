//! The newest messages, kept in memory: whoever reads near the live edge costs no disk.

use mast_core::message::Message;
use std::collections::VecDeque;
use std::sync::Arc;

/// Memory that a message takes beside its body, about: the two allocations and the entry here.
const OVERHEAD: usize = 144;

/// A bounded ring of messages in sequence order.
#[derive(Debug)]
pub struct TailRing {
    entries: VecDeque<(u64, Arc<Message>)>,
    bytes: usize,
    limit: usize,
}

impl TailRing {
    /// A ring of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> TailRing {
        TailRing { entries: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds the newest message; the oldest go as needed.
    pub fn push(&mut self, seq: u64, message: Arc<Message>) {
        self.bytes += message.size() + OVERHEAD;
        self.entries.push_back((seq, message));
        while self.bytes > self.limit {
            let Some((_, old)) = self.entries.pop_front() else { break };
            self.bytes -= old.size() + OVERHEAD;
        }
    }

    /// The message with sequence `seq`, if it is still here.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<Arc<Message>> {
        let ix = self.entries.binary_search_by_key(&seq, |e| e.0).ok()?;
        Some(self.entries[ix].1.clone())
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
