//! Single packets against their tenant's limits: publishes that come too fast wait in the socket, and what a limit
//! forbids is refused with the code that the specification has for it.

use crate::codec::{self, Packet, PacketType, Publish, Reason, SubOptions, Version, Violation};
use crate::ids::{ConnId, SessionId, TenantId};
use crate::message::QoS;
use crate::quota::ledger::{Ask, QuotaMsg, Wants};
use crate::quota::{Asking, Quota, Wait};
use crate::shard::Shard;
use crate::tenant::limits::Row;
use crate::topic;
use alloc::collections::BTreeSet;
use alloc::string::String;

impl Quota {
    /// Whether a switch forbids something. Counts it if so.
    pub fn is_off(&mut self, row: Row) -> bool {
        match self.limits.get(row) {
            Some(limit) if limit.value == 0 => self.hit(row, limit.observe),
            Some(_) | None => false,
        }
    }
}

impl Shard {
    /// Whether a packet of a limited connection must wait where it is: for tokens, or for the home shard's word.
    pub(crate) fn must_wait(&mut self, id: ConnId, session: SessionId, frame: &codec::Frame<'_>) -> bool {
        let Some(conn) = self.plane.conn(id) else { return false };
        let tenant = conn.mount.tenant();
        let kind = frame.first >> 4;
        if kind == PacketType::Publish as u8 {
            return self.must_ask_about(id, frame) || self.throttled(id, tenant, frame.total as u64);
        }
        kind == PacketType::Subscribe as u8 && self.must_ask_filters(id, session, tenant, frame)
    }

    /// The home shard is asked about a retained publish.
    fn must_ask_about(&mut self, id: ConnId, frame: &codec::Frame<'_>) -> bool {
        let Some(conn) = self.plane.conn(id).filter(|_| frame.first & 1 == 1) else { return false };
        let (tenant, version) = (conn.mount.tenant(), conn.version);
        let Ok(Packet::Publish(publish)) = codec::decode(frame, version) else { return false };
        let name: String = match publish.props.topic_alias() {
            Some(alias) if publish.topic.is_empty() => match conn.aliases_in.get(alias) {
                Ok(topic) => String::from(topic),
                Err(_) => return false,
            },
            Some(_) | None => String::from(publish.topic),
        };
        if publish.payload.is_empty() {
            return false;
        }
        let size = size_of_publish(&publish, &name);
        self.must_ask_retain(id, tenant, &name, size)
    }

    /// Whether a publish is over its tenant's rates. Then the connection waits, in turn with others.
    fn throttled(&mut self, id: ConnId, tenant: TenantId, bytes: u64) -> bool {
        let now = self.plane.now.mono;
        let turn = self.plane.conn(id).map_or(0, |c| c.quota.turn);
        let Some(quota) = self.quota(tenant) else { return false };
        if quota.publishes.is_none() && quota.publish_bytes.is_none() {
            return false;
        }
        let behind = !quota.waiting.is_empty() && turn == 0;
        let mut wait = 0;
        let mut over = None;
        let rates = [
            (Row::PublishesPerSecond, &mut quota.publishes, 1),
            (Row::PublishBytesPerSecond, &mut quota.publish_bytes, bytes),
        ];
        for (row, rate, n) in rates {
            let Some(rate) = rate.as_mut().filter(|r| !r.observe) else { continue };
            if behind || !rate.is_ready(n, now) {
                over = Some(row);
                wait = wait.max(rate.wait(n));
            }
        }
        let Some(row) = over else {
            if let Some(rate) = quota.publishes.as_mut().filter(|r| !r.observe) {
                rate.take(1);
            }
            if let Some(rate) = quota.publish_bytes.as_mut().filter(|r| !r.observe) {
                rate.take(bytes);
            }
            // One that waits is looked at again: a rate that only counts counts what passes, once.
            let mut observed = [None; 2];
            let rates = [
                (Row::PublishesPerSecond, &mut quota.publishes, 1),
                (Row::PublishBytesPerSecond, &mut quota.publish_bytes, bytes),
            ];
            for (slot, (row, rate, n)) in observed.iter_mut().zip(rates) {
                let beyond = rate.as_mut().filter(|r| r.observe).is_some_and(|r| !r.watch(n, now));
                *slot = beyond.then_some(row);
            }
            for row in observed.into_iter().flatten() {
                quota.hit(row, true);
            }
            if let Some(conn) = self.plane.conn(id) {
                conn.quota.turn = turn.saturating_sub(1);
            }
            self.ask_leases(tenant);
            return false;
        };
        if turn == 0 {
            // One that was woken in vain was counted before.
            quota.hit(row, false);
        }
        quota.waiting.push_back(id);
        if let Some(conn) = self.plane.conn(id) {
            conn.quota.wait = Some(Wait::Rate);
            conn.quota.turn = 0;
        }
        self.arm_rates(tenant, wait);
        self.ask_leases(tenant);
        true
    }

    /// Lets those go on that wait for tokens: each in its turn, with its share of what there is.
    pub(crate) fn wake_publishers(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let Some(quota) = self.quota(tenant) else { return };
        let many = quota.waiting.len();
        let tokens = quota.publishes.as_mut().filter(|r| !r.observe).map_or(u64::MAX, |r| r.tokens(now));
        let share = u32::try_from(tokens / (many.max(1) as u64)).unwrap_or(u32::MAX).max(1);
        for _ in 0..many {
            let Some(quota) = self.quota(tenant) else { return };
            let rates = [&mut quota.publishes, &mut quota.publish_bytes];
            if !rates.into_iter().flatten().all(|rate| rate.observe || rate.is_ready(1, now)) {
                break;
            }
            let Some(id) = quota.waiting.pop_front() else { return };
            let Some(conn) = self.plane.conn(id).filter(|c| c.quota.wait == Some(Wait::Rate)) else {
                continue;
            };
            conn.quota.wait = None;
            conn.quota.turn = share;
            self.process_held(id);
        }
        self.wait_on(tenant);
    }

    /// Arms the timer, or asks for a lease, for those who still wait.
    fn wait_on(&mut self, tenant: TenantId) {
        let now = self.plane.now.mono;
        let Some(quota) = self.quota(tenant).filter(|q| !q.waiting.is_empty()) else { return };
        let rates = [&mut quota.publishes, &mut quota.publish_bytes];
        let waits =
            rates.into_iter().flatten().map(|rate| if rate.is_ready(1, now) { 1 } else { rate.wait(1) });
        let wait = waits.max().unwrap_or(1);
        self.arm_rates(tenant, wait);
        self.ask_leases(tenant);
    }

    /// The home shard is asked for room for new filters.
    fn must_ask_filters(
        &mut self,
        id: ConnId,
        session: SessionId,
        tenant: TenantId,
        frame: &codec::Frame<'_>,
    ) -> bool {
        if self.limit(tenant, Row::Subscriptions).is_none() || !self.is_ledgered(tenant) {
            return false;
        }
        let Some(conn) = self.plane.conn(id) else { return false };
        let version = conn.version;
        if conn.quota.filters.is_some() {
            return false;
        }
        let Ok(Packet::Subscribe(packet)) = codec::decode(frame, version) else { return false };
        let Some(state) = self.plane.session(session) else { return false };
        let new: BTreeSet<&str> =
            packet.filters.iter().map(|(f, _)| f).filter(|f| !state.subscriptions.contains_key(*f)).collect();
        if new.is_empty() {
            return false;
        }
        let (token, era) = (self.new_token(), self.rules_version);
        if let Some(conn) = self.plane.conn(id) {
            conn.quota.wait = Some(Wait::Home);
        }
        self.asking.insert(token, Asking::Filters { conn: id });
        let (wants, partial) = (Wants::default(), new.len() as u32);
        self.tell_home(tenant, QuotaMsg::Ask(Ask { tenant, token, era, wants, partial }));
        true
    }

    /// Takes room for a new filter; false if there is none.
    pub(crate) fn take_filter(&mut self, id: ConnId, tenant: TenantId, of_session: u64) -> bool {
        if self.over(tenant, Row::SubscriptionsPerClient, of_session + 1) {
            return false;
        }
        if !self.is_ledgered(tenant) || self.limit(tenant, Row::Subscriptions).is_none() {
            return self.take_own(tenant, Row::Subscriptions);
        }
        let Some(filters) = self.plane.conn(id).and_then(|c| c.quota.filters.as_mut()) else { return false };
        let there = *filters > 0;
        *filters -= u32::from(there);
        there
    }

    /// A SUBSCRIBE was handled: room that it did not need goes back.
    pub(crate) fn give_filters(&mut self, id: ConnId, tenant: TenantId) {
        let left = self.plane.conn(id).and_then(|c| c.quota.filters.take()).unwrap_or(0);
        self.give(tenant, Row::Subscriptions, u64::from(left));
    }

    /// A filter against the limits of its shape; lowers the QoS to what is granted at most.
    pub(crate) fn check_filter(
        &mut self,
        tenant: TenantId,
        filter: &str,
        shared: bool,
        options: &mut SubOptions,
    ) -> Result<(), Reason> {
        let Some(quota) = self.quota(tenant) else { return Ok(()) };
        let (bytes, levels) = topic::measure(filter);
        if quota.over(Row::TopicBytes, bytes) || quota.over(Row::TopicLevels, levels) {
            return Err(Reason::TOPIC_FILTER_INVALID);
        }
        if shared && quota.is_off(Row::SharedSubscriptions) {
            return Err(Reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED);
        }
        if topic::filter::has_wildcard(filter) && quota.is_off(Row::Wildcards) {
            return Err(Reason::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED);
        }
        if let Some(limit) = quota.limits.get(Row::MaxQos)
            && quota.over(Row::MaxQos, options.qos as u64)
        {
            options.qos = QoS::from_bits(limit.value as u8).unwrap_or(options.qos);
        }
        Ok(())
    }

    /// A publish against the limits of its shape.
    pub(crate) fn check_limited(
        &mut self,
        id: ConnId,
        tenant: TenantId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Result<(), Violation> {
        let Some(conn) = self.plane.conn(id) else { return Ok(()) };
        let (open, acks, v5) =
            (u64::from(conn.open_publishes), conn.acks.len() as u64, conn.version == Version::V5);
        let Some(quota) = self.quota(tenant) else { return Ok(()) };
        let violation = |reason, why, statement| Err(Violation { reason, why, statement });
        let (bytes, levels) = topic::measure(topic);
        if quota.over(Row::TopicBytes, bytes) || quota.over(Row::TopicLevels, levels) {
            let why = "topic larger than its tenant's limit";
            return violation(Reason::TOPIC_NAME_INVALID, why, "");
        }
        if quota.over(Row::MaxQos, publish.qos as u64) {
            let why = "QoS above the tenant's maximum";
            return violation(Reason::QOS_NOT_SUPPORTED, why, "MQTT-3.2.2-11");
        }
        if publish.retain && quota.is_off(Row::Retain) {
            let why = "RETAIN, but retain is off for the tenant";
            return violation(Reason::RETAIN_NOT_SUPPORTED, why, "MQTT-3.2.2-14");
        }
        // These hold as the client was told; what only counts is looked at here.
        if let Some(limit) = quota.limits.get(Row::ReceiveMaximum).filter(|l| l.observe)
            && publish.qos > QoS::AtMostOnce
            && (if v5 { open } else { acks }) >= limit.value
        {
            quota.hit(Row::ReceiveMaximum, true);
        }
        if let Some(limit) = quota.limits.get(Row::TopicAliasMaximum).filter(|l| l.observe)
            && publish.props.topic_alias().is_some_and(|a| u64::from(a) > limit.value)
        {
            quota.hit(Row::TopicAliasMaximum, true);
        }
        Ok(())
    }

    /// Counts a packet that is larger than a limit that only counts.
    pub(crate) fn observe_packet(&mut self, tenant: TenantId, total: usize) {
        if self.limit(tenant, Row::PacketSize).is_some_and(|l| l.observe) {
            self.over(tenant, Row::PacketSize, total as u64);
        }
    }

    /// A client was refused, or made to wait, for what it was told at CONNECT.
    pub(crate) fn told_limit_hit(&mut self, tenant: TenantId, row: Row) {
        if let Some(quota) = self.quota(tenant)
            && quota.limits.get(row).is_some_and(|l| !l.observe)
        {
            quota.hit(row, false);
        }
    }
}

/// Size of the message that a publish will be.
fn size_of_publish(publish: &Publish<'_>, topic: &str) -> u64 {
    let mut props = alloc::vec::Vec::new();
    let props = if publish.props.forwardable_is_all() {
        publish.props.raw().len()
    } else {
        publish.props.forwardable(&mut props);
        props.len()
    };
    (topic.len() + props + publish.payload.len()) as u64
}
