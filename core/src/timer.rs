//! The timers of a shard: a hierarchical wheel of four levels with 64 slots each.
//!
//! Timers are lazy: there is no handle and no cancelling. The owner looks, when one fires, whether it is
//! still due and arms another if not, so that a keep-alive costs nothing per packet.

use crate::time::Mono;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A tick is 2^14 µs (16.4 ms): far within the 0.5 s that keep-alive allows.
const TICK_BITS: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// A slot keeps the memory for this many timers after it was emptied.
const KEEP: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at: u64,
    /// Order of insertion.
    nth: u64,
    item: T,
}

impl<T> Entry<T> {
    fn order(&self) -> (u64, u64) {
        (self.at, self.nth)
    }
}

/// The earlier entry is the greater one, as the heap wants it.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<T> Eq for Entry<T> {}

#[derive(Clone, Debug)]
struct Slot<T> {
    entries: Vec<Entry<T>>,
    /// The least `at` in it; `u64::MAX` if empty.
    earliest: u64,
}

impl<T> Slot<T> {
    const fn new() -> Slot<T> {
        Slot { entries: Vec::new(), earliest: u64::MAX }
    }

    fn push(&mut self, entry: Entry<T>) {
        self.earliest = self.earliest.min(entry.at);
        self.entries.push(entry);
    }

    /// Takes the entries; memory for a few stays.
    fn drain_into(&mut self, due: &mut Vec<Entry<T>>) {
        self.earliest = u64::MAX;
        due.append(&mut self.entries);
        self.entries.shrink_to(KEEP);
    }

    fn take(&mut self) -> Vec<Entry<T>> {
        self.earliest = u64::MAX;
        core::mem::take(&mut self.entries)
    }
}

/// One level: slot `i` has the timers whose tick has the digit `i` at this level and agrees with the wheel's
/// place in all higher digits.
#[derive(Clone, Debug)]
struct Level<T> {
    occupied: u64,
    slots: [Slot<T>; SLOTS],
}

/// Items that become due at a point of time each.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    /// Timers of the tick that `place` is in, and of earlier ones. A heap, because `expire` may be called many
    /// times within a tick.
    current: BinaryHeap<Entry<T>>,
    levels: [Level<T>; LEVELS],
    /// Timers beyond the 76 hours (2^24 ticks) that `place` is in; looked through when these end.
    far: Slot<T>,
    /// The tick up to which the wheel has advanced.
    place: u64,
    /// Least `at` of all timers; `u64::MAX` without any.
    earliest: u64,
    count: usize,
    inserted: u64,
    /// Reused by `expire`.
    due: Vec<Entry<T>>,
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel at the time `start`.
    #[must_use]
    pub fn new(start: Mono) -> Wheel<T> {
        let level = |_| Level { occupied: 0, slots: [const { Slot::new() }; SLOTS] };
        Wheel {
            current: BinaryHeap::new(),
            levels: [0; LEVELS].map(level),
            far: Slot::new(),
            place: start.0 >> TICK_BITS,
            earliest: u64::MAX,
            count: 0,
            inserted: 0,
            due: Vec::new(),
        }
    }

    /// Arms a timer. If `at` has passed, it fires at the next [`expire`](Self::expire). O(1).
    pub fn insert(&mut self, at: Mono, item: T) {
        self.count += 1;
        self.inserted += 1;
        self.earliest = self.earliest.min(at.0);
        self.put(Entry { at: at.0, nth: self.inserted, item });
    }

    fn put(&mut self, entry: Entry<T>) {
        let tick = entry.at >> TICK_BITS;
        if tick <= self.place {
            return self.current.push(entry);
        }
        let level = ((tick ^ self.place).ilog2() / SLOT_BITS) as usize;
        match self.levels.get_mut(level) {
            Some(l) => {
                let slot = digit(tick, level);
                l.occupied |= 1 << slot;
                l.slots[slot].push(entry);
            }
            None => self.far.push(entry),
        }
    }

    /// When to call [`expire`](Self::expire) next: in the last microsecond of the earliest timer's tick, so
    /// that all timers of a tick share a wake-up. `None` without timers. O(1).
    #[must_use]
    pub fn next_wake(&self) -> Option<Mono> {
        (self.count > 0).then_some(Mono(self.earliest | ((1 << TICK_BITS) - 1)))
    }

    /// Appends all timers with `at <= now` to `out`, ordered by `at`, then by insertion. O(1) if there is
    /// none; otherwise in proportion to the timers that are due (n log n) or
    /// change level, however far `now` jumps.
    pub fn expire(&mut self, now: Mono, out: &mut Vec<(Mono, T)>) {
        if self.count == 0 || now.0 < self.earliest {
            return;
        }
        let mut due = core::mem::take(&mut self.due);
        self.advance(now.0, &mut due);
        while self.current.peek().is_some_and(|e| e.at <= now.0) {
            due.extend(self.current.pop());
        }
        // `nth` differs for all, so the unstable sort has one outcome.
        due.sort_unstable_by_key(Entry::order);
        out.extend(due.iter().map(|e| (Mono(e.at), e.item)));
        self.count -= due.len();
        due.clear();
        due.shrink_to(KEEP);
        if self.current.is_empty() {
            self.current.shrink_to(KEEP);
        }
        self.due = due;
        self.earliest = self.find_earliest();
    }

    /// Moves the wheel to `now`: what is due goes to `due`, what now shares more digits with the wheel's
    /// place moves to a lower level.
    fn advance(&mut self, now: u64, due: &mut Vec<Entry<T>>) {
        let target = now >> TICK_BITS;
        if target <= self.place {
            return;
        }
        let top = ((target ^ self.place).ilog2() / SLOT_BITS) as usize;
        self.place = target;
        for level in 0..LEVELS.min(top + 1) {
            // Below the highest digit that changes, everything lies behind; at it, the lower slots.
            let behind = if level < top { u64::MAX } else { (1 << digit(target, level)) - 1 };
            let l = &mut self.levels[level];
            let mut slots = l.occupied & behind;
            l.occupied &= !behind;
            while slots != 0 {
                l.slots[slots.trailing_zeros() as usize].drain_into(due);
                slots &= slots - 1;
            }
        }
        let mixed = match self.levels.get_mut(top) {
            Some(l) => {
                let slot = digit(target, top);
                l.occupied &= !(1 << slot);
                &mut l.slots[slot]
            }
            None => &mut self.far,
        };
        let mut entries = mixed.take();
        for entry in entries.drain(..) {
            if entry.at <= now { due.push(entry) } else { self.put(entry) }
        }
    }

    fn find_earliest(&self) -> u64 {
        if let Some(first) = self.current.peek() {
            return first.at;
        }
        let first =
            |l: &Level<T>| (l.occupied != 0).then(|| l.slots[l.occupied.trailing_zeros() as usize].earliest);
        // Every timer of a level is earlier than all of the next one.
        self.levels.iter().find_map(first).unwrap_or(self.far.earliest)
    }

    /// Timers armed and not yet fired.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without timers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

fn digit(tick: u64, level: usize) -> usize {
    (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS
}
