//! CONNECT against its tenant's limits: looked at once, before anything of the session is touched.

use crate::codec::{Connect, Reason};
use crate::conn::handshake::Admission;
use crate::ids::{ConnId, TenantId};
use crate::quota::caps::{asked_expiry, keep_alive_over};
use crate::quota::ledger::{Ask, QuotaMsg, Wants};
use crate::quota::{Asking, Wait};
use crate::shard::Shard;
use crate::tenant::limits::Row;
use crate::topic;
use alloc::boxed::Box;

/// What becomes of a CONNECT.
pub(crate) enum Room {
    /// It may go on.
    There,
    /// The home shard is asked; it is taken up again with the answer.
    Asked,
    /// CONNACK with this.
    Refused(Reason),
}

impl Shard {
    /// Whether the tenant has room for a connection, and for the persistent session if it makes one.
    /// `succeeds` = the connection whose place it takes; `persistent` = the session is there, and persistent.
    pub(crate) fn room_for(
        &mut self,
        id: ConnId,
        connect: &Connect<'_>,
        admission: &Admission,
        succeeds: Option<ConnId>,
        persistent: bool,
    ) -> Room {
        let tenant = admission.identity.tenant;
        let makes = self.caps(tenant).expiry(connect, self.plane.settings.v3_session_expiry) > 0;
        let Some(conn) = self.plane.conn(id) else { return Room::Asked };
        let first = !core::mem::replace(&mut conn.quota.checked, true);
        if first && let Err(reason) = self.check_will(tenant, connect) {
            return Room::Refused(reason);
        }
        if first {
            self.count_connect(tenant, connect);
        }
        let inherits = succeeds.and_then(|loser| self.plane.conn(loser)).is_some_and(|c| c.quota.slot);
        let Some(conn) = self.plane.conn(id) else { return Room::Asked };
        let mut wants = Wants::default();
        wants.push(Row::ConnectsPerSecond, first);
        wants.push(Row::Connections, !conn.quota.slot && !inherits);
        wants.push(Row::PersistentSessions, makes && !persistent && !conn.quota.session_slot);
        if self.is_ledgered(tenant) && wants.rows().any(|row| self.limit(tenant, row).is_some()) {
            wants.retain(|row| self.limit(tenant, row).is_some());
            let token = self.new_token();
            if let Some(conn) = self.plane.conn(id) {
                conn.quota.wait = Some(Wait::Home);
            }
            self.asking.insert(token, Asking::Connect { conn: id, admission: Box::new(admission.clone()) });
            let era = self.rules_version;
            self.tell_home(tenant, QuotaMsg::Ask(Ask { tenant, token, era, wants, partial: 0 }));
            return Room::Asked;
        }
        for row in wants.rows() {
            let there = match row {
                Row::ConnectsPerSecond => self.take_connect(tenant),
                row => self.take_own(tenant, row),
            };
            if !there {
                return Room::Refused(refusal_of(row));
            }
        }
        self.occupy(id, tenant, &wants);
        if let Some(loser) = succeeds.filter(|_| inherits) {
            self.inherit(loser, id);
        }
        Room::There
    }

    /// The places are the connection's from now on.
    pub(crate) fn occupy(&mut self, id: ConnId, tenant: TenantId, wants: &Wants) {
        let (mut connections, mut sessions) = (0, 0);
        if let Some(conn) = self.plane.conn(id) {
            if wants.has(Row::Connections) && !conn.quota.slot {
                conn.quota.slot = true;
                connections = 1;
            }
            if wants.has(Row::PersistentSessions) && !conn.quota.session_slot {
                conn.quota.session_slot = true;
                sessions = 1;
            }
        }
        if let Some(tenant) = self.tenant(tenant) {
            tenant.usage.connections += connections;
            tenant.usage.persistent_sessions += sessions;
        }
    }

    /// A connection takes the place of one that loses its session to it.
    fn inherit(&mut self, loser: ConnId, id: ConnId) {
        if let Some(conn) = self.plane.conn(loser) {
            conn.quota.slot = false;
        }
        if let Some(conn) = self.plane.conn(id) {
            conn.quota.slot = true;
        }
    }

    /// A token for a CONNECT; false if there is none.
    pub(crate) fn take_connect(&mut self, tenant: TenantId) -> bool {
        let now = self.plane.now.mono;
        let Some(quota) = self.quota(tenant) else { return true };
        let Some(rate) = &mut quota.connects else { return true };
        if rate.watch(1, now) {
            return true;
        }
        let observe = rate.observe;
        !quota.hit(Row::ConnectsPerSecond, observe)
    }

    /// What a connection had goes back.
    pub(crate) fn release_conn(&mut self, id: ConnId, tenant: TenantId) {
        let Some(conn) = self.plane.conn(id) else { return };
        let slot = core::mem::take(&mut conn.quota.slot);
        let session = core::mem::take(&mut conn.quota.session_slot);
        let filters = conn.quota.filters.take().unwrap_or(0);
        let retain = conn.quota.retain.take();
        if let Some(state) = self.tenant(tenant) {
            let usage = &mut state.usage;
            usage.connections = usage.connections.saturating_sub(u64::from(slot));
            usage.persistent_sessions = usage.persistent_sessions.saturating_sub(u64::from(session));
        }
        self.give(tenant, Row::Connections, u64::from(slot));
        self.give(tenant, Row::PersistentSessions, u64::from(session));
        self.give(tenant, Row::Subscriptions, u64::from(filters));
        if let Some(answered) = retain {
            self.give_retain(tenant, &answered);
        }
    }

    /// A session that outlives its connections ended.
    pub(crate) fn release_session(&mut self, tenant: TenantId) {
        if let Some(state) = self.tenant(tenant) {
            state.usage.persistent_sessions = state.usage.persistent_sessions.saturating_sub(1);
        }
        self.give(tenant, Row::PersistentSessions, 1);
    }

    /// The session of a connection is persistent from now on: it takes the place that its connection has.
    pub(crate) fn session_persists(&mut self, id: ConnId, tenant: TenantId) {
        let had = self.plane.conn(id).is_some_and(|c| core::mem::take(&mut c.quota.session_slot));
        if had {
            return;
        }
        if let Some(state) = self.tenant(tenant) {
            state.usage.persistent_sessions += 1;
        }
        self.took(tenant, Row::PersistentSessions);
    }

    /// The will against the tenant's limits: the handshake, which does not know the tenant, saw the node's.
    fn check_will(&mut self, tenant: TenantId, connect: &Connect<'_>) -> Result<(), Reason> {
        let Some(will) = &connect.will else { return Ok(()) };
        let Some(quota) = self.quota(tenant) else { return Ok(()) };
        let (bytes, levels) = topic::measure(will.topic);
        if quota.over(Row::TopicBytes, bytes) || quota.over(Row::TopicLevels, levels) {
            return Err(Reason::TOPIC_NAME_INVALID);
        }
        if quota.over(Row::MaxQos, will.qos as u64) {
            return Err(Reason::QOS_NOT_SUPPORTED);
        }
        if will.retain && quota.is_off(Row::Retain) {
            return Err(Reason::RETAIN_NOT_SUPPORTED);
        }
        Ok(())
    }

    /// Counts what a CONNECT asks beyond limits that shorten it.
    fn count_connect(&mut self, tenant: TenantId, connect: &Connect<'_>) {
        let v3_expiry = self.plane.settings.v3_session_expiry;
        let Some(quota) = self.quota(tenant) else { return };
        quota.over(Row::SessionExpiry, u64::from(asked_expiry(connect, v3_expiry)));
        for row in [Row::KeepAliveMin, Row::KeepAliveMax] {
            if let Some(limit) = quota.limits.get(row)
                && keep_alive_over(row, limit, connect.keep_alive)
            {
                quota.hit(row, limit.observe);
            }
        }
    }
}

/// The answer to a CONNECT for which there is nothing left of a row.
pub(crate) const fn refusal_of(row: Row) -> Reason {
    match row {
        Row::ConnectsPerSecond => Reason::CONNECTION_RATE_EXCEEDED,
        _ => Reason::QUOTA_EXCEEDED,
    }
}
