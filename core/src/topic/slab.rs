//! Numbered slots that are reused last-freed first, so that equal histories give equal numbers.

use alloc::vec::Vec;

/// A vector whose vacant places are listed. A vacant place holds `T::default()`.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(super) const fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    /// Stores `item` and returns its number. (2^32 items would be over 60 GB: not reached.)
    pub(super) fn add(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = item;
            return at;
        }
        // Doubling would waste a quarter of the memory on average; an eighth more costs eight moves of an
        // item over its life, and large blocks are remapped, not moved.
        if self.items.len() == self.items.capacity() && self.items.len() >= 1024 {
            self.items.reserve_exact(self.items.len() / 8);
        }
        self.items.push(item);
        (self.items.len() - 1) as u32
    }

    /// Takes the item out of an occupied place. The memory goes back when the last item goes.
    pub(super) fn take(&mut self, at: u32) -> T {
        let item = core::mem::take(&mut self.items[at as usize]);
        self.free.push(at);
        if self.free.len() == self.items.len() {
            *self = Slab::new();
        }
        item
    }

    pub(super) fn get(&self, at: u32) -> &T {
        &self.items[at as usize]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.items[at as usize]
    }

    /// Occupied places.
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// All places, the vacant ones with their default.
    pub(super) fn places(&self) -> &[T] {
        &self.items
    }

    /// Bytes of the two vectors, without what the items own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

/// Bytes of a hash table with this capacity, whose entries have `entry` bytes: 8/7 buckets rounded up to a
/// power of two, a control byte for each.
pub(super) fn table_bytes(capacity: usize, entry: usize) -> usize {
    if capacity == 0 { 0 } else { (capacity * 8 / 7).next_power_of_two() * (entry + 1) + 16 }
}

/// True if a table should be shrunk: under an eighth full, and big enough to matter. Doubling and
/// shrinking thresholds lie a factor of four apart, so the work stays amortised O(1).
pub(super) fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > 64 && len * 8 < capacity
}
