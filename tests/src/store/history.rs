//! Random histories for crash tests: what was committed in which order, and whether a store that came back holds a
//! prefix of it that contains everything acknowledged.

use super::{Inline, TestClock, options};
use crate::contract::{
    ACME, SHARDS, StoreUnderTest, Told, delete, key, log_read, logged, message, put, retained, seqs,
};
use mast::store::files::fault::FaultFiles;
use mast::store::{InlineStore, StoreError, StoreOptions};
use mast_core::ids::{OpId, ShardIx};
use mast_core::rng::Rng;
use mast_core::store::port::{CommitResult, Durability, Expect, LogRead, Read, ReadResult, Restored, Write};
use mast_core::store::position::{Partition, Position, Seq};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys, retained messages and the log, as after some commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Value and revision by key.
    pub keys: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Payload and sequence by topic.
    pub retained: BTreeMap<String, (Vec<u8>, u64)>,
    /// Topic and payload by sequence.
    pub log: BTreeMap<u64, (String, Vec<u8>)>,
    /// The last sequence.
    pub head: u64,
}

impl Image {
    fn apply(&mut self, writes: &[Write], last: u64) {
        let parts = writes.iter().filter(|w| !matches!(w, Write::Check { .. })).count() as u64;
        let mut seq = last - parts;
        for write in writes {
            match write {
                Write::Append(append) => {
                    seq += 1;
                    let (topic, payload) =
                        (append.message.topic().to_owned(), append.message.payload().to_vec());
                    if append.retain && payload.is_empty() {
                        self.retained.remove(&topic);
                    } else if append.retain {
                        self.retained.insert(topic.clone(), (payload.clone(), seq));
                    }
                    if append.log {
                        self.log.insert(seq, (topic, payload));
                    }
                }
                Write::Put { key, value, .. } => {
                    seq += 1;
                    self.keys.insert(key.as_bytes().to_vec(), (value.to_vec(), seq));
                }
                Write::Delete { key, .. } => {
                    seq += 1;
                    self.keys.remove(&key.as_bytes()[..]);
                }
                Write::Check { .. } => {}
            }
        }
        self.head = last;
    }
}

/// A history under way.
pub struct History {
    /// The store.
    pub under: Inline,
    /// The image after each commit that was done, in order; the first is empty.
    pub images: Vec<Image>,
    /// Everything up to here may be trimmed.
    pub floor: u64,
    /// Trims and cleans on the way.
    pub trims: bool,
    rng: Rng,
    next_op: u32,
}

/// Options for crash tests: tiny segments, so that rolling, cleaning and recycling happen.
#[must_use]
pub fn crash_options(clock: &TestClock) -> StoreOptions {
    let mut options = options(clock);
    options.segment_bytes = 32 << 10;
    options.max_commit_bytes = 16 << 10;
    options.batch_bytes = 8 << 10;
    options.ring_bytes = 0;
    options
}

impl History {
    /// On an empty disk that records.
    #[must_use]
    pub fn start(seed: u64, trims: bool) -> History {
        let clock = TestClock::at(1000);
        let under = Inline::on(FaultFiles::new(64 << 20), crash_options(&clock), clock, true);
        History { under, images: vec![Image::default()], floor: 0, trims, rng: Rng::new(seed), next_op: 0 }
    }

    fn writes(&mut self, id: u32) -> Vec<Write> {
        let mut writes = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let n = self.rng.below(6);
            let size = if self.rng.below(8) == 0 { 2000 } else { 40 };
            let mut payload = id.to_le_bytes().to_vec();
            payload.resize(4 + self.rng.below(size) as usize, id as u8);
            writes.push(match self.rng.below(10) {
                0..5 => logged(message(ACME, &format!("t/{n}"), &payload)),
                5 => retained(message(ACME, &format!("r/{n}"), &payload)),
                6 => retained(message(ACME, &format!("r/{n}"), b"")),
                7 => delete(&format!("k{n}"), Expect::Any),
                _ => put(&format!("k{n}"), &format!("{id}"), Expect::Any),
            });
        }
        if self.rng.below(10) == 0 {
            writes.push(put("never", "x", Expect::Revision(Seq(u64::MAX))));
        }
        writes
    }

    /// One batch of commits, and perhaps some housekeeping. Acknowledged commits are noted on the disk
    /// by their number, once their class is synced.
    pub fn step(&mut self) {
        let mut asked = BTreeMap::new();
        for _ in 0..=self.rng.below(4) {
            self.next_op += 1;
            let op = OpId { idx: self.next_op, generation: 0 };
            let writes = self.writes(op.idx);
            let class = if self.rng.below(3) == 0 { Durability::Stored } else { Durability::Synced };
            self.under.commit(ShardIx(0), op, writes.clone(), class);
            asked.insert(op, (writes, class));
        }
        for told in self.under.told(ShardIx(0)) {
            let Told::Commit(op, CommitResult::Done { last }) = told else { continue };
            let (writes, class) = asked.remove(&op).expect("it was asked for");
            let mut image = self.images.last().cloned().unwrap_or_default();
            image.apply(&writes, last.0);
            self.images.push(image);
            if class == Durability::Synced {
                self.under.files.note(self.images.len() as u64 - 1);
            }
        }
        drop(self.under.ears.take(ShardIx(1)));
        if self.trims && self.rng.below(4) == 0 {
            let head = self.images.last().map_or(0, |i| i.head);
            self.floor = self.floor.max(head.saturating_sub(self.rng.below(60)));
            for shard in 0..SHARDS {
                let position = Position::at(Partition(0), Seq(self.floor));
                self.under.set_floor(ShardIx(shard), ACME, Some(position));
            }
        }
        if self.rng.below(3) == 0 {
            self.under.clock.set(1000 + u64::from(self.next_op) * 10);
            self.under.running().tick();
        }
    }

    /// Goes on with what a crash left on `disk`.
    pub fn go_on(&mut self, disk: FaultFiles) {
        let (options, clock) = (self.under.options.clone(), self.under.clock.clone());
        // The old store ends on its own disk, which is gone.
        self.under = Inline::on(disk, options, clock, true);
    }

    /// Opens the store on `disk` and judges what it holds, given that the commits up to number `acked` had been
    /// acknowledged.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&self, disk: &FaultFiles, acked: u64) -> Result<(), String> {
        let image = read_image(disk, &self.under.options, &self.under.clock).map_err(|e| e.to_string())?;
        // A commit without parts of its own has the head of the one before.
        let Some(n) = self.images.iter().rposition(|i| i.head == image.head) else {
            return Err(format!("head {} is no end of a commit", image.head));
        };
        let wanted = &self.images[n];
        if (n as u64) < acked && self.images[acked as usize].head > image.head {
            return Err(format!("commit {acked} was acknowledged, but only {n} are there"));
        }
        if (&image.keys, &image.retained) != (&wanted.keys, &wanted.retained) {
            return Err(format!("keys or retained messages differ: {image:?} instead of {wanted:?}"));
        }
        for (seq, message) in &wanted.log {
            let there = image.log.get(seq);
            let must = *seq > self.floor;
            if there != Some(message) && (must || there.is_some()) {
                return Err(format!("message {seq} is {there:?}"));
            }
        }
        match image.log.keys().find(|seq| !wanted.log.contains_key(seq)) {
            Some(seq) => Err(format!("message {seq} was never committed")),
            None => Ok(()),
        }
    }
}

/// What a store on `disk` holds.
///
/// # Errors
/// It cannot be opened, or not be read.
pub fn read_image(disk: &FaultFiles, options: &StoreOptions, clock: &TestClock) -> Result<Image, StoreError> {
    let mut options = options.clone();
    options.clock = clock.clock();
    let ears = super::Ears::default();
    let opened = InlineStore::open(options, Arc::new(disk.clone()), super::registry(), ears.sinks());
    let (mut store, restored) = opened?;
    let mut image = Image::default();
    for item in restored {
        match item {
            Restored::Key { key, value, revision } => {
                image.keys.insert(key.as_bytes().to_vec(), (value.to_vec(), revision.0));
            }
            Restored::Retained { seq, message, .. } => {
                let kept = (message.payload().to_vec(), seq.0);
                image.retained.insert(message.topic().to_owned(), kept);
            }
            Restored::End { head } => image.head = head.get(Partition(0)).0,
        }
    }
    let read = LogRead { max_entries: u32::MAX, max_bytes: u32::MAX, ..log_read(&["#"], 0) };
    let op = OpId { idx: 0, generation: 0 };
    store.client().read(ShardIx(0), op, Read::Log(read)).expect("the store runs");
    store.pump();
    for told in ears.take(ShardIx(0)) {
        match told {
            Told::Read(_, ReadResult::Page(page)) => {
                assert_eq!(seqs(&page).len(), page.entries.len());
                for entry in page.entries {
                    let content = (entry.message.topic().to_owned(), entry.message.payload().to_vec());
                    image.log.insert(entry.seq.0, content);
                }
            }
            Told::Read(_, result) => {
                let reason = format!("a read ended with {result:?}");
                return Err(StoreError::State { place: "log".to_owned(), reason });
            }
            Told::Commit(..) | Told::Committed(_) => {}
        }
    }
    assert!(image.keys.keys().all(|k| k.starts_with(&key("").as_bytes()[..])));
    Ok(image)
}
