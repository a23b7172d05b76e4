//! Acknowledgements that wait for the store, in the order of the publishes [MQTT-4.6.0-2], [MQTT-4.6.0-3].

use crate::authz::Verdict;
use crate::codec::{AckKind, Reason};
use crate::sys::Refused;
use alloc::collections::VecDeque;

/// What is known of one publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckState {
    /// The store has not answered.
    Waiting,
    /// May leave with this reason code.
    Ready(Reason),
    /// Says that a limit refused the publish.
    Refused(Refused),
    /// Says that a rule forbids the publish.
    Denied(Verdict),
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAck {
    pub packet_id: u16,
    pub kind: AckKind,
    pub state: AckState,
    /// Number of the publish on this connection.
    pub number: u64,
}

/// The queue of one connection.
#[derive(Debug, Default)]
pub(crate) struct AckQueue {
    waiting: VecDeque<PendingAck>,
    next: u64,
}

impl AckQueue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a publish with this id and kind waits.
    pub fn contains(&self, kind: AckKind, packet_id: u16) -> bool {
        self.waiting.iter().any(|a| a.kind == kind && a.packet_id == packet_id)
    }

    /// Puts an acknowledgement at the end; returns its number.
    pub fn push(&mut self, kind: AckKind, packet_id: u16, state: AckState) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(PendingAck { packet_id, kind, state, number });
        number
    }

    /// The store answered for publish `number`.
    pub fn resolve(&mut self, number: u64, reason: Reason) {
        let Some(first) = self.waiting.front() else { return };
        let Some(index) = number.checked_sub(first.number) else { return };
        if let Some(ack) = self.waiting.get_mut(index as usize) {
            ack.state = AckState::Ready(reason);
        }
    }

    /// Takes the next acknowledgement that may leave; its state is never `Waiting`.
    pub fn pop_ready(&mut self) -> Option<PendingAck> {
        match self.waiting.front()?.state {
            AckState::Waiting => None,
            AckState::Ready(_) | AckState::Refused(_) | AckState::Denied(_) => self.waiting.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AckQueue, AckState};
    use crate::codec::{AckKind, Reason};

    #[test]
    fn a_later_publish_is_not_acknowledged_before_an_earlier_one() {
        let mut queue = AckQueue::default();
        let first = queue.push(AckKind::PubAck, 1, AckState::Waiting);
        queue.push(AckKind::PubAck, 2, AckState::Ready(Reason::SUCCESS));
        assert!(queue.pop_ready().is_none());
        queue.resolve(first, Reason::SUCCESS);
        assert_eq!(queue.pop_ready().map(|a| a.packet_id), Some(1));
        assert_eq!(queue.pop_ready().map(|a| a.packet_id), Some(2));
    }
}
