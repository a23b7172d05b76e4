//! Reading the log for a session: after a reconnect, or when it fell behind; page by page until it meets
//! the live edge.

use crate::ids::{OpId, SessionId};
use crate::message::{Message, QoS};
use crate::session::feed::{Queued, Source};
use crate::session::outflow::{Inflight, Stage};
use crate::session::plane::Grant;
use crate::session::{Session, SubKey};
use crate::settings::WhenFull;
use crate::shard::ops::Op;
use crate::shard::timers::Timer;
use crate::shard::{EMBEDDED, Shard};
use crate::store::port::{
    Append, CommitResult, Durability, LogFilter, LogPage, LogRead, Read, ReadResult, Write,
};
use crate::store::position::{Partition, Seq};
use crate::sys::Drop;
use crate::topic;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Bytes asked for in one page.
const PAGE_BYTES: u32 = 256 * 1024;
/// Messages asked for in one page.
const PAGE_MESSAGES: usize = 256;
/// Pause before a failed read is tried again, ms.
const RETRY_MS: u64 = 1000;
/// Up to so many subscriptions are matched one by one, beyond through the index.
const MATCH_ONE_BY_ONE: usize = 32;

impl Shard {
    /// A session came online: bodies first, then what is in flight, then the log.
    pub(crate) fn resume_flow(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        session.out.left_over = session.out.inflight.len();
        if session.replays.as_ref().is_some_and(|r| !r.names.is_empty()) {
            session.reviving = true;
            self.ask_lost_bodies(id);
            return;
        }
        session.reviving = false;
        let missing: Vec<Seq> = session
            .out
            .inflight
            .iter()
            .filter(|e| e.message.is_none() && e.stage == Stage::Sent)
            .filter_map(|e| e.pos.map(|(_, seq)| seq))
            .collect();
        if !missing.is_empty() {
            session.reviving = true;
            let mut seqs = missing;
            seqs.sort_unstable();
            let op = self.read(Op::Revive { session: id }, Read::At { partition: EMBEDDED, seqs });
            if let Some(session) = self.plane.session(id) {
                session.feed.reading = Some(op);
            }
            return;
        }
        self.resend(id);
        self.check_bound(id);
        self.plane.pump(id);
    }

    /// Bodies of in-flight messages came back.
    pub(crate) fn revived(&mut self, op: OpId, id: SessionId, result: ReadResult) {
        if !self.take_read(op, id) {
            return;
        }
        let retry_at = self.plane.now.mono.after_millis(RETRY_MS);
        let Some(session) = self.plane.session(id) else { return };
        let ReadResult::Page(page) = result else {
            // Stays in revival: the retry begins it again.
            self.at(retry_at, Timer::Retry(id));
            return;
        };
        session.reviving = false;
        let damaged = page.lost.len() as u64;
        for lost in page.lost {
            // QoS 1 ends here; QoS 2 by PUBREL, like a body that is gone by age.
            let is_it = |e: &Inflight| e.pos == Some((EMBEDDED, lost)) && e.stage == Stage::Sent;
            session.out.inflight.retain(|e| !(is_it(e) && e.qos == QoS::AtLeastOnce));
        }
        for entry in page.entries {
            for inflight in &mut session.out.inflight {
                if inflight.pos.is_some_and(|(_, seq)| seq == entry.seq) && inflight.stage == Stage::Sent {
                    inflight.message = Some(Arc::clone(&entry.message));
                }
            }
        }
        self.plane.counters.drop_many(Drop::StoreDamaged, damaged);
        self.resend(id);
        self.check_bound(id);
        self.plane.pump(id);
    }

    /// True if `op` is the read that the session waits for; it waits no more then.
    fn take_read(&mut self, op: OpId, id: SessionId) -> bool {
        let Some(session) = self.plane.session(id) else { return false };
        if session.feed.reading != Some(op) {
            return false;
        }
        session.feed.reading = None;
        true
    }

    /// The limits of what was kept while away, where the distance makes it possible that they bind.
    fn check_bound(&mut self, id: SessionId) {
        let head = self.plane.head.get(EMBEDDED).0;
        let Some(tenant) = self.plane.session(id).map(|s| s.mount.tenant()) else { return };
        let limits = self.offline_limits(tenant);
        let least = self.least_offline_messages(tenant, limits.max_messages);
        let Some(session) = self.plane.session(id) else { return };
        let behind = head.saturating_sub(session.feed.read_pos.get(EMBEDDED).0);
        if limits.when_full == WhenFull::RefuseNew || !session.feed.behind || behind <= least.min(64) {
            return;
        }
        let Some(read) = self.log_read(id) else { return };
        let read = Read::Bound { read, max_count: limits.max_messages, max_bytes: limits.max_bytes };
        let op = self.read(Op::Bound { session: id }, read);
        if let Some(session) = self.plane.session(id) {
            session.feed.reading = Some(op);
        }
    }

    pub(crate) fn bound_read(&mut self, op: OpId, id: SessionId, result: ReadResult) {
        if !self.take_read(op, id) {
            return;
        }
        if let ReadResult::Bound { floor, dropped, kept, kept_bytes, .. } = result
            && let Some(session) = self.plane.session(id)
        {
            let tenant = session.mount.tenant();
            session.feed.read_pos.raise(EMBEDDED, floor);
            self.plane.counters.drop_many(Drop::OfflineLimit, dropped);
            self.observe_backlog(tenant, kept, kept_bytes);
            if dropped > 0 {
                let messages = kept >= self.offline_limits(tenant).max_messages;
                self.offline_hit(tenant, messages);
            }
        }
        // A failed look leaves the backlog whole: the limit binds late rather than losing unseen.
        self.read_on(id);
    }

    pub(crate) fn log_read(&mut self, id: SessionId) -> Option<LogRead> {
        let now = self.plane.now.wall;
        let settings = &self.plane.settings;
        let (max_messages, max_bytes) = (settings.queue_messages, settings.queue_bytes);
        let session = self.plane.session(id)?;
        let filters = log_filters(session);
        let room = max_messages.saturating_sub(session.feed.pending.len()).clamp(1, PAGE_MESSAGES);
        let bytes = max_bytes.saturating_sub(session.feed.pending_bytes).clamp(1, PAGE_BYTES as usize);
        Some(LogRead {
            tenant: session.mount.tenant(),
            filters,
            spill_of: Some(session.uid),
            partition: EMBEDDED,
            after: session.feed.read_pos.get(EMBEDDED),
            max_entries: room as u32,
            max_bytes: bytes as u32,
            now,
        })
    }

    /// Asks for the next page, if the session is behind and has room.
    pub(crate) fn read_on(&mut self, id: SessionId) {
        let settings = &self.plane.settings;
        let (max_messages, max_bytes) = (settings.queue_messages / 2, settings.queue_bytes / 2);
        // Before CONNACK the session is in no index: what it read now would count as all there is.
        if !self.plane.is_attached(id) {
            return;
        }
        let Some(session) = self.plane.session(id) else { return };
        if session.reviving && session.feed.reading.is_none() {
            self.resume_flow(id);
            return;
        }
        let feed = &session.feed;
        if !feed.behind || feed.reading.is_some() || feed.is_full(max_messages.max(1), max_bytes.max(1)) {
            return;
        }
        let Some(read) = self.log_read(id) else { return };
        let op = self.read(Op::Page { session: id }, Read::Log(read));
        if let Some(session) = self.plane.session(id) {
            session.feed.reading = Some(op);
        }
    }

    /// A page came.
    pub(crate) fn page_read(&mut self, op: OpId, id: SessionId, result: ReadResult) {
        if !self.take_read(op, id) {
            return;
        }
        let ReadResult::Page(page) = result else {
            let retry_at = self.plane.now.mono.after_millis(RETRY_MS);
            self.at(retry_at, Timer::Retry(id));
            return;
        };
        self.take_page(id, page);
        let head = self.plane.head.clone();
        let Some(session) = self.plane.session(id) else { return };
        session.feed.catch_up(&head);
        self.plane.pump(id);
        self.read_on(id);
    }

    fn take_page(&mut self, id: SessionId, page: LogPage) {
        let Some(session) = self.plane.session(id) else { return };
        let after = session.feed.read_pos.get(EMBEDDED);
        if page.first.0 > after.0 + 1 && session.persistent {
            // Age or the tenant's bytes took what lay in between.
            self.plane.counters.drop(Drop::LogTrimmed);
        }
        for lost in page.lost {
            let Some(session) = self.plane.session(id) else { return };
            if !session.out.inflight.iter().any(|e| e.is_copy_of((EMBEDDED, lost))) {
                self.plane.counters.drop(Drop::StoreDamaged);
            }
        }
        for entry in page.entries {
            let Some(session) = self.plane.session(id) else { return };
            let pos = (EMBEDDED, entry.seq);
            let comes_as_overflow = !entry.spilled && session.feed.overflows(pos);
            if comes_as_overflow || session.out.inflight.iter().any(|e| e.is_copy_of(pos)) {
                continue;
            }
            let Some(grant) = self.grant_of(id, &entry.message, entry.spilled, pos) else { continue };
            let qos = entry.message.qos.min(grant.qos);
            if grant.qos == QoS::AtMostOnce {
                // It had its chance when it was live.
                continue;
            }
            // The log holds for the session what its filters match; what it may read is judged here.
            if !self.may_receive(id, entry.message.topic()) {
                continue;
            }
            self.plane.counters.replayed += 1;
            self.plane.enqueue(
                id,
                Queued {
                    message: entry.message,
                    pos: Some(pos),
                    source: Source::Log,
                    qos,
                    retain: grant.retain,
                    sub_ids: grant.sub_ids,
                },
            );
        }
        if let Some(session) = self.plane.session(id) {
            session.feed.read_pos.raise(EMBEDDED, page.upto);
        }
    }

    /// What a session's subscriptions make of a message of the log; `None` if nothing matches now.
    fn grant_of(
        &mut self,
        id: SessionId,
        message: &Message,
        spilled: bool,
        pos: (Partition, Seq),
    ) -> Option<Grant> {
        let session = self.plane.session(id)?;
        let own = session.uid == message.publisher;
        let mut grant: Option<Grant> = None;
        let mut add = |qos: QoS, no_local: bool, rap: bool, sub_id: u32| {
            if no_local && own {
                return;
            }
            let grant = grant.get_or_insert(Grant { qos, retain: false, sub_ids: SmallVec::new() });
            grant.qos = grant.qos.max(qos);
            grant.retain |= rap && message.retain;
            if sub_id != 0 {
                grant.sub_ids.push(sub_id);
            }
        };
        if session.subscriptions.len() <= MATCH_ONE_BY_ONE {
            for (filter, s) in &session.subscriptions {
                if (spilled || !s.start.covers(pos.0, pos.1)) && topic::matches(filter, message.topic()) {
                    add(s.options.qos, s.options.no_local, s.options.retain_as_published, s.id);
                }
            }
            return grant;
        }
        let key = SubKey::session(id);
        let tenant = self.tenants.get_mut(message.tenant.0 as usize)?;
        let mut lists = core::mem::take(&mut self.lists);
        lists.clear();
        tenant.index.matches(message.topic(), &mut lists);
        for list in &lists {
            if let Some(sub) = tenant.index.get_in(*list, key) {
                add(sub.qos(), sub.no_local(), sub.retain_as_published(), sub.id);
            }
        }
        self.lists = lists;
        grant
    }

    /// An unlogged message for a session that is behind: into the log, for it alone.
    pub(crate) fn spill(&mut self, id: SessionId, message: Arc<Message>) {
        let uid = self.plane.uid_of(id);
        let append =
            Append { message, partition: EMBEDDED, log: true, retain: false, spill: Some(Arc::from([uid])) };
        self.commit(Op::Spill { session: id }, alloc::vec![Write::Append(append)], Durability::Memory);
    }

    pub(crate) fn spill_stored(&mut self, id: SessionId, result: &CommitResult) {
        if !matches!(result, CommitResult::Done { .. }) {
            self.plane.counters.drop(Drop::StoreRefused);
        }
        let Some(session) = self.plane.session(id) else { return };
        session.feed.spill_answered(result);
        if session.feed.spills == 0 {
            self.read_on(id);
        }
    }
}

/// The filters that a session reads the log by.
fn log_filters(session: &mut Session) -> Arc<[LogFilter]> {
    if let Some(filters) = &session.log_filters {
        return Arc::clone(filters);
    }
    let filters: Arc<[LogFilter]> = session
        .subscriptions
        .iter()
        .filter(|(filter, s)| s.is_durable() && matches!(topic::split_share(filter), Ok(None)))
        .map(|(filter, s)| LogFilter { filter: filter.clone(), start: s.start.clone() })
        .collect();
    session.log_filters = Some(Arc::clone(&filters));
    filters
}
