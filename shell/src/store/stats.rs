//! Counters of the store, for metrics, and the one place where it measures durations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Upper bounds of the sync histogram's buckets, in microseconds; one more bucket has no bound.
pub const SYNC_BUCKETS: [u64; 9] = [100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters, updated by the store's threads.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Syncs of the journal by duration, see [`SYNC_BUCKETS`].
            pub sync_buckets: [AtomicU64; 10],
        }

        /// Values of the counters at one time.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct StoreStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Syncs of the journal by duration, see [`SYNC_BUCKETS`].
            pub sync_buckets: [u64; 10],
        }

        impl Counters {
            /// The values now.
            #[must_use]
            pub fn read(&self) -> StoreStats {
                StoreStats {
                    $($name: self.$name.load(Relaxed),)*
                    sync_buckets: std::array::from_fn(|i| self.sync_buckets[i].load(Relaxed)),
                }
            }
        }
    };
}

counters! {
    /// Commits applied.
    commits,
    /// Commits refused by a condition.
    conflicts,
    /// Commits refused for want of space.
    refused_full,
    /// Commits refused because the store could not write.
    refused_unavailable,
    /// Commits whose outcome is unknown.
    unknown,
    /// Messages appended.
    appends,
    /// Writes to the journal.
    batches,
    /// Bytes written to the journal.
    journal_bytes,
    /// Bytes written again to free half-empty segments.
    moved_bytes,
    /// Bytes written to the checkpoint's file.
    state_bytes,
    /// Syncs of the journal.
    syncs,
    /// Time spent in them, in microseconds.
    sync_micros,
    /// Checkpoints written.
    checkpoints,
    /// Checkpoints that failed.
    checkpoint_failures,
    /// Time spent writing them, in microseconds.
    checkpoint_micros,
    /// Reads answered.
    reads,
    /// Messages given to readers.
    read_entries,
    /// Messages of these that came from disk.
    read_from_disk,
    /// Places of the journal found damaged.
    damage,
    /// Segments in use.
    segments,
    /// Segments freed.
    segments_freed,
    /// Messages in the log.
    log_entries,
    /// Bytes of memory of the log's index.
    index_bytes,
    /// Keys.
    keys,
    /// Bytes of requests that wait.
    queue_bytes,
    /// Rounds of housekeeping.
    keeper_rounds,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Sets a gauge.
pub fn set(counter: &AtomicU64, n: u64) {
    counter.store(n, Relaxed);
}

/// Measures one duration. What it yields goes to counters alone and decides nothing.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "durations for metrics; no behaviour depends on them")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Microseconds since the start.
    #[must_use]
    pub fn micros(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

impl Counters {
    /// Counts one sync of the journal.
    pub fn synced(&self, micros: u64) {
        add(&self.syncs, 1);
        add(&self.sync_micros, micros);
        let bucket = SYNC_BUCKETS.iter().position(|&b| micros <= b).unwrap_or(SYNC_BUCKETS.len());
        add(&self.sync_buckets[bucket], 1);
    }
}
