//! The gate before a SUBACK or UNSUBACK: it opens once the subscription is stored and works on every
//! shard. It always has a deadline, through the operations that it waits for.

use crate::codec::{Packet, Props, Reason, SubAck, Version};
use crate::conn::Phase;
use crate::ids::{ConnId, SessionId};
use crate::shard::Shard;
use crate::shard::complete::reason_of;
use crate::shard::ops::Op;
use crate::shard::peer::{GroupRef, PeerMsg};
use crate::store::port::CommitResult;
use crate::subscribe::scan::ScanRequest;
use alloc::boxed::Box;
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
        let reason = reason_of(result);
        if !reason.is_error() {
            let (session, stored) = (gate.session, core::mem::take(&mut gate.stored));
            for stored in stored {
                let present =
                    self.plane.session(session).and_then(|s| s.subscriptions.get_mut(&stored.filter));
                if let Some(subscription) = present {
                    subscription.confirmed = true;
                }
            }
            self.try_open(gate_id);
            return;
        }
        if reason.is_error() {
            gate.scans.clear();
            let (session, kind) = (gate.session, gate.kind);
            let failed = core::mem::take(&mut gate.stored);
            for stored in &failed {
                gate.codes[stored.index] = reason.0;
            }
            if kind == GateKind::Subscribe {
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
                if !undo.is_empty() {
                    // It may have been applied: then it is taken back behind it.
                    let class = self.class();
                    self.commit(Op::End, undo, class);
                }
            }
        }
        self.try_open(gate_id);
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
                Some(_) => self.drop_subscription(member, &filter),
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
            return;
        }
        let mut codes = gate.codes;
        let Some(conn) = self.plane.conn(gate.conn) else { return };
        if conn.version < Version::V5 {
            // 3.x knows 0, 1, 2 and 0x80; 3.1 not even 0x80, but its clients read it as "not granted".
            for code in &mut codes {
                *code = if *code >= 0x80 { 0x80 } else { *code };
            }
        }
        let ack = SubAck { packet_id: gate.packet_id, props: Props::EMPTY, codes: &codes };
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
