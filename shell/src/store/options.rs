//! Settings of the embedded store.

use super::error::StoreError;
use super::index::trim::TrimRules;
use mast_core::time::Wall;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reads the wall clock.
pub type Clock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// Settings of a store. [`StoreOptions::new`] has the defaults.
#[derive(Clone)]
pub struct StoreOptions {
    /// How many of the sinks are shards. The others, behind them, may commit, but have no say in
    /// what of the log is needed.
    pub shards: usize,
    /// Size of a journal segment in bytes, preallocated.
    pub segment_bytes: u64,
    /// A commit may take at most this many bytes in the journal; larger ones are refused.
    pub max_commit_bytes: u64,
    /// Requests that may wait; more are refused.
    pub queue_count: usize,
    /// Bytes of messages and values that may wait; more are refused.
    pub queue_bytes: usize,
    /// Bytes that one write to the journal takes, about.
    pub batch_bytes: usize,
    /// Bytes of the newest messages kept in memory for readers.
    pub ring_bytes: usize,
    /// Keyed state goes to the checkpoint at least this often.
    pub checkpoint_interval: Duration,
    /// ... or once this many bytes of it have changed.
    pub checkpoint_bytes: usize,
    /// Memory for pages of the checkpoint's file.
    pub state_cache_bytes: usize,
    /// Appends are refused while the file system has less than this free.
    pub min_free_bytes: u64,
    /// Appends are refused while the journal has no room for another segment below this.
    pub max_bytes: u64,
    /// When messages leave the log.
    pub trim: TrimRules,
    /// How often the log is looked through for what can go.
    pub trim_interval: Duration,
    /// A sealed segment with less than this part of it needed is rewritten, in percent.
    pub clean_percent: u64,
    /// Rewriting reads and writes at most this many bytes a second.
    pub clean_bytes_per_second: u64,
    /// Read and check every segment at opening, also those that an index file describes.
    pub verify_at_open: bool,
    /// Seed from the operating system's random source: keys hash tables and marks segments so that no
    /// client can forge a record.
    pub entropy: u64,
    /// The wall clock.
    pub clock: Clock,
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("segment_bytes", &self.segment_bytes)
            .field("trim", &self.trim)
            .finish_non_exhaustive()
    }
}

impl StoreOptions {
    /// The defaults.
    #[must_use]
    pub fn new(clock: Clock, entropy: u64) -> StoreOptions {
        const MIB: u64 = 1 << 20;
        StoreOptions {
            shards: usize::MAX,
            segment_bytes: 64 * MIB,
            max_commit_bytes: 32 * MIB,
            queue_count: 65_536,
            queue_bytes: 64 << 20,
            batch_bytes: 4 << 20,
            ring_bytes: 64 << 20,
            checkpoint_interval: Duration::from_secs(3),
            checkpoint_bytes: 32 << 20,
            state_cache_bytes: 32 << 20,
            min_free_bytes: 64 * MIB,
            max_bytes: u64::MAX,
            trim: TrimRules {
                min_retention: Duration::from_secs(600),
                retention_bytes: 1024 * MIB,
                max_age: Duration::from_secs(7 * 86_400),
                tenant_bytes: u64::MAX,
            },
            trim_interval: Duration::from_secs(1),
            clean_percent: 50,
            clean_bytes_per_second: 16 * MIB,
            verify_at_open: false,
            entropy,
            clock,
        }
    }

    /// Checks that the sizes fit together.
    ///
    /// # Errors
    /// Names the rule that is broken.
    pub fn check(&self) -> Result<(), StoreError> {
        let rules = [
            (self.segment_bytes >= 32 << 10, "a segment has at least 32 KiB"),
            (self.segment_bytes <= 1 << 30, "a segment has at most 1 GiB"),
            (self.max_commit_bytes <= self.segment_bytes / 2, "a commit takes at most half a segment"),
            (self.max_bytes / 4 >= self.segment_bytes, "the greatest size holds at least four segments"),
            (self.batch_bytes > 0 && self.queue_count > 0, "queue and batch cannot be empty"),
            (self.clean_percent <= 90, "cleaning segments that are more than 90 % needed never ends"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(StoreError::Options(rule)),
            None => Ok(()),
        }
    }
}
