//! A directory in memory that can crash like a disk does: writes that were not synced are lost, kept or
//! torn by sector, in any combination; space runs out; syncs fail; bits flip.
//!
//! It records every operation. [`FaultFiles::crash`] builds, from the first `n` operations and a random
//! source, one of the directories that a power cut after operation `n` may leave behind. Notes in the
//! record ([`FaultFiles::note`]) tell which acknowledgements had left by then.

use super::{File, Files, Lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk writes as one.
pub const SECTOR: usize = 512;

/// One recorded operation.
#[derive(Clone, Debug)]
enum Op {
    Create {
        file: usize,
        name: String,
    },
    Write {
        file: usize,
        offset: u64,
        data: Vec<u8>,
    },
    SetLen {
        file: usize,
        len: u64,
    },
    Sync {
        file: usize,
    },
    /// A sync that reported failure: what it should have written is lost for good, though reads from
    /// the page cache still show it.
    FailedSync {
        file: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncDir,
    Note(u64),
}

#[derive(Default)]
struct Disk {
    names: BTreeMap<String, usize>,
    /// What a reader sees.
    files: Vec<Vec<u8>>,
    /// What survives from before the record began.
    base: Vec<Vec<u8>>,
    base_names: BTreeMap<String, usize>,
    ops: Vec<Op>,
    record: bool,
    capacity: u64,
    fail_syncs: Vec<(String, u32)>,
    fail_writes: u32,
    fail_reads: u32,
    locked: bool,
}

impl Disk {
    fn used(&self) -> u64 {
        self.names.values().map(|&f| self.files[f].len() as u64).sum()
    }

    fn log(&mut self, op: Op) {
        if self.record {
            self.ops.push(op);
        }
    }

    fn name_of(&self, file: usize) -> Option<&str> {
        self.names.iter().find(|&(_, &f)| f == file).map(|(n, _)| n.as_str())
    }

    fn grow(&mut self, file: usize, len: u64) -> io::Result<()> {
        let old = self.files[file].len() as u64;
        if len > old {
            if self.used() + (len - old) > self.capacity {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.files[file].resize(len as usize, 0);
        }
        Ok(())
    }
}

/// The directory.
#[derive(Clone)]
pub struct FaultFiles {
    disk: Arc<Mutex<Disk>>,
}

impl FaultFiles {
    /// An empty directory on a disk of `capacity` bytes, recording.
    #[must_use]
    pub fn new(capacity: u64) -> FaultFiles {
        let disk = Disk { record: true, capacity, ..Disk::default() };
        FaultFiles { disk: Arc::new(Mutex::new(disk)) }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of operations so far.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.disk().ops.len()
    }

    /// Records that `id` was acknowledged to somebody.
    pub fn note(&self, id: u64) {
        self.disk().log(Op::Note(id));
    }

    /// The notes among the first `ops` operations.
    #[must_use]
    pub fn notes(&self, ops: usize) -> Vec<u64> {
        let disk = self.disk();
        let notes = disk.ops.iter().take(ops).filter_map(|op| match op {
            Op::Note(id) => Some(*id),
            _ => None,
        });
        notes.collect()
    }

    /// Stops or resumes recording (a long run would keep every byte it writes).
    pub fn set_recording(&self, on: bool) {
        self.disk().record = on;
    }

    /// Changes the size of the disk.
    pub fn set_capacity(&self, capacity: u64) {
        self.disk().capacity = capacity;
    }

    /// Lets the next `count` syncs of files whose name begins with `prefix` fail.
    pub fn fail_syncs(&self, prefix: &str, count: u32) {
        self.disk().fail_syncs.push((prefix.to_owned(), count));
    }

    /// Lets the next `count` writes fail half-way.
    pub fn fail_writes(&self, count: u32) {
        self.disk().fail_writes = count;
    }

    /// Lets the next `count` reads fail.
    pub fn fail_reads(&self, count: u32) {
        self.disk().fail_reads = count;
    }

    /// Flips one bit of a file.
    ///
    /// # Errors
    /// `NotFound`, or `InvalidInput` behind the file's end.
    pub fn flip(&self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        let mut disk = self.disk();
        let file = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let byte = disk.files[file].get_mut(offset as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *byte ^= 1 << (bit & 7);
        Ok(())
    }

    /// A copy of the directory as a reader sees it, unlocked.
    #[must_use]
    pub fn copy(&self) -> FaultFiles {
        let disk = self.disk();
        FaultFiles::from_state(disk.names.clone(), disk.files.clone(), disk.capacity)
    }

    fn from_state(names: BTreeMap<String, usize>, files: Vec<Vec<u8>>, capacity: u64) -> FaultFiles {
        let disk = Disk {
            base: files.clone(),
            base_names: names.clone(),
            names,
            files,
            record: true,
            capacity,
            ..Disk::default()
        };
        FaultFiles { disk: Arc::new(Mutex::new(disk)) }
    }

    /// What a process that was killed after `ops` operations leaves: everything it wrote.
    #[must_use]
    pub fn kill(&self, ops: usize) -> FaultFiles {
        let mut keep = |_: &mut Vec<Pending>| BTreeSet::new();
        self.cut(ops, usize::MAX, &mut keep)
    }

    /// What a power cut after `ops` operations may leave. `draw(n)` returns a number below `n`; each
    /// sector that was not synced stays or goes by it, and so does a suffix of the unsynced changes to
    /// the directory.
    #[must_use]
    pub fn crash(&self, ops: usize, draw: &mut dyn FnMut(u64) -> u64) -> FaultFiles {
        // Three moods, so that the extreme cases appear often: all lost, all kept but torn, mixed.
        let mood = draw(4);
        let dir_keep = if mood == 0 { 0 } else { draw(6) as usize };
        let mut drop = |pending: &mut Vec<Pending>| {
            let mut lost = BTreeSet::new();
            for (i, write) in pending.iter().enumerate() {
                let first = write.offset as usize / SECTOR;
                let last = (write.offset as usize + write.data.len().max(1) - 1) / SECTOR;
                for sector in first..=last {
                    let gone = match mood {
                        0 => true,
                        1 => draw(16) == 0,
                        _ => draw(2) == 0,
                    };
                    if gone {
                        lost.insert((i, sector));
                    }
                }
            }
            lost
        };
        self.cut(ops, dir_keep, &mut drop)
    }

    /// Replays the record, keeping what is synced and what `lose` leaves of the rest.
    fn cut(&self, ops: usize, dir_keep: usize, lose: &mut Lose<'_>) -> FaultFiles {
        let disk = self.disk();
        let mut replay =
            Replay { files: disk.base.clone(), names: disk.base_names.clone(), ..Replay::default() };
        replay.pending.resize_with(replay.files.len(), Vec::new);
        for op in disk.ops.iter().take(ops) {
            replay.apply(op);
        }
        replay.finish(dir_keep, lose);
        FaultFiles::from_state(replay.names, replay.files, disk.capacity)
    }
}

/// A write (or a change of size, with no data) that was not synced.
struct Pending {
    offset: u64,
    data: Vec<u8>,
    set_len: Option<u64>,
}

type Lose<'a> = dyn FnMut(&mut Vec<Pending>) -> BTreeSet<(usize, usize)> + 'a;

#[derive(Default)]
struct Replay {
    /// Durable contents.
    files: Vec<Vec<u8>>,
    pending: Vec<Vec<Pending>>,
    /// Durable names.
    names: BTreeMap<String, usize>,
    dir_pending: Vec<Op>,
}

impl Replay {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { file, .. } => {
                while self.files.len() <= *file {
                    self.files.push(Vec::new());
                    self.pending.push(Vec::new());
                }
                self.dir_pending.push(op.clone());
            }
            Op::Write { file, offset, data } => {
                self.pending[*file].push(Pending { offset: *offset, data: data.clone(), set_len: None });
            }
            Op::SetLen { file, len } => {
                self.pending[*file].push(Pending { offset: 0, data: Vec::new(), set_len: Some(*len) });
            }
            Op::Sync { file } => {
                for write in std::mem::take(&mut self.pending[*file]) {
                    put(&mut self.files[*file], &write, &|_| false);
                }
            }
            Op::FailedSync { file } => {
                // Sizes survive in this model, data does not.
                for mut write in std::mem::take(&mut self.pending[*file]) {
                    let end = write.offset + write.data.len() as u64;
                    let size = self.files[*file].len() as u64;
                    write.set_len = write.set_len.or((end > size).then_some(end));
                    write.data.clear();
                    put(&mut self.files[*file], &write, &|_| false);
                }
            }
            Op::Rename { .. } | Op::Remove { .. } => self.dir_pending.push(op.clone()),
            Op::SyncDir => {
                for op in std::mem::take(&mut self.dir_pending) {
                    self.apply_dir(&op);
                }
            }
            Op::Note(_) => {}
        }
    }

    fn apply_dir(&mut self, op: &Op) {
        match op {
            Op::Create { file, name } => {
                self.names.insert(name.clone(), *file);
            }
            Op::Rename { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            Op::Remove { name } => {
                self.names.remove(name);
            }
            Op::Write { .. }
            | Op::SetLen { .. }
            | Op::Sync { .. }
            | Op::FailedSync { .. }
            | Op::SyncDir
            | Op::Note(_) => {}
        }
    }

    fn finish(&mut self, dir_keep: usize, lose: &mut Lose<'_>) {
        for file in 0..self.files.len() {
            let mut pending = std::mem::take(&mut self.pending[file]);
            let lost = lose(&mut pending);
            for (i, write) in pending.iter().enumerate() {
                put(&mut self.files[file], write, &|sector| lost.contains(&(i, sector)));
            }
        }
        for op in std::mem::take(&mut self.dir_pending).into_iter().take(dir_keep) {
            self.apply_dir(&op);
        }
    }
}

fn put(file: &mut Vec<u8>, write: &Pending, lost: &dyn Fn(usize) -> bool) {
    if let Some(len) = write.set_len {
        if lost(0) {
            return;
        }
        file.resize(len as usize, 0);
    }
    let mut at = write.offset as usize;
    let end = at + write.data.len();
    if end > file.len() {
        file.resize(end, 0);
    }
    while at < end {
        let sector = at / SECTOR;
        let stop = ((sector + 1) * SECTOR).min(end);
        if !lost(sector) {
            let from = at - write.offset as usize;
            file[at..stop].copy_from_slice(&write.data[from..from + (stop - at)]);
        }
        at = stop;
    }
}

struct FaultFile {
    disk: Arc<Mutex<Disk>>,
    file: usize,
}

impl FaultFile {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for FaultFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk();
        let fails = disk.fail_writes > 0;
        let data = if fails { &data[..data.len() / 2] } else { data };
        disk.grow(self.file, offset + data.len() as u64)?;
        let at = offset as usize;
        disk.files[self.file][at..at + data.len()].copy_from_slice(data);
        disk.log(Op::Write { file: self.file, offset, data: data.to_vec() });
        if fails {
            disk.fail_writes -= 1;
            return Err(io::Error::other("injected write error"));
        }
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.fail_reads > 0 {
            disk.fail_reads -= 1;
            return Err(io::Error::other("injected read error"));
        }
        let at = offset as usize;
        let data = disk.files[self.file].get(at..at + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(data);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk().files[self.file].len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk();
        disk.grow(self.file, len)?;
        disk.files[self.file].truncate(len as usize);
        disk.log(Op::SetLen { file: self.file, len });
        Ok(())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk();
        disk.grow(self.file, len)?;
        disk.log(Op::SetLen { file: self.file, len });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk();
        let name = disk.name_of(self.file).unwrap_or_default().to_owned();
        let hit = disk.fail_syncs.iter_mut().find(|(prefix, n)| *n > 0 && name.starts_with(prefix.as_str()));
        if let Some((_, count)) = hit {
            *count -= 1;
            disk.log(Op::FailedSync { file: self.file });
            return Err(io::Error::other("injected sync error"));
        }
        disk.log(Op::Sync { file: self.file });
        Ok(())
    }
}

struct FaultLock(Arc<Mutex<Disk>>);

impl Lock for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).locked = false;
    }
}

impl Files for FaultFiles {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = *self.disk().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(FaultFile { disk: self.disk.clone(), file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk();
        let file = disk.files.len();
        disk.files.push(Vec::new());
        disk.names.insert(name.to_owned(), file);
        disk.log(Op::Create { file, name: name.to_owned() });
        drop(disk);
        Ok(Arc::new(FaultFile { disk: self.disk.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let file = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), file);
        disk.log(Op::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        disk.log(Op::Remove { name: name.to_owned() });
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk().log(Op::SyncDir);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk().names.keys().cloned().collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = self.disk();
        Ok(disk.capacity.saturating_sub(disk.used()))
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let mut disk = self.disk();
        if disk.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        disk.locked = true;
        drop(disk);
        Ok(Box::new(FaultLock(self.disk.clone())))
    }

    fn describe(&self, name: &str) -> String {
        format!("fault:{name}")
    }
}
