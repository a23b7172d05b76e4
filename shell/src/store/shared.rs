//! What the store's threads and its clients share: the queues, the index, the sinks, the health.

use super::damage::DamageBook;
use super::files::{File, Files};
use super::index::Index;
use super::options::StoreOptions;
use super::stats::{Counters, set};
use arc_swap::ArcSwap;
use mast_core::ids::{OpId, ShardIx};
use mast_core::store::key::Key;
use mast_core::store::port::{CommitResult, Committed, Durability, Read, ReadResult, Refusal, Write};
use mast_core::tenant::registry::Registry;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the store tells a shard.
#[derive(Clone, Debug)]
pub enum Event {
    /// A commit ended.
    CommitDone {
        /// The operation, as given with the commit.
        op: OpId,
        /// How it ended.
        result: CommitResult,
    },
    /// A read ended.
    ReadDone {
        /// The operation, as given with the read.
        op: OpId,
        /// What was read.
        result: ReadResult,
    },
    /// Messages were committed; every shard is told of all, in sequence order. A shard hears of a
    /// message before its own commit of that message is reported as done.
    Committed(Arc<Committed>),
}

/// Where a shard's events go. Called from the store's threads, never from two at once; must not block
/// and must not call the store.
pub trait Sink: Send {
    /// Takes events, in order.
    fn deliver(&mut self, events: Vec<Event>);
}

/// A shard's sink, and how far the shard has been told of commits.
pub struct SinkState {
    pub(super) sink: Box<dyn Sink>,
    pub(super) announced: u64,
}

/// How the store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Commits are taken.
    pub writable: bool,
    /// There is no space: commits with appends are refused, reads go on.
    pub full: bool,
    /// What is wrong, for people.
    pub reason: Option<String>,
    /// Damage met while reading, until its segment is freed: file and offset.
    pub damaged: Option<String>,
    /// Bytes that the file system has free, when last looked.
    pub free_bytes: u64,
    /// Tenants whose data is on disk but who are not in the registry, with the number of messages and keys kept.
    pub unknown_tenants: Vec<(String, u64)>,
}

/// A commit that waits.
pub struct CommitRequest {
    pub(super) shard: ShardIx,
    pub(super) op: OpId,
    pub(super) writes: Vec<Write>,
    pub(super) class: Durability,
    pub(super) bytes: usize,
}

/// A read that waits.
pub struct ReadRequest {
    pub(super) shard: ShardIx,
    pub(super) op: OpId,
    pub(super) read: Read,
}

/// A record to be moved: its sequence and body.
pub type MovedRecord = (u64, Vec<u8>);

/// What the storage thread is asked.
pub enum Request {
    /// A commit.
    Commit(CommitRequest),
    /// Hand over the changes for a checkpoint; answered with `None` if there is nothing new.
    Changes(SyncSender<Option<super::state::Changes>>),
    /// Write records of a segment under cleaning again; answered with success.
    Move {
        /// The segment they lie in.
        from: u64,
        /// The records.
        records: Vec<MovedRecord>,
        /// Where the answer goes.
        reply: SyncSender<bool>,
    },
    /// Try to become writable again.
    Recover,
    /// All keys of a tenant, in order.
    KeysOf {
        /// Its name.
        tenant: String,
        /// Where the answer goes.
        reply: tokio::sync::oneshot::Sender<Vec<Key>>,
    },
}

#[derive(Default)]
struct QueueState {
    requests: VecDeque<Request>,
    commits: usize,
    bytes: usize,
    closed: bool,
    sleeping: bool,
}

/// The bounded queue to the storage thread.
pub struct Queue {
    state: Mutex<QueueState>,
    bell: Condvar,
    max_count: usize,
    max_bytes: usize,
    congested: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread of the store that panicked has poisoned nothing that others rely on half-done: the
    // process reports it through the thread's end; readers may go on.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(max_count: usize, max_bytes: usize) -> Queue {
        Queue {
            state: Mutex::new(QueueState::default()),
            bell: Condvar::new(),
            max_count,
            max_bytes,
            congested: AtomicBool::new(false),
        }
    }

    /// True above half of a bound: publishers should be read no further until it is false again.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    fn judge(&self, state: &QueueState) {
        let congested = state.commits > self.max_count / 2 || state.bytes > self.max_bytes / 2;
        self.congested.store(congested, Ordering::Relaxed);
    }

    /// Adds a commit.
    ///
    /// # Errors
    /// `Full` above a bound (one commit always fits into an empty queue), `Unavailable` after shutdown.
    pub fn push(&self, commit: CommitRequest) -> Result<(), Refusal> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refusal::Unavailable);
        }
        let over = state.commits >= self.max_count || state.bytes + commit.bytes > self.max_bytes;
        if over && state.commits > 0 {
            return Err(Refusal::Full);
        }
        state.commits += 1;
        state.bytes += commit.bytes;
        self.judge(&state);
        state.requests.push_back(Request::Commit(commit));
        let wake = std::mem::take(&mut state.sleeping);
        drop(state);
        if wake {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Adds a request of the store's own; false after shutdown.
    pub fn push_own(&self, request: Request) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.requests.push_back(request);
        state.sleeping = false;
        drop(state);
        self.bell.notify_one();
        true
    }

    /// Lets no more in.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.bell.notify_all();
    }

    fn drain(&self, state: &mut QueueState, into: &mut VecDeque<Request>) {
        into.append(&mut state.requests);
        state.commits = 0;
        state.bytes = 0;
        self.judge(state);
    }

    /// Takes all that waits, without waiting.
    pub fn take(&self, into: &mut VecDeque<Request>) {
        let mut state = lock(&self.state);
        self.drain(&mut state, into);
    }

    /// Waits for requests and takes all; false once the queue is closed and empty.
    pub fn wait(&self, into: &mut VecDeque<Request>) -> bool {
        let mut state = lock(&self.state);
        while state.requests.is_empty() {
            if state.closed {
                return false;
            }
            state.sleeping = true;
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.sleeping = false;
        self.drain(&mut state, into);
        true
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }
}

/// The queue of reads. Reads are bounded by their callers: each session has one outstanding.
#[derive(Default)]
pub struct ReadQueue {
    state: Mutex<(VecDeque<ReadRequest>, bool)>,
    bell: Condvar,
}

impl ReadQueue {
    /// Adds a read; false after shutdown.
    pub fn push(&self, request: ReadRequest) -> bool {
        let mut state = lock(&self.state);
        if state.1 {
            return false;
        }
        state.0.push_back(request);
        drop(state);
        self.bell.notify_one();
        true
    }

    /// Lets no more in.
    pub fn close(&self) {
        lock(&self.state).1 = true;
        self.bell.notify_all();
    }

    /// The next read, without waiting.
    pub fn take(&self) -> Option<ReadRequest> {
        lock(&self.state).0.pop_front()
    }

    /// Waits for a read; `None` once closed and empty.
    pub fn wait(&self) -> Option<ReadRequest> {
        let mut state = lock(&self.state);
        loop {
            if let Some(request) = state.0.pop_front() {
                return Some(request);
            }
            if state.1 {
                return None;
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Wakes the keeper.
#[derive(Default)]
pub struct Bell {
    state: Mutex<(bool, bool)>,
    bell: Condvar,
}

impl Bell {
    /// Wakes the keeper.
    pub fn ring(&self) {
        lock(&self.state).0 = true;
        self.bell.notify_one();
    }

    /// Ends the keeper.
    pub fn close(&self) {
        lock(&self.state).1 = true;
        self.bell.notify_one();
    }

    /// Waits for a ring, at most `timeout`; false once closed.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut state = lock(&self.state);
        if !state.0 && !state.1 {
            let waited = self.bell.wait_timeout(state, timeout);
            state = waited.map_or_else(|e| e.into_inner().0, |w| w.0);
        }
        state.0 = false;
        !state.1
    }
}

/// A preallocated file that becomes the next segment.
pub struct Spare {
    /// Its name.
    pub name: String,
    /// The open file.
    pub file: Arc<dyn File>,
    /// Its size.
    pub bytes: u64,
}

/// Everything shared.
pub struct Shared {
    pub(super) options: StoreOptions,
    pub(super) files: Arc<dyn Files>,
    /// The tenants that are served now.
    pub(super) registry: ArcSwap<Registry>,
    pub(super) queue: Queue,
    pub(super) reads: ReadQueue,
    pub(super) bell: Bell,
    pub(super) sinks: Vec<Mutex<SinkState>>,
    pub(super) index: Mutex<Index>,
    pub(super) spare: Mutex<Option<Spare>>,
    pub(super) health: Mutex<StoreHealth>,
    pub(super) damage: DamageBook,
    /// No space for appends.
    pub(super) low_space: AtomicBool,
    /// The journal cannot be written.
    pub(super) broken: AtomicBool,
    /// Changes wait for a checkpoint beyond what is allowed.
    pub(super) dirty_full: AtomicBool,
    /// The last checkpoint covers the journal up to here.
    pub(super) covers: AtomicU64,
    /// Last sequence that was announced to all shards, or that the store was opened with.
    pub(super) head: AtomicU64,
    pub(super) counters: Arc<Counters>,
}

impl Shared {
    /// Locks the index. Hold it for less than a millisecond.
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Locks a shard's sink.
    pub(super) fn sink(&self, shard: ShardIx) -> Option<MutexGuard<'_, SinkState>> {
        self.sinks.get(shard.0 as usize).map(lock)
    }

    pub(super) fn spare(&self) -> MutexGuard<'_, Option<Spare>> {
        lock(&self.spare)
    }

    pub(super) fn health(&self) -> MutexGuard<'_, StoreHealth> {
        lock(&self.health)
    }

    /// Gives events to one shard.
    pub(super) fn deliver(&self, shard: ShardIx, events: Vec<Event>) {
        if let Some(mut state) = self.sink(shard) {
            state.sink.deliver(events);
        }
    }

    /// Refreshes the gauges among the counters.
    pub(super) fn gauge(&self) {
        let index = self.index();
        set(&self.counters.segments, index.segments.len() as u64);
        set(&self.counters.log_entries, index.tenants.iter().map(|t| t.count).sum());
        set(&self.counters.index_bytes, (index.blocks.memory() + index.tenants.memory()) as u64);
        drop(index);
        set(&self.counters.queue_bytes, self.queue.bytes() as u64);
    }
}

/// Held by each thread of the store: if it panics, the store takes no more work, and says why. What was
/// acknowledged is in the journal; a restart is the way out.
pub struct PanicGuard<'a>(pub &'a Shared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.close();
            self.0.reads.close();
            let mut health = self.0.health();
            health.writable = false;
            health.reason = Some("a thread of the store panicked; restart".to_owned());
        }
    }
}
