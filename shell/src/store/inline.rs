//! The store without threads: whoever holds it decides when it works. For tests that must repeat exactly.

use super::damage::DamageBook;
use super::engine::Engine;
use super::error::StoreError;
use super::files::{Files, Lock};
use super::journal::Journal;
use super::keeper::Keeper;
use super::open::{AdminRecord, TenantsOf};
use super::options::StoreOptions;
use super::segment::name;
use super::shared::{Bell, Queue, ReadQueue, Shared, Sink, SinkState, StoreHealth};
use super::stats::{Counters, add};
use super::{EngineDesk, StoreClient, open, reader};
use arc_swap::ArcSwap;
use mast_core::store::port::Restored;
use mast_core::tenant::registry::Registry;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// The parts of an opened store.
pub(super) struct Parts {
    pub shared: Arc<Shared>,
    pub engine: Engine,
    pub keeper: Keeper,
    pub lock: Box<dyn Lock>,
    pub restored: Vec<Restored>,
}

/// Opens a store and begins its new segment.
pub(super) fn open_parts(
    options: StoreOptions,
    files: Arc<dyn Files>,
    tenants: TenantsOf<'_>,
    sinks: Vec<Box<dyn Sink>>,
) -> Result<Parts, StoreError> {
    options.check()?;
    let lock = files.lock().map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked { place: files.describe("lock") },
        _ => StoreError::Io { place: files.describe("lock"), what: "lock", source },
    })?;
    let counters = Arc::new(Counters::default());
    let shards = options.shards.min(sinks.len());
    let mut registry = Registry::default();
    let mut tell = |records: &[AdminRecord]| {
        registry = tenants(records)?;
        Ok(registry.clone())
    };
    let opened = open::open(&files, &options, &mut tell, shards, &counters)?;
    let head = opened.link.base - 1;
    let sinks = sinks.into_iter().map(|sink| Mutex::new(SinkState { sink, announced: head })).collect();
    let health =
        StoreHealth { writable: true, unknown_tenants: opened.unknown.clone(), ..StoreHealth::default() };
    let shared = Arc::new(Shared {
        queue: Queue::new(options.queue_count, options.queue_bytes),
        reads: ReadQueue::default(),
        bell: Bell::default(),
        sinks,
        index: Mutex::new(opened.index),
        spare: Mutex::new(None),
        health: Mutex::new(health),
        damage: DamageBook::default(),
        low_space: AtomicBool::new(false),
        broken: AtomicBool::new(false),
        dirty_full: AtomicBool::new(false),
        covers: AtomicU64::new(opened.covers),
        head: AtomicU64::new(head),
        counters,
        options,
        files: files.clone(),
        registry: ArcSwap::from_pointee(registry),
    });
    let place = files.describe(&name(opened.link.id));
    let start = Journal::start(shared.clone(), &opened.link);
    let journal = start.map_err(|source| StoreError::Io { place, what: "begin the segment", source })?;
    shorten(&*files, opened.link.prev_id, opened.link.prev_end)?;
    add(&shared.counters.keys, opened.keys.len() as u64);
    let engine = Engine::new(shared.clone(), journal, opened.keys, opened.changes);
    let keeper = Keeper::new(shared.clone(), opened.state);
    Ok(Parts { shared, engine, keeper, lock, restored: opened.restored })
}

/// Gives back what the last segment had reserved beyond its end. Its successor already says where it ends.
fn shorten(files: &dyn Files, id: u64, end: u64) -> Result<(), StoreError> {
    if id == 0 {
        return Ok(());
    }
    let place = || files.describe(&name(id));
    let cut = files.open(&name(id)).and_then(|f| if f.len()? > end { f.set_len(end) } else { Ok(()) });
    cut.map_err(|source| StoreError::Io { place: place(), what: "shorten", source })
}

/// Syncs and writes the last checkpoint. Failures leave a journal to replay, which is what it is for.
pub(super) fn finish(mut engine: Engine, mut keeper: Keeper) {
    if engine.sync().is_ok() {
        let _held: bool = keeper.checkpoint(&mut EngineDesk(&mut engine));
    }
}

/// A store that works when told to.
pub struct InlineStore {
    shared: Arc<Shared>,
    engine: Engine,
    keeper: Keeper,
    _lock: Box<dyn Lock>,
}

impl InlineStore {
    /// See [`super::Store::open`].
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        options: StoreOptions,
        files: Arc<dyn Files>,
        registry: Registry,
        sinks: Vec<Box<dyn Sink>>,
    ) -> Result<(InlineStore, Vec<Restored>), StoreError> {
        let Parts { shared, engine, keeper, lock, restored } =
            open_parts(options, files, &mut |_| Ok(registry.clone()), sinks)?;
        Ok((InlineStore { shared, engine, keeper, _lock: lock }, restored))
    }

    /// A handle for the shards.
    #[must_use]
    pub fn client(&self) -> StoreClient {
        StoreClient::new(self.shared.clone())
    }

    /// Handles all commits and reads that wait: first the commits, as one batch.
    pub fn pump(&mut self) {
        let mut requests = VecDeque::new();
        self.shared.queue.take(&mut requests);
        self.engine.turn(&mut requests);
        while let Some(read) = self.shared.reads.take() {
            reader::serve(&self.shared, read);
        }
    }

    /// Does the housekeeping that is due.
    pub fn tick(&mut self) {
        self.keeper.tick(&mut EngineDesk(&mut self.engine));
    }

    /// Writes a checkpoint now; true if it holds.
    pub fn checkpoint(&mut self) -> bool {
        self.keeper.checkpoint(&mut EngineDesk(&mut self.engine))
    }

    /// Finishes what waits, syncs, and writes the last checkpoint.
    pub fn shutdown(mut self) {
        self.shared.queue.close();
        self.shared.reads.close();
        self.pump();
        finish(self.engine, self.keeper);
    }
}
