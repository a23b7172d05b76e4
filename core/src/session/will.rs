//! The will of a connection, and when it goes out.

use crate::authz::{Access, Request, Verdict};
use crate::codec::Will as WillPacket;
use crate::ids::{SessionId, SessionUid, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::session::plane::Outgoing;
use crate::settings::Settings;
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::shard::timers::Timer;
use crate::store::port::{CommitResult, Refusal, Write};
use crate::sys::Drop;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Pause before a will that was refused is tried again, ms.
const RETRY_MS: u64 = 1000;

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
            delay_secs: will.props.will_delay().unwrap_or(0).min(settings.will_delay_max),
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
        let stored = session.stored.revision.is_some();
        // Rights may have been taken away between CONNECT and now.
        let verdict = session.rights.as_ref().map_or(Verdict::OPEN, |rights| {
            rights.check(&Request::publish(message.topic(), message.qos, message.retain))
        });
        if !verdict.allowed {
            self.plane.counters.drop(Drop::NotAuthorized);
            self.note_denied(id, Access::Publish, message.topic(), verdict);
            return Vec::new();
        }
        if self.is_over_match_budget(message.tenant, message.topic(), message.qos) {
            // Nobody is there to be told. An absent session that is full gets a will all the same.
            self.plane.counters.drop(Drop::MatchBudget);
            return Vec::new();
        }
        // With a record in the store, what may go out once alone goes out by the write that says so: a crash in
        // between would send it again.
        let once = stored && message.qos != QoS::AtLeastOnce;
        match self.append_of(&message, once) {
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
        let (Some(away), Some(will)) = (session.away, &session.will) else { return };
        if session.conn.is_some() {
            return;
        }
        let left = away.left_of(will.delay_secs, now);
        if session.busy && session.stored.revision.is_some() || left > 0 {
            self.at(now.mono.after_millis(left.max(20)), Timer::WillDelay(id));
            return;
        }
        if session.stored.unsure {
            // First the record alone: only then is it known what a conflict of the will's write means.
            session.busy = true;
            let write = self.session_write(id);
            let class = self.class();
            self.commit(Op::Away { session: id, cursor: false }, alloc::vec![write], class);
            self.at(now.mono.after_millis(RETRY_MS), Timer::WillDelay(id));
            return;
        }
        self.send_will(id, false);
    }

    fn send_will(&mut self, id: SessionId, again: bool) {
        let Some(will) = self.plane.session(id).and_then(|s| s.will.clone()) else { return };
        let mut writes = self.fire_will(id);
        let stored = !writes.is_empty();
        let Some(session) = self.plane.session(id) else { return };
        if session.stored.revision.is_some() {
            session.busy = true;
            // Will and "it is sent" are one commit, so it goes out once.
            writes.push(self.session_write(id));
        }
        if writes.is_empty() {
            return;
        }
        let class = self.class();
        // A will that needed no storing is out already, whatever becomes of the record.
        let op = if stored {
            Op::Will { session: id, will, again }
        } else {
            Op::Away { session: id, cursor: false }
        };
        self.commit(op, writes, class);
    }

    /// Whether a session's will waits for nothing but its sending.
    pub(crate) fn will_is_due(&mut self, id: SessionId) -> bool {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return false };
        let (Some(away), Some(will)) = (session.away, &session.will) else { return false };
        session.conn.is_none() && away.left_of(will.delay_secs, now) == 0
    }

    /// The will is stored, or not. What was refused is tried again. What got no answer is, too, where the
    /// session's record tells the difference: the second try meets a conflict if the first was applied.
    pub(crate) fn will_stored(&mut self, id: SessionId, will: Box<Will>, again: bool, result: &CommitResult) {
        let recorded = self.plane.session(id).is_some_and(|s| s.stored.revision.is_some());
        let retry = match result {
            CommitResult::Done { .. } => None,
            CommitResult::Refused(Refusal::Conflict { .. }) => {
                if again {
                    // The first try was applied: the record moved by it.
                    self.away_stored(id, &CommitResult::Unknown);
                    self.away_stored(id, result);
                    return;
                }
                None
            }
            CommitResult::Refused(_) => Some(again),
            CommitResult::Unknown => recorded.then_some(true),
        };
        if let (Some(again), Some(session)) = (retry, self.plane.session(id))
            && session.waiting.is_none()
            && session.conn.is_none()
        {
            session.will = Some(will);
            if again {
                self.send_will(id, true);
                return;
            }
            session.busy = false;
            let at = self.plane.now.mono.after_millis(RETRY_MS);
            self.at(at, Timer::WillDelay(id));
            return;
        }
        self.away_stored(id, result);
        if !matches!(result, CommitResult::Done { .. }) {
            self.plane.counters.drop(Drop::StoreRefused);
        }
    }
}
