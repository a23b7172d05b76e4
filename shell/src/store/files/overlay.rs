//! Files that take changes in memory alone, over a directory that stays as it is: for looking at a store by opening it.

use super::{File, Files, Lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Changes are kept in blocks of this many bytes.
const BLOCK: u64 = 4096;

/// A directory seen through its changes.
pub struct OverlayFiles {
    base: Arc<dyn Files>,
    changed: Mutex<Changed>,
}

#[derive(Default)]
struct Changed {
    files: BTreeMap<String, Arc<OverlayFile>>,
    gone: BTreeSet<String>,
}

/// A file with its changes.
struct OverlayFile {
    /// `None` = created here.
    base: Option<Arc<dyn File>>,
    state: Mutex<State>,
}

struct State {
    len: u64,
    /// From here on nothing of the base shows.
    base_end: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

struct NoLock;

impl Lock for NoLock {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OverlayFiles {
    /// Over `base`, which the caller has locked.
    #[must_use]
    pub fn new(base: Arc<dyn Files>) -> OverlayFiles {
        OverlayFiles { base, changed: Mutex::default() }
    }
}

impl OverlayFile {
    fn new(base: Option<Arc<dyn File>>) -> io::Result<Arc<OverlayFile>> {
        let len = base.as_ref().map_or(Ok(0), |b| b.len())?;
        let state = State { len, base_end: len, blocks: BTreeMap::new() };
        Ok(Arc::new(OverlayFile { base, state: Mutex::new(state) }))
    }

    /// One block as it is now.
    fn block(&self, state: &State, number: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize];
        let at = number * BLOCK;
        let there = state.base_end.saturating_sub(at).min(BLOCK) as usize;
        if let Some(base) = self.base.as_ref().filter(|_| there > 0) {
            base.read_at(&mut block[..there], at)?;
        }
        Ok(block)
    }
}

impl File for OverlayFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let from = (at % BLOCK) as usize;
            let n = (data.len() - done).min(BLOCK as usize - from);
            let mut block = self.block(&state, at / BLOCK)?;
            block[from..from + n].copy_from_slice(&data[done..done + n]);
            state.blocks.insert(at / BLOCK, block);
            done += n;
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = lock(&self.state);
        if offset + buf.len() as u64 > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let (true, Some(base)) = (state.blocks.is_empty() && state.len == state.base_end, &self.base) {
            return base.read_at(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let from = (at % BLOCK) as usize;
            let n = (buf.len() - done).min(BLOCK as usize - from);
            let block = self.block(&state, at / BLOCK)?;
            buf[done..done + n].copy_from_slice(&block[from..from + n]);
            done += n;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.state).len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.len = len;
        if len < state.base_end {
            state.base_end = len;
        }
        state.blocks.split_off(&len.div_ceil(BLOCK));
        if let Some(last) = state.blocks.get_mut(&(len / BLOCK)) {
            last[(len % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.len = state.len.max(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for OverlayFiles {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut changed = lock(&self.changed);
        if let Some(file) = changed.files.get(name) {
            return Ok(file.clone());
        }
        if changed.gone.contains(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = OverlayFile::new(Some(self.base.open(name)?))?;
        changed.files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = OverlayFile::new(None)?;
        lock(&self.changed).files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.open(from)?;
        let mut changed = lock(&self.changed);
        if let Some(file) = changed.files.remove(from) {
            changed.files.insert(to.to_owned(), file);
            changed.gone.insert(from.to_owned());
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut changed = lock(&self.changed);
        changed.files.remove(name);
        changed.gone.insert(name.to_owned());
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let base = self.base.list()?;
        let changed = lock(&self.changed);
        let mut names: BTreeSet<String> = base.into_iter().filter(|n| !changed.gone.contains(n)).collect();
        names.extend(changed.files.keys().cloned());
        Ok(names.into_iter().collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.base.free_bytes()
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        Ok(Box::new(NoLock))
    }

    fn describe(&self, name: &str) -> String {
        self.base.describe(name)
    }
}
