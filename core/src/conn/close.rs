//! How connections end: by the client, by us with a reason, or by the network.

use crate::codec::{
    self, Ack, AckKind, Disconnect, Packet, Property, Props, PropsBuf, Reason, Version, Violation,
};
use crate::conn::Phase;
use crate::conn::acks::AckState;
use crate::ids::{ConnId, SessionId};
use crate::session::Subscription;
use crate::shard::Shard;
use crate::shard::input::{Effect, LogEvent};
use crate::sys::Cut;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Bytes of waiting output from which on a consumer is worth cutting.
const CUT_FROM: usize = 16 * 1024;

impl Shard {
    /// The client broke the protocol: the reason that the specification names, then close [MQTT-4.13.1-1].
    pub(crate) fn violation(&mut self, id: ConnId, violation: Violation) {
        self.plane.counters.violations += 1;
        self.log(LogEvent::Violation {
            conn: id,
            reason: violation.reason.0,
            why: violation.why,
            statement: violation.statement,
        });
        self.disconnect(id, violation.reason);
    }

    /// Ends a connection from our side. An MQTT 5 client hears why [MQTT-3.14.0-1]; for the session it is
    /// an unclean end.
    pub(crate) fn disconnect(&mut self, id: ConnId, reason: Reason) {
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        if conn.version == Version::V5 && conn.phase == Phase::Online {
            let packet = Packet::Disconnect(Disconnect { reason, props: Props::EMPTY });
            if packet.encoded_len(Version::V5) <= conn.max_packet_out as usize {
                let mut failed = false;
                self.plane.write(id, |conn| failed = packet.encode(conn.version, conn.out.tail()).is_err());
                debug_assert!(!failed, "a DISCONNECT without properties always encodes");
            }
        }
        self.shut(id, true);
    }

    /// Takes the connection from its session and tells the driver to close it once its output is written.
    pub(crate) fn shut(&mut self, id: ConnId, publish_will: bool) {
        self.end(id, publish_will, true);
    }

    fn end(&mut self, id: ConnId, publish_will: bool, flush: bool) {
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        let was_online = conn.phase == Phase::Online;
        conn.phase = Phase::Closing;
        conn.hold = alloc::vec::Vec::new();
        let session = conn.session;
        self.effects.push(Effect::Close { conn: id, flush });
        self.detach(id, session, publish_will, was_online);
    }

    /// The socket is gone.
    pub(crate) fn closed(&mut self, id: ConnId) {
        let Some(conn) = self.plane.conn(id) else { return };
        let (phase, session) = (conn.phase, conn.session);
        if phase != Phase::Closing {
            conn.phase = Phase::Closing;
            self.detach(id, session, true, phase == Phase::Online);
        }
        self.plane.counters.disconnects += 1;
        self.plane.conns[id.idx as usize] = None;
    }

    /// Memory is short: an eighth of the QoS 0 consumers with much output waiting are cut, the largest first.
    /// What waits for them is dropped with them; it was promised to nobody, and a DISCONNECT behind it would
    /// not get through.
    pub(crate) fn relieve(&mut self) {
        let sessions = &self.plane.sessions;
        let mut large: Vec<(usize, ConnId)> = self
            .plane
            .conns
            .iter()
            .flatten()
            .filter(|c| c.phase == Phase::Online && c.out.len() >= CUT_FROM)
            .filter(|c| {
                let session = sessions.get(c.session.idx, c.session.generation);
                session.is_some_and(|s| !s.subscriptions.values().any(Subscription::is_durable))
            })
            .map(|c| (c.out.len(), c.id))
            .collect();
        large.sort_by_key(|(bytes, id)| (Reverse(*bytes), id.idx));
        for (_, id) in large.iter().take(large.len().div_ceil(8)) {
            self.plane.counters.cuts[Cut::Memory as usize] += 1;
            self.end(*id, true, false);
        }
    }

    /// DISCONNECT from the client.
    pub(crate) fn disconnect_in(
        &mut self,
        id: ConnId,
        session: SessionId,
        disconnect: &Disconnect<'_>,
    ) -> Result<(), Violation> {
        let tenant = self.plane.conn(id).map(|c| c.mount.tenant());
        let max = tenant.map_or(self.plane.settings.session_expiry_max, |t| self.caps(t).session_expiry);
        if let Some(expiry) = disconnect.props.session_expiry() {
            let Some(state) = self.plane.session(session) else { return Ok(()) };
            if state.expiry_secs == 0 && expiry != 0 {
                // MQTT 5, 3.14.2.2.2
                return Err(Violation {
                    reason: Reason::PROTOCOL_ERROR,
                    why: "DISCONNECT raises a session expiry of 0",
                    statement: "",
                });
            }
            state.expiry_secs = expiry.min(max);
        }
        // [MQTT-3.14.4-3] 0x04 asks for the will; every other reason from a client but 0x00 is unclean too.
        self.shut(id, disconnect.reason != Reason::SUCCESS);
        Ok(())
    }

    /// Drains: every client is told, every session is written.
    pub(crate) fn drain(&mut self, reason: Reason) {
        self.draining = true;
        let ids: alloc::vec::Vec<ConnId> = self.plane.conns.iter().flatten().map(|c| c.id).collect();
        for id in ids {
            if self.plane.is_online(id) {
                self.disconnect(id, reason);
            } else {
                self.shut(id, true);
            }
        }
        self.flush_cursors();
    }

    /// Writes the acknowledgement of a publish that is decided.
    pub(crate) fn put_decided(&mut self, id: ConnId, kind: AckKind, packet_id: u16, state: AckState) {
        match state {
            AckState::Waiting => {}
            AckState::Ready(reason) => self.put_ack(id, kind, packet_id, reason),
            AckState::Refused(refused) => {
                let mut props = PropsBuf::new();
                let wanted = self.plane.conn(id).is_some_and(|c| c.problem_info)
                    && props.push(&Property::ReasonString(refused.why())).is_ok();
                let props = if wanted { props } else { PropsBuf::new() };
                self.put_refusing(id, kind, packet_id, Reason::QUOTA_EXCEEDED, &props);
            }
            AckState::Denied(verdict) => {
                let tenant = self.plane.conn(id).map(|c| c.mount.tenant());
                let explains = self.plane.settings.explain_denials;
                let props = match tenant.filter(|_| explains) {
                    Some(tenant) => {
                        let why = self.reason_of_denial(tenant, verdict);
                        self.explanation(id, &why)
                    }
                    None => PropsBuf::new(),
                };
                self.put_refusing(id, kind, packet_id, Reason::NOT_AUTHORIZED, &props);
            }
        }
    }

    /// A refusing PUBACK or PUBREC, with its reason in words where the client has room for them [MQTT-3.4.2-2],
    /// [MQTT-3.5.2-2]. Only MQTT 5 connections come here.
    fn put_refusing(&mut self, id: ConnId, kind: AckKind, packet_id: u16, reason: Reason, props: &PropsBuf) {
        let props = props.as_props();
        let wanted = !props.is_empty();
        let ack = Ack { packet_id, reason, props };
        let packet = match kind {
            AckKind::PubRec => Packet::PubRec(ack),
            AckKind::PubAck | AckKind::PubRel | AckKind::PubComp => Packet::PubAck(ack),
        };
        let mut written = false;
        if wanted {
            self.plane.write(id, |conn| {
                written = packet.encoded_len(conn.version) <= conn.max_packet_out as usize
                    && packet.encode(conn.version, conn.out.tail()).is_ok();
            });
        }
        if !written {
            self.put_ack(id, kind, packet_id, reason);
            return;
        }
        if let Some(conn) = self.plane.conn(id) {
            conn.open_publishes = conn.open_publishes.saturating_sub(1);
        }
    }

    /// Writes an acknowledgement.
    pub(crate) fn put_ack(&mut self, id: ConnId, kind: codec::AckKind, packet_id: u16, reason: Reason) {
        let ends = match kind {
            AckKind::PubAck | AckKind::PubComp => true,
            AckKind::PubRec => reason.is_error(),
            AckKind::PubRel => false,
        };
        if let (true, Some(conn)) = (ends, self.plane.conn(id)) {
            // A PUBCOMP may end an exchange of an earlier connection, which does not count on this one.
            conn.open_publishes = conn.open_publishes.saturating_sub(1);
        }
        self.plane.write(id, |conn| codec::put_ack(kind, packet_id, reason, conn.version, conn.out.tail()));
    }
}
