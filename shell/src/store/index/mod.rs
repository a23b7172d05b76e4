//! The index of the log, in memory: logged messages by tenant and topic, where each lies, and which
//! segments still hold something that is needed.

pub mod blocks;
pub mod ring;
pub mod select;
pub mod tenants;
pub mod trim;

use super::files::File;
use super::sidecar::SegmentIndex;
use blocks::{Blocks, Place};
use mast_core::ids::SessionUid;
use mast_core::message::Message;
use mast_core::time::Wall;
use ring::TailRing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tenants::Tenants;

/// Bytes that a message takes in a segment beside its body, about: for the accounts of live bytes alone.
pub const DISK_OVERHEAD: u64 = 96;

/// A segment file in use.
pub struct Segment {
    /// The open file.
    pub file: Arc<dyn File>,
    /// Mark of its groups.
    pub salt: u64,
    /// Sequence of its first part.
    pub base: u64,
    /// Sequence after its last part; of meaning once it is sealed.
    pub next: u64,
    /// Bytes that hold groups; of meaning once it is sealed.
    pub end: u64,
    /// Wall time of its last group; of meaning once it is sealed.
    pub wall: Wall,
    /// No more groups are written to it.
    pub sealed: bool,
    /// Its index file is written.
    pub indexed: bool,
    /// Bytes of messages that are still needed.
    pub live_bytes: u64,
    /// Number of messages that are still needed.
    pub live_count: u64,
}

/// A message to enter.
pub struct NewMessage<'a> {
    /// Its sequence.
    pub seq: u64,
    /// Slot of its tenant.
    pub tenant: u32,
    /// Its topic.
    pub topic: &'a str,
    /// The sessions it was spilled for.
    pub spill: Option<&'a [SessionUid]>,
    /// Segment that holds it.
    pub segment: u64,
    /// Offset of its record there.
    pub offset: u32,
    /// Bytes of topic, properties and payload.
    pub size: u32,
    /// When it expires.
    pub expires: Option<Wall>,
}

/// The index.
pub struct Index {
    /// Tenants and topics.
    pub tenants: Tenants,
    /// Where messages lie.
    pub blocks: Blocks,
    /// Segments by number.
    pub segments: BTreeMap<u64, Segment>,
    /// The newest messages.
    pub ring: TailRing,
    /// Samples of (wall time, last sequence then), ascending: for ages.
    pub ages: VecDeque<(Wall, u64)>,
    /// The newest such pair.
    latest: (Wall, u64),
}

impl Index {
    /// An empty index for `shards` shards; `seed` keys its hash tables, `ring` bytes of messages stay in memory.
    #[must_use]
    pub fn new(seed: u64, shards: usize, ring: usize) -> Index {
        Index {
            tenants: Tenants::new(seed, shards),
            blocks: Blocks::default(),
            segments: BTreeMap::new(),
            ring: TailRing::new(ring),
            ages: VecDeque::new(),
            latest: (Wall(0), 0),
        }
    }

    /// Enters a message that has just been written.
    pub fn insert(&mut self, new: &NewMessage<'_>) {
        let mut place = Place {
            segment: new.segment,
            offset: new.offset,
            size: new.size,
            topic: u32::MAX,
            spilled: new.spill.is_some(),
            expires: new.expires,
        };
        match new.spill {
            Some(uids) => self.tenants.spill(new.tenant, new.seq, uids),
            None => place.topic = self.tenants.push(new.tenant, new.topic, new.seq),
        }
        self.blocks.push(new.seq, &place);
        self.tenants.account(new.tenant, i64::from(new.size), 1);
        self.account(new.segment, i64::from(new.size), 1);
    }

    /// Keeps a message in memory for readers near the live edge.
    pub fn remember(&mut self, seq: u64, message: Arc<Message>) {
        self.ring.push(seq, message);
    }

    /// Notes that `seq` was reached at `wall`; keeps one sample a second.
    pub fn note_age(&mut self, wall: Wall, seq: u64) {
        self.latest = (self.latest.0.max(wall), seq);
        match self.ages.back() {
            Some((last, _)) if wall.millis_since(*last) < 1000 => {}
            // A clock that stepped back: samples stay ascending, ages are judged late rather than early.
            Some((last, _)) if *last > wall => {}
            Some(_) | None => self.ages.push_back((wall, seq)),
        }
        // A week of samples a second would be 600,000: old ones are thinned.
        if self.ages.len() > 8192 {
            let mut i = 0;
            let len = self.ages.len();
            self.ages.retain(|_| {
                i += 1;
                i > len / 2 || i % 2 == 0
            });
        }
    }

    /// The last sequence that is surely older than `wall`.
    #[must_use]
    pub fn seq_at(&self, wall: Wall) -> u64 {
        if self.latest.0 <= wall {
            return self.latest.1;
        }
        let i = self.ages.partition_point(|a| a.0 <= wall);
        i.checked_sub(1).map_or(0, |i| self.ages[i].1)
    }

    fn account(&mut self, segment: u64, size: i64, count: i64) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            let bytes = size + if count == 0 { 0 } else { count.signum() * DISK_OVERHEAD as i64 };
            segment.live_bytes = segment.live_bytes.saturating_add_signed(bytes);
            segment.live_count = segment.live_count.saturating_add_signed(count);
        }
    }

    /// Forgets one message that nobody needs; its topic's list has let it go already.
    fn forget(&mut self, tenant: u32, seq: u64) {
        if let Some(place) = self.blocks.remove(seq) {
            self.tenants.account(tenant, -i64::from(place.size), -1);
            self.account(place.segment, -i64::from(place.size), -1);
        }
    }

    /// Enters what a sealed segment holds, at opening. Segments come in ascending order; a message that was
    /// moved replaces its older copy. [`Index::settle`] must follow once all are in.
    pub fn load(&mut self, segment: u64, base: u64, sealed: &SegmentIndex) {
        self.blocks.begin(segment, base, 0);
        let slots: Vec<u32> = sealed.topics.iter().map(|(tenant, _)| self.tenants.slot(tenant)).collect();
        let mut topics = vec![u32::MAX; sealed.topics.len()];
        for entry in &sealed.entries {
            let ix = entry.topic as usize;
            let tenant = slots[ix];
            if entry.seq <= self.tenants.trimmed(tenant) {
                continue;
            }
            if topics[ix] == u32::MAX {
                topics[ix] = self.tenants.topic(tenant, &sealed.topics[ix].1);
            }
            let place = Place {
                segment,
                offset: entry.offset,
                size: entry.size,
                topic: topics[ix],
                spilled: false,
                expires: entry.expires,
            };
            if entry.moved {
                if let Some(old) = self.blocks.relocate(entry.seq, place) {
                    self.account(old.segment, -i64::from(old.size), -1);
                } else {
                    self.tenants.load(topics[ix], entry.seq);
                    self.tenants.account(tenant, i64::from(entry.size), 1);
                }
            } else {
                self.blocks.push(entry.seq, &place);
                self.tenants.load(topics[ix], entry.seq);
                self.tenants.account(tenant, i64::from(entry.size), 1);
            }
            self.account(segment, i64::from(entry.size), 1);
        }
        self.blocks.seal();
        if sealed.next > 0 {
            self.note_age(sealed.wall, sealed.next - 1);
        }
    }

    /// Ends loading.
    pub fn settle(&mut self) {
        self.tenants.settle();
    }

    /// Moves a message's place to a newer segment; false if it is not needed any more.
    pub fn relocate(&mut self, seq: u64, from: u64, segment: u64, offset: u32) -> bool {
        let Some(old) = self.blocks.get(seq).filter(|p| p.segment == from) else { return false };
        self.blocks.relocate(seq, Place { segment, offset, ..old });
        self.account(from, -i64::from(old.size), -1);
        self.account(segment, i64::from(old.size), 1);
        true
    }

    /// Copies in `to` of the messages above `base` of `from` count there (after a failed sync).
    pub fn recount(&mut self, from: u64, to: u64) {
        let mut counts = [(from, 0u64, 0u64), (to, 0, 0)];
        for (segment, bytes, count) in &mut counts {
            for seq in self.blocks.live_in(*segment) {
                if let Some(place) = self.blocks.get(seq) {
                    *bytes += u64::from(place.size) + DISK_OVERHEAD;
                    *count += 1;
                }
            }
        }
        for (id, bytes, count) in counts {
            if let Some(segment) = self.segments.get_mut(&id) {
                segment.live_bytes = bytes;
                segment.live_count = count;
            }
        }
    }
}
