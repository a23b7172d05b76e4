//! From bytes to packets to their handlers.

use crate::codec::{self, Packet, PacketType, Property, PropsBuf, Reason, Version, Violation};
use crate::conn::handshake::AuthQuestion;
use crate::conn::identity::Claims;
use crate::conn::{Conn, Phase};
use crate::ids::{ConnId, SessionId};
use crate::session::plane::Plane;
use crate::shard::Shard;
use crate::shard::input::Effect;
use crate::shard::ops::Op;
use crate::subscribe::fence::Fence;
use crate::tenant::limits::Row;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// Bytes held for a connection that cannot be processed, above which its socket is no longer read.
const HOLD_MAX: usize = 8 * 1024;
/// Appends of one connection that may be unanswered before its socket is no longer read: bounds QoS 0
/// publishes that go through the store, which Receive Maximum doesn't cover.
const APPENDS_MAX: u32 = 1000;

impl Shard {
    pub(crate) fn received(&mut self, id: ConnId, bytes: &[u8]) {
        self.plane.counters.bytes_in += bytes.len() as u64;
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        if conn.hold.is_empty() && may_process(conn) {
            self.received_in_place(id, bytes);
            return;
        }
        let mut bytes = bytes;
        if may_process(conn) {
            // Only the frame that is held incomplete is completed there; the rest is read in place.
            // (A whole read copied behind it made 1 KiB messages three times as dear.)
            bytes = complete_frame(&mut conn.hold, bytes);
            self.process_held(id);
            let Some(conn) = self.plane.conn(id) else { return };
            if conn.phase == Phase::Closing || bytes.is_empty() {
                return;
            }
            if conn.hold.is_empty() && may_process(conn) {
                self.received_in_place(id, bytes);
                return;
            }
            // Several frames were held, and the last is incomplete too; or nothing more may be handled.
            conn.hold.extend_from_slice(bytes);
            self.process_held(id);
            return;
        }
        conn.hold.extend_from_slice(bytes);
        self.check_pause(id);
    }

    /// Processes bytes from where they are, and holds what is left.
    fn received_in_place(&mut self, id: ConnId, bytes: &[u8]) {
        let used = self.process(id, bytes);
        let rest = &bytes[used..];
        if !rest.is_empty()
            && let Some(conn) = self.plane.conn(id)
            && conn.phase != Phase::Closing
        {
            conn.hold.extend_from_slice(rest);
        }
        self.check_pause(id);
    }

    /// Processes what is held, if it may be.
    pub(crate) fn process_held(&mut self, id: ConnId) {
        let Some(conn) = self.plane.conn(id) else { return };
        if may_process(conn) && !conn.hold.is_empty() {
            let mut hold = core::mem::take(&mut conn.hold);
            let used = self.process(id, &hold);
            if let Some(conn) = self.plane.conn(id)
                && conn.phase != Phase::Closing
            {
                if used == hold.len() {
                    hold.clear();
                    // An idle connection holds no buffer.
                    if hold.capacity() > 4096 {
                        hold = Vec::new();
                    }
                } else {
                    hold.drain(..used);
                }
                conn.hold = hold;
            }
        }
        self.check_pause(id);
    }

    /// Stops or resumes reading by what the connection still has to digest.
    pub(crate) fn check_pause(&mut self, id: ConnId) {
        let Some(conn) = self.plane.conn(id) else { return };
        let blocked = !may_process(conn);
        let want = conn.phase != Phase::Closing
            && blocked
            && (conn.hold.len() > HOLD_MAX || conn.phase == Phase::Online);
        if want != conn.paused {
            conn.paused = want;
            let (limited, tenant) = (want && conn.quota.limited && acks_block(conn), conn.mount.tenant());
            self.effects.push(if want { Effect::Pause { conn: id } } else { Effect::Resume { conn: id } });
            if limited {
                self.told_limit_hit(tenant, Row::ReceiveMaximum);
            }
        }
    }

    /// Handles all complete packets of `buf`; returns how many bytes they were.
    fn process(&mut self, id: ConnId, buf: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.plane.conn(id) else { return buf.len() };
            if conn.phase == Phase::Closing {
                return buf.len();
            }
            if !may_process(conn) {
                return at;
            }
            let (max_packet, limited) = (conn.max_packet_in, conn.quota.limited);
            let (session, version, tenant) = (conn.session, conn.version, conn.mount.tenant());
            let frame = match codec::cut(&buf[at..], max_packet) {
                Ok(Some(frame)) => frame,
                Ok(None) => return at,
                Err(violation) => {
                    if limited && violation.reason == Reason::PACKET_TOO_LARGE {
                        self.told_limit_hit(tenant, Row::PacketSize);
                    }
                    self.violation(id, violation);
                    return buf.len();
                }
            };
            if limited && self.must_wait(id, session, &frame) {
                return at;
            }
            if frame.first >> 4 == PacketType::Subscribe as u8 && !self.may_subscribe(id) {
                return at;
            }
            if limited {
                self.observe_packet(tenant, frame.total);
            }
            at += frame.total;
            // Whole packets count as life; a trickle of bytes does not.
            let now = self.plane.now.mono;
            if let Some(conn) = self.plane.conn(id) {
                conn.last_seen = now;
            }
            let outcome =
                codec::decode(&frame, version).and_then(|p| self.dispatch(id, session, version, &p));
            if let Err(violation) = outcome {
                // What is wrong inside a second CONNECT does not matter, and no DISCONNECT has a reason for it.
                let second = frame.first >> 4 == PacketType::Connect as u8;
                let violation = if second { second_connect() } else { violation };
                self.violation(id, violation);
                return buf.len();
            }
        }
    }

    fn dispatch(
        &mut self,
        id: ConnId,
        session: SessionId,
        version: Version,
        packet: &Packet<'_>,
    ) -> Result<(), Violation> {
        match packet {
            Packet::Publish(publish) => self.publish_in(id, session, publish),
            Packet::PubAck(ack) => {
                self.puback(session, ack.packet_id, ack.reason);
                Ok(())
            }
            Packet::PubRec(ack) => {
                self.pubrec(id, session, ack.packet_id, ack.reason);
                Ok(())
            }
            Packet::PubRel(ack) => {
                self.pubrel(id, session, ack.packet_id);
                Ok(())
            }
            Packet::PubComp(ack) => {
                self.pubcomp(session, ack.packet_id);
                Ok(())
            }
            Packet::Subscribe(subscribe) => self.subscribe(id, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(id, session, unsubscribe),
            Packet::PingReq => {
                // [MQTT-3.12.4-1]
                self.plane.write(id, |conn| conn.out.tail().extend_from_slice(&[0xD0, 0x00]));
                Ok(())
            }
            Packet::Disconnect(disconnect) => {
                codec::check_from_client(packet)?;
                self.disconnect_in(id, session, disconnect)
            }
            Packet::Auth(auth) if version == Version::V5 => self.reauthenticate(id, auth),
            // [MQTT-3.1.0-2]
            Packet::Connect(_) => Err(second_connect()),
            Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Auth(_) => Err(protocol_error("packet that a client may not send", "")),
        }
    }

    /// Re-authentication (MQTT 5, 4.12.1): only where the connection began with a method, and with the same.
    fn reauthenticate(&mut self, id: ConnId, auth: &codec::Auth<'_>) -> Result<(), Violation> {
        let Some(conn) = self.plane.conn(id) else { return Ok(()) };
        let Some(method) = conn.auth_method.clone() else {
            return Err(protocol_error("AUTH without an authentication method in CONNECT", "MQTT-4.12.0-6"));
        };
        if auth.props.auth_method() != Some(&*method) {
            return Err(protocol_error("AUTH with another method than CONNECT had", "MQTT-4.12.1-1"));
        }
        if auth.reason != Reason::REAUTHENTICATE && auth.reason != Reason::CONTINUE_AUTHENTICATION {
            return Err(protocol_error("AUTH with a reason that a client may not send", "MQTT-3.15.2-1"));
        }
        let session = conn.session;
        let client_id = self.plane.session(session).map_or_else(|| Box::from(""), |s| s.client_id.clone());
        let data = auth.props.auth_data().map(Bytes::copy_from_slice);
        let op = self.begin(Op::Auth { conn: id });
        let question = AuthQuestion::Step { client_id, method, data };
        self.effects.push(Effect::Auth { op, conn: id, question });
        Ok(())
    }

    pub(crate) fn reauthenticated(&mut self, id: ConnId, answer: crate::conn::handshake::AuthAnswer) {
        use crate::conn::handshake::AuthAnswer;
        let Some(conn) = self.plane.conn(id) else { return };
        let method = conn.auth_method.clone().unwrap_or_default();
        let (reason, data) = match answer {
            AuthAnswer::Continue { data } => (Reason::CONTINUE_AUTHENTICATION, Some(data)),
            AuthAnswer::Accept { identity, data } => {
                let same = self.plane.conn(id).map(|c| (c.mount.tenant(), c.username.clone()));
                let expires = identity.expires;
                let claims = identity.claims;
                if same != Some((identity.tenant, identity.principal)) {
                    // Another identity may not slip into a running session.
                    self.disconnect(id, Reason::NOT_AUTHORIZED);
                    return;
                }
                // The new proof counts from now on.
                if let Some(conn) = self.plane.conn(id) {
                    conn.expires = expires;
                }
                self.claim_anew(id, claims);
                (Reason::SUCCESS, data)
            }
            AuthAnswer::Refuse { reason } => {
                // [MQTT-4.12.1-2] Some reasons are CONNACK's alone [MQTT-3.14.2-1].
                let reason = if reason.in_disconnect() { reason } else { Reason::NOT_AUTHORIZED };
                self.disconnect(id, reason);
                return;
            }
        };
        let mut props = PropsBuf::new();
        let fits = props.push(&Property::AuthMethod(&method)).is_ok()
            && data.is_none_or(|d| props.push(&Property::AuthData(&d)).is_ok());
        let packet = Packet::Auth(codec::Auth { reason, props: props.as_props() });
        let mut failed = !fits;
        self.plane.write(id, |conn| failed |= packet.encode(conn.version, conn.out.tail()).is_err());
        if failed {
            self.disconnect(id, Reason::UNSPECIFIED_ERROR);
        }
    }

    /// The proof of a running connection says other things than it did.
    fn claim_anew(&mut self, id: ConnId, claims: Claims) {
        let Some(session_id) = self.plane.conn(id).map(|c| c.session) else { return };
        let Some(session) = self.plane.session(session_id) else { return };
        // The address is the connection's, whatever its proof.
        let claims = Claims { source: session.claims.source, ..claims };
        if session.claims == claims {
            return;
        }
        session.claims = claims;
        let (tenant, user) = (session.mount.tenant(), session.principal.clone());
        let (client_id, claims) = (session.client_id.clone(), session.claims.clone());
        let rights = self.rights_of(tenant, user.as_deref(), &client_id, &claims);
        self.give_rights(session_id, rights);
    }

    /// Marks a connection whose held bytes may be processable again.
    pub(crate) fn unhold(&mut self, id: ConnId) {
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.paused || !conn.hold.is_empty() {
            self.unheld.push(id);
        }
    }
}

/// Moves into `hold` what completes its first frame; returns the bytes that are left. A frame whose
/// length is not readable, or makes no sense, gets what may tell: the decoder judges it then.
fn complete_frame<'a>(hold: &mut Vec<u8>, mut bytes: &'a [u8]) -> &'a [u8] {
    /// Longest fixed header.
    const HEADER: usize = 5;
    while let Some((&byte, rest)) = bytes.split_first()
        && codec::needed(hold).is_none()
        && hold.len() < HEADER
    {
        hold.push(byte);
        bytes = rest;
    }
    let missing = codec::needed(hold).map_or(0, |total| total.saturating_sub(hold.len()));
    let (own, rest) = bytes.split_at(missing.min(bytes.len()));
    hold.extend_from_slice(own);
    rest
}

/// True if the next packet of the connection may be handled now.
fn may_process(conn: &Conn) -> bool {
    conn.phase == Phase::Online
        && conn.quota.wait.is_none()
        && conn.appends_total < APPENDS_MAX
        && conn.fence != Fence::Waiting
        && !acks_block(conn)
}

/// A 3.x client knows no Receive Maximum, so we stop reading where an MQTT 5 client would have to stop sending.
fn acks_block(conn: &Conn) -> bool {
    conn.version != Version::V5 && conn.acks.len() >= conn.acks_max as usize
}

pub(crate) const fn protocol_error(why: &'static str, statement: &'static str) -> Violation {
    Violation { reason: Reason::PROTOCOL_ERROR, why, statement }
}

/// [MQTT-3.1.0-2]
const fn second_connect() -> Violation {
    protocol_error("second CONNECT on a connection", "MQTT-3.1.0-2")
}

impl Plane {
    /// Whether a session's connection is online.
    pub(crate) fn is_attached(&mut self, id: SessionId) -> bool {
        self.session(id).and_then(|s| s.conn).is_some_and(|conn| self.is_online(conn))
    }

    /// Whether the shard knows the connection as online.
    pub(crate) fn is_online(&mut self, id: ConnId) -> bool {
        self.conn(id).is_some_and(|c| c.phase == Phase::Online)
    }
}
