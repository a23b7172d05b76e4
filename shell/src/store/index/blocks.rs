//! Where each logged message lies: per segment a dense table by sequence, 12 bytes an entry.

use mast_core::time::Wall;
use std::collections::{BTreeMap, VecDeque};

/// Set in [`Entry::size`]: the entry is a message that is still needed.
pub const LIVE: u32 = 1 << 31;
/// Set in [`Entry::size`]: it was spilled, and belongs to the sessions it was spilled for alone.
pub const SPILLED: u32 = 1 << 30;
/// Set in [`Entry::size`]: it expires; when, stands in the block's list.
const EXPIRES: u32 = 1 << 29;
const SIZE: u32 = EXPIRES - 1;

/// One sequence of a segment. Keys written and messages no longer needed leave an entry that is not live.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    offset: u32,
    size: u32,
    topic: u32,
}

/// What is known of one live message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Segment that holds it.
    pub segment: u64,
    /// Offset of its record there.
    pub offset: u32,
    /// Bytes of topic, properties and payload.
    pub size: u32,
    /// Its topic; of no meaning if it was spilled.
    pub topic: u32,
    /// It was spilled.
    pub spilled: bool,
    /// When it expires.
    pub expires: Option<Wall>,
}

#[derive(Debug)]
struct Block {
    base: u64,
    segment: u64,
    entries: Vec<Entry>,
    /// Index in `entries` and expiry, ascending.
    expires: Vec<(u32, Wall)>,
}

impl Block {
    fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    fn place(&self, ix: usize) -> Option<Place> {
        let entry = self.entries.get(ix)?;
        if entry.size & LIVE == 0 {
            return None;
        }
        let expires = if entry.size & EXPIRES == 0 {
            None
        } else {
            let found = self.expires.binary_search_by_key(&(ix as u32), |e| e.0);
            found.ok().map(|i| self.expires[i].1)
        };
        Some(Place {
            segment: self.segment,
            offset: entry.offset,
            size: entry.size & SIZE,
            topic: entry.topic,
            spilled: entry.size & SPILLED != 0,
            expires,
        })
    }

    fn set(&mut self, ix: usize, place: &Place) {
        let mut size = place.size & SIZE | LIVE;
        size |= if place.spilled { SPILLED } else { 0 };
        if let Some(at) = place.expires {
            size |= EXPIRES;
            match self.expires.binary_search_by_key(&(ix as u32), |e| e.0) {
                Ok(i) => self.expires[i].1 = at,
                Err(i) => self.expires.insert(i, (ix as u32, at)),
            }
        }
        self.entries[ix] = Entry { offset: place.offset, size, topic: place.topic };
    }
}

/// All live messages by sequence.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Ascending and without overlap.
    blocks: VecDeque<Block>,
    /// Messages that were moved out of a segment under cleaning; few, or cleaning would not pay.
    moved: BTreeMap<u64, Place>,
}

impl Blocks {
    /// Begins the table of `segment`, whose first sequence is `base`. Entries of an older block from
    /// `base` on move to it with `shift` added to their offsets: they were copied there.
    pub fn begin(&mut self, segment: u64, base: u64, shift: i64) {
        let mut block = Block { base, segment, entries: Vec::new(), expires: Vec::new() };
        if let Some(last) = self.blocks.back_mut()
            && last.end() > base
        {
            let keep = base.saturating_sub(last.base) as usize;
            block.entries = last.entries.split_off(keep);
            for entry in &mut block.entries {
                entry.offset = (i64::from(entry.offset) + shift) as u32;
            }
            let cut = last.expires.partition_point(|e| (e.0 as usize) < keep);
            block.expires = last.expires.split_off(cut);
            for expiry in &mut block.expires {
                expiry.0 -= keep as u32;
            }
        }
        self.blocks.push_back(block);
    }

    /// Frees spare memory of the newest block: its segment is sealed.
    pub fn seal(&mut self) {
        if let Some(block) = self.blocks.back_mut() {
            block.entries.shrink_to_fit();
            block.expires.shrink_to_fit();
        }
    }

    /// Enters a message of the newest segment; its sequence is above all others'.
    pub fn push(&mut self, seq: u64, place: &Place) {
        let Some(block) = self.blocks.back_mut() else { return };
        let ix = seq.saturating_sub(block.base) as usize;
        if ix >= block.entries.len() {
            if ix >= block.entries.capacity() {
                // Growth by a quarter instead of doubling keeps the memory per message low.
                block.entries.reserve_exact((ix + 1 - block.entries.len()).max(block.entries.len() / 4 + 64));
            }
            block.entries.resize(ix + 1, Entry::default());
        }
        block.set(ix, place);
    }

    /// Enters a message that was moved, in place of its old entry; returns that.
    pub fn relocate(&mut self, seq: u64, place: Place) -> Option<Place> {
        let old = self.remove(seq);
        self.moved.insert(seq, place);
        old
    }

    fn block_of(&self, seq: u64) -> Option<usize> {
        let i = self.blocks.partition_point(|b| b.base <= seq).checked_sub(1)?;
        (seq < self.blocks[i].end()).then_some(i)
    }

    /// The live message with this sequence.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<Place> {
        if let Some(i) = self.block_of(seq) {
            let block = &self.blocks[i];
            if let Some(place) = block.place((seq - block.base) as usize) {
                return Some(place);
            }
        }
        if self.moved.is_empty() { None } else { self.moved.get(&seq).copied() }
    }

    /// Forgets a message.
    pub fn remove(&mut self, seq: u64) -> Option<Place> {
        if let Some(i) = self.block_of(seq) {
            let block = &mut self.blocks[i];
            let ix = (seq - block.base) as usize;
            if let Some(place) = block.place(ix) {
                block.entries[ix].size &= !LIVE;
                return Some(place);
            }
        }
        self.moved.remove(&seq)
    }

    /// Forgets a removed segment's table. Its live messages must have been moved.
    pub fn drop_segment(&mut self, segment: u64) {
        self.blocks.retain(|b| b.segment != segment);
    }

    /// Sequences of the live messages that lie in `segment`, ascending.
    #[must_use]
    pub fn live_in(&self, segment: u64) -> Vec<u64> {
        let mut seqs: Vec<u64> =
            self.moved.iter().filter(|(_, p)| p.segment == segment).map(|(&s, _)| s).collect();
        for block in self.blocks.iter().filter(|b| b.segment == segment) {
            let live = block.entries.iter().enumerate().filter(|(_, e)| e.size & LIVE != 0);
            seqs.extend(live.map(|(i, _)| block.base + i as u64));
        }
        seqs.sort_unstable();
        seqs
    }

    /// The first live message above `after` and not above `upto`, looking at no more than `budget` entries.
    ///
    /// # Errors
    /// The sequence reached, once the budget is used up.
    pub fn next(&self, after: u64, upto: u64, budget: &mut u32) -> Result<Option<(u64, Place)>, u64> {
        let moved = self.moved.range(after.saturating_add(1)..).next().filter(|m| *m.0 <= upto);
        let limit = moved.map_or(upto, |m| *m.0);
        let mut i = self.blocks.partition_point(|b| b.end() <= after.saturating_add(1));
        while let Some(block) = self.blocks.get(i) {
            let mut seq = block.base.max(after.saturating_add(1));
            while seq < block.end() && seq <= limit {
                if *budget == 0 {
                    return Err(seq - 1);
                }
                *budget -= 1;
                if let Some(place) = block.place((seq - block.base) as usize) {
                    return Ok(Some((seq, place)));
                }
                seq += 1;
            }
            if block.end() > limit {
                break;
            }
            i += 1;
        }
        Ok(moved.map(|(seq, place)| (*seq, *place)))
    }

    /// Bytes of memory in use, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let dense: usize = self
            .blocks
            .iter()
            .map(|b| {
                b.entries.capacity() * size_of::<Entry>() + b.expires.capacity() * size_of::<(u32, Wall)>()
            })
            .sum();
        dense + self.moved.len() * (size_of::<Place>() + 16)
    }
}
