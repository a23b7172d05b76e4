//! The embedded store of mast's all-in-one role: an append-only journal that is the only point of durability and
//! the log, with a checkpoint of keyed state beside it.
//!
//! It answers the port in [`mast_core::store::port`]. Partition 0 is the only one; each append, put and
//! delete takes the next sequence, a check takes none (a commit of checks alone is done at the sequence
//! before it). Three threads: one writes (all that waits becomes one write and one sync), one reads, one
//! keeps house (checkpoints, trimming, spare segments). [`inline::InlineStore`] runs the same without threads.
//!
//! What a commit's class means here: `Synced` waits for the sync of its batch; `Stored` waits for the
//! write, and for the sync of a `Synced` commit in the same batch, because events leave in sequence order;
//! `Memory` is treated as `Stored`: the write costs microseconds and keeps one order for all.

pub mod check;
pub mod client;
mod damage;
pub mod engine;
pub mod error;
pub mod files;
pub mod index;
pub mod inline;
pub mod journal;
pub mod keeper;
pub mod open;
pub mod options;
pub mod reader;
pub mod record;
pub mod salvage;
pub mod segment;
pub mod shared;
pub mod sidecar;
pub mod state;
pub mod stats;

pub use client::{LogUse, StoreClient};
pub use error::StoreError;
pub use inline::InlineStore;
pub use open::{AdminRecord, TenantsOf};
pub use options::{Clock, StoreOptions};
pub use shared::{Event, Sink, StoreHealth};
pub use stats::StoreStats;

use engine::Engine;
use files::{Files, Lock};
use keeper::{Desk, Keeper};
use mast_core::store::port::Restored;
use mast_core::tenant::registry::Registry;
use shared::{MovedRecord, Shared};
use state::Changes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A running store. Dropping it shuts it down.
pub struct Store {
    shared: Arc<Shared>,
    threads: Option<Threads>,
    /// Held until everything is written.
    _lock: Box<dyn Lock>,
}

struct Threads {
    storage: JoinHandle<Engine>,
    reader: JoinHandle<()>,
    keeper: JoinHandle<Keeper>,
}

/// Asks the storage thread's state directly.
struct EngineDesk<'a>(&'a mut Engine);

impl Desk for EngineDesk<'_> {
    fn changes(&mut self) -> Option<Changes> {
        self.0.take_changes()
    }

    fn move_records(&mut self, from: u64, records: Vec<MovedRecord>) -> bool {
        self.0.move_records(from, &records)
    }

    fn recover(&mut self) {
        self.0.recover();
    }
}

fn storage_life(shared: &Shared, mut engine: Engine) -> Engine {
    let _guard = shared::PanicGuard(shared);
    let mut requests = VecDeque::new();
    while shared.queue.wait(&mut requests) {
        engine.turn(&mut requests);
    }
    engine
}

impl Store {
    /// Opens the store in `files`, or begins one there, with one sink per shard. What it held comes back:
    /// keys and retained messages in order, then the head of the log.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        options: StoreOptions,
        files: Arc<dyn Files>,
        registry: Registry,
        sinks: Vec<Box<dyn Sink>>,
    ) -> Result<(Store, Vec<Restored>), StoreError> {
        Store::open_with(options, files, &mut |_| Ok(registry.clone()), sinks)
    }

    /// The same, where the records of administration tell the tenants.
    ///
    /// # Errors
    /// See [`StoreError`]; what `tenants` says is passed on.
    pub fn open_with(
        options: StoreOptions,
        files: Arc<dyn Files>,
        tenants: TenantsOf<'_>,
        sinks: Vec<Box<dyn Sink>>,
    ) -> Result<(Store, Vec<Restored>), StoreError> {
        let parts = inline::open_parts(options, files, tenants, sinks)?;
        let inline::Parts { shared, engine, keeper, lock, restored } = parts;
        let (for_storage, for_reader) = (shared.clone(), shared.clone());
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let storage = spawn("mast-store").spawn(move || storage_life(&for_storage, engine));
        let storage = storage.map_err(StoreError::Thread)?;
        let reader = spawn("mast-store-read").spawn(move || reader::run(&for_reader));
        let reader = reader.map_err(StoreError::Thread)?;
        let keeper = spawn("mast-store-keep").spawn(move || keeper.run()).map_err(StoreError::Thread)?;
        let threads = Some(Threads { storage, reader, keeper });
        Ok((Store { shared, threads, _lock: lock }, restored))
    }

    /// A handle for the shards.
    #[must_use]
    pub fn client(&self) -> StoreClient {
        StoreClient::new(self.shared.clone())
    }

    /// Takes no more, finishes what waits, writes a last checkpoint and ends the threads.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        self.shared.queue.close();
        self.shared.reads.close();
        let engine = threads.storage.join();
        let read = threads.reader.join();
        self.shared.bell.close();
        let keeper = threads.keeper.join();
        match (engine, keeper, read) {
            (Ok(engine), Ok(keeper), Ok(())) => inline::finish(engine, keeper),
            // A thread panicked: what was acknowledged is in the journal, a checkpoint of half a state is not wanted.
            (Err(_), _, _) | (_, Err(_), _) | (_, _, Err(_)) => {}
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}
