//! The will of a connection, and when it goes out.

use crate::authz::Access;
use crate::codec::Will as WillPacket;
use crate::ids::{SessionId, SessionUid, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::session::plane::Outgoing;
use crate::settings::Settings;
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::shard::timers::Timer;
use crate::store::port::{CommitResult, Write};
use crate::sys::Drop;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A will message, kept with the session [MQTT-3.1.2-7].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Will {
    pub qos: QoS,
    pub retain: bool,
    pub delay_secs: u32,
    pub expiry_secs: Option<u32>,
    pub topic: Box<str>,
    /// Forwardable properties, raw, in order [MQTT-3.1.3-10].
    pub props: Box<[u8]>,
    pub payload: Box<[u8]>,
}

impl Will {
    /// The will of a CONNECT.
    pub fn from_packet(will: &WillPacket<'_>, settings: &Settings) -> Will {
        let mut props = Vec::new();
        will.props.forwardable(&mut props);
        Will {
            qos: will.qos,
            retain: will.retain,
            delay_secs: will.props.will_delay().unwrap_or(0),
            expiry_secs: cap_expiry(will.props.message_expiry(), settings),
            topic: Box::from(will.topic),
            props: props.into_boxed_slice(),
            payload: Box::from(will.payload),
        }
    }

    /// The message to publish at `now`: its expiry starts only here (MQTT 5, 3.1.3.2.4).
    pub fn message(&self, tenant: TenantId, publisher: SessionUid, now: Wall) -> Arc<Message> {
        Message::new(&MessageParts {
            tenant,
            qos: self.qos,
            retain: self.retain,
            expires: self.expiry_secs.map(|s| now.after_secs(u64::from(s))),
            publisher,
            topic: &self.topic,
            props: &self.props,
            payload: &self.payload,
        })
    }
}

/// Message Expiry Interval under the operator's bound.
pub(crate) fn cap_expiry(asked: Option<u32>, settings: &Settings) -> Option<u32> {
    match (asked, settings.message_expiry_max) {
        (asked, 0) => asked,
        (Some(secs), max) => Some(secs.min(max)),
        (None, max) => Some(max),
    }
}

impl Shard {
    /// The one decision on a will that is due: publishes it, at most once. Returns the write that must go
    /// into the same commit as whatever ends its cause; a will that needs no store is routed at once.
    pub(crate) fn fire_will(&mut self, id: SessionId) -> Vec<Write> {
        let wall = self.plane.now.wall;
        let Some(session) = self.plane.session(id) else { return Vec::new() };
        let Some(will) = session.will.take() else { return Vec::new() };
        let message = will.message(session.mount.tenant(), session.uid, wall);
        let allowed = session
            .rights
            .as_ref()
            .is_none_or(|rights| rights.check(Access::Publish, message.topic()).allowed);
        if !allowed {
            // The right was revoked between CONNECT and now.
            self.plane.counters.drop(Drop::NotAuthorized);
            return Vec::new();
        }
        match self.append_of(&message) {
            Some(append) => alloc::vec![Write::Append(append)],
            None => {
                self.route(&mut Outgoing::shared(&message, None));
                Vec::new()
            }
        }
    }

    /// A will's delay is over, or there is none.
    pub(crate) fn will_due(&mut self, id: SessionId) {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return };
        let (Some(since), Some(will)) = (session.away_since, &session.will) else { return };
        if session.conn.is_some() {
            return;
        }
        let due = since.after_secs(u64::from(will.delay_secs));
        if session.busy && session.stored.revision.is_some() || due > now.wall {
            let wait = due.millis_since(now.wall).max(20);
            self.at(now.mono.after_millis(wait), Timer::WillDelay(id));
            return;
        }
        let mut writes = self.fire_will(id);
        let Some(session) = self.plane.session(id) else { return };
        if session.stored.revision.is_some() {
            session.busy = true;
            // Will and "it is sent" are one commit, so it goes out once.
            writes.push(self.session_write(id));
        }
        if !writes.is_empty() {
            let class = self.class();
            self.commit(Op::Will { session: id }, writes, class);
        }
    }

    pub(crate) fn will_stored(&mut self, id: SessionId, result: &CommitResult) {
        self.away_stored(id, result);
        if !matches!(result, CommitResult::Done { .. }) {
            self.plane.counters.drop(Drop::StoreRefused);
        }
    }
}
