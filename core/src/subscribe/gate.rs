//! The gate before a SUBACK or UNSUBACK: it opens once the subscription is stored and works on every
//! shard. It always has a deadline, through the operations that it waits for.

use crate::codec::{Packet, PropsBuf, Reason, SubAck, Version};
use crate::conn::Phase;
use crate::ids::{ConnId, SessionId};
use crate::shard::Shard;
use crate::shard::complete::reason_of;
use crate::shard::peer::{GroupRef, PeerMsg};
use crate::store::port::CommitResult;
use crate::subscribe::scan::ScanRequest;
use crate::sys::FilterRefused;
use crate::topic;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Which packet leaves when it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateKind {
    Subscribe,
    Unsubscribe,
}

/// A subscription on its way to the store.
#[derive(Debug)]
pub(crate) struct Stored {
    pub filter: Box<str>,
    /// Of its code.
    pub index: usize,
    /// See [`crate::session::Subscription::serial`].
    pub serial: u64,
    /// It was not there before.
    pub new: bool,
}

/// A SUBACK or UNSUBACK that waits.
#[derive(Debug)]
pub(crate) struct Gate {
    pub kind: GateKind,
    pub conn: ConnId,
    pub session: SessionId,
    pub packet_id: u16,
    pub codes: Vec<u8>,
    /// What denied filters, in words, where clients may know.
    pub why: String,
    /// Answers that are due.
    pub pending: u32,
    /// Retained messages to send afterwards.
    pub scans: Vec<ScanRequest>,
    /// What is being stored: taken back if that fails.
    pub stored: Vec<Stored>,
    /// Filter and index in `codes` of shared subscriptions whose leader answers, by token.
    pub joins: Vec<(u64, Box<str>, usize)>,
}

impl Shard {
    /// Puts a gate up; with nothing to wait for it opens at once.
    pub(crate) fn set_gate(&mut self, gate: Gate) -> (u32, u32) {
        self.gates.insert(gate)
    }

    pub(crate) fn gate_stored(&mut self, gate_id: (u32, u32), result: &CommitResult) {
        let Some(gate) = self.gates.get_mut(gate_id.0, gate_id.1) else { return };
        gate.pending -= 1;
        let (session, kind) = (gate.session, gate.kind);
        let stored = core::mem::take(&mut gate.stored);
        let reason = reason_of(result);
        match (kind, reason.is_error()) {
            (GateKind::Subscribe, false) => {
                for Stored { filter, index, .. } in stored {
                    let present = self.plane.session(session).and_then(|s| s.subscriptions.get_mut(&filter));
                    let Some(subscription) = present else { continue };
                    subscription.confirmed = true;
                    let qos = subscription.options.qos;
                    if let Ok(Some(shared)) = topic::split_share(&filter) {
                        let token = self.join_group(session, shared, qos);
                        self.wait_for_join(gate_id, token, &filter, index);
                    }
                }
            }
            (GateKind::Subscribe, true) => {
                let scans = core::mem::take(&mut gate.scans);
                for stored in &stored {
                    gate.codes[stored.index] = reason.0;
                }
                if let Some(session) = self.plane.session(session) {
                    session.end_replays(|r| scans.iter().any(|s| s.replay == r.number));
                }
                self.take_back(session, stored, result);
            }
            (GateKind::Unsubscribe, false) => {
                for Stored { filter, serial, .. } in stored {
                    self.leave_filter(session, &filter, serial);
                }
                // [MQTT-3.10.4-2], [MQTT-3.10.4-3] What is unsent stops; what was begun is finished.
                self.drop_unmatched(session);
            }
            (GateKind::Unsubscribe, true) => {
                // UNSUBACK knows few codes (MQTT 5, 3.11.3); this one fits whatever the store's trouble is.
                for stored in &stored {
                    gate.codes[stored.index] = Reason::UNSPECIFIED_ERROR.0;
                }
                self.keep_filters(session, &stored, result);
                self.refuse_unsubscribe(gate_id);
            }
        }
        self.try_open(gate_id);
    }

    /// The gate waits for the answer of a group's leader.
    fn wait_for_join(&mut self, gate_id: (u32, u32), token: u64, filter: &str, index: usize) {
        self.tokens.insert(token, gate_id);
        if let Some(gate) = self.gates.get_mut(gate_id.0, gate_id.1) {
            gate.pending += 1;
            gate.joins.push((token, Box::from(filter), index));
        }
    }

    /// A SUBSCRIBE could not be stored: what it made anew goes again.
    fn take_back(&mut self, session: SessionId, failed: Vec<Stored>, result: &CommitResult) {
        let mut undo = Vec::new();
        for Stored { filter, serial, new, .. } in failed {
            let present = self.plane.session(session).and_then(|s| s.subscriptions.get_mut(&filter));
            // Gone, or it was there before.
            let Some(present) = present.filter(|_| new) else { continue };
            present.doubtful |= *result == CommitResult::Unknown;
            if present.serial != serial || present.confirmed {
                // A later SUBSCRIBE has made it anew, or an earlier one was answered meanwhile.
                continue;
            }
            if present.doubtful {
                undo.extend(self.filter_delete(session, &filter));
            }
            self.drop_subscription(session, &filter);
        }
        self.drop_unmatched(session);
        // It may have been applied: then it is taken back behind it.
        self.commit_end(undo);
    }

    /// An UNSUBSCRIBE could not be stored: its filters stay. Those that may be deleted all the same are
    /// written again behind it.
    fn keep_filters(&mut self, session: SessionId, failed: &[Stored], result: &CommitResult) {
        let mut again = Vec::new();
        for Stored { filter, serial, .. } in failed {
            let Some(state) = self.plane.session(session) else { return };
            if let Some(subscription) = state.subscriptions.get_mut(filter).filter(|s| s.serial == *serial) {
                subscription.leaving = false;
                if *result == CommitResult::Unknown {
                    let replay = state.replay_of(filter);
                    again.extend(self.filter_put(session, filter, replay));
                }
            }
        }
        self.commit_end(again);
    }

    /// 3.x has no way to say that an UNSUBSCRIBE failed, so its client gets no answer and is disconnected.
    fn refuse_unsubscribe(&mut self, gate_id: (u32, u32)) {
        let Some(conn) = self.gates.get(gate_id.0, gate_id.1).map(|g| g.conn) else { return };
        if self.plane.conn(conn).is_some_and(|c| c.version < Version::V5) {
            self.disconnect(conn, Reason::UNSPECIFIED_ERROR);
        }
    }

    /// An interest change is in effect on one more shard.
    pub(crate) fn gate_token(&mut self, token: u64) {
        if self.group_token(token) {
            return;
        }
        let Some(gate_id) = self.tokens.get(&token).copied() else { return };
        let Some(gate) = self.gates.get_mut(gate_id.0, gate_id.1) else {
            self.tokens.remove(&token);
            return;
        };
        gate.pending -= 1;
        self.try_open(gate_id);
    }

    /// A group's leader answered.
    pub(crate) fn joined(&mut self, token: u64, member: SessionId, group: GroupRef, ok: bool) {
        let gate_id = self.tokens.remove(&token);
        let mut filter = None;
        if let Some((idx, generation)) = gate_id
            && let Some(gate) = self.gates.get_mut(idx, generation)
            && let Some(at) = gate.joins.iter().position(|(t, _, _)| *t == token)
        {
            let (_, name, index) = gate.joins.swap_remove(at);
            gate.pending -= 1;
            if !ok {
                gate.codes[index] = Reason::QUOTA_EXCEEDED.0;
            }
            filter = Some(name);
        } else if let Some(name) = self.rejoining.remove(&token) {
            filter = Some(name);
        }
        if let Some(filter) = filter {
            let uid = self.plane.uid_of(member);
            let member_ref = crate::shard::peer::MemberRef { shard: self.me, session: member, uid };
            match self.plane.session(member).and_then(|s| s.subscriptions.get_mut(&filter)) {
                Some(subscription) if ok => {
                    subscription.group = Some(group);
                    // It may have come online since it asked.
                    self.tell_presence(member);
                }
                Some(_) => {
                    // It was stored before its group could refuse it.
                    let undo = self.filter_delete(member, &filter).into_iter().collect();
                    self.drop_subscription(member, &filter);
                    self.commit_end(undo);
                }
                // Unsubscribed or gone meanwhile.
                None if ok => self.send(group.leader, PeerMsg::GroupLeave { group, member: member_ref }),
                None => {}
            }
        }
        if let Some(gate_id) = gate_id {
            self.try_open(gate_id);
        }
    }

    /// Sends the answer once nothing is waited for.
    pub(crate) fn try_open(&mut self, gate_id: (u32, u32)) {
        if self.gates.get(gate_id.0, gate_id.1).is_none_or(|g| g.pending > 0) {
            return;
        }
        let Some(gate) = self.gates.remove(gate_id.0, gate_id.1) else { return };
        self.tokens.retain(|_, g| *g != gate_id);
        if !self.plane.conn(gate.conn).is_some_and(|c| c.phase == Phase::Online) {
            // The session is owed its retained messages all the same.
            for request in gate.scans.into_iter().filter(|r| r.replay > 0) {
                self.begin_scan(gate.session, request);
            }
            return;
        }
        let mut codes = gate.codes;
        if gate.kind == GateKind::Subscribe {
            for refused in codes.iter().filter_map(|code| FilterRefused::of(*code)) {
                self.plane.counters.filters_refused[refused as usize] += 1;
            }
        }
        let Some(conn) = self.plane.conn(gate.conn) else { return };
        if conn.version < Version::V5 {
            // 3.x knows 0, 1, 2 and 0x80; 3.1 not even 0x80, but its clients read it as "not granted".
            for code in &mut codes {
                *code = if *code >= 0x80 { 0x80 } else { *code };
            }
        }
        let mut props =
            if gate.why.is_empty() { PropsBuf::new() } else { self.explanation(gate.conn, &gate.why) };
        let Some(conn) = self.plane.conn(gate.conn) else { return };
        let long = SubAck { packet_id: gate.packet_id, props: props.as_props(), codes: &codes };
        if Packet::SubAck(long).encoded_len(conn.version) > conn.max_packet_out as usize {
            // [MQTT-3.9.2-1]
            props = PropsBuf::new();
        }
        let ack = SubAck { packet_id: gate.packet_id, props: props.as_props(), codes: &codes };
        let packet = match gate.kind {
            GateKind::Subscribe => Packet::SubAck(ack),
            GateKind::Unsubscribe => Packet::UnsubAck(ack),
        };
        let mut failed = false;
        self.plane.write(gate.conn, |conn| {
            failed = packet.encoded_len(conn.version) > conn.max_packet_out as usize
                || packet.encode(conn.version, conn.out.tail()).is_err();
        });
        if failed {
            self.disconnect(gate.conn, Reason::PACKET_TOO_LARGE);
            return;
        }
        for request in gate.scans {
            self.begin_scan(gate.session, request);
        }
    }
}
