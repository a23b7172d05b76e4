//! Level names of wildcard filters, each stored once and counted.
//!
//! A level of a topic that is not found here occurs in no wildcard filter: that ends a branch of the match
//! with one probe.

use super::hash::Keyed;
use super::slab::Slab;
use super::text_table::TextTable;
use smallvec::SmallVec;

/// One level name. 16 bytes fit inline, which most names do.
#[derive(Clone, Debug, Default)]
struct Level {
    text: SmallVec<[u8; 16]>,
    /// Edges of the trie that carry this name.
    edges: u32,
}

/// The level names of one index.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    names: Slab<Level>,
    by_text: TextTable,
}

impl Levels {
    pub(super) const fn new() -> Levels {
        Levels { names: Slab::new(), by_text: TextTable::new() }
    }

    /// The number of a name, if any edge carries it.
    pub(super) fn find(&self, hash: &Keyed, text: &[u8]) -> Option<u32> {
        self.by_text.find(hash.bytes(text), |id| self.names.get(id).text.as_slice() == text)
    }

    /// The number of a name, for one more edge.
    pub(super) fn acquire(&mut self, hash: &Keyed, text: &[u8]) -> u32 {
        if let Some(id) = self.find(hash, text) {
            self.names.get_mut(id).edges += 1;
            return id;
        }
        let id = self.names.add(Level { text: SmallVec::from_slice(text), edges: 1 });
        self.by_text.insert(hash.bytes(text), id);
        id
    }

    /// Gives up one edge's hold on a name.
    pub(super) fn release(&mut self, hash: &Keyed, id: u32) {
        let level = self.names.get_mut(id);
        level.edges -= 1;
        if level.edges == 0 {
            self.by_text.remove(hash.bytes(&level.text), id);
            self.names.take(id);
        }
    }

    /// Different names held.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let long = |l: &Level| if l.text.spilled() { l.text.capacity() } else { 0 };
        self.names.heap_bytes()
            + self.names.places().iter().map(long).sum::<usize>()
            + self.by_text.heap_bytes()
    }
}
