//! A group and the log: reading on when it is behind, spilling what no member takes, its cursor.

use crate::group::Group;
use crate::ids::{OpId, SessionUid};
use crate::message::Message;
use crate::session::feed::{Queued, Source};
use crate::session::record::{CursorRecord, StoredInflight};
use crate::shard::ops::Op;
use crate::shard::{EMBEDDED, Shard};
use crate::store::port::{
    Append, CommitResult, Durability, Expect, LogFilter, LogRead, Read, ReadResult, Write,
};
use crate::store::position::{Position, Seq};
use crate::sys::Drop;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Messages asked for in one page.
const PAGE: usize = 256;

impl Shard {
    /// Asks for the next page, if the group is behind and has room.
    pub(crate) fn group_read_on(&mut self, id: (u32, u32)) {
        let now = self.plane.now.wall;
        let (max_messages, max_bytes) =
            (self.plane.settings.queue_messages / 2, self.plane.settings.queue_bytes / 2);
        let Some(group) = self.groups.get(id) else { return };
        let feed = &group.feed;
        let nobody = group.members.iter().all(|m| m.window == 0);
        if !feed.behind
            || feed.reading.is_some()
            || nobody
            || feed.is_full(max_messages.max(1), max_bytes.max(1))
        {
            return;
        }
        // A group without persistent members owes nothing but what was spilled for it or offered since.
        let filters = [LogFilter { filter: group.filter.clone(), start: Position::start() }];
        let read = LogRead {
            tenant: group.tenant,
            filters: Arc::from(filters),
            spill_of: Some(group.uid),
            partition: EMBEDDED,
            after: feed.read_pos.get(EMBEDDED),
            max_entries: (max_messages.saturating_sub(feed.pending.len())).clamp(1, PAGE) as u32,
            max_bytes: (256 * 1024u32).min(max_bytes.max(1) as u32),
            now,
        };
        let op = self.read(Op::GroupPage { idx: id.0, generation: id.1 }, Read::Log(read));
        if let Some(group) = self.groups.get(id) {
            group.feed.reading = Some(op);
        }
    }

    pub(crate) fn group_page_read(&mut self, op: OpId, id: (u32, u32), result: ReadResult) {
        let head = self.plane.head.clone();
        let Some(group) = self.groups.get(id) else { return };
        if group.feed.reading != Some(op) {
            return;
        }
        group.feed.reading = None;
        let ReadResult::Page(page) = result else {
            // Tried again at the next flush: members keep what they have.
            group.moved = true;
            self.arm_flush();
            return;
        };
        let mut replayed = 0;
        let is_known = |group: &Group, seq: Seq| {
            let done_before =
                group.finished.base.covers(EMBEDDED, seq) && !group.finished.unfinished.contains(&seq);
            done_before || group.outstanding.values().any(|o| o.pos == Some((EMBEDDED, seq)))
        };
        let lost = page.lost.iter().filter(|seq| !is_known(group, **seq)).count();
        for entry in page.entries {
            if is_known(group, entry.seq) {
                continue;
            }
            replayed += 1;
            let qos = entry.message.qos;
            let retain = entry.message.retain;
            group.feed.push(Queued {
                message: entry.message,
                pos: Some((EMBEDDED, entry.seq)),
                source: Source::Log,
                qos,
                retain,
                sub_ids: SmallVec::new(),
            });
        }
        group.feed.read_pos.raise(EMBEDDED, page.upto);
        group.feed.catch_up(&head);
        self.plane.counters.replayed += replayed;
        self.plane.counters.drop_many(Drop::StoreDamaged, lost as u64);
        self.group_assign(id);
        self.group_read_on(id);
    }

    pub(crate) fn spill_group(&mut self, id: (u32, u32), message: Arc<Message>) {
        let Some(group) = self.groups.get(id) else { return };
        let uid = group.uid;
        self.plane.counters.spilled += 1;
        let append =
            Append { message, partition: EMBEDDED, log: true, retain: false, spill: Some(Arc::from([uid])) };
        self.commit(
            Op::GroupSpill { idx: id.0, generation: id.1 },
            alloc::vec![Write::Append(append)],
            Durability::Memory,
        );
    }

    pub(crate) fn group_spill_stored(&mut self, id: (u32, u32), result: &CommitResult) {
        if !matches!(result, CommitResult::Done { .. }) {
            self.plane.counters.drop(Drop::StoreRefused);
        }
        let Some(group) = self.groups.get(id) else { return };
        group.feed.spill_answered(result);
        self.group_read_on(id);
    }

    /// Writes the cursors of groups that moved.
    pub(crate) fn flush_groups(&mut self) {
        let head = self.plane.head.clone();
        let ids: Vec<(u32, u32)> =
            self.groups.slab.iter().filter(|(_, _, g)| g.moved).map(|(i, g, _)| (i, g)).collect();
        for id in ids {
            self.group_read_on(id);
            let Some(group) = self.groups.get(id) else { continue };
            group.moved = false;
            if !group.durable {
                continue;
            }
            let inflight = group
                .outstanding
                .values()
                .filter_map(|o| {
                    Some(StoredInflight {
                        packet_id: 0,
                        pos: o.pos?,
                        qos: o.qos,
                        retain: o.retain,
                        released: false,
                        apart: true,
                        sub_ids: Vec::new(),
                        name: None,
                    })
                })
                .collect();
            let base = group.feed.floor(&head);
            let record = CursorRecord { owner: SessionUid(0), base, inflight, ..CursorRecord::default() };
            let Some(key) = self.group_key(id) else { continue };
            let put = Write::Put { key, value: record.encode(), expect: Expect::Any };
            self.commit(
                Op::GroupCursor { idx: id.0, generation: id.1 },
                alloc::vec![put],
                Durability::Stored,
            );
        }
    }

    /// A cursor that could not be written is written with the next flush.
    pub(crate) fn group_cursor_stored(&mut self, id: (u32, u32), result: &CommitResult) {
        if !matches!(result, CommitResult::Done { .. })
            && let Some(group) = self.groups.get(id)
        {
            group.moved = true;
            self.arm_flush();
        }
    }
}
