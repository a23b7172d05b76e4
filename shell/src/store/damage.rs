//! Damage met while the store runs: each place is told once, in the log and to health, and kept until its segment
//! is gone.

use super::segment;
use super::shared::Shared;
use super::stats::{Stopwatch, add};
use crate::obs::log::RateLimited;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Places remembered, at most. More are counted again whenever they are met.
const MAX_PLACES: usize = 4096;
/// One log line per segment in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// A read that the file system refuses is tried so often before what it was for is given up: callers try again
/// every second, and a disk may come back.
const ATTEMPTS: u32 = 10;

/// What is known of damage.
pub struct DamageBook {
    places: Mutex<Places>,
    log_limit: RateLimited<u64>,
    since: Stopwatch,
}

#[derive(Default)]
struct Places {
    /// Offsets by segment.
    damaged: BTreeMap<u64, BTreeSet<u64>>,
    /// Reads refused by the file system, by segment and offset.
    failed: BTreeMap<(u64, u64), u32>,
}

impl Places {
    fn len(&self) -> usize {
        self.damaged.values().map(BTreeSet::len).sum()
    }
}

impl Default for DamageBook {
    fn default() -> DamageBook {
        DamageBook {
            places: Mutex::default(),
            log_limit: RateLimited::new(LOG_EVERY, 64),
            since: Stopwatch::start(),
        }
    }
}

impl DamageBook {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What lies at `offset` of a segment cannot be read, and never will be.
    pub(super) fn damaged(&self, segment: u64, offset: u64, what: &str) {
        {
            let mut places = self.damage.places();
            let room = places.len() < MAX_PLACES;
            let offsets = places.damaged.entry(segment).or_default();
            if offsets.contains(&offset) {
                return;
            }
            if room {
                offsets.insert(offset);
            }
        }
        add(&self.counters.damage, 1);
        self.tell_damage();
        let now = Duration::from_micros(self.damage.since.micros());
        if let Some(held_back) = self.damage.log_limit.permit(segment, now) {
            let file = self.files.describe(&segment::name(segment));
            tracing::error!(
                file,
                offset,
                held_back,
                "the journal is damaged: {what}; what cannot be read is left out and counted as dropped \
                 (store_damaged), the rest is delivered"
            );
        }
    }

    /// The file system refused to read at a place. True once it has been tried often enough: what lies there is
    /// then taken for damaged.
    pub(super) fn read_refused(&self, segment: u64, offset: u64, error: &io::Error) -> bool {
        let attempts = {
            let mut places = self.damage.places();
            if places.failed.len() >= MAX_PLACES {
                places.failed.clear();
            }
            let attempts = places.failed.entry((segment, offset)).or_insert(0);
            *attempts += 1;
            *attempts
        };
        if attempts >= ATTEMPTS {
            self.damaged(segment, offset, &format!("it cannot be read ({error})"));
            return true;
        }
        let now = Duration::from_micros(self.damage.since.micros());
        if let Some(held_back) = self.damage.log_limit.permit(segment, now) {
            let file = self.files.describe(&segment::name(segment));
            tracing::error!(file, offset, held_back, %error, "the journal cannot be read there; it is tried again");
        }
        false
    }

    /// A segment was freed: its damage harms nobody any more.
    pub(super) fn forget_damage(&self, segment: u64) {
        let known = {
            let mut places = self.damage.places();
            places.failed.retain(|place, _| place.0 != segment);
            places.damaged.remove(&segment).is_some()
        };
        if known {
            self.tell_damage();
        }
    }

    fn tell_damage(&self) {
        let text = {
            let places = self.damage.places();
            let first = places.damaged.iter().next().map(|(id, offsets)| (*id, offsets.first().copied()));
            first.map(|(id, offset)| {
                let (file, offset) = (self.files.describe(&segment::name(id)), offset.unwrap_or(0));
                match places.len() {
                    0 | 1 => format!("{file}: damaged at byte {offset}"),
                    n => format!("{file}: damaged at byte {offset}, and {} more places", n - 1),
                }
            })
        };
        self.health().damaged = text;
    }
}
