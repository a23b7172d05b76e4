//! The reading questions.

use crate::ask::{
    Answer, ConnectionInfo, LOOKED_AT, NAMES_LOOKED_AT, SessionFilter, SessionInfo, SubscriptionInfo,
};
use crate::ids::{SessionId, TenantId};
use crate::session::Session;
use crate::shard::{EMBEDDED, Shard};
use crate::topic::{RetainedCursor, ScanStep};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Bound, ControlFlow};

/// Payload bytes in one page of retained messages, about.
const PAGE_BYTES: usize = 1 << 20;

impl SessionFilter {
    fn admits(&self, session: &Session) -> bool {
        session.client_id.starts_with(&*self.client_prefix)
            && self.user.as_ref().is_none_or(|user| session.principal.as_ref() == Some(user))
            && self.connected.is_none_or(|connected| session.conn.is_some() == connected)
    }
}

impl Shard {
    pub(super) fn list_sessions(
        &mut self,
        tenant: TenantId,
        from: u32,
        max: u32,
        filter: &SessionFilter,
    ) -> Answer {
        let mut found = Vec::new();
        let mut next = None;
        for (looked_at, (idx, generation, session)) in self.plane.sessions.iter_from(from).enumerate() {
            if found.len() >= max as usize || looked_at >= LOOKED_AT {
                next = Some(idx);
                break;
            }
            if session.mount.tenant() == tenant && filter.admits(session) {
                found.push(SessionId { idx, generation });
            }
        }
        let sessions = found.into_iter().filter_map(|id| self.session_info(id)).collect();
        Answer::Sessions { sessions, next }
    }

    pub(super) fn one_session(&mut self, tenant: TenantId, client: &str) -> Answer {
        let info = self.client(tenant, client).and_then(|id| self.session_info(id));
        info.map_or(Answer::Missing, |info| Answer::Session(Box::new(info)))
    }

    fn session_info(&mut self, id: SessionId) -> Option<SessionInfo> {
        let head = self.plane.head.get(EMBEDDED);
        let session = self.plane.session(id)?;
        let conn = session.conn;
        let mut info = SessionInfo {
            client: session.client_id.clone(),
            user: session.principal.clone(),
            connection: None,
            away_since: session.away.map(|away| away.since),
            persistent: session.persistent,
            expiry_secs: session.expiry_secs,
            subscriptions: session.subscriptions.len() as u32,
            inflight: session.out.inflight.len() as u32,
            inflight_max: session.out.quota,
            inbound: session.inbound.len() as u32,
            queued: session.feed.pending.len() as u32,
            queued_bytes: session.feed.pending_bytes as u64,
            lag: session.feed.behind.then(|| head.0.saturating_sub(session.feed.read_pos.get(EMBEDDED).0)),
            will: session.will.is_some(),
            epoch: session.epoch,
        };
        info.connection = conn.and_then(|id| self.plane.conn(id)).map(|conn| ConnectionInfo {
            id: conn.id,
            version: conn.version,
            keep_alive: (conn.keep_alive_micros / 1_500_000) as u32,
            since: conn.since,
            expires: conn.expires,
            out_bytes: conn.out.len() as u64,
        });
        Some(info)
    }

    pub(super) fn list_subscriptions(
        &mut self,
        tenant: TenantId,
        client: &str,
        after: Option<&str>,
        max: u32,
    ) -> Answer {
        let Some(id) = self.client(tenant, client) else { return Answer::Missing };
        let Some(session) = self.plane.session(id) else { return Answer::Missing };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = session.subscriptions.range::<str, _>((from, Bound::Unbounded));
        let page = rest.by_ref().take(max as usize);
        let subscriptions = page
            .map(|(filter, s)| SubscriptionInfo { filter: filter.clone(), options: s.options, id: s.id })
            .collect();
        Answer::Subscriptions { subscriptions, more: rest.next().is_some() }
    }

    pub(super) fn list_retained(
        &mut self,
        tenant: TenantId,
        mut cursor: Box<RetainedCursor>,
        max: u32,
    ) -> Answer {
        let now = self.plane.now.wall;
        let Some(state) = self.tenant(tenant) else { return Answer::Missing };
        let mut budget = NAMES_LOOKED_AT;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        let step = state.retained.scan_with(&mut cursor, &mut budget, |_, retained| {
            if !retained.message.is_expired(now) {
                bytes += retained.message.size();
                messages.push(Arc::clone(&retained.message));
            }
            if messages.len() >= max as usize || bytes >= PAGE_BYTES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        Answer::Retained { messages, next: (step == ScanStep::More).then_some(cursor) }
    }
}
