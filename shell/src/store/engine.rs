//! The storage thread's work: takes all commits that wait, judges their conditions, writes them as one batch,
//! and tells the shards.

use super::files::is_full;
use super::index::NewMessage;
use super::journal::Journal;
use super::record::{APPEND_FIXED, GROUP_HEADER, RECORD_HEADER, align, append_len, delete_len, put_len};
use super::shared::{CommitRequest, Event, MovedRecord, Request, Shared};
use super::state::{Changes, SeededMap};
use super::stats::{add, set};
use bytes::Bytes;
use mast_core::ids::{OpId, ShardIx};
use mast_core::store::key::Key;
use mast_core::store::port::{
    Append, CommitResult, Committed, CommittedEntry, Durability, Expect, Refusal, Write,
};
use mast_core::store::position::{Partition, Seq};
use mast_core::time::Wall;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What keys and retained messages cost in memory beside their bytes, about.
const DIRTY_OVERHEAD: usize = 96;

/// Commits in one batch, at most: entering them in the index must not hold its lock for long.
const BATCH_COUNT: usize = 4096;

/// The storage thread's state.
pub struct Engine {
    shared: Arc<Shared>,
    journal: Journal,
    /// Revision of every key.
    keys: SeededMap<Bytes, u64>,
    changes: Changes,
    chunk: Chunk,
    /// Read once a turn.
    wall: Wall,
}

/// Commits that are written together.
#[derive(Default)]
struct Chunk {
    /// `next` before them.
    first: u64,
    sync: bool,
    results: Vec<(ShardIx, OpId, CommitResult)>,
    appends: Vec<Staged>,
    keys: Vec<(Bytes, Option<(Bytes, u64)>)>,
    /// Keys changed in the table, with their former revision, to take back.
    undo: Vec<(Bytes, Option<u64>)>,
}

struct Staged {
    seq: u64,
    offset: u64,
    append: Append,
}

impl Engine {
    /// An engine that continues `journal` with these keys.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        journal: Journal,
        keys: SeededMap<Bytes, u64>,
        changes: Changes,
    ) -> Engine {
        let wall = (shared.options.clock)();
        Engine { shared, journal, keys, changes, chunk: Chunk::default(), wall }
    }

    /// Handles all of `requests`.
    pub fn turn(&mut self, requests: &mut VecDeque<Request>) {
        self.chunk.first = self.journal.next;
        self.wall = (self.shared.options.clock)();
        for request in requests.drain(..) {
            match request {
                Request::Commit(commit) => self.commit(commit),
                // A receiver that is gone has no use for the answer: its keeper has ended.
                Request::Changes(reply) => drop(reply.send(self.take_changes())),
                Request::Move { from, records, reply } => drop(reply.send(self.move_records(from, &records))),
                Request::Recover => self.recover(),
                Request::KeysOf { tenant, reply } => drop(reply.send(self.keys_of(&tenant))),
            }
        }
        self.flush();
        set(&self.shared.counters.keys, self.keys.len() as u64);
    }

    /// All keys of a tenant.
    fn keys_of(&self, tenant: &str) -> Vec<Key> {
        let keys = self.keys.keys().filter(|raw| {
            let name = raw.get(2..).and_then(|tail| tail.get(..tenant.len()));
            raw.get(1).is_some_and(|len| usize::from(*len) == tenant.len()) && name == Some(tenant.as_bytes())
        });
        let mut keys: Vec<Key> = keys.filter_map(|raw| Key::from_bytes(raw.clone())).collect();
        keys.sort_unstable();
        keys
    }

    fn commit(&mut self, commit: CommitRequest) {
        let size = match self.admit(&commit) {
            Ok(size) => size,
            Err(refusal) => return self.refuse(&commit, refusal),
        };
        let bytes = self.journal.buf.len() + size;
        let full = bytes > self.shared.options.batch_bytes && !self.journal.buf.is_empty();
        if full || self.chunk.results.len() >= BATCH_COUNT {
            self.flush();
        }
        if !self.journal.has_room(size) {
            self.flush();
            if let Err(refusal) = self.make_room(size) {
                return self.refuse(&commit, refusal);
            }
        }
        self.stage(commit);
    }

    fn refuse(&mut self, commit: &CommitRequest, refusal: Refusal) {
        let counters = &self.shared.counters;
        match refusal {
            Refusal::Conflict { .. } => add(&counters.conflicts, 1),
            Refusal::Full | Refusal::TooLarge => add(&counters.refused_full, 1),
            Refusal::Unavailable => add(&counters.refused_unavailable, 1),
        }
        self.chunk.results.push((commit.shard, commit.op, CommitResult::Refused(refusal)));
    }

    /// Size of the commit in the journal, or why it is not taken.
    fn admit(&self, commit: &CommitRequest) -> Result<usize, Refusal> {
        if self.journal.failed {
            return Err(Refusal::Unavailable);
        }
        let mut size = GROUP_HEADER;
        let mut appends = false;
        for write in &commit.writes {
            size += match write {
                Write::Append(append) => {
                    appends = true;
                    let registry = self.shared.registry.load();
                    let tenant = registry.name(append.message.tenant).ok_or(Refusal::Unavailable)?;
                    append_len(tenant, &append.message, append.spill.as_deref())
                }
                Write::Put { key, value, .. } => put_len(key.as_bytes(), value),
                Write::Delete { key, .. } => delete_len(key.as_bytes()),
                Write::Check { .. } => 0,
            };
        }
        let size = align(size);
        if size as u64 > self.shared.options.max_commit_bytes {
            return Err(Refusal::TooLarge);
        }
        // What only changes keys may use the reserve: cursors that move on are what frees space.
        if appends && self.shared.low_space.load(Ordering::Relaxed) {
            return Err(Refusal::Full);
        }
        if self.changes.bytes > 8 * self.shared.options.checkpoint_bytes {
            return Err(Refusal::Full);
        }
        Ok(size)
    }

    /// Rolls to the next segment.
    fn make_room(&mut self, size: usize) -> Result<(), Refusal> {
        if self.journal.failed {
            return Err(Refusal::Unavailable);
        }
        match self.journal.roll() {
            Ok(()) if self.journal.has_room(size) => Ok(()),
            Ok(()) => Err(Refusal::TooLarge),
            Err(error) => {
                let full = is_full(&error) && !self.journal.failed;
                self.report(&error);
                if full {
                    self.shared.low_space.store(true, Ordering::Relaxed);
                    return Err(Refusal::Full);
                }
                // The active file failed, or the next could not be begun.
                if self.journal.failed && self.journal.recover().is_ok() && self.journal.has_room(size) {
                    self.healthy();
                    return Ok(());
                }
                Err(Refusal::Unavailable)
            }
        }
    }

    fn report(&self, error: &io::Error) {
        let mut health = self.shared.health();
        health.writable = !self.journal.failed;
        health.full |= is_full(error);
        health.reason = Some(format!("journal: {error}"));
        drop(health);
        self.shared.broken.store(self.journal.failed, Ordering::Relaxed);
    }

    fn healthy(&self) {
        let mut health = self.shared.health();
        health.writable = true;
        if !health.full {
            health.reason = None;
        }
        self.shared.broken.store(false, Ordering::Relaxed);
    }

    /// Judges the commit's conditions, and encodes it if they hold.
    fn stage(&mut self, commit: CommitRequest) {
        let CommitRequest { shard, op, writes, class, .. } = commit;
        let (mark_undo, mark_keys) = (self.chunk.undo.len(), self.chunk.keys.len());
        let mark_appends = self.chunk.appends.len();
        let first = self.journal.next;
        let mut next = first;
        let (wall, synced) = (self.wall, self.journal.synced);
        let mut group = self.journal.group();
        let mut refusal = None;
        for (part, write) in writes.into_iter().enumerate() {
            if let Some((key, expect)) = condition(&write)
                && let Err(current) = judge(&self.keys, key, expect)
            {
                refusal = Some(Refusal::Conflict { part: part as u32, current: current.map(Seq) });
                break;
            }
            match write {
                Write::Append(append) => {
                    let registry = self.shared.registry.load();
                    let tenant = registry.name(append.message.tenant).unwrap_or_default();
                    let spill = append.spill.as_deref();
                    let offset = group.append(tenant, &append.message, append.log, append.retain, spill);
                    self.chunk.appends.push(Staged { seq: next, offset, append });
                    next += 1;
                }
                Write::Put { key, value, .. } => {
                    group.put(key.as_bytes(), &value);
                    let raw = own(&key);
                    let former = self.keys.insert(raw.clone(), next);
                    self.chunk.undo.push((raw.clone(), former));
                    self.chunk.keys.push((raw, Some((value, next))));
                    next += 1;
                }
                Write::Delete { key, .. } => {
                    group.delete(key.as_bytes());
                    let former = self.keys.remove(key.as_bytes());
                    let raw = own(&key);
                    self.chunk.undo.push((raw.clone(), former));
                    self.chunk.keys.push((raw, None));
                    next += 1;
                }
                Write::Check { .. } => {}
            }
        }
        if refusal.is_some() || next == first {
            group.abandon();
        } else {
            group.finish(first, synced, wall);
        }
        if let Some(refusal) = refusal {
            undo(&mut self.keys, self.chunk.undo.drain(mark_undo..));
            self.chunk.keys.truncate(mark_keys);
            self.chunk.appends.truncate(mark_appends);
            add(&self.shared.counters.conflicts, 1);
            self.chunk.results.push((shard, op, CommitResult::Refused(refusal)));
            return;
        }
        self.journal.next = next;
        self.chunk.sync |= class == Durability::Synced && next > first;
        self.chunk.results.push((shard, op, CommitResult::Done { last: Seq(next - 1) }));
    }

    /// Writes the chunk and tells the shards.
    fn flush(&mut self) {
        let mut chunk = std::mem::take(&mut self.chunk);
        if let Err(error) = self.journal.write(chunk.sync) {
            self.fail(&mut chunk, &error);
        } else {
            if chunk.sync {
                self.journal.mark_synced();
            }
            self.publish(&chunk);
        }
        self.note_changes(&mut chunk);
        self.tell(chunk);
        self.chunk.first = self.journal.next;
    }

    /// The chunk could not be written: takes everything back. It is refused for good once the journal
    /// goes on in a new segment, which cuts it off; until then nobody knows what a restart would find.
    fn fail(&mut self, chunk: &mut Chunk, error: &io::Error) {
        undo(&mut self.keys, chunk.undo.drain(..));
        chunk.keys.clear();
        chunk.appends.clear();
        self.journal.next = chunk.first;
        self.report(error);
        let recovered = self.journal.recover();
        let result = match &recovered {
            Ok(()) if is_full(error) => CommitResult::Refused(Refusal::Full),
            Ok(()) => CommitResult::Refused(Refusal::Unavailable),
            Err(_) => CommitResult::Unknown,
        };
        let counter = match &result {
            CommitResult::Refused(_) | CommitResult::Done { .. } => &self.shared.counters.refused_unavailable,
            CommitResult::Unknown => &self.shared.counters.unknown,
        };
        for (_, _, outcome) in &mut chunk.results {
            if matches!(outcome, CommitResult::Done { .. }) {
                add(counter, 1);
                outcome.clone_from(&result);
            }
        }
        match recovered {
            Ok(()) => self.healthy(),
            Err(error) => self.report(&error),
        }
    }

    /// Enters the chunk's messages in the index.
    fn publish(&self, chunk: &Chunk) {
        let mut index = self.shared.index();
        index.note_age(self.wall, self.journal.next - 1);
        for staged in &chunk.appends {
            let Append { message, log, spill, .. } = &staged.append;
            if !log && spill.is_none() {
                continue;
            }
            let Some(tenant) = index.tenants.slot_of(message.tenant) else { continue };
            index.insert(&NewMessage {
                seq: staged.seq,
                tenant,
                topic: message.topic(),
                spill: spill.as_deref(),
                segment: self.journal.active.id,
                offset: staged.offset as u32,
                size: message.size() as u32,
                expires: message.expires,
            });
            index.remember(staged.seq, message.clone());
        }
    }

    /// Collects keys and retained messages for the checkpoint.
    fn note_changes(&mut self, chunk: &mut Chunk) {
        chunk.undo.clear();
        for (key, value) in chunk.keys.drain(..) {
            self.changes.bytes += key.len() + value.as_ref().map_or(0, |v| v.0.len()) + DIRTY_OVERHEAD;
            self.changes.keys.insert(key, value);
        }
        for staged in &chunk.appends {
            let message = &staged.append.message;
            if !staged.append.retain {
                continue;
            }
            let registry = self.shared.registry.load();
            let Some(tenant) = registry.name(message.tenant) else { continue };
            self.changes.bytes += message.size() + message.topic().len() + DIRTY_OVERHEAD;
            let kept = (!message.payload().is_empty()).then(|| (staged.seq, message.clone()));
            self.changes.retained.insert((tenant.into(), message.topic().into()), kept);
        }
        let over = self.changes.bytes > self.shared.options.checkpoint_bytes;
        if over && !self.shared.dirty_full.swap(over, Ordering::Relaxed) {
            self.shared.bell.ring();
        }
    }

    /// Tells every shard of the messages, and the askers of their commits: one delivery a shard.
    fn tell(&mut self, chunk: Chunk) {
        if chunk.results.is_empty() {
            return;
        }
        let counters = &self.shared.counters;
        let done = chunk.results.iter().filter(|r| matches!(r.2, CommitResult::Done { .. })).count();
        add(&counters.commits, done as u64);
        add(&counters.appends, chunk.appends.len() as u64);
        let upto = self.journal.next - 1;
        let committed = (!chunk.appends.is_empty()).then(|| {
            let entry = |s: Staged| CommittedEntry { seq: Seq(s.seq), append: s.append };
            let entries = chunk.appends.into_iter().map(entry).collect();
            Arc::new(Committed { partition: Partition(0), entries, upto: Seq(upto) })
        });
        let mut answers: Vec<Vec<Event>> = Vec::new();
        answers.resize_with(self.shared.sinks.len(), Vec::new);
        for (shard, op, result) in chunk.results {
            if let Some(list) = answers.get_mut(shard.0 as usize) {
                list.push(Event::CommitDone { op, result });
            }
        }
        // Every shard has the announcement before any of them has an answer, and so before anybody is told that a
        // message is stored. If only one is asked for, it comes last and gets both at once.
        let one = answers.iter().filter(|list| !list.is_empty()).count() == 1;
        let announcement = committed.map(Event::Committed);
        for (shard, list) in answers.iter_mut().enumerate() {
            match &announcement {
                Some(event) if one && !list.is_empty() => list.insert(0, event.clone()),
                Some(event) => self.give(shard, vec![event.clone()], Some(upto)),
                None => {}
            }
        }
        for (shard, list) in answers.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            self.give(shard, list, announcement.is_some().then_some(upto));
        }
        if announcement.is_some() {
            self.shared.head.store(upto, Ordering::Release);
        }
    }

    /// Gives events to a shard, which has the announcement of everything up to `announced` with them.
    fn give(&self, shard: usize, events: Vec<Event>, announced: Option<u64>) {
        if let Some(mut state) = self.shared.sink(ShardIx(shard as u16)) {
            state.sink.deliver(events);
            state.announced = announced.unwrap_or(state.announced);
        }
    }

    /// Hands over what has changed since the last time; the journal is synced up to there first, because a
    /// checkpoint must never be ahead of it.
    pub fn take_changes(&mut self) -> Option<Changes> {
        self.flush();
        let trimmed: Vec<(Box<str>, u64)> = {
            let index = self.shared.index();
            index.tenants.iter().map(|t| (t.name.clone(), t.trimmed)).collect()
        };
        // Without changes of keys the checkpoint still moves on, so that segments may go.
        let moved_on = self.journal.next - 1 > self.changes.covers || trimmed != self.changes.trimmed;
        let changed = !self.changes.keys.is_empty() || !self.changes.retained.is_empty();
        if self.journal.failed || !(moved_on || changed) {
            return None;
        }
        if let Err(error) = self.journal.write(true) {
            self.report(&error);
            match self.journal.recover() {
                Ok(()) => self.healthy(),
                Err(error) => self.report(&error),
            }
            return None;
        }
        self.journal.mark_synced();
        let mut fresh = Changes::new(self.shared.options.entropy);
        fresh.covers = self.journal.next - 1;
        fresh.trimmed.clone_from(&trimmed);
        let mut changes = std::mem::replace(&mut self.changes, fresh);
        changes.covers = self.journal.next - 1;
        changes.trimmed = trimmed;
        self.shared.dirty_full.store(false, Ordering::Relaxed);
        Some(changes)
    }

    /// Writes records of segment `from` again at the end of the journal and moves their places there.
    pub fn move_records(&mut self, from: u64, records: &[MovedRecord]) -> bool {
        self.flush();
        let size: usize = records.iter().map(|r| align(RECORD_HEADER + 9 + r.1.len())).sum();
        let size = align(size + GROUP_HEADER + APPEND_FIXED);
        if self.journal.failed || (!self.journal.has_room(size) && self.make_room(size).is_err()) {
            return false;
        }
        let (next, synced) = (self.journal.next, self.journal.synced);
        let wall = (self.shared.options.clock)();
        let mut group = self.journal.group();
        let offsets: Vec<u64> = records.iter().map(|(seq, body)| group.moved(*seq, body)).collect();
        group.finish(next, synced, wall);
        let bytes = self.journal.buf.len() as u64;
        if let Err(error) = self.journal.write(true) {
            self.report(&error);
            match self.journal.recover() {
                Ok(()) => self.healthy(),
                Err(error) => self.report(&error),
            }
            return false;
        }
        self.journal.mark_synced();
        add(&self.shared.counters.moved_bytes, bytes);
        let to = self.journal.active.id;
        let mut index = self.shared.index();
        for ((seq, _), offset) in records.iter().zip(offsets) {
            index.relocate(*seq, from, to, offset as u32);
        }
        true
    }

    /// Tries to become writable again.
    pub fn recover(&mut self) {
        if self.journal.failed {
            match self.journal.recover() {
                Ok(()) => self.healthy(),
                Err(error) => self.report(&error),
            }
        }
    }

    /// Syncs what was written, at shutdown.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn sync(&mut self) -> io::Result<()> {
        self.journal.write(true)
    }
}

/// A copy of a key that pins no larger buffer.
fn own(key: &Key) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

fn condition(write: &Write) -> Option<(&Key, Expect)> {
    match write {
        Write::Append(_) => None,
        Write::Put { key, expect, .. } | Write::Delete { key, expect } | Write::Check { key, expect } => {
            Some((key, *expect))
        }
    }
}

fn judge(keys: &SeededMap<Bytes, u64>, key: &Key, expect: Expect) -> Result<(), Option<u64>> {
    let current = || keys.get(key.as_bytes()).copied();
    match expect {
        Expect::Any => Ok(()),
        Expect::Absent => current().map_or(Ok(()), |c| Err(Some(c))),
        Expect::Revision(want) => match current() {
            Some(have) if have == want.0 => Ok(()),
            other => Err(other),
        },
    }
}

fn undo(keys: &mut SeededMap<Bytes, u64>, list: impl DoubleEndedIterator<Item = (Bytes, Option<u64>)>) {
    for (key, former) in list.rev() {
        match former {
            Some(revision) => keys.insert(key, revision),
            None => keys.remove(&key),
        };
    }
}
