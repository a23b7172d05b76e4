//! The keeper's work, beside the path of commits: checkpoints, index files of sealed segments, spare segments,
//! trimming, and freeing or cleaning segments.

use super::files::is_full;
use super::index::trim::TrimRules;
use super::journal::make_spare;
use super::record::{Record, body_of, claimed_len, decode};
use super::segment::{index_name, name, read_segment_header, read_whole};
use super::shared::{MovedRecord, Request, Shared};
use super::sidecar::index_segment;
use super::state::{Changes, State};
use super::stats::{Stopwatch, add};
use mast_core::time::Wall;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Steps of trimming per hold of the lock: under a millisecond.
const SWEEP: u32 = 2048;
/// Cleaning moves records in groups of this many bytes, about.
const MOVE_BYTES: usize = 256 << 10;

/// How the keeper asks the storage thread.
pub trait Desk {
    /// Changes for a checkpoint.
    fn changes(&mut self) -> Option<Changes>;
    /// Writes records again.
    fn move_records(&mut self, from: u64, records: Vec<MovedRecord>) -> bool;
    /// Asks it to become writable again.
    fn recover(&mut self);
}

/// Asks the storage thread through its queue.
pub struct QueueDesk(pub Arc<Shared>);

impl Desk for QueueDesk {
    fn changes(&mut self) -> Option<Changes> {
        let (reply, answer) = sync_channel(1);
        if !self.0.queue.push_own(Request::Changes(reply)) {
            return None;
        }
        answer.recv().ok().flatten()
    }

    fn move_records(&mut self, from: u64, records: Vec<MovedRecord>) -> bool {
        let (reply, answer) = sync_channel(1);
        self.0.queue.push_own(Request::Move { from, records, reply }) && answer.recv().unwrap_or(false)
    }

    fn recover(&mut self) {
        // After shutdown there is nothing to recover.
        let _queued: bool = self.0.queue.push_own(Request::Recover);
    }
}

/// The keeper.
pub struct Keeper {
    shared: Arc<Shared>,
    state: State,
    /// Changes whose checkpoint failed.
    held: Option<Changes>,
    last_checkpoint: Wall,
    last_trim: Wall,
    last_clean: Wall,
    clean_tokens: u64,
    spares: u64,
}

/// True once `interval` has passed since `last`, or the clock was set back.
fn due(now: Wall, last: Wall, interval: Duration) -> bool {
    now < last || now.millis_since(last) >= interval.as_millis() as u64
}

impl Keeper {
    /// A keeper that writes checkpoints to `state`.
    #[must_use]
    pub fn new(shared: Arc<Shared>, state: State) -> Keeper {
        let now = (shared.options.clock)();
        Keeper {
            shared,
            state,
            held: None,
            last_checkpoint: now,
            last_trim: now,
            last_clean: now,
            clean_tokens: 0,
            spares: 0,
        }
    }

    /// The keeping thread's life.
    #[must_use]
    pub fn run(mut self) -> Keeper {
        let shared = self.shared.clone();
        let _guard = super::shared::PanicGuard(&shared);
        let mut desk = QueueDesk(shared.clone());
        let beat = self.shared.options.checkpoint_interval.min(self.shared.options.trim_interval);
        while self.shared.bell.wait(beat) {
            self.tick(&mut desk);
        }
        self
    }

    /// Does what is due.
    pub fn tick(&mut self, desk: &mut dyn Desk) {
        let now = (self.shared.options.clock)();
        if self.shared.broken.load(Ordering::Relaxed) {
            desk.recover();
        }
        self.keep_spare();
        let pressed = self.shared.dirty_full.load(Ordering::Relaxed) || self.held.is_some();
        if pressed || due(now, self.last_checkpoint, self.shared.options.checkpoint_interval) {
            self.last_checkpoint = now;
            self.checkpoint(desk);
        }
        self.index_sealed();
        if due(now, self.last_trim, self.shared.options.trim_interval) {
            self.last_trim = now;
            self.trim(now);
            self.free_segments();
            self.clean(now, desk);
            self.shared.gauge();
        }
        add(&self.shared.counters.keeper_rounds, 1);
    }

    /// Sees that a spare segment lies ready, and judges the space.
    fn keep_spare(&mut self) {
        let shared = self.shared.clone();
        let free = shared.files.free_bytes();
        let mut low = matches!(free, Ok(free) if free < shared.options.min_free_bytes);
        let mut reason = low.then(|| "the file system has too little free space".to_owned());
        if self.journal_bytes().saturating_add(shared.options.segment_bytes) > shared.options.max_bytes {
            low = true;
            reason = Some("the journal has reached its greatest size".to_owned());
        }
        if shared.spare().is_none() && !low {
            self.spares += 1;
            let made =
                make_spare(&*shared.files, &format!("spare-{}", self.spares), shared.options.segment_bytes);
            match made {
                Ok(spare) => *shared.spare() = Some(spare),
                Err(error) => {
                    low = is_full(&error);
                    reason = Some(format!("spare segment: {error}"));
                }
            }
        }
        let was = shared.low_space.swap(low, Ordering::Relaxed);
        let mut health = shared.health();
        health.free_bytes = free.unwrap_or(health.free_bytes);
        health.full = low;
        if low || reason.is_some() {
            health.reason = reason;
        } else if was && health.writable {
            health.reason = None;
        }
    }

    /// Writes a checkpoint; true if it holds, or there was nothing to write.
    pub fn checkpoint(&mut self, desk: &mut dyn Desk) -> bool {
        let Some(mut changes) = self.held.take().or_else(|| desk.changes()) else { return true };
        changes.segments = self.shared.index().segments.keys().copied().collect();
        let watch = Stopwatch::start();
        match self.state.commit(&changes) {
            Ok(()) => {
                add(&self.shared.counters.checkpoints, 1);
                add(&self.shared.counters.checkpoint_micros, watch.micros());
                self.shared.covers.store(changes.covers, Ordering::Release);
                true
            }
            Err(error) => {
                add(&self.shared.counters.checkpoint_failures, 1);
                self.shared.health().reason = Some(format!("checkpoint: {error}"));
                self.held = Some(changes);
                false
            }
        }
    }

    /// Writes index files for sealed segments that have none.
    fn index_sealed(&self) {
        let todo: Vec<(u64, u64)> = {
            let index = self.shared.index();
            let sealed = index.segments.iter().filter(|(_, s)| s.sealed && !s.indexed);
            sealed.map(|(&id, s)| (id, s.end)).collect()
        };
        for (id, end) in todo {
            if let Err(error) = self.write_index(id, end) {
                // Only a cache: without it the next opening reads the segment.
                self.shared.health().reason = Some(format!("index of {}: {error}", name(id)));
                return;
            }
            if let Some(segment) = self.shared.index().segments.get_mut(&id) {
                segment.indexed = true;
            }
        }
    }

    fn write_index(&self, id: u64, end: u64) -> io::Result<()> {
        let files = &*self.shared.files;
        let file = files.open(&name(id))?;
        let Ok(header) = read_segment_header(&*file)? else {
            return Err(io::Error::other("the segment's header is damaged"));
        };
        let (index, walked) = index_segment(&read_whole(&*file, Some(end))?, &header, end);
        if walked.end != end {
            self.shared.damaged(id, walked.end, "a group does not match its checksum");
            return Ok(());
        }
        let raw = index.encode(&header);
        let new = files.create("index.new")?;
        new.write_at(&raw, 0)?;
        new.sync_data()?;
        files.rename("index.new", &index_name(id))
    }

    fn journal_bytes(&self) -> u64 {
        self.shared.index().segments.len() as u64 * self.shared.options.segment_bytes
    }

    /// Lets go of what nobody needs.
    fn trim(&self, now: Wall) {
        let rules: &TrimRules = &self.shared.options.trim;
        let hurry =
            self.journal_bytes() > rules.retention_bytes || self.shared.low_space.load(Ordering::Relaxed);
        let head = self.shared.head.load(Ordering::Acquire);
        if !self.shared.index().raise_marks(rules, now, head, hurry) {
            return;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.shared.index().sweep(at, SWEEP);
        }
    }

    /// Frees sealed segments that hold nothing that is needed: one becomes the spare, others are removed.
    fn free_segments(&mut self) {
        let shared = self.shared.clone();
        let covers = shared.covers.load(Ordering::Acquire);
        let free: Vec<u64> = {
            let index = shared.index();
            let dead = |s: &&super::index::Segment| s.sealed && s.live_count == 0 && s.next <= covers + 1;
            index.segments.iter().filter(|(_, s)| dead(s)).map(|(&id, _)| id).collect()
        };
        if free.is_empty() {
            return;
        }
        // The list first: what it names and is not there was lost, so nothing that it names may go.
        let kept: Vec<u64> =
            shared.index().segments.keys().copied().filter(|id| free.binary_search(id).is_err()).collect();
        if let Err(error) = self.state.list_segments(&kept) {
            // They are freed with the next trimming.
            shared.health().reason = Some(format!("freeing segments: {error}"));
            return;
        }
        for id in free {
            let removed = {
                let mut index = shared.index();
                index.blocks.drop_segment(id);
                index.segments.remove(&id)
            };
            shared.forget_damage(id);
            let Some(segment) = removed else { continue };
            add(&shared.counters.segments_freed, 1);
            // The index file goes first, for good: one without its segment means that the segment was lost.
            let unlisted = match shared.files.remove(&index_name(id)) {
                Ok(()) => shared.files.sync_dir(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = unlisted {
                // The segment is left over; the next opening takes it in again, and it is freed then.
                shared.health().reason = Some(format!("freeing {}: {error}", name(id)));
                continue;
            }
            if let Err(error) = self.release(id, segment.file) {
                shared.health().reason = Some(format!("freeing {}: {error}", name(id)));
            }
        }
    }

    fn release(&self, id: u64, file: Arc<dyn super::files::File>) -> io::Result<()> {
        let shared = &*self.shared;
        let bytes = shared.options.segment_bytes;
        let mut spare = shared.spare();
        // A reader that still holds the file must not see it change under it.
        if spare.is_none() && Arc::strong_count(&file) == 1 && file.len()? == bytes {
            let name_now = format!("spare-of-{id}");
            shared.files.rename(&name(id), &name_now)?;
            // Before its header is overwritten its old name must be gone for good.
            shared.files.sync_dir()?;
            *spare = Some(super::shared::Spare { name: name_now, file, bytes });
            return Ok(());
        }
        drop(spare);
        shared.files.remove(&name(id))
    }

    /// Moves what is needed out of the oldest segments that hold little of it.
    fn clean(&mut self, now: Wall, desk: &mut dyn Desk) {
        let options = &self.shared.options;
        let rate = options.clean_bytes_per_second;
        let earned = now.millis_since(self.last_clean).saturating_mul(rate) / 1000;
        self.clean_tokens = (self.clean_tokens + earned).min(rate.max(MOVE_BYTES as u64 * 2));
        self.last_clean = now;
        let covers = self.shared.covers.load(Ordering::Acquire);
        let percent = options.clean_percent;
        let candidates: Vec<u64> = {
            let index = self.shared.index();
            let poor = |s: &super::index::Segment| {
                s.sealed && s.live_count > 0 && s.next <= covers + 1 && s.live_bytes * 100 < s.end * percent
            };
            index.segments.iter().filter(|(_, s)| poor(s)).map(|(&id, _)| id).collect()
        };
        for id in candidates {
            if self.clean_tokens < MOVE_BYTES as u64 || !self.clean_segment(id, desk) {
                return;
            }
        }
    }

    /// Moves all of a segment's live records; false if the rate is used up or something failed.
    fn clean_segment(&mut self, id: u64, desk: &mut dyn Desk) -> bool {
        let live = self.shared.index().blocks.live_in(id);
        let mut batch: Vec<MovedRecord> = Vec::new();
        let mut bytes = 0;
        for seq in live {
            match self.read_live(id, seq) {
                Ok(Some(body)) => {
                    bytes += body.len();
                    batch.push((seq, body));
                }
                Ok(None) => continue,
                Err(error) => {
                    self.shared.health().reason = Some(format!("cleaning {}: {error}", name(id)));
                    return false;
                }
            }
            if bytes >= MOVE_BYTES {
                self.clean_tokens = self.clean_tokens.saturating_sub(2 * bytes as u64);
                if !desk.move_records(id, std::mem::take(&mut batch)) {
                    return false;
                }
                bytes = 0;
                if self.clean_tokens < MOVE_BYTES as u64 {
                    return false;
                }
            }
        }
        self.clean_tokens = self.clean_tokens.saturating_sub(2 * bytes as u64);
        batch.is_empty() || desk.move_records(id, batch)
    }

    /// The body of a live message's record in segment `id`; `None` if it went meanwhile, or is damaged: then it
    /// stays where it is, so that whoever reads it is told.
    fn read_live(&self, id: u64, seq: u64) -> io::Result<Option<Vec<u8>>> {
        let found = {
            let index = self.shared.index();
            let place = index.blocks.get(seq).filter(|p| p.segment == id);
            place.and_then(|p| index.segments.get(&id).map(|s| (s.file.clone(), s.salt, u64::from(p.offset))))
        };
        let Some((file, salt, offset)) = found else { return Ok(None) };
        let left = file.len()?.saturating_sub(offset);
        let mut head = [0u8; 8];
        if left >= head.len() as u64 {
            file.read_at(&mut head, offset)?;
        }
        let len = claimed_len(&head).unwrap_or(0).min(left as usize);
        let mut raw = vec![0u8; len];
        file.read_at(&mut raw, offset)?;
        let body = body_of(&raw, salt, offset).filter(|b| matches!(decode(b), Some(Record::Append(_))));
        if body.is_none() {
            self.shared.damaged(id, offset, "a record does not match its checksum");
        }
        Ok(body.map(<[u8]>::to_vec))
    }
}
