//! Retained messages for new subscriptions: page by page from the tenant's home shard, as fast as the
//! receiver takes them, in bounded steps; cancelled by UNSUBSCRIBE and by the session's leaving.

use crate::ids::{SessionId, ShardIx, TenantId};
use crate::message::{Message, QoS};
use crate::session::feed::{Queued, Source};
use crate::session::outflow::Stage;
use crate::session::plane::Followup;
use crate::shard::peer::PeerMsg;
use crate::shard::{EMBEDDED, Shard};
use crate::store::position::{Partition, Position, Seq};
use crate::topic::{RetainedCursor, ScanStep};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use smallvec::SmallVec;

/// Messages of one page.
const PAGE: u32 = 256;
/// Bytes that one page may carry before it ends.
const PAGE_BYTES: usize = 256 * 1024;
/// Names visited for one page at most: what a filter skips costs too.
const PAGE_VISITS: u32 = 4096;

/// A subscription whose retained messages are due.
#[derive(Clone, Debug)]
pub(crate) struct ScanRequest {
    pub filter: Box<str>,
    pub qos: QoS,
    pub sub_id: u32,
    /// Number of the session's replay; 0 = it is not remembered.
    pub replay: u64,
    /// It goes on after a lost connection: QoS 0 had its chance.
    pub resumed: bool,
}

/// A scan under way.
#[derive(Debug)]
struct Scan {
    session: SessionId,
    request: ScanRequest,
    /// Here between pages; travels with the request for one.
    cursor: Option<Box<RetainedCursor>>,
    /// What is retained above this was delivered live: the subscription was in effect before.
    fence: (Partition, Seq),
    ready: bool,
}

/// A page asked of this shard before its index had come as far as the asker.
#[derive(Debug)]
struct Early {
    from: ShardIx,
    tenant: TenantId,
    cursor: Box<RetainedCursor>,
    fence: (Partition, Seq),
    max: u32,
    token: u64,
}

/// A [`PeerMsg::RetainedGet`] that came early.
type EarlyGet = (ShardIx, TenantId, SessionId, (Partition, Seq), Vec<Box<str>>);

/// All scans of a shard, by the token of their pages.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    scans: BTreeMap<u64, Scan>,
    ready: usize,
    early: Vec<Early>,
    due: Vec<Early>,
    early_gets: Vec<EarlyGet>,
}

impl Scans {
    pub fn has_ready(&self) -> bool {
        self.ready > 0 || !self.due.is_empty()
    }

    /// What asked too early may ask again.
    pub fn take_early_gets(&mut self) -> Vec<EarlyGet> {
        core::mem::take(&mut self.early_gets)
    }

    /// The session has room again.
    pub fn wake(&mut self, session: SessionId) {
        for scan in self.scans.values_mut().filter(|s| s.session == session) {
            if scan.cursor.is_some() && !scan.ready {
                scan.ready = true;
                self.ready += 1;
            }
        }
    }

    /// Ends all scans of a session.
    pub fn cancel(&mut self, session: SessionId) {
        self.remove_if(|s| s.session == session);
    }

    /// Ends the scan of one subscription.
    pub fn cancel_filter(&mut self, session: SessionId, filter: &str) {
        self.remove_if(|s| s.session == session && &*s.request.filter == filter);
    }

    fn remove_if(&mut self, gone: impl Fn(&Scan) -> bool) {
        self.scans.retain(|_, s| !gone(s));
        self.ready = self.scans.values().filter(|s| s.ready).count();
    }

    /// Pages that came too early may be answered now.
    pub fn head_moved(&mut self, head: &Position) {
        let mut at = 0;
        while at < self.early.len() {
            if head.covers(self.early[at].fence.0, self.early[at].fence.1) {
                let early = self.early.remove(at);
                self.due.push(early);
            } else {
                at += 1;
            }
        }
    }

    /// Scans under way.
    pub fn len(&self) -> usize {
        self.scans.len() + self.early.len() + self.due.len()
    }
}

impl Shard {
    /// Begins to send retained messages of a subscription that is in effect.
    pub(crate) fn begin_scan(&mut self, session: SessionId, request: ScanRequest) {
        // An UNSUBSCRIBE may have overtaken a SUBSCRIBE that the store still had [MQTT-3.10.4-2].
        let fence = (EMBEDDED, self.plane.head.get(EMBEDDED));
        let attached = self.plane.is_attached(session);
        let Some(state) = self.plane.session(session) else { return };
        if !state.subscriptions.contains_key(&request.filter) {
            state.end_replays(|r| r.number == request.replay);
            return;
        }
        if request.replay > 0 {
            // Gone: a later SUBSCRIBE was faster.
            let Some(replay) = state.replay(request.replay) else { return };
            replay.fence = Some(fence);
        }
        // A second SUBSCRIBE of a filter replaces the scan of the first.
        state.end_replays(|r| {
            r.filter == request.filter
                && r.number != request.replay
                && (request.replay == 0 || r.number < request.replay)
        });
        self.scans.cancel_filter(session, &request.filter);
        if attached {
            let cursor = RetainedCursor::new(&request.filter);
            self.start_scan(session, request, cursor, fence);
        }
    }

    /// A session is back: what its replays still owe.
    pub(crate) fn resume_replays(&mut self, id: SessionId) {
        self.scans.cancel(id);
        let Some(session) = self.plane.session(id) else { return };
        let mut due = Vec::new();
        for replay in session.replays.iter().flat_map(|r| &r.list) {
            let (Some(fence), Some(s)) = (replay.fence, session.subscriptions.get(&replay.filter)) else {
                continue;
            };
            let (filter, qos, sub_id) = (replay.filter.clone(), s.options.qos, s.id);
            let request = ScanRequest { filter, qos, sub_id, replay: replay.number, resumed: true };
            let cursor = RetainedCursor::new(&replay.filter);
            let cursor = if replay.after.is_empty() { cursor } else { cursor.behind(&replay.after) };
            due.push((request, cursor, fence));
        }
        for (request, cursor, fence) in due {
            self.start_scan(id, request, cursor, fence);
        }
    }

    fn start_scan(
        &mut self,
        session: SessionId,
        request: ScanRequest,
        cursor: RetainedCursor,
        fence: (Partition, Seq),
    ) {
        let cursor = Some(Box::new(cursor));
        let token = self.new_token();
        self.scans.scans.insert(token, Scan { session, request, cursor, fence, ready: true });
        self.scans.ready += 1;
        self.count_scans(session);
    }

    /// Keeps the session's own note of its scans, which decides whether it wakes them.
    fn count_scans(&mut self, session: SessionId) {
        let n = self.scans.scans.values().filter(|s| s.session == session).count();
        if let Some(session) = self.plane.session(session) {
            session.scans = n as u32;
        }
    }

    /// Asks for one page of the first ready scan, or answers one that came early.
    pub(crate) fn step_scans(&mut self, budget: &mut u32) {
        *budget = budget.saturating_sub(PAGE);
        if let Some(due) = self.scans.due.pop() {
            self.retained_read(due.from, due.tenant, due.cursor, due.fence, due.max, due.token);
            return;
        }
        let next = self.scans.scans.iter().find(|(_, s)| s.ready).map(|(token, s)| (*token, s.session));
        let Some((token, session_id)) = next else {
            self.scans.ready = 0;
            return;
        };
        let settings = &self.plane.settings;
        let (queue, bytes, high) = (settings.queue_messages, settings.queue_bytes, settings.out_high_water);
        let room = self.plane.session(session_id).map(|s| {
            let free = (queue / 2).max(1).saturating_sub(s.feed.pending.len());
            (if s.feed.pending_bytes >= bytes / 2 { 0 } else { free }, s.conn, s.mount.tenant())
        });
        let (room, conn, tenant) = match room {
            Some((room, Some(conn), tenant)) => (room, conn, tenant),
            Some((_, None, _)) | None => {
                self.scans.cancel(session_id);
                return;
            }
        };
        let blocked = self.plane.conn(conn).is_none_or(|c| c.out.len() >= high / 2);
        let Some(scan) = self.scans.scans.get_mut(&token) else { return };
        scan.ready = false;
        self.scans.ready -= 1;
        if room == 0 || blocked {
            // `pump` wakes it when there is room.
            self.plane.counters.scans_parked += 1;
            return;
        }
        let Some(cursor) = scan.cursor.take() else { return };
        let fence = scan.fence;
        let home = self.home(tenant);
        let max = PAGE.min(room as u32);
        self.send(home, PeerMsg::RetainedRead { tenant, cursor, fence, max, token });
    }

    /// Another shard (or this one) asks for a page.
    pub(crate) fn retained_read(
        &mut self,
        from: ShardIx,
        tenant: TenantId,
        mut cursor: Box<RetainedCursor>,
        fence: (Partition, Seq),
        max: u32,
        token: u64,
    ) {
        if !self.plane.head.covers(fence.0, fence.1) {
            self.scans.early.push(Early { from, tenant, cursor, fence, max, token });
            return;
        }
        let now = self.plane.now.wall;
        let Some(state) = self.tenant(tenant) else { return };
        let mut entries = Vec::new();
        let mut expired: Vec<Box<str>> = Vec::new();
        let mut budget = PAGE_VISITS;
        let mut bytes = 0;
        let step = state.retained.scan_with(&mut cursor, &mut budget, |name, retained| {
            if retained.message.is_expired(now) {
                expired.push(Box::from(name));
            } else if retained.partition != fence.0 || retained.seq <= fence.1 {
                bytes += retained.message.size();
                entries.push((retained.seq, Arc::clone(&retained.message)));
            }
            if entries.len() >= max as usize || bytes >= PAGE_BYTES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        for name in expired {
            // [MQTT-3.3.2-5] for the stored copy: found dead, so buried.
            state.remove_retained(&name);
        }
        let done = step == ScanStep::Done;
        self.send(from, PeerMsg::RetainedPage { token, cursor, entries, done });
    }

    /// A page arrived for one of our sessions.
    pub(crate) fn retained_page(
        &mut self,
        token: u64,
        cursor: Box<RetainedCursor>,
        entries: Vec<(Seq, Arc<Message>)>,
        done: bool,
    ) {
        let Some(scan) = self.scans.scans.get_mut(&token) else { return };
        let (session, request) = (scan.session, scan.request.clone());
        scan.cursor = Some(cursor);
        for (seq, message) in entries {
            self.queue_retained(session, &request, seq, message);
        }
        if done {
            self.scans.scans.remove(&token);
            self.replay_scanned(session, request.replay);
        } else if let Some(scan) = self.scans.scans.get_mut(&token) {
            scan.ready = true;
            self.scans.ready += 1;
        }
        self.count_scans(session);
        self.plane.pump(session);
    }

    /// All of a replay is queued.
    fn replay_scanned(&mut self, id: SessionId, number: u64) {
        let Some(session) = self.plane.session(id) else { return };
        if session.replay_scanned(number) && session.persistent && !session.stored.moved {
            session.stored.moved = true;
            self.plane.followups.push(Followup::Moved(id));
        }
    }

    fn queue_retained(&mut self, session: SessionId, request: &ScanRequest, seq: Seq, message: Arc<Message>) {
        if !self.may_receive(session, message.topic()) {
            return;
        }
        let qos = message.qos.min(request.qos);
        if request.resumed && qos == QoS::AtMostOnce {
            return;
        }
        if let Some(replay) = self.plane.session(session).and_then(|s| s.replay(request.replay)) {
            replay.queued += 1;
        }
        let mut sub_ids = SmallVec::new();
        if request.sub_id != 0 {
            sub_ids.push(request.sub_id);
        }
        // [MQTT-3.3.1-8] A message sent because of a new subscription has RETAIN 1.
        self.plane.enqueue(
            session,
            Queued {
                message,
                pos: (qos > QoS::AtMostOnce).then_some((EMBEDDED, seq)),
                source: Source::Retained { replay: request.replay },
                qos,
                retain: true,
                sub_ids,
            },
        );
    }
}

/// Bodies of retained messages that were in flight when the node died.
impl Shard {
    /// Asks the home shard for them.
    pub(crate) fn ask_lost_bodies(&mut self, id: SessionId) {
        let fence = (EMBEDDED, self.plane.head.get(EMBEDDED));
        let Some(session) = self.plane.session(id) else { return };
        let Some(replays) = &session.replays else { return };
        let names = replays.names.values().cloned().collect();
        let tenant = session.mount.tenant();
        let home = self.home(tenant);
        self.send(home, PeerMsg::RetainedGet { tenant, session: id, fence, names });
    }

    /// The index may have come as far as those who asked early.
    pub(crate) fn answer_early_gets(&mut self) {
        for (from, tenant, session, fence, names) in self.scans.take_early_gets() {
            self.retained_get(from, tenant, session, fence, names);
        }
    }

    /// Another shard (or this one) asks for single messages.
    pub(crate) fn retained_get(
        &mut self,
        from: ShardIx,
        tenant: TenantId,
        session: SessionId,
        fence: (Partition, Seq),
        names: Vec<Box<str>>,
    ) {
        if self.restoring || !self.plane.head.covers(fence.0, fence.1) {
            self.scans.early_gets.push((from, tenant, session, fence, names));
            return;
        }
        let Some(state) = self.tenant(tenant) else { return };
        let found = names.iter().filter_map(|name| state.retained.get(name));
        let entries = found.map(|r| (r.seq, Arc::clone(&r.message))).collect();
        self.send(from, PeerMsg::RetainedGot { session, entries });
    }

    /// They came, but for those that were replaced: the newer message comes through the subscription.
    pub(crate) fn retained_got(&mut self, id: SessionId, entries: &[(Seq, Arc<Message>)]) {
        let attached = self.plane.is_attached(id);
        let Some(session) = self.plane.session(id) else { return };
        let asked = session.replays.as_mut().map(|r| core::mem::take(&mut r.names)).unwrap_or_default();
        if asked.is_empty() {
            return;
        }
        for entry in &mut session.out.inflight {
            let body = entries.iter().find(|(seq, _)| entry.pos == Some((EMBEDDED, *seq)));
            if let (Some((_, message)), Stage::Sent, None) = (body, entry.stage, &entry.message) {
                entry.message = Some(Arc::clone(message));
            }
        }
        if attached {
            self.resume_flow(id);
        }
    }
}
