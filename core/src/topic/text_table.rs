//! A hash table from texts to slab numbers. The texts stay in the slab; the table keeps 32 bits of each
//! hash, so that it can grow without touching them: 10^6 texts would be 10^6 cache misses in one insert.

use super::slab::is_sparse;
use hashbrown::HashTable;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    at: u32,
}

/// The 64 bits the table works with. Multiplying by an odd number keeps the low bits as good as the tag's
/// and makes the high ones depend on all of it.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Numbers of texts, by the [`Keyed`](super::hash::Keyed) hash of the text.
#[derive(Clone, Debug)]
pub(super) struct TextTable {
    table: HashTable<Entry>,
}

impl TextTable {
    pub(super) const fn new() -> TextTable {
        TextTable { table: HashTable::new() }
    }

    /// The number with this hash for which `same` confirms that the texts are equal.
    pub(super) fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = hash as u32;
        self.table.find(spread(tag), |e| e.tag == tag && same(e.at)).map(|e| e.at)
    }

    /// Adds a number whose text is not in the table.
    pub(super) fn insert(&mut self, hash: u64, at: u32) {
        let tag = hash as u32;
        self.table.insert_unique(spread(tag), Entry { tag, at }, |e| spread(e.tag));
    }

    /// Removes a number; its text need not exist any more.
    pub(super) fn remove(&mut self, hash: u64, at: u32) {
        if let Ok(entry) = self.table.find_entry(spread(hash as u32), |e| e.at == at) {
            entry.remove();
        }
        if is_sparse(self.table.len(), self.table.capacity()) {
            self.table.shrink_to(self.table.len() * 2, |e| spread(e.tag));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        super::slab::table_bytes(self.table.capacity(), size_of::<Entry>())
    }
}
