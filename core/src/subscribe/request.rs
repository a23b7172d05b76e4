//! SUBSCRIBE and UNSUBSCRIBE from a client.

use crate::authz::{Access, Request, Verdict};
use crate::codec::{Reason, SubOptions, Subscribe, Unsubscribe, Violation};
use crate::conn::receive::protocol_error;
use crate::ids::{ConnId, SessionId};
use crate::message::QoS;
use crate::session::record::FilterRecord;
use crate::session::{Sub, SubKey, Subscription};
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::shard::peer::{GroupJoin, InterestChange, MemberRef, PeerMsg};
use crate::store::key::Space;
use crate::store::port::{Expect, Write};
use crate::subscribe::gate::{Gate, GateKind, Stored};
use crate::subscribe::scan::ScanRequest;
use crate::tenant::limits::Row;
use crate::topic::{self, Shared};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Remaining work of one SUBSCRIBE while its filters are gone through.
struct Pass {
    gate: Gate,
    writes: Vec<Write>,
    changes: Vec<InterestChange>,
}

impl Shard {
    pub(crate) fn subscribe(
        &mut self,
        id: ConnId,
        session: SessionId,
        packet: &Subscribe<'_>,
    ) -> Result<(), Violation> {
        let sub_id = packet.props.subscription_id().unwrap_or(0);
        if sub_id != 0 && !self.plane.settings.subscription_id_available {
            return Err(Violation {
                reason: Reason::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
                why: "subscription identifier, but they are off",
                statement: "",
            });
        }
        let Some(conn) = self.plane.conn(id) else { return Ok(()) };
        let (bridge, limited, tenant) = (conn.bridge, conn.quota.limited, conn.mount.tenant());
        let gate = Gate {
            kind: GateKind::Subscribe,
            conn: id,
            session,
            packet_id: packet.packet_id,
            codes: Vec::with_capacity(packet.filters.len()),
            why: String::new(),
            pending: 0,
            scans: Vec::new(),
            stored: Vec::new(),
            joins: Vec::new(),
        };
        let mut pass = Pass { gate, writes: Vec::new(), changes: Vec::new() };
        for (filter, mut options) in packet.filters.iter() {
            if bridge && !filter.starts_with("$share") {
                options.no_local = true;
                options.retain_as_published = true;
            }
            let code = if pass.gate.codes.len() >= self.plane.settings.max_filters_per_subscribe as usize {
                Reason::QUOTA_EXCEEDED
            } else {
                self.subscribe_one(id, session, filter, options, sub_id, &mut pass)
            };
            pass.gate.codes.push(code.0);
        }
        if limited {
            self.give_filters(id, tenant);
        }
        self.close_pass(session, pass);
        Ok(())
    }

    /// Starts what a pass has to wait for.
    fn close_pass(&mut self, session: SessionId, pass: Pass) {
        let Pass { mut gate, writes, changes } = pass;
        let Some(tenant) = self.plane.session(session).map(|s| s.mount.tenant()) else { return };
        let announced = self.announce(tenant, changes);
        gate.pending = u32::from(!writes.is_empty())
            + announced.map_or(0, |_| u32::from(self.shards) - 1)
            + gate.joins.len() as u32;
        let tokens: Vec<u64> = announced.into_iter().chain(gate.joins.iter().map(|j| j.0)).collect();
        let gate_id = self.set_gate(gate);
        for token in tokens {
            self.tokens.insert(token, gate_id);
        }
        if !writes.is_empty() {
            let class = self.class();
            self.commit(Op::Gate { idx: gate_id.0, generation: gate_id.1 }, writes, class);
        }
        self.try_open(gate_id);
    }

    /// One filter of a SUBSCRIBE: the code for it.
    fn subscribe_one(
        &mut self,
        conn: ConnId,
        id: SessionId,
        raw: &str,
        mut options: SubOptions,
        sub_id: u32,
        pass: &mut Pass,
    ) -> Reason {
        let settings = &self.plane.settings;
        let shared = match topic::split_share(raw) {
            Ok(shared) => shared,
            Err(_) => return Reason::TOPIC_FILTER_INVALID,
        };
        let filter = shared.map_or(raw, |s| s.filter);
        if topic::check_filter(filter, &settings.topic_limits).is_err() {
            return Reason::TOPIC_FILTER_INVALID;
        }
        if shared.is_some() && !settings.shared_available {
            return Reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED;
        }
        if !settings.wildcard_available && topic::filter::has_wildcard(filter) {
            return Reason::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED;
        }
        let max_filters = settings.max_filters_per_session as usize;
        let limited = self.plane.conn(conn).filter(|c| c.quota.limited).map(|c| c.mount.tenant());
        if let Some(tenant) = limited
            && let Err(reason) = self.check_filter(tenant, filter, shared.is_some(), &mut options)
        {
            return reason;
        }
        let serial = self.new_token();
        let head = self.plane.head.clone();
        let Some(session) = self.plane.session(id) else { return Reason::UNSPECIFIED_ERROR };
        let verdict = session
            .rights
            .as_ref()
            .map_or(Verdict::OPEN, |r| r.check(&Request::subscribe(filter, options.qos)));
        if !verdict.allowed {
            self.deny_filter(id, raw, verdict, pass);
            return Reason::NOT_AUTHORIZED;
        }
        let existing = session.subscriptions.get(raw).cloned();
        if existing.is_none() && session.subscriptions.len() >= max_filters {
            return Reason::QUOTA_EXCEEDED;
        }
        let has = session.subscriptions.len() as u64;
        if let Some(tenant) = limited.filter(|_| existing.is_none())
            && !self.take_filter(conn, tenant, has)
        {
            return Reason::QUOTA_EXCEEDED;
        }
        let Some(session) = self.plane.session(id) else { return Reason::UNSPECIFIED_ERROR };
        // A filter that was there goes on where it is [MQTT-3.8.4-3]; a new one begins now.
        let start = existing.as_ref().filter(|e| e.is_durable()).map_or(head, |e| e.start.clone());
        let confirmed = existing.as_ref().is_some_and(|e| e.confirmed) || session.stored.revision.is_none();
        let subscription = Subscription {
            options,
            id: sub_id,
            start,
            group: existing.as_ref().and_then(|e| e.group),
            serial,
            confirmed,
            leaving: false,
            doubtful: existing.as_ref().is_some_and(|e| e.doubtful),
        };
        let (persistent, client_id) = (session.persistent, session.client_id.clone());
        let (tenant, stored) = (session.mount.tenant(), session.stored.revision);
        session.log_filters = None;
        session.subscriptions.insert(Box::from(raw), subscription.clone());
        let index = pass.gate.codes.len();
        // [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
        let wants_retained = shared.is_none()
            && match options.retain_handling {
                0 => true,
                1 => existing.as_ref().is_none_or(|e| e.leaving),
                _ => false,
            };
        let remembered = wants_retained && persistent && stored.is_some() && options.qos > QoS::AtMostOnce;
        let replay = if remembered { session.owe_replay(raw) } else { 0 };
        // Retained messages that are not wanted again leave those alone that are still on their way.
        let named = if wants_retained { replay } else { session.replay_of(raw) };
        if let (true, Some(revision)) = (persistent, stored) {
            if pass.writes.is_empty() {
                pass.writes.push(Write::Check {
                    key: self.key(tenant, Space::Session, &[client_id.as_bytes()]),
                    expect: Expect::Revision(revision),
                });
            }
            pass.writes.extend(self.filter_put(id, raw, named));
            let new = !confirmed;
            pass.gate.stored.push(Stored { filter: Box::from(raw), index, serial, new });
        }
        match shared {
            // It joins once it is stored: a message given to a subscription that is refused in the end would be
            // lost for the group.
            Some(_) if persistent && stored.is_some() => {}
            Some(shared) => {
                let token = self.join_group(id, shared, options.qos);
                pass.gate.joins.push((token, Box::from(raw), index));
            }
            None => {
                self.subscribe_plain(id, raw, &subscription, existing.as_ref(), pass);
                if wants_retained {
                    let (filter, qos) = (Box::from(raw), options.qos);
                    pass.gate.scans.push(ScanRequest { filter, qos, sub_id, replay, resumed: false });
                }
            }
        }
        if existing.is_none()
            && let Some(tenant) = self.tenant(tenant)
        {
            tenant.counters.subscriptions += 1;
        }
        Reason(options.qos as u8)
    }

    /// A rule forbids a filter.
    fn deny_filter(&mut self, id: SessionId, raw: &str, verdict: Verdict, pass: &mut Pass) {
        self.note_denied(id, Access::Subscribe, raw, verdict);
        let Some(tenant) = self.plane.session(id).map(|s| s.mount.tenant()) else { return };
        if self.plane.settings.explain_denials {
            let why = self.reason_of_denial(tenant, verdict);
            let why_all = &mut pass.gate.why;
            if !why_all.is_empty() {
                why_all.push_str("; ");
            }
            why_all.push_str(raw);
            why_all.push_str(": ");
            why_all.push_str(&why);
        }
    }

    fn subscribe_plain(
        &mut self,
        id: SessionId,
        filter: &str,
        subscription: &Subscription,
        existing: Option<&Subscription>,
        pass: &mut Pass,
    ) {
        let Some(session) = self.plane.session(id) else { return };
        let (persistent, mount) = (session.persistent, session.mount);
        let was_durable = existing.is_some_and(Subscription::is_durable);
        let mounted = mount.mount(filter);
        let Some(tenant) = self.of_topic(&mounted) else { return };
        tenant
            .index
            .insert(mounted.local(), Sub::new(SubKey::session(id), subscription.options, subscription.id));
        if existing.is_none() {
            pass.changes.extend(tenant.add_live(filter));
        }
        if persistent && subscription.is_durable() && !was_durable {
            pass.changes.extend(tenant.add_durable(filter));
        }
        if persistent && !subscription.is_durable() && was_durable {
            pass.changes.extend(tenant.remove_durable(filter));
        }
    }

    /// Asks the leader of a shared subscription to take the session in; returns the token of its answer.
    pub(crate) fn join_group(&mut self, id: SessionId, shared: Shared<'_>, qos: QoS) -> u64 {
        let token = self.new_token();
        let me = self.me;
        // Who could read nothing of it gets nothing to lose.
        let attached = self.plane.is_attached(id) && self.may_share(id, shared.filter, qos);
        let Some(session) = self.plane.session(id) else { return token };
        let tenant = session.mount.tenant();
        let join = GroupJoin {
            tenant,
            group: Box::from(shared.group),
            filter: Box::from(shared.filter),
            member: MemberRef { shard: me, session: id, uid: session.uid },
            qos,
            persistent: session.persistent,
            window: if attached { session.out.quota } else { 0 },
            start: None,
            token,
        };
        let leader = self.leader_of(tenant, shared.group, shared.filter);
        self.send(leader, PeerMsg::GroupJoin(Box::new(join)));
        token
    }

    pub(crate) fn unsubscribe(
        &mut self,
        id: ConnId,
        session: SessionId,
        packet: &Unsubscribe<'_>,
    ) -> Result<(), Violation> {
        let mut codes = Vec::new();
        let mut writes = Vec::new();
        let mut stored = Vec::new();
        let mut left = false;
        for filter in packet.filters.iter() {
            if filter.is_empty() {
                return Err(protocol_error("empty topic filter", "MQTT-4.7.3-1"));
            }
            let malformed = match topic::split_share(filter) {
                Ok(shared) => {
                    let inner = shared.map_or(filter, |s| s.filter);
                    topic::check_filter(inner, &self.plane.settings.topic_limits).is_err()
                }
                Err(_) => true,
            };
            if malformed {
                codes.push(Reason::TOPIC_FILTER_INVALID.0);
                continue;
            }
            let known = self.plane.session(session).is_some_and(|s| s.subscriptions.contains_key(filter));
            if !known {
                codes.push(Reason::NO_SUBSCRIPTION_EXISTED.0);
                continue;
            }
            let serial = self.mark_leaving(session, filter);
            match self.filter_delete(session, filter) {
                Some(write) => {
                    writes.push(write);
                    stored.push(Stored { filter: Box::from(filter), index: codes.len(), serial, new: false });
                }
                None => {
                    self.leave_filter(session, filter, serial);
                    left = true;
                }
            }
            codes.push(Reason::SUCCESS.0);
        }
        if left {
            // [MQTT-3.10.4-2], [MQTT-3.10.4-3] What is unsent stops; what was begun is finished.
            self.drop_unmatched(session);
        }
        let gate = Gate {
            kind: GateKind::Unsubscribe,
            conn: id,
            session,
            packet_id: packet.packet_id,
            codes,
            why: String::new(),
            pending: u32::from(!writes.is_empty()),
            scans: Vec::new(),
            stored,
            joins: Vec::new(),
        };
        let gate_id = self.set_gate(gate);
        if !writes.is_empty() {
            let class = self.class();
            self.commit(Op::Gate { idx: gate_id.0, generation: gate_id.1 }, writes, class);
        }
        self.try_open(gate_id);
        Ok(())
    }

    /// Notes that an UNSUBSCRIBE of the filter is under way; returns which SUBSCRIBE it ends.
    fn mark_leaving(&mut self, id: SessionId, filter: &str) -> u64 {
        let subscription = self.plane.session(id).and_then(|s| s.subscriptions.get_mut(filter));
        subscription.map_or(0, |s| {
            s.leaving = true;
            s.serial
        })
    }

    /// An UNSUBSCRIBE is in effect, unless a later SUBSCRIBE has made the filter anew.
    pub(crate) fn leave_filter(&mut self, id: SessionId, filter: &str, serial: u64) {
        let present = self.plane.session(id).and_then(|s| s.subscriptions.get(filter));
        if present.is_some_and(|s| s.serial == serial) {
            self.drop_subscription(id, filter);
        }
    }

    /// The write of a filter as it is now; `replay` = what its retained messages are sent as.
    pub(crate) fn filter_put(&mut self, id: SessionId, filter: &str, replay: u64) -> Option<Write> {
        let session = self.plane.session(id)?;
        session.stored.revision?;
        let subscription = session.subscriptions.get(filter)?;
        let record = FilterRecord {
            owner: session.uid,
            options: subscription.options,
            id: subscription.id,
            start: subscription.start.clone(),
            replay,
        };
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let key = self.key(tenant, Space::Filter, &[client_id.as_bytes(), filter.as_bytes()]);
        Some(Write::Put { key, value: record.encode(), expect: Expect::Any })
    }

    /// The delete of a stored filter.
    pub(crate) fn filter_delete(&mut self, id: SessionId, filter: &str) -> Option<Write> {
        let session = self.plane.session(id)?;
        session.stored.revision?;
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let key = self.key(tenant, Space::Filter, &[client_id.as_bytes(), filter.as_bytes()]);
        Some(Write::Delete { key, expect: Expect::Any })
    }

    /// Takes a subscription out of session, index and interest.
    pub(crate) fn drop_subscription(&mut self, id: SessionId, filter: &str) {
        let me = self.me;
        if !self.plane.session(id).is_some_and(|s| s.subscriptions.contains_key(filter)) {
            return;
        }
        // The session may be absent, when its SUBSCRIBE failed behind it.
        self.unwatch_backlog(id);
        let Some(session) = self.plane.session(id) else { return };
        let Some(subscription) = session.subscriptions.remove(filter) else { return };
        session.log_filters = None;
        session.end_replays(|r| &*r.filter == filter);
        let (tenant_id, persistent) = (session.mount.tenant(), session.persistent);
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let Some(tenant) = self.tenant(tenant_id) else { return };
        tenant.counters.subscriptions -= 1;
        let mut changes = Vec::new();
        if matches!(topic::split_share(filter), Ok(None)) {
            tenant.index.remove(filter, SubKey::session(id));
            changes.extend(tenant.remove_live(filter));
            if persistent && subscription.is_durable() {
                changes.extend(tenant.remove_durable(filter));
            }
        }
        self.announce(tenant_id, changes);
        self.give(tenant_id, Row::Subscriptions, 1);
        self.scans.cancel_filter(id, filter);
        if let Some(group) = subscription.group {
            self.return_group_messages_of(id, Some(group));
            self.keep_inflight(id, Some(group));
            self.send(group.leader, PeerMsg::GroupLeave { group, member });
        }
        self.watch_backlog(id);
    }

    /// Forgets queued messages that no subscription matches any more.
    pub(crate) fn drop_unmatched(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        let subscriptions = &session.subscriptions;
        let uid = session.uid;
        let feed = &mut session.feed;
        feed.pending.retain(|queued| {
            matches!(queued.source, crate::session::feed::Source::Group { .. })
                || subscriptions.iter().any(|(filter, s)| {
                    let own = s.options.no_local && queued.message.publisher == uid;
                    !own && topic::matches(filter, queued.message.topic())
                })
        });
        feed.recount();
        session.recount_replays();
        self.plane.pump(id);
    }
}
