//! Acknowledgements of a client for what we sent, and the release of what it sent with QoS 2.

use crate::authz::Request;
use crate::codec::{AckKind, Reason};
use crate::conn::Phase;
use crate::ids::{ConnId, SessionId};
use crate::message::QoS;
use crate::session::feed::Source;
use crate::session::outflow::Stage;
use crate::session::plane::Followup;
use crate::session::record::inbound_tail;
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::store::key::Space;
use crate::store::port::{CommitResult, Expect, Write};
use crate::sys::Drop;

impl Shard {
    /// PUBACK. One for an id that is not in flight is ignored: it may be late, after a resume.
    pub(crate) fn puback(&mut self, id: SessionId, packet_id: u16, _reason: Reason) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(index) = session.out.find(packet_id) else { return };
        let entry = &session.out.inflight[index];
        if entry.qos == QoS::AtLeastOnce && entry.stage == Stage::Sent {
            self.finish(id, index);
        }
    }

    /// PUBREC.
    pub(crate) fn pubrec(&mut self, conn: ConnId, id: SessionId, packet_id: u16, reason: Reason) {
        let Some(session) = self.plane.session(id) else { return };
        let persistent = session.persistent;
        let Some(index) = session.out.find(packet_id) else {
            // Unknown: the exchange is over on our side; PUBREL lets the client finish its own (MQTT 5, 3.6.2.1).
            self.put_ack(conn, AckKind::PubRel, packet_id, Reason::PACKET_IDENTIFIER_NOT_FOUND);
            return;
        };
        let needs = session.stored.version + 1;
        let entry = &mut session.out.inflight[index];
        if entry.qos != QoS::ExactlyOnce {
            return;
        }
        if reason.is_error() {
            // The client refuses it; it is delivered as far as we go [MQTT-4.4.0-2].
            if entry.stage == Stage::Sent {
                self.finish(id, index);
            }
            return;
        }
        match entry.stage {
            Stage::Sent if persistent => {
                entry.stage = Stage::Releasing;
                entry.needs = needs;
                if !session.stored.wanted {
                    session.stored.wanted = true;
                    self.plane.followups.push(Followup::Store(id));
                }
            }
            Stage::Sent => {
                entry.stage = Stage::Released;
                entry.message = None;
                self.put_ack(conn, AckKind::PubRel, packet_id, Reason::SUCCESS);
            }
            Stage::Released => self.put_ack(conn, AckKind::PubRel, packet_id, Reason::SUCCESS),
            Stage::Releasing | Stage::Reserving => {}
        }
    }

    /// PUBCOMP.
    pub(crate) fn pubcomp(&mut self, id: SessionId, packet_id: u16) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(index) = session.out.find(packet_id) else { return };
        if session.out.inflight[index].stage == Stage::Released {
            self.finish(id, index);
        }
    }

    /// A message in flight is done: its window slot is free.
    fn finish(&mut self, id: SessionId, index: usize) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(entry) = session.out.inflight.remove(index) else { return };
        let first_move = session.persistent && !session.stored.moved;
        session.stored.moved |= first_move;
        let unsent = session.out.unsent();
        if first_move {
            self.plane.followups.push(Followup::Moved(id));
        }
        if let Source::Group { group, delivery } = entry.source {
            self.plane.followups.push(Followup::Settled { group, delivery, session: id, done: true });
        }
        if unsent {
            self.resend(id);
        }
        let Some(session) = self.plane.session(id) else { return };
        if !session.feed.pending.is_empty() || session.feed.behind || session.scans > 0 {
            self.plane.pump(id);
        }
    }

    /// Sends again, in order, what was in flight before this connection [MQTT-4.4.0-1], [MQTT-4.6.0-1]:
    /// as much as the client's Receive Maximum allows, the rest as that is acknowledged.
    pub(crate) fn resend(&mut self, id: SessionId) {
        let mut index = 0;
        let Some(session) = self.plane.session(id) else { return };
        let mut under_way = session.out.inflight.iter().filter(|e| e.sent).count();
        while let Some(session) = self.plane.sessions.get_mut(id.idx, id.generation) {
            let Some(conn) = session.conn else { return };
            let quota = session.out.quota as usize;
            let Some(entry) = session.out.inflight.get_mut(index) else {
                if !session.out.unsent() {
                    session.out.left_over = 0;
                }
                return;
            };
            if entry.sent {
                index += 1;
                continue;
            }
            if under_way >= quota {
                return;
            }
            let rights = session.rights.as_deref();
            let barred = entry.stage == Stage::Sent
                && entry
                    .message
                    .as_ref()
                    .is_some_and(|m| rights.is_some_and(|r| !r.check(&Request::receive(m.topic())).allowed));
            if barred {
                // The right was taken away since: what was sent once is not sent again.
                self.plane.counters.drop(Drop::NotAuthorized);
                if entry.qos == QoS::AtLeastOnce {
                    self.forget_inflight(id, index);
                    continue;
                }
                // Below it ends as what has no body any more.
                entry.message = None;
            }
            match entry.stage {
                Stage::Sent if entry.message.is_some() => {
                    entry.sent = true;
                    under_way += 1;
                    let before = session.out.inflight.len();
                    self.plane.send_inflight(id, index, true);
                    if self.plane.session(id).is_some_and(|s| s.out.inflight.len() < before) {
                        under_way -= 1;
                        continue;
                    }
                }
                Stage::Sent if entry.qos == QoS::AtLeastOnce => {
                    session.out.inflight.remove(index);
                    self.plane.counters.drop(Drop::LogTrimmed);
                    continue;
                }
                Stage::Sent | Stage::Released => {
                    // A body that is gone for good (age) ends its exchange by PUBREL: the id may be known
                    // to the client as received, so it may not simply be used anew.
                    entry.sent = true;
                    under_way += 1;
                    entry.stage = Stage::Released;
                    let packet_id = entry.packet_id;
                    self.put_ack(conn, AckKind::PubRel, packet_id, Reason::SUCCESS);
                }
                Stage::Releasing | Stage::Reserving => {}
            }
            index += 1;
        }
    }

    /// A message in flight is given up.
    fn forget_inflight(&mut self, id: SessionId, index: usize) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(entry) = session.out.inflight.remove(index) else { return };
        if session.persistent && !session.stored.moved {
            session.stored.moved = true;
            self.plane.followups.push(Followup::Moved(id));
        }
        if let Source::Group { group, delivery } = entry.source {
            self.plane.followups.push(Followup::Settled { group, delivery, session: id, done: true });
        }
    }

    /// PUBREL: the id is free again once that is stored [MQTT-4.3.3-11].
    pub(crate) fn pubrel(&mut self, conn: ConnId, id: SessionId, packet_id: u16) {
        let Some(session) = self.plane.session(id) else { return };
        if !session.inbound.contains(&packet_id) {
            self.put_ack(conn, AckKind::PubComp, packet_id, Reason::PACKET_IDENTIFIER_NOT_FOUND);
            return;
        }
        if session.stored.revision.is_none() || !session.persistent {
            session.inbound.remove(&packet_id);
            self.put_ack(conn, AckKind::PubComp, packet_id, Reason::SUCCESS);
            return;
        }
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let tail = inbound_tail(session.uid, packet_id);
        let key = self.key(tenant, Space::Inbound, &[client_id.as_bytes(), &tail]);
        let class = self.class();
        self.commit(
            Op::Release { conn, session: id, packet_id },
            alloc::vec![Write::Delete { key, expect: Expect::Any }],
            class,
        );
    }

    pub(crate) fn release_stored(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet_id: u16,
        result: &CommitResult,
    ) {
        match result {
            CommitResult::Done { .. } => {
                if let Some(session) = self.plane.session(id) {
                    session.inbound.remove(&packet_id);
                }
                if self.plane.conn(conn).is_some_and(|c| c.phase == Phase::Online) {
                    self.put_ack(conn, AckKind::PubComp, packet_id, Reason::SUCCESS);
                }
            }
            // No PUBCOMP: the client keeps the id and releases it again on its next connection.
            CommitResult::Refused(_) | CommitResult::Unknown => {
                self.disconnect(conn, Reason::UNSPECIFIED_ERROR)
            }
        }
    }
}
