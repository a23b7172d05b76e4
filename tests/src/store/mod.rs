//! The embedded store as a store under test: with its threads on real files, and without threads on the
//! fault model.

pub mod dir;
pub mod history;

use crate::contract::{SHARDS, StoreUnderTest, TENANTS, Told};
use dir::TempDir;
use mast::store::files::Files;
use mast::store::files::fault::FaultFiles;
use mast::store::files::os::OsFiles;
use mast::store::{Event, InlineStore, Sink, Store, StoreClient, StoreOptions};
use mast_core::ids::{OpId, ShardIx, TenantId};
use mast_core::store::port::{Durability, Read, Restored, Write};
use mast_core::store::position::Position;
use mast_core::tenant::registry::Registry;
use mast_core::time::Wall;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A clock that tests set.
#[derive(Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Standing at `ms`.
    #[must_use]
    pub fn at(ms: u64) -> TestClock {
        let clock = TestClock::default();
        clock.set(ms);
        clock
    }

    /// Sets it.
    pub fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    /// As the store wants it.
    #[must_use]
    pub fn clock(&self) -> mast::store::Clock {
        let clock = self.0.clone();
        Arc::new(move || Wall(clock.load(Ordering::SeqCst)))
    }
}

/// Options for tests: small segments, nothing waits for time.
#[must_use]
pub fn options(clock: &TestClock) -> StoreOptions {
    let mut options = StoreOptions::new(clock.clock(), 0x5A17);
    options.segment_bytes = 64 << 10;
    options.max_commit_bytes = 32 << 10;
    options.batch_bytes = 16 << 10;
    options.ring_bytes = 4 << 10;
    options.state_cache_bytes = 1 << 20;
    options.min_free_bytes = 0;
    options.checkpoint_interval = Duration::ZERO;
    options.trim_interval = Duration::ZERO;
    options.trim.min_retention = Duration::ZERO;
    options
}

/// The tenants of the contract.
#[must_use]
pub fn registry() -> Registry {
    Registry::new(&TENANTS).expect("the names are good")
}

#[derive(Default)]
struct Heard {
    told: Vec<VecDeque<Told>>,
    /// Operations that ended.
    ended: u64,
}

/// What the sinks of a store collect.
#[derive(Clone)]
pub struct Ears {
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

struct Ear {
    shard: usize,
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Sink for Ear {
    fn deliver(&mut self, events: Vec<Event>) {
        let (heard, bell) = &*self.heard;
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let told = match event {
                Event::CommitDone { op, result } => Told::Commit(op, result),
                Event::ReadDone { op, result } => Told::Read(op, result),
                Event::Committed(committed) => Told::Committed(committed),
            };
            heard.ended += u64::from(!matches!(told, Told::Committed(_)));
            heard.told[self.shard].push_back(told);
        }
        bell.notify_all();
    }
}

impl Default for Ears {
    fn default() -> Ears {
        let told = (0..SHARDS).map(|_| VecDeque::new()).collect();
        Ears { heard: Arc::new((Mutex::new(Heard { told, ended: 0 }), Condvar::new())) }
    }
}

impl Ears {
    /// One sink per shard.
    #[must_use]
    pub fn sinks(&self) -> Vec<Box<dyn Sink>> {
        let ear = |shard| Box::new(Ear { shard, heard: self.heard.clone() }) as Box<dyn Sink>;
        (0..SHARDS as usize).map(ear).collect()
    }

    /// Waits until `count` operations have ended since the beginning.
    pub fn wait(&self, count: u64) {
        let (heard, bell) = &*self.heard;
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        while heard.ended < count {
            let waited = bell.wait_timeout(heard, Duration::from_secs(30));
            let (next, late) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!late.timed_out(), "the store does not answer");
            heard = next;
        }
    }

    /// Takes what a shard was told.
    #[must_use]
    pub fn take(&self, shard: ShardIx) -> Vec<Told> {
        let mut heard = self.heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.told[shard.0 as usize].drain(..).collect()
    }
}

/// The store with its threads, on real files.
pub struct Threaded {
    /// The running store.
    pub store: Option<Store>,
    /// A handle to it.
    pub client: StoreClient,
    ears: Ears,
    asked: u64,
    dir: TempDir,
    clock: TestClock,
}

/// Marks the operations that only wait for earlier ones.
const BARRIER: u32 = u32::MAX;

impl Threaded {
    /// In a fresh directory.
    #[must_use]
    pub fn start() -> Threaded {
        let (dir, clock, ears) = (TempDir::new(), TestClock::at(1000), Ears::default());
        let (store, _) = Threaded::open(&dir, &clock, &ears);
        let client = store.client();
        Threaded { store: Some(store), client, ears, asked: 0, dir, clock }
    }

    fn open(dir: &TempDir, clock: &TestClock, ears: &Ears) -> (Store, Vec<Restored>) {
        let files = OsFiles::new(dir.path()).expect("a directory");
        Store::open(options(clock), Arc::new(files), registry(), ears.sinks()).expect("the store opens")
    }
}

impl StoreUnderTest for Threaded {
    fn commit(&mut self, shard: ShardIx, op: OpId, writes: Vec<Write>, class: Durability) {
        self.asked += 1;
        self.client.commit(shard, op, writes, class).expect("the queue has room");
    }

    fn read(&mut self, shard: ShardIx, op: OpId, read: Read) {
        self.asked += 1;
        self.client.read(shard, op, read).expect("the store runs");
    }

    fn set_floor(&mut self, shard: ShardIx, tenant: TenantId, floor: Option<Position>) {
        self.client.set_floor(shard, tenant, floor);
    }

    fn trim(&mut self) {
        // Two rounds: the first may have begun before the call.
        let rounds = self.client.stats().keeper_rounds + 2;
        while self.client.stats().keeper_rounds < rounds {
            self.client.wake_keeper();
            std::thread::yield_now();
        }
    }

    fn told(&mut self, shard: ShardIx) -> Vec<Told> {
        self.ears.wait(self.asked);
        // The last batch may still be on its way to the other shards: what comes after it is not.
        let op = OpId { idx: BARRIER, generation: BARRIER };
        self.commit(shard, op, Vec::new(), Durability::Synced);
        self.ears.wait(self.asked);
        let told = self.ears.take(shard).into_iter();
        told.filter(|t| !matches!(t, Told::Commit(o, _) if o.idx == BARRIER)).collect()
    }

    fn reopen(&mut self) -> Vec<Restored> {
        if let Some(store) = self.store.take() {
            store.shutdown();
        }
        let (store, restored) = Threaded::open(&self.dir, &self.clock, &self.ears);
        self.client = store.client();
        self.store = Some(store);
        restored
    }
}

/// The store without threads, on the fault model.
pub struct Inline {
    /// The running store.
    pub store: Option<InlineStore>,
    /// A handle to it.
    pub client: StoreClient,
    /// Its disk.
    pub files: FaultFiles,
    /// What its shards hear.
    pub ears: Ears,
    /// Its clock.
    pub clock: TestClock,
    /// Its options.
    pub options: StoreOptions,
    /// How it is closed before it is opened again.
    pub clean: bool,
}

impl Inline {
    /// On an empty disk.
    #[must_use]
    pub fn start(clean: bool) -> Inline {
        let files = FaultFiles::new(256 << 20);
        files.set_recording(false);
        let clock = TestClock::at(1000);
        Inline::on(files, options(&clock), clock, clean)
    }

    /// On a given disk.
    #[must_use]
    pub fn on(files: FaultFiles, options: StoreOptions, clock: TestClock, clean: bool) -> Inline {
        let ears = Ears::default();
        let disk: Arc<dyn Files> = Arc::new(files.clone());
        let opened = InlineStore::open(options.clone(), disk, registry(), ears.sinks());
        let (store, _) = opened.expect("the store opens");
        let client = store.client();
        Inline { store: Some(store), client, files, ears, clock, options, clean }
    }

    /// The running store.
    pub fn running(&mut self) -> &mut InlineStore {
        self.store.as_mut().expect("the store runs")
    }
}

impl StoreUnderTest for Inline {
    fn commit(&mut self, shard: ShardIx, op: OpId, writes: Vec<Write>, class: Durability) {
        self.client.commit(shard, op, writes, class).expect("the queue has room");
    }

    fn read(&mut self, shard: ShardIx, op: OpId, read: Read) {
        self.client.read(shard, op, read).expect("the store runs");
    }

    fn set_floor(&mut self, shard: ShardIx, tenant: TenantId, floor: Option<Position>) {
        self.client.set_floor(shard, tenant, floor);
    }

    fn trim(&mut self) {
        self.running().tick();
        // What was trimmed may come back after a kill until the next checkpoint, which this one is.
        self.running().tick();
    }

    fn told(&mut self, shard: ShardIx) -> Vec<Told> {
        self.running().pump();
        self.ears.take(shard)
    }

    fn reopen(&mut self) -> Vec<Restored> {
        if let Some(store) = self.store.take() {
            if self.clean {
                store.shutdown();
            } else {
                // As after a kill: what was written stays, nothing more is.
                self.files = self.files.copy();
                self.files.set_recording(false);
            }
        }
        let disk: Arc<dyn Files> = Arc::new(self.files.clone());
        let opened = InlineStore::open(self.options.clone(), disk, registry(), self.ears.sinks());
        let (store, restored) = opened.expect("the store opens again");
        self.client = store.client();
        self.store = Some(store);
        restored
    }
}
