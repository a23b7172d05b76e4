//! Messages that were sent to a client and are not finished: packet ids, windows, and their order.

use crate::message::{Message, QoS};
use crate::session::feed::Source;
use crate::store::position::{Partition, Seq};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use smallvec::SmallVec;

/// How far an outgoing QoS 1 or 2 message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// QoS 2 of a persistent session: the reservation of the packet id is not yet durable, nothing was sent.
    Reserving,
    /// PUBLISH sent; PUBACK or PUBREC is due.
    Sent,
    /// PUBREC came; "released" is not yet durable, PUBREL was not sent.
    Releasing,
    /// PUBREL sent; PUBCOMP is due.
    Released,
}

/// One message in flight.
#[derive(Clone, Debug)]
pub(crate) struct Inflight {
    pub packet_id: u16,
    /// How many ids had been given when this one was.
    pub serial: u64,
    /// The body; absent after a restart until it is read back, after PUBREC, and where nobody can come back
    /// for it.
    pub message: Option<Arc<Message>>,
    pub pos: Option<(Partition, Seq)>,
    pub source: Source,
    pub qos: QoS,
    pub retain: bool,
    pub sub_ids: SmallVec<[u32; 1]>,
    pub stage: Stage,
    /// Sent on the present connection.
    pub sent: bool,
    /// The session record of this version must be durable before the next packet leaves.
    pub needs: u64,
}

impl Inflight {
    /// True for the copy that the session's own subscriptions got from the log at `pos`. A copy that a group or a
    /// replay of retained messages sent may have the same position, and stands for nothing but itself.
    pub fn is_copy_of(&self, pos: (Partition, Seq)) -> bool {
        self.source == Source::Log && self.pos == Some(pos)
    }
}

/// The window towards one client.
#[derive(Debug)]
pub(crate) struct Outflow {
    /// In the order in which packet ids were given.
    pub inflight: VecDeque<Inflight>,
    /// Most in flight: Receive Maximum of the client and our own bound [MQTT-3.3.4-9].
    pub quota: u16,
    next_id: u16,
    serial: u64,
    /// Entries that the present connection took over from an earlier one; only a hint that ends a search early.
    pub left_over: usize,
}

impl Default for Outflow {
    fn default() -> Outflow {
        Outflow { inflight: VecDeque::new(), quota: u16::MAX, next_id: 1, serial: 0, left_over: 0 }
    }
}

impl Outflow {
    /// True if one more may be sent.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.inflight.len() < self.quota as usize
    }

    /// A packet id that is not in use [MQTT-2.2.1-4], and the serial number of its giving. Call only with room.
    ///
    /// Ids are given in rising order: as long as the oldest message in flight is younger than one turn
    /// of the ring, no id can be met again, so the window is searched only after that.
    pub fn next_id(&mut self) -> (u16, u64) {
        let turned = self.inflight.front().is_some_and(|f| self.serial - f.serial >= 65_000);
        loop {
            let id = self.next_id;
            self.next_id = if id == u16::MAX { 1 } else { id + 1 };
            if !(turned && self.inflight.iter().any(|f| f.packet_id == id)) {
                self.serial += 1;
                return (id, self.serial);
            }
        }
    }

    /// After a restart: continue behind the ids that are in use.
    pub fn resume_ids(&mut self) {
        if let Some(last) = self.inflight.back() {
            self.next_id = if last.packet_id == u16::MAX { 1 } else { last.packet_id + 1 };
        }
    }

    /// True if something of an earlier connection was not sent again on this one. Such entries are older
    /// than all new ones, but those that were never sent wait for the store, not for the window.
    #[inline]
    pub fn unsent(&self) -> bool {
        self.left_over > 0
            && self.inflight.iter().any(|f| !f.sent && matches!(f.stage, Stage::Sent | Stage::Released))
    }

    /// The message with this id. Clients acknowledge in order, so it is usually the first.
    #[inline]
    pub fn find(&mut self, packet_id: u16) -> Option<usize> {
        self.inflight.iter().position(|f| f.packet_id == packet_id)
    }
}

#[cfg(test)]
mod tests {
    use super::{Inflight, Outflow, Stage};
    use crate::message::QoS;
    use crate::session::feed::Source;
    use smallvec::SmallVec;

    fn entry((packet_id, serial): (u16, u64)) -> Inflight {
        Inflight {
            packet_id,
            serial,
            message: None,
            pos: None,
            source: Source::Live,
            qos: QoS::AtLeastOnce,
            retain: false,
            sub_ids: SmallVec::new(),
            stage: Stage::Sent,
            sent: true,
            needs: 0,
        }
    }

    #[test]
    fn packet_ids_are_never_zero_and_never_in_use() {
        let mut out = Outflow { quota: 5, ..Outflow::default() };
        for round in 0..200_000u32 {
            let (id, serial) = out.next_id();
            assert_ne!(id, 0);
            assert!(out.find(id).is_none(), "round {round}");
            out.inflight.push_back(entry((id, serial)));
            // One message at the front stays for a whole turn of the ring.
            if out.inflight.len() == 5 {
                let victim = if round % 150_000 == 149_999 { 0 } else { 1 + (round as usize % 4) };
                out.inflight.remove(victim);
            }
        }
    }
}
