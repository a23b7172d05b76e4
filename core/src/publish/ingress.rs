//! A PUBLISH from a client: what is refused, what must be stored before its acknowledgement, what is
//! routed at once.

use crate::authz::{Access, Request, Verdict};
use crate::codec::{AckKind, Publish, Reason, Version, Violation};
use crate::conn::acks::AckState;
use crate::conn::alias::AliasError;
use crate::ids::{ConnId, SessionId, TenantId};
use crate::message::{Message, MessageParts, QoS};
use crate::session::plane::Outgoing;
use crate::session::record::inbound_tail;
use crate::session::will::cap_expiry;
use crate::shard::complete::reason_of;
use crate::shard::ops::{HeldRoom, InboundId, Op};
use crate::shard::{EMBEDDED, Shard};
use crate::store::key::Space;
use crate::store::port::{Append, CommitResult, Expect, Refusal, Write};
use crate::sys::{Drop, Refused};
use crate::tenant::limits::Row;
use crate::topic;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

const fn violation(reason: Reason, why: &'static str, statement: &'static str) -> Violation {
    Violation { reason, why, statement }
}

impl Shard {
    pub(crate) fn publish_in(
        &mut self,
        id: ConnId,
        session: SessionId,
        publish: &Publish<'_>,
    ) -> Result<(), Violation> {
        self.plane.counters.publish_in += 1;
        match publish.props.topic_alias() {
            None => self.publish_named(id, session, publish, publish.topic),
            Some(alias) => {
                let topic = self.resolve_alias(id, alias, publish.topic)?;
                self.publish_named(id, session, publish, &topic)
            }
        }
    }

    fn resolve_alias(&mut self, id: ConnId, alias: u16, topic: &str) -> Result<String, Violation> {
        let Some(conn) = self.plane.conn(id) else { return Ok(String::new()) };
        let tenant = conn.mount.tenant();
        let named = if topic.is_empty() {
            conn.aliases_in.get(alias).map(String::from)
        } else {
            conn.aliases_in.set(alias, topic).map(|()| String::from(topic))
        };
        named.map_err(|error| match error {
            AliasError::Range => {
                self.told_limit_hit(tenant, Row::TopicAliasMaximum);
                violation(Reason::TOPIC_ALIAS_INVALID, "topic alias 0 or above the maximum", "MQTT-3.3.2-9")
            }
            AliasError::Unknown => violation(Reason::PROTOCOL_ERROR, "topic alias was never set", ""),
        })
    }

    fn publish_named(
        &mut self,
        id: ConnId,
        session_id: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Result<(), Violation> {
        // Taken out for the time of this publish, and put back below.
        self.route_now = self.plane.conn(id).and_then(|c| c.route.take());
        let outcome = self.publish_cached(id, session_id, publish, topic);
        let cache = self.route_now.take();
        if let Some(conn) = self.plane.conn(id) {
            conn.route = cache;
        }
        outcome
    }

    fn publish_cached(
        &mut self,
        id: ConnId,
        session_id: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Result<(), Violation> {
        let rules = self.rules_version;
        let known_topic = self.route_now.as_ref().is_some_and(|c| c.knows(topic, rules));
        self.check_publish(publish, topic, known_topic)?;
        if let Some(conn) = self.plane.conn(id)
            && conn.quota.limited
        {
            let tenant = conn.mount.tenant();
            self.check_limited(id, tenant, publish, topic)?;
        }
        let wall = self.plane.now.wall;
        let expiry = cap_expiry(publish.props.message_expiry(), &self.plane.settings);
        let Some(session) = self.plane.session(session_id) else { return Ok(()) };
        let (mount, uid) = (session.mount, session.uid);
        let known = publish.qos == QoS::ExactlyOnce && session.inbound.contains(&publish.packet_id);
        if !known_topic || self.route_now.as_ref().is_some_and(|c| c.by_quality) {
            let request = Request::publish(topic, publish.qos, publish.retain);
            let (denied, by_quality) = match (Verdict::before_rules(&request), &session.rights) {
                (None, Some(rights)) => {
                    let verdict = rights.check(&request);
                    (Some(verdict).filter(|v| !v.allowed), rights.asks_quality())
                }
                (decided, _) => (decided, false),
            };
            let cache = self.route_now.get_or_insert_default();
            if known_topic {
                cache.denied = denied;
            } else {
                cache.learn(topic, rules, denied, by_quality);
            }
        }
        let denied = self.route_now.as_ref().and_then(|c| c.denied);
        let Some(conn) = self.plane.conn(id) else { return Ok(()) };
        let version = conn.version;
        let pending =
            publish.qos == QoS::ExactlyOnce && conn.acks.contains(AckKind::PubRec, publish.packet_id);
        if publish.qos > QoS::AtMostOnce {
            // QoS 1 counts until PUBACK, QoS 2 until PUBCOMP, on this connection alone (MQTT 5, 4.9).
            if version == Version::V5 && conn.open_publishes >= u32::from(conn.acks_max) {
                self.told_limit_hit(mount.tenant(), Row::ReceiveMaximum);
                return Err(violation(
                    Reason::RECEIVE_MAXIMUM_EXCEEDED,
                    "more unacknowledged publishes than Receive Maximum",
                    "MQTT-3.3.4-7",
                ));
            }
            conn.open_publishes += 1;
        }
        if publish.qos == QoS::ExactlyOnce && (known || pending) {
            // [MQTT-4.3.3-10] Ours already: acknowledge, deliver no second time. If its append is still
            // unanswered, that answer brings the PUBREC.
            if !pending {
                self.ack_now(id, AckKind::PubRec, publish.packet_id, Reason::SUCCESS);
            }
            return Ok(());
        }
        if let Some(tenant) = self.tenant(mount.tenant()) {
            tenant.counters.publish_in += 1;
            tenant.counters.publish_bytes_in += publish.payload.len() as u64;
        }
        if let Some(verdict) = denied {
            self.note_denied(session_id, Access::Publish, topic, verdict);
            self.deny(id, version, publish, verdict);
            return Ok(());
        }
        let mut scratch = Vec::new();
        let props = if publish.props.forwardable_is_all() {
            publish.props.raw()
        } else {
            publish.props.forwardable(&mut scratch);
            &scratch
        };
        let mounted = mount.mount(topic);
        let parts = MessageParts {
            tenant: mounted.tenant(),
            qos: publish.qos,
            retain: publish.retain,
            expires: expiry.map(|secs| wall.after_secs(u64::from(secs))),
            publisher: uid,
            topic: mounted.local(),
            props,
            payload: publish.payload,
        };
        self.accept(id, session_id, publish.packet_id, parts);
        Ok(())
    }

    /// What can be refused from packet and settings alone.
    fn check_publish(&self, publish: &Publish<'_>, topic: &str, known: bool) -> Result<(), Violation> {
        let settings = &self.plane.settings;
        if !known && let Err(error) = topic::check_name(topic, &settings.topic_limits) {
            let reason = if topic.is_empty() { Reason::PROTOCOL_ERROR } else { Reason::TOPIC_NAME_INVALID };
            return Err(violation(reason, error.why(), "MQTT-3.3.2-2"));
        }
        if publish.qos > settings.max_qos {
            return Err(violation(Reason::QOS_NOT_SUPPORTED, "QoS above Maximum QoS", "MQTT-3.2.2-11"));
        }
        if publish.retain && !settings.retain_available {
            return Err(violation(
                Reason::RETAIN_NOT_SUPPORTED,
                "RETAIN, but retain is off",
                "MQTT-3.2.2-14",
            ));
        }
        if publish.props.is_empty() {
            return Ok(());
        }
        if publish.props.subscription_id().is_some() {
            return Err(violation(
                Reason::PROTOCOL_ERROR,
                "PUBLISH from a client with a subscription identifier",
                "MQTT-3.3.4-6",
            ));
        }
        if let Some(response) = publish.props.response_topic()
            && let Err(error) = topic::check_name(response, &settings.topic_limits)
        {
            return Err(violation(Reason::TOPIC_NAME_INVALID, error.why(), "MQTT-3.3.2-14"));
        }
        let (mut count, mut bytes) = (0u32, 0u32);
        for (name, value) in publish.props.user_properties() {
            count += 1;
            bytes += (name.len() + value.len()) as u32;
        }
        if count > settings.max_user_properties || bytes > settings.max_user_property_bytes {
            return Err(violation(Reason::QUOTA_EXCEEDED, "too many user properties", ""));
        }
        if settings.payload_format_check
            && publish.props.payload_format() == Some(1)
            && core::str::from_utf8(publish.payload).is_err()
        {
            return Err(violation(Reason::PAYLOAD_FORMAT_INVALID, "payload is not UTF-8 as it says", ""));
        }
        Ok(())
    }

    /// A forbidden publish: MQTT 5 has a code, 3.x only success or closing [MQTT-3.3.5-2 of 3.1.1]; like
    /// other brokers we let the client live and drop the message. QoS 0 has no answer in any version.
    fn deny(&mut self, id: ConnId, version: Version, publish: &Publish<'_>, verdict: Verdict) {
        self.plane.counters.drop(Drop::NotAuthorized);
        let kind = match publish.qos {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => AckKind::PubAck,
            QoS::ExactlyOnce => AckKind::PubRec,
        };
        let state =
            if version == Version::V5 { AckState::Denied(verdict) } else { AckState::Ready(Reason::SUCCESS) };
        self.decide_now(id, kind, publish.packet_id, state);
    }

    /// An acknowledgement that waits for nothing but its predecessors.
    fn ack_now(&mut self, id: ConnId, kind: AckKind, packet_id: u16, reason: Reason) {
        self.decide_now(id, kind, packet_id, AckState::Ready(reason));
    }

    fn decide_now(&mut self, id: ConnId, kind: AckKind, packet_id: u16, state: AckState) {
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.acks.is_empty() {
            self.put_decided(id, kind, packet_id, state);
        } else {
            conn.acks.push(kind, packet_id, state);
        }
    }

    /// A limit refuses the publish, of which nothing is stored or delivered: 0x97 for MQTT 5; 3.x has no
    /// code, so the connection ends; QoS 0 is dropped and counted.
    fn refuse(&mut self, id: ConnId, packet_id: u16, kind: Option<AckKind>, refused: Refused) {
        let Some(kind) = kind else {
            self.plane.counters.drop(refused.as_drop());
            return;
        };
        self.plane.counters.refusals[refused as usize] += 1;
        if self.plane.conn(id).is_some_and(|c| c.version == Version::V5) {
            self.decide_now(id, kind, packet_id, AckState::Refused(refused));
        } else {
            self.disconnect(id, Reason::QUOTA_EXCEEDED);
        }
    }

    /// What forbids to take a client's publish, seen from its topic.
    fn refused_by_limit(&mut self, tenant: TenantId, topic: &str, qos: QoS) -> Option<Refused> {
        if self.is_over_match_budget(tenant, topic, qos) {
            return Some(Refused::MatchBudget);
        }
        (qos > QoS::AtMostOnce && self.is_offline_full(tenant, topic)).then_some(Refused::OfflineFull)
    }

    /// True if the indexes of this shard visit too many nodes for the topic. Costs two comparisons when the
    /// connection's last publish was to the same topic; what is found stays in the cache for what follows.
    pub(crate) fn is_over_match_budget(&mut self, tenant: TenantId, topic: &str, qos: QoS) -> bool {
        let budget = self.plane.settings.max_match_nodes;
        let may_log = self.may_log(qos);
        let Some(tenant) = self.tenants.get_mut(tenant.0 as usize) else { return false };
        let cache = &mut self.route_now;
        let (live, durable) = (tenant.index.generation(), tenant.durable.generation());
        let mut visited = 0;
        if !cache.as_ref().is_some_and(|c| c.knows_lists(live)) {
            self.lists.clear();
            visited = tenant.index.matches_within(topic, budget, &mut self.lists);
            if visited <= budget
                && let Some(cache) = cache
            {
                cache.set_lists(topic, live, &self.lists);
            }
        }
        if visited <= budget
            && may_log
            && !tenant.durable.is_empty()
            && !cache.as_ref().is_some_and(|c| c.knows_durable(durable))
        {
            self.lists.clear();
            visited = tenant.durable.matches_within(topic, budget, &mut self.lists);
            if visited <= budget
                && let Some(cache) = cache
            {
                cache.set_durable(topic, durable, !self.lists.is_empty());
            }
        }
        self.plane.counters.match_over_budget += u64::from(visited > budget);
        visited > budget
    }

    /// A publish that may go: to the store first, or straight to its subscribers.
    fn accept(&mut self, id: ConnId, session_id: SessionId, packet_id: u16, parts: MessageParts<'_>) {
        let kind = match parts.qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce => Some(AckKind::PubAck),
            QoS::ExactlyOnce => Some(AckKind::PubRec),
        };
        if let Some(refused) = self.refused_by_limit(parts.tenant, parts.topic, parts.qos) {
            self.refuse(id, packet_id, kind, refused);
            return;
        }
        let mut retained = None;
        if parts.retain && !parts.payload.is_empty() {
            let size = (parts.topic.len() + parts.props.len() + parts.payload.len()) as u64;
            match self.retain_room(id, parts.tenant, parts.topic, size) {
                Ok(held) => retained = held.then(|| (parts.tenant, Box::from(parts.topic))),
                Err(()) => {
                    self.refuse(id, packet_id, kind, Refused::RetainedLimit);
                    return;
                }
            }
        }
        let outstanding = self.plane.conn(id).is_some_and(|c| !c.appends.is_empty());
        let held_up = outstanding && {
            let key = self.order_key(parts.topic, parts.qos);
            self.plane.conn(id).is_some_and(|c| c.appends.iter().any(|(k, _)| *k == key))
        };
        let mut log = self.may_log(parts.qos) && self.wants_log(parts.tenant.0 as usize, parts.topic);
        if log && parts.qos == QoS::AtMostOnce && self.is_offline_full(parts.tenant, parts.topic) {
            // Nobody can be told. Who is here gets it.
            self.plane.counters.drop(Drop::OfflineLimit);
            log = false;
        }
        let persistent =
            self.plane.session(session_id).is_some_and(|s| s.persistent && s.stored.revision.is_some());
        let durable_id = parts.qos == QoS::ExactlyOnce && persistent;
        // A stored id and its message are one write, or a second try could deliver it twice.
        if !(log || parts.retain || held_up || durable_id) {
            if parts.qos == QoS::ExactlyOnce
                && let Some(session) = self.plane.session(session_id)
            {
                session.inbound.insert(packet_id);
            }
            let matched = self.route(&mut Outgoing::borrowed(parts));
            if let Some(kind) = kind {
                let reason = self.reason_matched(id, matched);
                self.ack_now(id, kind, packet_id, reason);
            }
            return;
        }
        // In the store anyway: then a live subscriber that is behind reads it from the log, in its place. As
        // an overflow of its own it would come after what is logged behind it.
        let log = log || parts.qos > QoS::AtMostOnce && self.wants_live(parts.tenant.0 as usize, parts.topic);
        let mut writes = Vec::with_capacity(2);
        let append = Append {
            message: Message::new(&parts),
            partition: EMBEDDED,
            log,
            retain: parts.retain,
            spill: None,
        };
        writes.push(Write::Append(append));
        self.plane.counters.appended += 1;
        let mut inbound = None;
        if parts.qos == QoS::ExactlyOnce
            && let Some(session) = self.plane.session(session_id)
        {
            let again = !session.inbound_unsure.insert(packet_id);
            inbound = Some(InboundId { session: session_id, packet_id, again });
            if durable_id {
                let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
                let uid = session.uid;
                let parts: [&[u8]; 2] = [client_id.as_bytes(), &inbound_tail(uid, packet_id)];
                // The message and its id are one write: it can neither be appended twice nor be forgotten.
                writes.push(Write::Put {
                    key: self.key(tenant, Space::Inbound, &parts),
                    value: bytes::Bytes::from_static(&[1]),
                    expect: Expect::Absent,
                });
            }
        }
        let key = self.order_key(parts.topic, parts.qos);
        let Some(conn) = self.plane.conn(id) else { return };
        let number = kind.map(|kind| conn.acks.push(kind, packet_id, AckState::Waiting));
        conn.appends_total += 1;
        match conn.appends.iter_mut().find(|(k, _)| *k == key) {
            Some((_, n)) => *n += 1,
            None => conn.appends.push((key, 1)),
        }
        let class = self.class();
        self.commit(Op::Publish { conn: id, number, key, inbound, retained }, writes, class);
    }

    /// MQTT 5 tells that nobody listens (a success); others hear success.
    fn reason_matched(&mut self, id: ConnId, matched: bool) -> Reason {
        let v5 = self.plane.conn(id).is_some_and(|c| c.version == Version::V5);
        if matched || !v5 { Reason::SUCCESS } else { Reason::NO_MATCHING_SUBSCRIBERS }
    }

    /// The store answered for a publish.
    pub(crate) fn publish_stored(
        &mut self,
        id: ConnId,
        number: Option<u64>,
        key: u64,
        inbound: Option<InboundId>,
        retained: Option<HeldRoom>,
        result: &CommitResult,
    ) {
        if let Some((tenant, topic)) = retained.filter(|_| !matches!(result, CommitResult::Done { .. })) {
            self.retain_failed(tenant, &topic);
        }
        let mut reason = reason_of(result);
        // An earlier try of the same id may be in the store, whatever became of this one.
        let unknown = matches!(result, CommitResult::Unknown)
            || inbound.is_some_and(|i| i.again)
                && matches!(result, CommitResult::Refused(r) if !matches!(r, Refusal::Conflict { .. }));
        if let (CommitResult::Refused(Refusal::Conflict { .. }), Some(_)) = (result, inbound) {
            // The id is in the store: the message is ours already.
            reason = Reason::SUCCESS;
        }
        if let Some(InboundId { session, packet_id, .. }) = inbound
            && let Some(session) = self.plane.session(session)
        {
            // [MQTT-4.3.3-9] Refused: the id may be used for another message. Unknown: stays unsure.
            if !unknown {
                session.inbound_unsure.remove(&packet_id);
            }
            if !reason.is_error() {
                session.inbound.insert(packet_id);
            }
        }
        let Some(conn) = self.plane.conn(id) else { return };
        conn.appends_total -= 1;
        if let Some(at) = conn.appends.iter().position(|(k, _)| *k == key) {
            conn.appends[at].1 -= 1;
            if conn.appends[at].1 == 0 {
                conn.appends.swap_remove(at);
            }
        }
        let v5 = conn.version == Version::V5;
        match number {
            None => {
                if reason.is_error() {
                    self.plane.counters.drop(Drop::StoreRefused);
                }
            }
            // No code says "unknown": the client's retry under the same id decides. A 3.x client has no
            // codes at all, so its connection ends instead of a lie.
            Some(_) if (unknown && inbound.is_some()) || (reason.is_error() && !v5) => {
                self.disconnect(id, Reason::UNSPECIFIED_ERROR);
                return;
            }
            Some(number) => {
                conn.acks.resolve(number, reason);
                while let Some(conn) = self.plane.conn(id)
                    && let Some(ack) = conn.acks.pop_ready()
                {
                    self.put_decided(id, ack.kind, ack.packet_id, ack.state);
                }
            }
        }
        self.unhold(id);
    }

    /// What may not overtake each other: publishes of one connection with equal topic and QoS.
    fn order_key(&self, topic: &str, qos: QoS) -> u64 {
        use core::hash::{BuildHasher, Hash, Hasher};
        let mut hasher = foldhash::fast::FixedState::with_seed(self.hash_seed).build_hasher();
        topic.hash(&mut hasher);
        (qos as u8).hash(&mut hasher);
        hasher.finish()
    }

    fn may_log(&self, qos: QoS) -> bool {
        qos > QoS::AtMostOnce || self.plane.settings.keep_qos0
    }

    /// True if a persistent session or a durable group, on any shard, wants messages of this topic kept.
    pub(crate) fn wants_log(&mut self, tenant: usize, topic: &str) -> bool {
        if !self.unheard.is_empty() {
            // After a start, until the other shards have told what they restored.
            return true;
        }
        let Some(tenant) = self.tenants.get_mut(tenant) else { return false };
        if !tenant.durable.is_empty() {
            let generation = tenant.durable.generation();
            let known = self.route_now.as_ref().and_then(|c| c.durable(topic, generation));
            let matched = known.unwrap_or_else(|| {
                self.lists.clear();
                tenant.durable.matches(topic, &mut self.lists);
                let matched = !self.lists.is_empty();
                if let Some(cache) = &mut self.route_now {
                    cache.set_durable(topic, generation, matched);
                }
                matched
            });
            if matched {
                return true;
            }
        }
        tenant.remote.iter().any(|r| !r.durable.is_empty() && r.durable.may_match(topic))
    }

    /// True if a connected session or a group, on any shard, may want messages of this topic.
    fn wants_live(&mut self, tenant: usize, topic: &str) -> bool {
        let Some(tenant) = self.tenants.get_mut(tenant) else { return false };
        let known = self.route_now.as_ref().and_then(|c| c.lists(topic, tenant.index.generation()));
        let here = match known {
            Some(lists) => !lists.is_empty(),
            None => {
                self.lists.clear();
                tenant.index.matches(topic, &mut self.lists);
                !self.lists.is_empty()
            }
        };
        here || tenant.remote.iter().any(|r| !r.live.is_empty() && r.live.may_match(topic))
    }

    /// The append of a message of our own (a will), if it needs one or `always` gets one.
    pub(crate) fn append_of(&mut self, message: &Arc<Message>, always: bool) -> Option<Append> {
        let retain = message.retain && self.may_retain_will(message);
        let tenant = message.tenant.0 as usize;
        let log = self.may_log(message.qos)
            && (self.wants_log(tenant, message.topic())
                || (message.retain || always) && self.wants_live(tenant, message.topic()));
        (log || retain || always).then(|| Append {
            message: Arc::clone(message),
            partition: EMBEDDED,
            log,
            retain,
            spill: None,
        })
    }
}
