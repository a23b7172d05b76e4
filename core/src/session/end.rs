//! Coming and going of a session: attaching to a connection, going away, expiring. What ends a session
//! runs one clean-up list, here: will, groups, indexes, interest, counters, stored keys.

use crate::authz::Request;
use crate::codec::SubOptions;
use crate::conn::Phase;
use crate::ids::{ConnId, SessionId};
use crate::session::record::{SessionRecord, inbound_tail};
use crate::session::will::Will;
use crate::session::{Away, Session, Sub, SubKey};
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::shard::peer::{InterestChange, MemberRef, PeerMsg};
use crate::shard::timers::Timer;
use crate::store::key::{Key, Space};
use crate::store::port::{CommitResult, Expect, Refusal, Write};
use crate::store::position::Seq;
use crate::sys::Drop;
use crate::tenant::limits::Row;
use crate::topic;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Shard {
    pub(crate) fn add_session(&mut self, session: Session) -> SessionId {
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let persistent = session.persistent;
        let (idx, generation) = self.plane.sessions.insert(session);
        let id = SessionId { idx, generation };
        if let Some(tenant) = self.tenant(tenant) {
            tenant.clients.insert(client_id, id);
            tenant.counters.sessions += 1;
            tenant.usage.persistent_sessions += u64::from(persistent);
        }
        id
    }

    /// The session's connection is online: subscriptions go live, what is unfinished is sent again.
    pub(crate) fn attach(&mut self, conn: ConnId, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        let tenant = session.mount.tenant();
        let subscriptions: Vec<(Box<str>, SubOptions, u32)> =
            session.subscriptions.iter().map(|(filter, s)| (filter.clone(), s.options, s.id)).collect();
        for (filter, options, sub_id) in &subscriptions {
            if let Ok(None) = topic::split_share(filter)
                && let Some(tenant) = self.tenant(tenant)
            {
                tenant.index.insert(filter, Sub::new(SubKey::session(id), *options, *sub_id));
            }
        }
        debug_assert!(self.plane.conn(conn).is_some_and(|c| c.phase == Phase::Online));
        self.unwatch_backlog(id);
        self.tell_presence(id);
        self.store_what_waits(id);
        self.resume_replays(id);
        self.resume_flow(id);
    }

    /// Tells the groups of a session how much it takes.
    pub(crate) fn tell_presence(&mut self, id: SessionId) {
        let me = self.me;
        // A connection that waits for its CONNACK takes nothing yet.
        let attached = self.plane.is_attached(id);
        let Some(session) = self.plane.session(id) else { return };
        let window = if attached { session.out.quota } else { 0 };
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let rights = session.rights.as_deref();
        // Who may read nothing of a group's filter (any more) takes nothing from those who may.
        let reads = |filter: &str, qos| {
            let inner = topic::split_share(filter).ok().flatten().map_or(filter, |s| s.filter);
            rights.is_none_or(|r| r.check(&Request::subscribe(inner, qos)).allowed)
        };
        let groups: Vec<_> = session
            .subscriptions
            .iter()
            .filter_map(|(filter, s)| Some((s.group?, if reads(filter, s.options.qos) { window } else { 0 })))
            .collect();
        for (group, window) in groups {
            self.send(group.leader, PeerMsg::GroupPresence { group, member, window });
        }
    }

    /// The connection is leaving its session.
    pub(crate) fn detach(&mut self, conn: ConnId, id: SessionId, publish_will: bool, was_online: bool) {
        let now = self.plane.now;
        if let Some(tenant) = self.plane.conn(conn).map(|c| c.mount.tenant())
            && let Some(state) = self.tenant(tenant)
        {
            state.counters.connected -= 1;
            self.release_conn(conn, tenant);
        }
        let head = self.plane.head.clone();
        let Some(session) = self.plane.session(id) else { return };
        if session.conn != Some(conn) {
            return;
        }
        session.conn = None;
        session.away = Some(Away::begin(now));
        if !publish_will {
            // [MQTT-3.1.2-10]
            session.will = None;
        }
        if !was_online {
            // Its CONNECT is still with the store; what follows, follows then.
            return;
        }
        let lost = session.feed.rewind(&head);
        session.park_replays();
        session.feed.reading = None;
        session.reviving = false;
        for entry in &mut session.out.inflight {
            entry.sent = false;
        }
        let tenant = session.mount.tenant();
        let filters: Vec<Box<str>> = session.subscriptions.keys().cloned().collect();
        self.plane.counters.drop_many(Drop::OfflineQos0, lost);
        if let Some(tenant) = self.tenant(tenant) {
            for filter in &filters {
                tenant.index.remove(filter, SubKey::session(id));
            }
        }
        self.scans.cancel(id);
        if let Some(session) = self.plane.session(id) {
            session.scans = 0;
        }
        self.gone(id);
    }

    /// The session has no connection now: it ends, or waits.
    pub(crate) fn gone(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        if !session.persistent || session.expiry_secs == 0 {
            let writes = self.end_session_writes(id);
            self.commit_end(writes);
            return;
        }
        self.tell_presence(id);
        self.return_group_messages(id);
        self.store_leaving(id);
        self.arm_away(id);
        self.watch_backlog(id);
    }

    /// Writes cursor and record of a session that went away. Until the store has them, a restart would
    /// take it for one at the live edge, so no watermark passes it (`leaving`).
    pub(crate) fn store_leaving(&mut self, id: SessionId) {
        let listed = self.plane.session(id).is_some_and(|s| s.stored.moved);
        let mut writes = self.cursor_writes(id);
        // Last, so that the commit's sequence is the record's revision.
        writes.push(self.session_write(id));
        let class = self.class();
        // The record's revision moves with this write; until it is answered, writes of the session's
        // next connection hang on the old one, so the next CONNECT waits (`busy`).
        if let Some(session) = self.plane.session(id) {
            session.busy = true;
            session.stored.leaving = true;
            session.stored.moved = true;
            if !listed {
                self.moved.push(id);
                self.arm_flush();
            }
        }
        self.commit(Op::Away { session: id, cursor: true }, writes, class);
    }

    /// Timers of an absent session: its end, and its will.
    pub(crate) fn arm_away(&mut self, id: SessionId) {
        let now = self.plane.now.mono;
        let Some(session) = self.plane.session(id) else { return };
        let expiry = session.expiry_secs;
        let will = session.will.as_ref().map(|w| w.delay_secs);
        if expiry != u32::MAX {
            self.at(now.after_millis(u64::from(expiry) * 1000), Timer::Expiry(id));
        }
        match will {
            Some(0) => self.will_due(id),
            Some(delay) => self.at(now.after_millis(u64::from(delay) * 1000), Timer::WillDelay(id)),
            None => {}
        }
    }

    /// Looks at once whether a restored session is over, instead of after its whole interval.
    pub(crate) fn expiry_due_soon(&mut self, id: SessionId) {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return };
        let Some(away) = session.away else { return };
        if session.expiry_secs != u32::MAX {
            let left = away.left_of(session.expiry_secs, now);
            self.at(now.mono.after_millis(left), Timer::Expiry(id));
        }
    }

    /// A session's time may be over.
    pub(crate) fn expiry_due(&mut self, id: SessionId) {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return };
        let Some(away) = session.away else { return };
        if session.expiry_secs == u32::MAX || session.conn.is_some() {
            return;
        }
        let left = away.left_of(session.expiry_secs, now);
        if session.busy || left > 0 {
            // Early (it came back and left again), or a write is under way.
            self.at(now.mono.after_millis(left.max(100)), Timer::Expiry(id));
            return;
        }
        let writes = self.end_session_writes(id);
        self.commit_end(writes);
    }

    /// Commits what a session's end asks of the store, if anything.
    pub(crate) fn commit_end(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            let will = writes.iter().any(|w| matches!(w, Write::Append(_)));
            let class = self.class();
            self.commit(Op::End { will }, writes, class);
        }
    }

    /// Ends a session; returns what the store must do for it, will included.
    pub(crate) fn end_session_writes(&mut self, id: SessionId) -> Vec<Write> {
        self.unwatch_backlog(id);
        let mut writes = self.fire_will(id);
        if let Some(session) = self.plane.session(id) {
            // What it hands back must not be assigned to it again before its leaving is heard.
            session.conn = None;
        }
        self.tell_presence(id);
        self.return_group_messages(id);
        self.return_inflight(id, None);
        self.keep_inflight(id, None);
        let me = self.me;
        let Some(session) = self.plane.sessions.remove(id.idx, id.generation) else { return writes };
        self.readmit.extend(session.waiting);
        let tenant_id = session.mount.tenant();
        let member = MemberRef { shard: me, session: id, uid: session.uid };
        let mut changes: Vec<InterestChange> = Vec::new();
        let mut name = Box::from("");
        if let Some(tenant) = self.tenants.get_mut(tenant_id.0 as usize) {
            name = tenant.name.clone();
            tenant.clients.remove(&*session.client_id);
            tenant.counters.sessions -= 1;
            tenant.counters.subscriptions -= session.subscriptions.len() as u64;
            for (filter, subscription) in &session.subscriptions {
                if matches!(topic::split_share(filter), Ok(None)) {
                    tenant.index.remove(filter, SubKey::session(id));
                    changes.extend(tenant.remove_live(filter));
                    if session.persistent && subscription.is_durable() {
                        changes.extend(tenant.remove_durable(filter));
                    }
                }
            }
        }
        for group in session.subscriptions.values().filter_map(|s| s.group) {
            self.send(group.leader, PeerMsg::GroupLeave { group, member });
        }
        self.announce(tenant_id, changes);
        self.give(tenant_id, Row::Subscriptions, session.subscriptions.len() as u64);
        if session.persistent {
            self.release_session(tenant_id);
        }
        self.scans.cancel(id);
        if session.stored.revision.is_some() {
            let client = session.client_id.as_bytes();
            let mut delete = |space, parts: &[&[u8]]| {
                writes.push(Write::Delete { key: Key::new(space, &name, parts), expect: Expect::Any });
            };
            delete(Space::Session, &[client]);
            delete(Space::Cursor, &[client]);
            for filter in session.subscriptions.keys() {
                delete(Space::Filter, &[client, filter.as_bytes()]);
            }
            for packet_id in session.inbound.union(&session.inbound_unsure) {
                delete(Space::Inbound, &[client, &inbound_tail(session.uid, *packet_id)]);
            }
        }
        writes
    }

    /// The write of a session's record as it is now.
    pub(crate) fn session_write(&mut self, id: SessionId) -> Write {
        let owner = self.me.0;
        let Some(session) = self.plane.session(id) else {
            return Write::Check { key: Key::new(Space::Session, "-", &[]), expect: Expect::Any };
        };
        let record = SessionRecord {
            uid: session.uid,
            epoch: session.epoch,
            owner,
            persistent: session.persistent,
            expiry_secs: session.expiry_secs,
            away_since: session.away.map(|away| away.since),
            principal: session.principal.clone(),
            claims: session.claims.clone(),
            will: session.will.as_deref().cloned(),
            kind: 0,
        };
        let expect = session.stored.revision.map_or(Expect::Any, Expect::Revision);
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let key = self.key(tenant, Space::Session, &[client_id.as_bytes()]);
        Write::Put { key, value: record.encode(), expect }
    }

    /// A key of a tenant.
    pub(crate) fn key(&self, tenant: crate::ids::TenantId, space: Space, parts: &[&[u8]]) -> Key {
        let name = self.tenants.get(tenant.0 as usize).map_or("", |t| &*t.name);
        Key::new(space, name, parts)
    }

    /// A CONNECT was stored, but its client had left.
    pub(crate) fn left_while_connecting(&mut self, id: SessionId) {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return };
        if session.conn.is_none() {
            session.away.get_or_insert(Away::begin(now));
            self.gone(id);
        }
    }

    /// A CONNECT could not be stored: the session is as it was before.
    pub(crate) fn connect_failed(&mut self, id: SessionId, present: bool, previous: Option<Box<Will>>) {
        let now = self.plane.now;
        let Some(session) = self.plane.session(id) else { return };
        session.conn = None;
        session.will = previous;
        session.away.get_or_insert(Away::begin(now));
        if present {
            self.arm_away(id);
        } else {
            // Nothing of it may remain; if the store did apply the write, a delete undoes it.
            session.stored.revision.get_or_insert(Seq(0));
            let mut writes = self.end_session_writes(id);
            writes.retain(|w| !matches!(w, Write::Append(_)));
            self.commit_end(writes);
        }
    }

    /// Cursor and record of a session that went away are stored (or not: then the next flush writes them).
    pub(crate) fn left(&mut self, id: SessionId, result: &CommitResult) {
        let Some(session) = self.plane.session(id) else { return };
        match result {
            CommitResult::Done { .. } => session.stored.leaving = false,
            CommitResult::Refused(Refusal::Conflict { .. }) => {
                session.stored.leaving &= session.stored.unsure
            }
            CommitResult::Refused(_) | CommitResult::Unknown => {}
        }
        self.away_stored(id, result);
    }

    /// The record of a session that went away is stored (or not).
    pub(crate) fn away_stored(&mut self, id: SessionId, result: &CommitResult) {
        let Some(session) = self.plane.session(id) else { return };
        session.busy = false;
        let waiting = session.waiting.take();
        self.readmit.extend(waiting);
        let Some(session) = self.plane.session(id) else { return };
        match result {
            CommitResult::Done { last } => {
                session.stored.revision = Some(*last);
                session.stored.unsure = false;
            }
            CommitResult::Refused(_) | CommitResult::Unknown => {
                self.adopt_revision(id, result);
            }
        }
    }

    /// What a failed write of a session's record tells about the record's revision. A write without an
    /// answer may have moved it, and then the next one meets a conflict, which names the revision: nobody
    /// else writes this record on this node. True if the revision is known now and was not before.
    pub(crate) fn adopt_revision(&mut self, id: SessionId, result: &CommitResult) -> bool {
        let Some(session) = self.plane.session(id) else { return false };
        match result {
            CommitResult::Refused(Refusal::Conflict { current, .. }) if session.stored.unsure => {
                session.stored.revision = *current;
                session.stored.unsure = false;
                true
            }
            CommitResult::Unknown => {
                session.stored.unsure = true;
                false
            }
            CommitResult::Done { .. } | CommitResult::Refused(_) => false,
        }
    }
}
