//! The writing end of the journal: the active segment, rolling to the next, and what happens when the disk
//! refuses.
//!
//! After a failed write or sync nothing more is written to that file. The journal goes on in a new segment
//! whose header says where the old one ends, so that what failed never comes back; what had been written but not
//! yet synced before the failure is read back, checked and copied into the new segment.

use super::files::{File, Files};
use super::index::{Index, Segment};
use super::record::{GroupWriter, read_group};
use super::segment::{HEADER, SegmentHeader, name, read_segment_header, read_whole};
use super::shared::{Shared, Spare};
use super::stats::{Stopwatch, add};
use mast_core::time::Wall;
use std::io;
use std::sync::Arc;

/// The segment that is written to.
pub struct Active {
    /// Its number.
    pub id: u64,
    /// Mark of its groups.
    pub salt: u64,
    /// The open file.
    pub file: Arc<dyn File>,
    /// Size of the file.
    pub bytes: u64,
    /// End of what was written and acknowledged.
    pub end: u64,
    /// End of what is synced.
    pub synced_end: u64,
}

/// The writing end.
pub struct Journal {
    files: Arc<dyn Files>,
    shared: Arc<Shared>,
    /// The segment that is written to.
    pub active: Active,
    /// The next part gets this sequence.
    pub next: u64,
    /// Last sequence that is synced.
    pub synced: u64,
    /// Staged groups, not yet written.
    pub buf: Vec<u8>,
    /// The active file failed: nothing may be written until [`Journal::recover`] succeeded.
    pub failed: bool,
    salts: u64,
    spare_names: u64,
}

/// Draws salts from the seed that the operating system gave: SplitMix64.
fn next_salt(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) | 1
}

/// Makes a preallocated file.
///
/// # Errors
/// No space, or whatever the file system says.
pub fn make_spare(files: &dyn Files, name: &str, bytes: u64) -> io::Result<Spare> {
    let file = files.create(name)?;
    if let Err(error) = file.preallocate(bytes).and_then(|()| file.sync_data()) {
        // Its space is wanted back; if that fails too, the next opening removes it.
        if files.remove(name).is_err() {
            return Err(error);
        }
        return Err(error);
    }
    Ok(Spare { name: name.to_owned(), file, bytes })
}

/// What a new segment continues.
pub struct Link {
    /// Number of the new segment.
    pub id: u64,
    /// Sequence of its first part.
    pub base: u64,
    /// The segment before, 0 if none.
    pub prev_id: u64,
    /// Where that ends.
    pub prev_end: u64,
    /// Sequences may be missing before it.
    pub gap: bool,
}

/// Turns a spare file into segment `link.id` with `first` behind its header, all of it on stable storage.
///
/// # Errors
/// Whatever the file system says; the spare is then of no use.
pub fn begin_segment(
    files: &dyn Files,
    spare: Spare,
    link: &Link,
    salt: u64,
    wall: Wall,
    first: &[u8],
) -> io::Result<Active> {
    let header = SegmentHeader {
        id: link.id,
        salt,
        base: link.base,
        prev_id: link.prev_id,
        prev_end: link.prev_end,
        wall,
        gap: link.gap,
    };
    let mut raw = header.encode();
    raw.extend_from_slice(first);
    spare.file.write_at(&raw, 0)?;
    spare.file.sync_data()?;
    files.rename(&spare.name, &name(link.id))?;
    files.sync_dir()?;
    let end = raw.len() as u64;
    Ok(Active { id: link.id, salt, file: spare.file, bytes: spare.bytes, end, synced_end: end })
}

impl Journal {
    /// Begins the segment of `link` and enters it in the index.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn start(shared: Arc<Shared>, link: &Link) -> io::Result<Journal> {
        let files = shared.files.clone();
        let mut salts = shared.options.entropy ^ link.id;
        let salt = next_salt(&mut salts);
        let spare = make_spare(&*files, "spare-open", shared.options.segment_bytes)?;
        let active = begin_segment(&*files, spare, link, salt, (shared.options.clock)(), &[])?;
        let journal = Journal {
            files,
            active,
            next: link.base,
            synced: link.base.saturating_sub(1),
            buf: Vec::new(),
            failed: false,
            salts,
            spare_names: 0,
            shared,
        };
        journal.enter(&mut journal.shared.index(), link.base, 0);
        Ok(journal)
    }

    fn enter(&self, index: &mut Index, base: u64, shift: i64) {
        let wall = (self.shared.options.clock)();
        let segment = Segment {
            file: self.active.file.clone(),
            salt: self.active.salt,
            base,
            next: 0,
            end: 0,
            wall,
            sealed: false,
            indexed: false,
            live_bytes: 0,
            live_count: 0,
        };
        index.segments.insert(self.active.id, segment);
        index.blocks.begin(self.active.id, base, shift);
    }

    /// True if `bytes` more fit behind what is staged.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.active.end + (self.buf.len() + bytes) as u64 <= self.active.bytes
    }

    /// Begins a group behind what is staged.
    pub fn group(&mut self) -> GroupWriter<'_> {
        GroupWriter::begin(&mut self.buf, self.active.salt, self.active.end)
    }

    /// Writes what is staged; with `sync`, to stable storage.
    ///
    /// # Errors
    /// The active file must be given up: see [`Journal::recover`].
    pub fn write(&mut self, sync: bool) -> io::Result<()> {
        if !self.buf.is_empty() {
            let written = self.active.file.write_at(&self.buf, self.active.end);
            if let Err(error) = written {
                self.failed = true;
                return Err(error);
            }
            add(&self.shared.counters.batches, 1);
            add(&self.shared.counters.journal_bytes, self.buf.len() as u64);
        }
        let end = self.active.end + self.buf.len() as u64;
        if sync && end > self.active.synced_end {
            let watch = Stopwatch::start();
            if let Err(error) = self.active.file.sync_data() {
                self.failed = true;
                return Err(error);
            }
            self.shared.counters.synced(watch.micros());
            self.active.synced_end = end;
        }
        self.active.end = end;
        self.buf.clear();
        // One huge commit must not pin its buffer for ever.
        self.buf.shrink_to(4 * self.shared.options.batch_bytes);
        Ok(())
    }

    /// Notes that all up to the last part is synced, after a successful synced write.
    pub fn mark_synced(&mut self) {
        if self.active.synced_end == self.active.end {
            self.synced = self.next - 1;
        }
    }

    fn take_spare(&mut self, bytes: u64) -> io::Result<Spare> {
        let ready = self.shared.spare().take_if(|s| s.bytes >= bytes);
        self.shared.bell.ring();
        if let Some(spare) = ready {
            return Ok(spare);
        }
        self.spare_names += 1;
        make_spare(&*self.files, &format!("spare-roll-{}", self.spare_names), bytes)
    }

    /// Seals the active segment and goes on in the next. Nothing may be staged.
    ///
    /// # Errors
    /// No space (the old segment stays active and good), or the active file must be given up.
    pub fn roll(&mut self) -> io::Result<()> {
        self.write(true)?;
        self.mark_synced();
        let spare = self.take_spare(self.shared.options.segment_bytes)?;
        let link = Link {
            id: self.active.id + 1,
            base: self.next,
            prev_id: self.active.id,
            prev_end: self.active.end,
            gap: false,
        };
        let salt = next_salt(&mut self.salts);
        let wall = (self.shared.options.clock)();
        let fresh = match begin_segment(&*self.files, spare, &link, salt, wall, &[]) {
            Ok(fresh) => fresh,
            Err(error) => {
                // A new segment that says where the old one ends may already lie on the disk: the old
                // one must not grow any more.
                self.failed = true;
                return Err(error);
            }
        };
        let shared = self.shared.clone();
        let mut index = shared.index();
        self.seal(&mut index, self.next, self.active.end);
        self.active = fresh;
        self.enter(&mut index, self.next, 0);
        drop(index);
        shared.bell.ring();
        Ok(())
    }

    fn seal(&self, index: &mut Index, next: u64, end: u64) {
        index.blocks.seal();
        let wall = (self.shared.options.clock)();
        if let Some(old) = index.segments.get_mut(&self.active.id) {
            old.sealed = true;
            old.next = next;
            old.end = end;
            old.wall = wall;
        }
    }

    /// After a failure: gives the active file up and goes on in a new segment. What was acknowledged
    /// but not synced is read back from the old file, verified and written again; what failed is cut off
    /// for good. `next` must be what it was before the failed batch.
    ///
    /// # Errors
    /// The journal stays failed.
    pub fn recover(&mut self) -> io::Result<()> {
        self.buf.clear();
        let salt = next_salt(&mut self.salts);
        let copy = self.copy_unsynced(salt)?;
        let bytes = self.shared.options.segment_bytes.max(HEADER + copy.len() as u64 * 2);
        let spare = self.take_spare(bytes)?;
        let base = self.synced + 1;
        let link = Link {
            id: self.active.id + 1,
            base,
            prev_id: self.active.id,
            prev_end: self.active.synced_end,
            gap: false,
        };
        let wall = (self.shared.options.clock)();
        let fresh = begin_segment(&*self.files, spare, &link, salt, wall, &copy)?;
        let shared = self.shared.clone();
        let mut index = shared.index();
        let shift = HEADER as i64 - self.active.synced_end as i64;
        self.seal(&mut index, base, self.active.synced_end);
        let old = self.active.id;
        self.active = fresh;
        self.enter(&mut index, base, shift);
        index.recount(old, self.active.id);
        self.synced = self.next - 1;
        self.failed = false;
        Ok(())
    }

    /// The groups between what is synced and what was acknowledged, sealed for another segment.
    fn copy_unsynced(&self, salt: u64) -> io::Result<Vec<u8>> {
        let mut copy = Vec::new();
        if self.active.end == self.active.synced_end {
            return Ok(copy);
        }
        let damaged = || io::Error::other("what was written before the failure does not read back");
        // A new handle: the old one is not used again.
        let file = self.files.open(&name(self.active.id))?;
        match read_segment_header(&*file)? {
            Ok(header) if header.salt == self.active.salt => {}
            Ok(_) | Err(_) => return Err(damaged()),
        }
        let raw = read_whole(&*file, Some(self.active.end))?;
        let mut at = self.active.synced_end;
        while at < self.active.end {
            let group = read_group(&raw, self.active.salt, at as usize).ok_or_else(damaged)?;
            group.reseal(salt, HEADER, self.synced, &mut copy);
            at = group.end();
        }
        Ok(copy)
    }
}
