//! Writing a session's cursor and window: at once where a packet waits for it, in batches otherwise; and
//! telling the store what nobody needs any more.

use crate::codec::{AckKind, Reason};
use crate::ids::{SessionId, TenantId};
use crate::session::feed::Source;
use crate::session::outflow::{Inflight, Stage};
use crate::session::plane::Followup;
use crate::session::record::{CursorRecord, StoredInflight, encode_watermark};
use crate::shard::Shard;
use crate::shard::input::Effect;
use crate::shard::ops::Op;
use crate::shard::timers::Timer;
use crate::store::key::Space;
use crate::store::port::{CommitResult, Durability, Expect, Refusal, Write};
use crate::store::position::Position;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Pause before a failed cursor write is tried again, ms.
const RETRY_MS: u64 = 1000;

/// A flush of cursors under way.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// The head when it began.
    position: Position,
    /// Cursor writes that are not answered.
    pending: u32,
    /// One of them failed.
    failed: bool,
    /// Sessions with another write under way, and how many cursor writes they had issued.
    deferred: Vec<(SessionId, u64)>,
}

impl Shard {
    /// The writes of a session's cursor as it is now; none if nothing of the session is stored.
    pub(crate) fn cursor_writes(&mut self, id: SessionId) -> Vec<Write> {
        let head = self.plane.head.clone();
        let run = self.hash_seed | 1;
        let Some(session) = self.plane.session(id) else { return Vec::new() };
        let Some(revision) = session.stored.revision else { return Vec::new() };
        session.stored.moved = false;
        let names = session.replays.as_ref().map(|r| &r.names);
        let name_of = |entry: &Inflight| {
            let retained = matches!(entry.source, Source::Retained { .. });
            if !retained || matches!(entry.stage, Stage::Releasing | Stage::Released) {
                return None;
            }
            let known = names.and_then(|names| names.get(&entry.packet_id)).cloned();
            entry.message.as_ref().map(|m| Box::from(m.topic())).or(known)
        };
        let inflight = session
            .out
            .inflight
            .iter()
            .filter_map(|entry| {
                Some(StoredInflight {
                    packet_id: entry.packet_id,
                    pos: entry.pos?,
                    qos: entry.qos,
                    retain: entry.retain,
                    released: matches!(entry.stage, Stage::Releasing | Stage::Released),
                    apart: entry.source != Source::Log,
                    sub_ids: entry.sub_ids.to_vec(),
                    name: name_of(entry),
                })
            })
            .collect();
        let live = if session.feed.is_idle() { run } else { 0 };
        let (replays_upto, replays) = session.stored_replays();
        let base = session.feed.floor(&head);
        let record = CursorRecord { owner: session.uid, base, live, inflight, replays_upto, replays };
        let (tenant, client_id) = (session.mount.tenant(), session.client_id.clone());
        let client = client_id.as_bytes();
        alloc::vec![
            Write::Check {
                key: self.key(tenant, Space::Session, &[client]),
                expect: Expect::Revision(revision)
            },
            Write::Put {
                key: self.key(tenant, Space::Cursor, &[client]),
                value: record.encode(),
                expect: Expect::Any
            },
        ]
    }

    /// A packet of the session waits for its cursor: write it now, or right after the write under way.
    pub(crate) fn store_cursor(&mut self, id: SessionId) {
        self.write_cursor(id, false);
    }

    fn write_cursor(&mut self, id: SessionId, flush: bool) {
        let class = self.class();
        if !self.plane.is_attached(id) {
            // Its revision may be on the move; what waits is written once it is back.
            return;
        }
        let Some(session) = self.plane.session(id) else { return };
        if session.stored.writing || session.stored.retry_at.is_some() {
            return;
        }
        session.stored.wanted = false;
        session.stored.version += 1;
        let version = session.stored.version;
        if session.stored.revision.is_none() {
            // Nothing of this session is durable, so nothing has to wait.
            self.cursor_reached(id, version);
            return;
        }
        session.stored.writing = true;
        let moved_before = session.stored.moved;
        let writes = self.cursor_writes(id);
        if !flush && let Some(session) = self.plane.session(id) {
            // This write may fail, and a flush that began meanwhile would not know: until a flush has seen
            // the session stored, it counts as moved, and the watermark passes it not.
            session.stored.moved = true;
            if !moved_before {
                self.plane.followups.push(Followup::Moved(id));
            }
        }
        self.commit(Op::Cursor { session: id, version, flush }, writes, class);
    }

    pub(crate) fn cursor_stored(&mut self, id: SessionId, version: u64, flush: bool, result: &CommitResult) {
        let retry_at = self.plane.now.mono.after_millis(RETRY_MS);
        if flush {
            self.flushing.pending -= 1;
            self.flushing.failed |= !matches!(result, CommitResult::Done { .. });
            self.write_watermark();
        }
        let Some(session) = self.plane.session(id) else { return };
        session.stored.writing = false;
        match result {
            CommitResult::Done { .. } => {
                session.stored.reached = session.stored.reached.max(version);
                self.cursor_reached(id, version);
                if self.plane.session(id).is_some_and(|s| s.stored.wanted) {
                    self.store_cursor(id);
                }
            }
            // The record moved on since, by a reconnect: what waits is written with what it has now.
            CommitResult::Refused(Refusal::Conflict { current, .. })
                if session.busy || session.stored.unsure || *current == session.stored.revision =>
            {
                session.stored.wanted = true;
                self.store_cursor(id);
            }
            CommitResult::Refused(Refusal::Conflict { .. }) => {
                // Somebody else owns the session: whatever we do with it now would be wrong.
                if let Some(conn) = session.conn {
                    self.disconnect(conn, Reason::SESSION_TAKEN_OVER);
                }
            }
            CommitResult::Refused(_) | CommitResult::Unknown => {
                session.stored.wanted = true;
                session.stored.retry_at = Some(retry_at);
                if !session.stored.moved {
                    session.stored.moved = true;
                    self.plane.followups.push(Followup::Moved(id));
                }
                self.at(retry_at, Timer::Retry(id));
            }
        }
    }

    pub(crate) fn retry_store(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        if session.stored.retry_at.take().is_some() && session.stored.wanted {
            self.store_cursor(id);
        }
        self.read_on(id);
    }

    /// After a reconnect: what waited for a write that was never made, or never answered.
    pub(crate) fn store_what_waits(&mut self, id: SessionId) {
        let Some(session) = self.plane.session(id) else { return };
        let waits = |e: &Inflight| matches!(e.stage, Stage::Reserving | Stage::Releasing);
        if session.stored.wanted || session.out.inflight.iter().any(waits) {
            session.stored.wanted = true;
            self.store_cursor(id);
        }
    }

    /// Everything up to `version` is durable: what waited for it leaves.
    fn cursor_reached(&mut self, id: SessionId, version: u64) {
        let mut index = 0;
        let mut made_room = false;
        // A connection that waits for its CONNACK gets nothing yet: what becomes due meanwhile is sent
        // with all that is unfinished, once it is online.
        let conn = self.plane.session(id).and_then(|s| s.conn).filter(|c| self.plane.is_online(*c));
        while let Some(session) = self.plane.session(id) {
            let Some(entry) = session.out.inflight.get_mut(index) else { break };
            if entry.needs <= version {
                match entry.stage {
                    Stage::Reserving => {
                        entry.stage = Stage::Sent;
                        if conn.is_some() {
                            entry.sent = true;
                            let before = session.out.inflight.len();
                            self.plane.send_inflight(id, index, false);
                            if self.plane.session(id).is_some_and(|s| s.out.inflight.len() < before) {
                                made_room = true;
                                continue;
                            }
                        }
                    }
                    Stage::Releasing => {
                        entry.stage = Stage::Released;
                        // PUBLISH is never sent again: the body is not needed.
                        entry.message = None;
                        entry.sent = conn.is_some();
                        let packet_id = entry.packet_id;
                        if let Some(conn) = conn {
                            self.put_ack(conn, AckKind::PubRel, packet_id, Reason::SUCCESS);
                        }
                    }
                    Stage::Sent | Stage::Released => {}
                }
            }
            index += 1;
        }
        if made_room {
            self.plane.pump(id);
        }
    }

    /// Writes the cursors that moved; once they are stored, the watermark that speaks for all idle live
    /// sessions. It may pass no session whose record does not tell what it has not finished.
    pub(crate) fn flush_cursors(&mut self) {
        if self.flushing.pending > 0 {
            // The store is slower than our flushes.
            self.arm_flush();
            return;
        }
        let deferred = core::mem::take(&mut self.flushing.deferred);
        if deferred.is_empty() {
            self.flushing = Flushing { position: self.plane.head.clone(), ..Flushing::default() };
            for id in core::mem::take(&mut self.moved) {
                let version = self.plane.session(id).map_or(0, |s| s.stored.version);
                self.flush_session(id, version);
            }
            self.flush_groups();
        } else {
            for (id, version) in deferred {
                self.flush_session(id, version);
            }
        }
        self.write_watermark();
        if !self.moved.is_empty() || !self.flushing.deferred.is_empty() {
            self.arm_flush();
        }
    }

    /// Sees to it that the store holds a session as it was when the flush began, or later; `version` =
    /// cursor writes issued by then.
    fn flush_session(&mut self, id: SessionId, version: u64) {
        let attached = self.plane.is_attached(id);
        let Some(session) = self.plane.session(id) else { return };
        let busy = session.busy;
        let stored = &mut session.stored;
        if !stored.moved {
            return;
        }
        if stored.revision.is_none() {
            stored.moved = false;
            return;
        }
        if stored.reached > version {
            // Written since, though it may have moved again.
            self.moved.push(id);
            return;
        }
        if busy || stored.writing || stored.retry_at.is_some() {
            // Not now: the watermark waits with it.
            self.flushing.deferred.push((id, version));
            return;
        }
        if attached {
            self.flushing.pending += 1;
            self.write_cursor(id, true);
        } else if stored.leaving {
            // Going away could not be stored.
            self.flushing.deferred.push((id, version));
            self.store_leaving(id);
        } else {
            // Going away wrote its cursor, and as one that is behind.
            stored.moved = false;
        }
    }

    /// Writes the watermark of the flush under way, if all that it waits for is stored.
    fn write_watermark(&mut self) {
        if self.flushing.pending > 0
            || !self.flushing.deferred.is_empty()
            || self.flushing.failed
            || self.watermark.as_ref() == Some(&self.flushing.position)
        {
            return;
        }
        self.watermark = Some(self.flushing.position.clone());
        let value = encode_watermark(self.hash_seed | 1, &self.flushing.position);
        let me = self.me.0.to_be_bytes();
        let writes: Vec<Write> = self
            .tenants
            .iter()
            .filter(|t| t.counters.sessions > 0)
            .map(|t| Write::Put {
                key: crate::store::key::Key::new(Space::Watermark, &t.name, &[&me]),
                value: value.clone(),
                expect: Expect::Any,
            })
            .collect();
        if !writes.is_empty() {
            self.commit(Op::Watermark, writes, Durability::Stored);
        }
    }

    /// Every member of a stored group joins again when its session is restored. A group that none joined
    /// has none: its delete was lost, and its cursor would hold the log for ever.
    fn forget_memberless_groups(&mut self) {
        if self.restoring || !self.unheard.is_empty() || self.groups.restored.is_empty() {
            return;
        }
        let restored = core::mem::take(&mut self.groups.restored);
        let writes = restored
            .into_keys()
            .map(|(tenant, name, filter)| {
                let key = self.key(tenant, Space::Group, &[name.as_bytes(), filter.as_bytes()]);
                Write::Delete { key, expect: Expect::Any }
            })
            .collect();
        self.commit(Op::End { will: false }, writes, Durability::Stored);
    }

    /// Tells the store, per tenant, up to where its sessions here need nothing.
    pub(crate) fn tell_floors(&mut self) {
        self.forget_memberless_groups();
        let head = self.plane.head.clone();
        // What comes after the head may be for a session that does not exist yet.
        let mut floors: Vec<Position> = self.tenants.iter().map(|_| head.clone()).collect();
        for (_, _, session) in self.plane.sessions.iter() {
            if session.needs_log()
                && !session.subscriptions.is_empty()
                && let Some(floor) = floors.get_mut(session.mount.tenant().0 as usize)
            {
                floor.lower_to(&session.floor(&head));
            }
        }
        self.groups.lower_floors(&head, &mut floors);
        for (index, floor) in floors.into_iter().enumerate() {
            self.effects.push(Effect::Floor { tenant: TenantId(index as u32), floor });
        }
    }
}
