//! The limits of an absent session where new messages are refused instead of old ones dropped: its shard counts
//! what the log keeps for it, tells every shard when that is all it may be, and their publishers are refused until
//! the session has room again, comes back or ends.
//!
//! What is counted errs on the side of too much (a message may expire); so a session that seems full is looked at in
//! the log itself, at once and every few seconds. What was on its way to the store when a session became full is
//! kept: nothing that was acknowledged is dropped.

use crate::codec::SubOptions;
use crate::ids::{OpId, SessionId, SessionUid, TenantId};
use crate::message::Message;
use crate::session::{Session, Sub, SubKey, Target};
use crate::settings::{OfflineLimits, WhenFull};
use crate::shard::Shard;
use crate::shard::ops::Op;
use crate::shard::peer::PeerMsg;
use crate::shard::timers::Timer;
use crate::store::port::{Read, ReadResult};
use crate::store::position::Seq;
use crate::time::Mono;
use crate::topic;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How often a full session's backlog is looked at again, ms.
const LOOK_MS: u64 = 5_000;

/// What the log keeps for an absent session.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    messages: u64,
    bytes: u64,
    /// The last look has counted everything up to here.
    upto: Seq,
    /// All shards were told.
    full: bool,
    /// When it is looked at again; a timer that fires before is of an earlier absence.
    again: Option<Mono>,
    /// The look under way, and what had been counted when it began.
    look: Option<(OpId, u64, u64)>,
}

impl Backlog {
    fn is_over(&self, limits: &OfflineLimits) -> bool {
        self.messages >= limits.max_messages || self.bytes >= limits.max_bytes
    }
}

/// A full session under one of its filters, in [`crate::shard::tenants::TenantState::full`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullSession(pub SessionUid);

impl crate::topic::Subscriber for FullSession {
    type Key = SessionUid;

    fn key(&self) -> SessionUid {
        self.0
    }
}

/// The filters for which the log keeps something for the session itself.
fn kept_filters(session: &Session) -> Vec<(Box<str>, SubOptions)> {
    session
        .subscriptions
        .iter()
        .filter(|(filter, s)| s.is_durable() && matches!(topic::split_share(filter), Ok(None)))
        .map(|(filter, s)| (filter.clone(), s.options))
        .collect()
}

impl Shard {
    fn refuses_new(&self) -> bool {
        self.plane.settings.offline.when_full == WhenFull::RefuseNew
    }

    /// A session is away: its backlog is counted from now on, if that matters.
    pub(crate) fn watch_backlog(&mut self, id: SessionId) {
        if !self.refuses_new() {
            return;
        }
        let Some(session) = self.plane.session(id) else { return };
        if !session.persistent || session.conn.is_some() || session.backlog.is_some() {
            return;
        }
        let filters = kept_filters(session);
        if filters.is_empty() {
            return;
        }
        session.backlog = Some(Box::default());
        let tenant = session.mount.tenant();
        let Some(tenant) = self.tenant(tenant) else { return };
        for (filter, options) in filters {
            tenant.away.insert(&filter, Sub::new(SubKey::session(id), options, 0));
        }
        self.look_at_backlog(id);
    }

    /// The session is back, or over.
    pub(crate) fn unwatch_backlog(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        if session.backlog.is_none() {
            return;
        }
        self.tell_full(id, false);
        let Some(session) = self.plane.session(id) else { return };
        session.backlog = None;
        let (tenant, filters) = (session.mount.tenant(), kept_filters(session));
        let Some(tenant) = self.tenant(tenant) else { return };
        for (filter, _) in filters {
            tenant.away.remove(&filter, SubKey::session(id));
        }
    }

    /// The settings changed.
    pub(crate) fn offline_limits_changed(&mut self) {
        let refuses = self.refuses_new();
        let ids: Vec<SessionId> =
            self.plane.sessions.iter().map(|(idx, generation, _)| SessionId { idx, generation }).collect();
        for id in ids {
            if !refuses {
                self.unwatch_backlog(id);
            } else if self.plane.session(id).is_some_and(|s| s.backlog.is_some()) {
                self.look_at_backlog(id);
            } else {
                self.watch_backlog(id);
            }
        }
    }

    /// Asks the store what it keeps for the session.
    pub(crate) fn look_at_backlog(&mut self, id: SessionId) {
        if self.plane.session(id).and_then(|s| s.backlog.as_ref()).is_none_or(|b| b.look.is_some()) {
            return;
        }
        let Some(read) = self.log_read(id) else { return };
        let read = Read::Bound { read, max_count: u64::MAX, max_bytes: u64::MAX };
        let op = self.read(Op::Backlog { session: id }, read);
        if let Some(backlog) = self.plane.session(id).and_then(|s| s.backlog.as_mut()) {
            backlog.look = Some((op, backlog.messages, backlog.bytes));
        }
    }

    pub(crate) fn backlog_read(&mut self, op: OpId, id: SessionId, result: ReadResult) {
        let tenant = self.plane.session(id).map(|s| s.mount.tenant());
        let limits = tenant.map_or(self.plane.settings.offline, |t| self.offline_limits(t));
        let again = self.plane.now.mono.after_millis(LOOK_MS);
        let Some(backlog) = self.plane.session(id).and_then(|s| s.backlog.as_mut()) else { return };
        let Some((asked, messages, bytes)) = backlog.look.filter(|(asked, ..)| *asked == op) else { return };
        debug_assert_eq!(asked, op);
        backlog.look = None;
        let mut look_again = true;
        if let ReadResult::Bound { kept, kept_bytes, upto, .. } = result {
            // What was counted since the look began may be in its answer as well: too much, until the next look.
            backlog.messages = kept + (backlog.messages - messages);
            backlog.bytes = kept_bytes + (backlog.bytes - bytes);
            backlog.upto = backlog.upto.max(upto);
            let full = backlog.is_over(&limits);
            let newly = full && !backlog.full;
            self.tell_full(id, full);
            look_again = full;
            if let Some(tenant) = tenant {
                self.observe_backlog(tenant, kept, kept_bytes);
                if newly {
                    self.offline_hit(tenant, kept >= limits.max_messages);
                }
            }
        }
        let Some(backlog) = self.plane.session(id).and_then(|s| s.backlog.as_mut()) else { return };
        if look_again && backlog.again.is_none() {
            backlog.again = Some(again);
            self.at(again, Timer::Backlog(id));
        }
    }

    /// A full session may have room again.
    pub(crate) fn backlog_due(&mut self, id: SessionId) {
        let now = self.plane.now.mono;
        let Some(backlog) = self.plane.session(id).and_then(|s| s.backlog.as_mut()) else { return };
        if backlog.again.is_some_and(|at| at <= now) {
            backlog.again = None;
            self.look_at_backlog(id);
        }
    }

    /// A message was appended: it counts for every absent session that will get it.
    pub(crate) fn count_backlogs(&mut self, message: &Message, seq: Seq) {
        let Some(tenant) = self.tenants.get(message.tenant.0 as usize) else { return };
        if tenant.away.is_empty() {
            return;
        }
        let mut lists = core::mem::take(&mut self.lists);
        lists.clear();
        tenant.away.matches(message.topic(), &mut lists);
        let mut subs: Vec<Sub> = lists.iter().flat_map(|l| tenant.away.list(*l)).copied().collect();
        self.lists = lists;
        subs.sort_by_key(|s| s.key);
        let limits = self.offline_limits(message.tenant);
        let mut counted = None;
        for sub in subs {
            let Target::Session(id) = sub.key.target() else { continue };
            let Some(session) = self.plane.session(id) else { continue };
            let own = sub.no_local() && session.uid == message.publisher;
            let Some(backlog) = &mut session.backlog else { continue };
            if own || counted == Some(id) || seq <= backlog.upto {
                continue;
            }
            counted = Some(id);
            backlog.messages += 1;
            backlog.bytes += message.size() as u64;
            if !backlog.full && backlog.is_over(&limits) {
                let messages = backlog.messages >= limits.max_messages;
                self.tell_full(id, true);
                self.offline_hit(message.tenant, messages);
                self.look_at_backlog(id);
            }
        }
    }

    /// Tells all shards that a session is full, or is so no more.
    fn tell_full(&mut self, id: SessionId, full: bool) {
        let Some(session) = self.plane.session(id) else { return };
        let Some(backlog) = &mut session.backlog else { return };
        if core::mem::replace(&mut backlog.full, full) == full {
            return;
        }
        let (tenant, uid) = (session.mount.tenant(), session.uid);
        let filters: Arc<[Box<str>]> = kept_filters(session).into_iter().map(|(filter, _)| filter).collect();
        let counters = &mut self.plane.counters;
        counters.offline_full = if full { counters.offline_full + 1 } else { counters.offline_full - 1 };
        self.session_full(tenant, uid, &filters, full);
        for peer in self.peers() {
            let filters = Arc::clone(&filters);
            self.send(peer, PeerMsg::Full { tenant, session: uid, filters, full });
        }
    }

    /// A session, here or elsewhere, is full or is so no more.
    pub(crate) fn session_full(
        &mut self,
        tenant: TenantId,
        uid: SessionUid,
        filters: &[Box<str>],
        full: bool,
    ) {
        let Some(tenant) = self.tenant(tenant) else { return };
        for filter in filters {
            if full {
                tenant.full.insert(filter, FullSession(uid));
            } else {
                tenant.full.remove(filter, uid);
            }
        }
    }

    /// True if a full session wants messages of this topic.
    pub(crate) fn is_offline_full(&mut self, tenant: TenantId, topic: &str) -> bool {
        let Some(tenant) = self.tenants.get(tenant.0 as usize) else { return false };
        if tenant.full.is_empty() {
            return false;
        }
        self.lists.clear();
        // Over the budget it is full for whoever it may be: on the safe side.
        let budget = self.plane.settings.max_match_nodes;
        tenant.full.matches_within(topic, budget, &mut self.lists) > budget || !self.lists.is_empty()
    }
}
