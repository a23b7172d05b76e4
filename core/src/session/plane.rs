//! The delivery plane: sessions, connections, and the hot path that puts a message into a socket's
//! buffer, or into a session's queue, or leaves it to the log. It never touches an index or the store;
//! what it needs from there it notes as a follow-up.

use crate::authz::Request;
use crate::codec::{self, PublishHead, Version};
use crate::conn::alias::AliasOut;
use crate::conn::outbuf::SHARE_FROM;
use crate::conn::{Conn, Phase};
use crate::ids::{ConnId, SessionId, SessionUid, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::quota::deliver::{self, DeliveryRates};
use crate::session::Session;
use crate::session::feed::{Queued, Source};
use crate::session::outflow::{Inflight, Stage};
use crate::settings::Settings;
use crate::shard::peer::GroupRef;
use crate::shard::slab::Slab;
use crate::store::position::{Partition, Position, Seq};
use crate::sys::{Counters, Drop};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Work that delivery leaves to the shard, which has the indexes and the store.
#[derive(Debug)]
pub(crate) enum Followup {
    /// The session's queue has room and it is behind: read on.
    Read(SessionId),
    /// The session's cursor must be stored before it can send on.
    Store(SessionId),
    /// The session's cursor moved.
    Moved(SessionId),
    /// An unlogged message for a session that is behind goes into the log, for it alone.
    Spill { session: SessionId, message: Arc<Message> },
    /// A delivery for a group ended.
    Settled { group: GroupRef, delivery: u64, session: SessionId, done: bool },
    /// Retained scans of this session may go on.
    Scan(SessionId),
    /// Sessions of the tenant wait for delivery tokens.
    Tokens(TenantId),
}

/// A message on its way to subscribers. Built over borrowed bytes; shared memory is allocated only once
/// somebody has to keep it.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub parts: MessageParts<'a>,
    pub pos: Option<(Partition, Seq)>,
    /// It went through the store without being logged: when it was accepted, nobody was known to want it.
    pub passed: bool,
    shared: Option<Arc<Message>>,
}

impl<'a> Outgoing<'a> {
    pub fn borrowed(parts: MessageParts<'a>) -> Outgoing<'a> {
        Outgoing { parts, pos: None, passed: false, shared: None }
    }

    pub fn shared(message: &'a Arc<Message>, pos: Option<(Partition, Seq)>) -> Outgoing<'a> {
        let parts = MessageParts {
            tenant: message.tenant,
            qos: message.qos,
            retain: message.retain,
            expires: message.expires,
            publisher: message.publisher,
            topic: message.topic(),
            props: message.props(),
            payload: message.payload(),
        };
        Outgoing { parts, pos, passed: false, shared: Some(Arc::clone(message)) }
    }

    pub fn message(&mut self) -> Arc<Message> {
        let parts = self.parts;
        Arc::clone(self.shared.get_or_insert_with(|| Message::new(&parts)))
    }
}

/// How one subscriber gets a message: the outcome of its matching subscriptions.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub qos: QoS,
    pub retain: bool,
    pub sub_ids: SmallVec<[u32; 1]>,
}

impl Grant {
    /// The identifiers, for keeping; most subscriptions have none.
    #[inline]
    fn ids(&self) -> SmallVec<[u32; 1]> {
        if self.sub_ids.is_empty() { SmallVec::new() } else { self.sub_ids.clone() }
    }
}

/// Sessions, connections and their buffers.
#[derive(Debug)]
pub(crate) struct Plane {
    pub now: Now,
    pub settings: Box<Settings>,
    pub sessions: Slab<Session>,
    pub conns: Vec<Option<Box<Conn>>>,
    pub dirty: Vec<ConnId>,
    /// Up to where committed messages were offered to sessions.
    pub head: Position,
    pub counters: Counters,
    pub followups: Vec<Followup>,
    /// Rates of deliveries, by tenant.
    pub rates: DeliveryRates,
}

impl Plane {
    #[inline]
    pub fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        match self.conns.get_mut(id.idx as usize) {
            Some(Some(conn)) if conn.id == id => Some(conn),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.idx, id.generation)
    }

    /// Notes that the connection has output.
    #[inline]
    pub fn mark(dirty: &mut Vec<ConnId>, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            dirty.push(conn.id);
        }
    }

    /// Appends encoded bytes for a connection.
    pub fn write(&mut self, id: ConnId, encode: impl FnOnce(&mut Conn)) {
        let Some(conn) = self.conn(id) else { return };
        encode(conn);
        let idx = id.idx as usize;
        if let Some(Some(conn)) = self.conns.get_mut(idx) {
            Plane::mark(&mut self.dirty, conn);
        }
    }

    /// Offers a matched message to a session.
    #[inline]
    pub fn offer(&mut self, id: SessionId, item: &mut Outgoing<'_>, grant: &Grant) {
        let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
        if session.mount.tenant() != item.parts.tenant {
            // Structurally impossible: indexes are per tenant. Were it to happen, nothing may leave.
            self.counters.canary += 1;
            return;
        }
        if let Some(rights) = &session.rights
            && !rights.check(&Request::receive(item.parts.topic)).allowed
        {
            self.counters.drop(Drop::NotAuthorized);
            return;
        }
        let qos = item.parts.qos.min(grant.qos);
        // QoS 0 that was logged for a durable subscription goes the log's way.
        let kept = item.pos.is_some() && grant.qos > QoS::AtMostOnce;
        if qos == QoS::AtMostOnce && !kept {
            self.offer_qos0(id, item, grant);
            return;
        }
        let settings = &self.settings;
        let source = if item.pos.is_some() { Source::Log } else { Source::Live };
        if let Some((partition, seq)) = item.pos
            && !session.feed.overflows((partition, seq))
        {
            if session.feed.read_pos.covers(partition, seq) {
                return;
            }
            if session.feed.behind {
                session.feed.leave_to_log((partition, seq));
                return;
            }
        }
        let queue_empty = session.feed.pending.is_empty();
        if session.persistent && item.pos.is_some() && !session.stored.moved {
            // Whether it is sent, queued or passed over: the stored cursor no longer speaks for the session.
            session.stored.moved = true;
            self.followups.push(Followup::Moved(id));
        }
        if session.feed.behind || session.feed.is_full(settings.queue_messages, settings.queue_bytes) {
            session.feed.fall_behind(&self.head);
            // A persistent session's subscriptions have their messages logged, from SUBACK on, and so has whoever
            // is there what goes through the store. One that was not is older than that: nobody is owed it, and
            // behind logged ones it would be out of order.
            let overflow = match item.pos {
                None => !session.persistent && !item.passed,
                Some(pos) => session.feed.overflows(pos),
            };
            if overflow {
                session.feed.begin_overflow(&self.head);
                session.feed.spills += 1;
                self.counters.spilled += 1;
                self.followups.push(Followup::Spill { session: id, message: item.message() });
            } else if let Some(pos) = item.pos {
                session.feed.leave_to_log(pos);
            }
            return;
        }
        if item.pos.is_some() {
            session.feed.offered = item.pos;
        }
        // The usual case: the window is open, nothing waits before it, and no id has to be reserved.
        let direct = qos == QoS::AtLeastOnce || !session.persistent;
        if queue_empty && direct && session.out.has_room() && session.conn.is_some() {
            let conn = session.conn.and_then(|c| self.conns.get_mut(c.idx as usize)).and_then(Option::as_mut);
            if let Some(conn) = conn
                && conn.phase == Phase::Online
                && !session.reviving
                && conn.out.len() < settings.out_high_water
                && (!conn.quota.out_limited
                    || deliver::take(
                        &mut self.rates,
                        conn,
                        id,
                        &item.parts,
                        self.now.mono,
                        &mut self.followups,
                    ))
            {
                let (packet_id, serial) = session.out.next_id();
                let head = Head { dup: false, qos, retain: grant.retain, packet_id, sub_ids: &grant.sub_ids };
                if put_publish(conn, &item.parts, item.shared.as_ref(), &head, self.now) {
                    Plane::mark(&mut self.dirty, conn);
                    self.counters.publish_out += 1;
                    session.out.inflight.push_back(Inflight {
                        packet_id,
                        serial,
                        // What ends with its connection is never sent again.
                        message: session.persistent.then(|| item.message()),
                        pos: item.pos,
                        source,
                        qos,
                        retain: grant.retain,
                        sub_ids: grant.ids(),
                        stage: Stage::Sent,
                        sent: true,
                        needs: 0,
                    });
                } else {
                    self.counters.drop(Drop::TooLargeForClient);
                }
                return;
            }
        }
        let message = item.message();
        session.feed.push(Queued {
            message,
            pos: item.pos,
            source,
            qos,
            retain: grant.retain,
            sub_ids: grant.sub_ids.clone(),
        });
        if queue_empty {
            self.pump(id);
        }
    }

    /// QoS 0: into the socket's buffer now, or dropped and counted.
    #[inline]
    fn offer_qos0(&mut self, id: SessionId, item: &mut Outgoing<'_>, grant: &Grant) {
        let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
        let Some(conn_id) = session.conn else {
            self.counters.drop(Drop::OfflineQos0);
            return;
        };
        let Some(Some(conn)) = self.conns.get_mut(conn_id.idx as usize) else { return };
        if conn.phase != Phase::Online || conn.out.len() >= self.settings.out_high_water {
            self.counters.drop(Drop::SlowConsumerQos0);
            return;
        }
        // Retained copies wait in the queue, or what its tenant's rate holds back: a newer live one goes behind them.
        let queued = session.feed.pending_qos0 > 0;
        let held = conn.quota.out_limited
            && !queued
            && !deliver::take(&mut self.rates, conn, id, &item.parts, self.now.mono, &mut self.followups);
        if queued || held {
            if session.feed.is_full(self.settings.queue_messages, self.settings.queue_bytes) {
                let limited = conn.quota.out_waiting;
                self.counters.drop(if limited { Drop::RateLimited } else { Drop::SlowConsumerQos0 });
                return;
            }
            let (message, pos) = (item.message(), None);
            let (retain, sub_ids) = (grant.retain, grant.sub_ids.clone());
            session.feed.push(Queued {
                message,
                pos,
                source: Source::Live,
                qos: QoS::AtMostOnce,
                retain,
                sub_ids,
            });
            return;
        }
        let head = Head {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: grant.retain,
            packet_id: 0,
            sub_ids: &grant.sub_ids,
        };
        if item.parts.payload.len() >= SHARE_FROM {
            item.message();
        }
        if put_publish(conn, &item.parts, item.shared.as_ref(), &head, self.now) {
            Plane::mark(&mut self.dirty, conn);
            self.counters.publish_out += 1;
        } else {
            self.counters.drop(Drop::TooLargeForClient);
        }
    }

    /// Queues a message that a session gets whatever its mode: retained messages, a group's deliveries,
    /// pages of the log.
    pub fn enqueue(&mut self, id: SessionId, queued: Queued) {
        if let Some(session) = self.session(id) {
            session.feed.push(queued);
        }
    }

    /// Sends what waits, as far as window and socket allow.
    pub fn pump(&mut self, id: SessionId) {
        loop {
            let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
            let Some(conn) =
                session.conn.and_then(|c| self.conns.get_mut(c.idx as usize)).and_then(Option::as_mut)
            else {
                return;
            };
            if conn.phase != Phase::Online || session.reviving || session.out.unsent() {
                return;
            }
            let Some(next) = session.feed.pending.front() else { break };
            if conn.out.len() >= self.settings.out_high_water {
                return;
            }
            if next.message.is_expired(self.now.wall) {
                self.finish_front(id, Some(Drop::Expired));
                continue;
            }
            let shared = Arc::clone(&next.message);
            let parts = Outgoing::shared(&shared, next.pos).parts;
            if next.qos > QoS::AtMostOnce && !session.out.has_room() {
                return;
            }
            if conn.quota.out_limited
                && !deliver::take(&mut self.rates, conn, id, &parts, self.now.mono, &mut self.followups)
            {
                return;
            }
            if next.qos == QoS::AtMostOnce {
                let head = Head {
                    dup: false,
                    qos: next.qos,
                    retain: next.retain,
                    packet_id: 0,
                    sub_ids: &next.sub_ids,
                };
                let sent = put_publish(conn, &parts, Some(&shared), &head, self.now);
                if sent {
                    Plane::mark(&mut self.dirty, conn);
                    self.counters.publish_out += 1;
                }
                self.finish_front(id, if sent { None } else { Some(Drop::TooLargeForClient) });
                continue;
            }
            let reserve = next.qos == QoS::ExactlyOnce && session.persistent;
            let (packet_id, serial) = session.out.next_id();
            if !reserve {
                let head = Head {
                    dup: false,
                    qos: next.qos,
                    retain: next.retain,
                    packet_id,
                    sub_ids: &next.sub_ids,
                };
                if !put_publish(conn, &parts, Some(&shared), &head, self.now) {
                    self.finish_front(id, Some(Drop::TooLargeForClient));
                    continue;
                }
                Plane::mark(&mut self.dirty, conn);
                self.counters.publish_out += 1;
            }
            let Some(queued) = session.feed.pop() else { return };
            let stage = if reserve { Stage::Reserving } else { Stage::Sent };
            if reserve {
                // One write reserves all that is in `Reserving` when it is made.
                if !session.stored.wanted {
                    session.stored.wanted = true;
                    self.followups.push(Followup::Store(id));
                }
            }
            if session.persistent && !session.stored.moved {
                session.stored.moved = true;
                self.followups.push(Followup::Moved(id));
            }
            if let Source::Retained { replay } = queued.source {
                session.replay_left(replay, queued.message.topic());
            }
            let needs = session.stored.version + 1;
            session.out.inflight.push_back(Inflight {
                packet_id,
                serial,
                message: Some(queued.message),
                pos: queued.pos,
                source: queued.source,
                qos: queued.qos,
                retain: queued.retain,
                sub_ids: queued.sub_ids,
                stage,
                sent: !reserve,
                needs,
            });
        }
        let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
        if session.feed.behind && session.feed.reading.is_none() {
            self.followups.push(Followup::Read(id));
        }
        if session.scans > 0 {
            self.followups.push(Followup::Scan(id));
        }
    }

    /// Takes the first queued message off without a window entry.
    fn finish_front(&mut self, id: SessionId, drop: Option<Drop>) {
        if let Some(reason) = drop {
            self.counters.drop(reason);
        }
        let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
        let Some(queued) = session.feed.pop() else { return };
        if let Source::Group { group, delivery } = queued.source {
            self.followups.push(Followup::Settled { group, delivery, session: id, done: true });
        }
        let mut ended = false;
        if let Source::Retained { replay } = queued.source {
            ended = session.replay_left(replay, queued.message.topic());
        }
        if session.persistent && (queued.pos.is_some() || ended) && !session.stored.moved {
            session.stored.moved = true;
            self.followups.push(Followup::Moved(id));
        }
    }

    /// Sends an in-flight message (again).
    pub fn send_inflight(&mut self, id: SessionId, index: usize, dup: bool) {
        let Some(session) = self.sessions.get_mut(id.idx, id.generation) else { return };
        let Some(conn) =
            session.conn.and_then(|c| self.conns.get_mut(c.idx as usize)).and_then(Option::as_mut)
        else {
            return;
        };
        let Some(entry) = session.out.inflight.get_mut(index) else { return };
        let Some(message) = entry.message.clone() else { return };
        let parts = Outgoing::shared(&message, entry.pos).parts;
        let head = Head {
            dup,
            qos: entry.qos,
            retain: entry.retain,
            packet_id: entry.packet_id,
            sub_ids: &entry.sub_ids,
        };
        if dup && conn.quota.out_limited {
            // Sent before it is counted: what is owed from an earlier connection does not wait.
            deliver::charge(&mut self.rates, &parts, self.now.mono);
        }
        if put_publish(conn, &parts, Some(&message), &head, self.now) {
            Plane::mark(&mut self.dirty, conn);
            self.counters.publish_out += 1;
        } else {
            // Grown too large (this connection allows less): done as far as this client goes [MQTT-3.1.2-25].
            self.counters.drop(Drop::TooLargeForClient);
            let removed = session.out.inflight.remove(index);
            if session.persistent && !session.stored.moved {
                session.stored.moved = true;
                self.followups.push(Followup::Moved(id));
            }
            if let Some(Source::Group { group, delivery }) = removed.map(|r| r.source) {
                self.followups.push(Followup::Settled { group, delivery, session: id, done: true });
            }
        }
    }

    /// The identity of a session; for messages that it publishes.
    pub fn uid_of(&mut self, id: SessionId) -> SessionUid {
        self.session(id).map_or(SessionUid(0), |s| s.uid)
    }
}

/// What differs between deliveries of one message.
struct Head<'a> {
    dup: bool,
    qos: QoS,
    retain: bool,
    packet_id: u16,
    sub_ids: &'a [u32],
}

/// Encodes a PUBLISH into the connection's buffer; false if it is larger than the client takes [MQTT-3.1.2-24].
#[inline]
fn put_publish(
    conn: &mut Conn,
    parts: &MessageParts<'_>,
    shared: Option<&Arc<Message>>,
    head: &Head<'_>,
    now: Now,
) -> bool {
    if conn.mount.tenant() != parts.tenant {
        // Indexes are per tenant, so this cannot be; if it were, nothing of it may leave.
        return false;
    }
    let v5 = conn.version == Version::V5;
    let alias = if v5 { conn.aliases_out.look(parts.topic) } else { AliasOut::None };
    let (topic, alias_number) = match alias {
        AliasOut::None => (parts.topic, None),
        AliasOut::New(alias) => (parts.topic, Some(alias)),
        AliasOut::Known(alias) => ("", Some(alias)),
    };
    let out = PublishHead {
        dup: head.dup,
        qos: head.qos,
        retain: head.retain,
        topic,
        packet_id: head.packet_id,
        alias: alias_number,
        // [MQTT-3.3.2-6] What is left of it, rounded up: 0 would mean "expired".
        expiry: parts
            .expires
            .map(|at| (at.millis_since(now.wall).div_ceil(1000)).min(u64::from(u32::MAX)) as u32),
        sub_ids: head.sub_ids,
        props: parts.props,
        payload_len: parts.payload.len(),
    };
    if conn.max_packet_out != u32::MAX
        && codec::publish_len(&out, conn.version) > conn.max_packet_out as usize
    {
        return false;
    }
    if codec::put_publish_head(&out, conn.version, conn.out.tail()).is_err() {
        return false;
    }
    match shared {
        Some(message) if parts.payload.len() >= SHARE_FROM => conn.out.put_shared(message.payload_shared()),
        Some(_) | None => conn.out.put_payload(parts.payload),
    }
    if let AliasOut::New(alias) = alias {
        conn.aliases_out.sent(parts.topic, alias);
    }
    true
}
