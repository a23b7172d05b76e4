//! Copies what is intact of a damaged store into a new directory, where it can be opened.
//!
//! Every commit is copied whole or not at all. What lies behind damage was committed later and may rest on
//! what is lost, so the result is for a person to judge: the report says what is missing.

use super::error::StoreError;
use super::files::Files;
use super::record::{GROUP_HEADER, Group, read_group, read_header};
use super::segment::{self, HEADER, SegmentHeader, name, read_whole};
use super::state::{self, State};
use super::stats::Counters;
use mast_core::time::Wall;
use std::io;
use std::sync::Arc;

/// What a salvage found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Commits copied.
    pub commits: u64,
    /// Places where something was left out, for people.
    pub damaged: Vec<String>,
    /// Ranges of sequences (first, last) that are missing.
    pub missing: Vec<(u64, u64)>,
    /// The checkpoint could not be read: keys and retained messages are only those that the journal still holds.
    pub state_lost: bool,
}

struct Salvage<'a> {
    from: &'a dyn Files,
    to: &'a dyn Files,
    report: SalvageReport,
    salt: u64,
    /// Segment that is being made.
    out: Vec<u8>,
    header: SegmentHeader,
    /// The sequence after the last part copied.
    next: u64,
    covers: u64,
}

fn io_at<T>(
    files: &dyn Files,
    name: &str,
    what: &'static str,
    result: io::Result<T>,
) -> Result<T, StoreError> {
    result.map_err(|source| StoreError::Io { place: files.describe(name), what, source })
}

fn locked(files: &dyn Files) -> Result<Box<dyn super::files::Lock>, StoreError> {
    match files.lock() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            Err(StoreError::Locked { place: files.describe("lock") })
        }
        lock => io_at(files, "lock", "lock", lock),
    }
}

/// Copies what is intact from `from` to the empty directory `to`. `from` is not changed. `entropy` is as
/// in [`super::StoreOptions::entropy`].
///
/// # Errors
/// The directories cannot be used; damage alone is no error.
pub fn salvage(
    from: &Arc<dyn Files>,
    to: &Arc<dyn Files>,
    entropy: u64,
) -> Result<SalvageReport, StoreError> {
    let _locks = (locked(&**from)?, locked(&**to)?);
    if !io_at(&**to, "", "list", to.list())?.is_empty() {
        return Err(StoreError::Options("a salvage needs an empty directory to write to"));
    }
    let covers = copy_state(from, to)?;
    let header = SegmentHeader { id: 1, salt: 0, base: 1, prev_id: 0, prev_end: 0, wall: Wall(0), gap: true };
    let mut work = Salvage {
        from: &**from,
        to: &**to,
        report: SalvageReport { state_lost: covers.is_none(), ..SalvageReport::default() },
        salt: entropy | 1,
        out: Vec::new(),
        header,
        next: 1,
        covers: covers.unwrap_or(0),
    };
    let names = io_at(&**from, "", "list", from.list())?;
    let mut ids: Vec<u64> = names.iter().filter_map(|n| segment::id_of(n)).collect();
    ids.sort_unstable();
    for (i, &id) in ids.iter().enumerate() {
        work.segment(id, ids.get(i + 1).copied())?;
    }
    work.finish()
}

/// Copies the checkpoint; `None` if it cannot be read, and an empty one is there instead.
fn copy_state(from: &Arc<dyn Files>, to: &Arc<dyn Files>) -> Result<Option<u64>, StoreError> {
    let counters = Arc::new(Counters::default());
    let open = |fresh| State::open(to.clone(), counters.clone(), 8 << 20, fresh);
    // It is opened as a copy, because opening repairs, and so writes.
    if let Ok(raw) = from.open(state::FILE).and_then(|f| read_whole(&*f, None)) {
        let copy = io_at(&**to, state::FILE, "create", to.create(state::FILE))?;
        io_at(&**to, state::FILE, "write", copy.write_at(&raw, 0).and_then(|()| copy.sync_data()))?;
        let read = open(false).and_then(|mut state| {
            let covers = state.load()?.covers;
            // The copy has other segments; the first start lists them.
            state.list_segments(&[])?;
            Ok(covers)
        });
        if let Ok(covers) = read {
            return Ok(Some(covers));
        }
        io_at(&**to, state::FILE, "remove", to.remove(state::FILE))?;
    }
    open(true).map(|_| None)
}

impl Salvage<'_> {
    fn note(&mut self, id: u64, offset: u64, what: &str) {
        let place = self.from.describe(&name(id));
        self.report.damaged.push(format!("{place}: {what} at byte {offset}"));
    }

    fn header_of(&self, id: u64) -> Option<SegmentHeader> {
        let file = self.from.open(&name(id)).ok()?;
        segment::read_segment_header(&*file).ok()?.ok().filter(|h| h.id == id)
    }

    /// Copies the intact groups of one segment.
    fn segment(&mut self, id: u64, successor: Option<u64>) -> Result<(), StoreError> {
        let file_name = name(id);
        let file = io_at(self.from, &file_name, "open", self.from.open(&file_name))?;
        let raw = io_at(self.from, &file_name, "read", read_whole(&*file, None))?;
        let salt = match self.header_of(id) {
            Some(header) => header.salt,
            None => {
                self.note(id, 0, "damaged header");
                // The first group begins with the same salt.
                let mark = raw.get(HEADER as usize..HEADER as usize + 8);
                mark.and_then(|m| m.try_into().ok()).map_or(0, u64::from_le_bytes)
            }
        };
        // What lies behind the recorded end was cut off on purpose.
        let cut = successor.and_then(|s| self.header_of(s)).filter(|s| s.prev_id == id);
        let end = cut.map_or(raw.len(), |s| (s.prev_end as usize).min(raw.len()));
        self.groups(id, &raw[..end], salt, cut.is_some())
    }

    fn groups(&mut self, id: u64, raw: &[u8], salt: u64, sealed: bool) -> Result<(), StoreError> {
        let mut at = HEADER as usize;
        while at + GROUP_HEADER <= raw.len() {
            if let Some(group) = read_group(raw, salt, at).filter(|g| g.header.first >= self.next) {
                self.copy(&group)?;
                at = group.end() as usize;
                continue;
            }
            let mark = salt.to_le_bytes();
            let found = (at + 8..raw.len().saturating_sub(GROUP_HEADER))
                .step_by(8)
                .find(|&p| raw[p..p + 8] == mark && read_header(&raw[p..], salt, p as u64).is_some());
            match found {
                Some(next) => {
                    self.note(id, at as u64, "damaged group");
                    at = next;
                }
                None if sealed => {
                    self.note(id, at as u64, "damaged group");
                    break;
                }
                // Nothing more: the usual end of a last segment.
                None => break,
            }
        }
        Ok(())
    }

    fn copy(&mut self, group: &Group<'_>) -> Result<(), StoreError> {
        if self.out.is_empty() || group.header.first != self.next {
            if group.header.first > self.next {
                self.report_missing(group.header.first);
            }
            self.write_out()?;
            self.begin(group.header.first);
        }
        group.reseal(self.header.salt, 0, 0, &mut self.out);
        self.next = group.header.first + group.consumed;
        self.header.wall = group.header.wall;
        self.report.commits += 1;
        if self.out.len() > 64 << 20 {
            self.write_out()?;
        }
        Ok(())
    }

    /// Notes that what lies between the last part copied and `upto` is missing, unless the checkpoint has it.
    fn report_missing(&mut self, upto: u64) {
        let first = self.next.max(self.covers + 1);
        if first < upto {
            self.report.missing.push((first, upto - 1));
        }
    }

    fn begin(&mut self, base: u64) {
        self.salt = self.salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        self.header = SegmentHeader { salt: self.salt, base, gap: true, ..self.header };
        self.out = vec![0; HEADER as usize];
    }

    /// Writes the segment that is being made.
    fn write_out(&mut self) -> Result<(), StoreError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let header = self.header.encode();
        self.out[..header.len()].copy_from_slice(&header);
        let file_name = name(self.header.id);
        let file = io_at(self.to, &file_name, "create", self.to.create(&file_name))?;
        let written = file.write_at(&self.out, 0).and_then(|()| file.sync_data());
        io_at(self.to, &file_name, "write", written)?;
        self.header.prev_id = self.header.id;
        self.header.prev_end = self.out.len() as u64;
        self.header.id += 1;
        self.out = Vec::new();
        Ok(())
    }

    fn finish(mut self) -> Result<SalvageReport, StoreError> {
        self.write_out()?;
        if self.next <= self.covers {
            // The checkpoint reaches further than what is left of the journal.
            self.next = self.covers + 1;
        }
        // An empty segment at the end marks where the sequence goes on.
        self.begin(self.next);
        self.write_out()?;
        io_at(self.to, "", "sync the directory", self.to.sync_dir())?;
        Ok(self.report)
    }
}
