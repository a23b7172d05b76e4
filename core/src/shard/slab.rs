//! A slab with generations: dense slots, reused, each handle good for one occupant.

use alloc::vec::Vec;

/// Slots of `T`. Handles are (index, generation) pairs; the caller wraps them in its own id type.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Stores `value` and returns its (index, generation).
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        self.len += 1;
        if let Some(idx) = self.free.pop() {
            let slot = &mut self.slots[idx as usize];
            slot.1 = Some(value);
            (idx, slot.0)
        } else {
            self.slots.push((0, Some(value)));
            ((self.slots.len() - 1) as u32, 0)
        }
    }

    /// The occupant of `idx`, if it is still the one of `generation`.
    #[inline]
    pub fn get(&self, idx: u32, generation: u32) -> Option<&T> {
        match self.slots.get(idx as usize) {
            Some((g, Some(value))) if *g == generation => Some(value),
            Some(_) | None => None,
        }
    }

    /// The occupant of `idx`, if it is still the one of `generation`.
    #[inline]
    pub fn get_mut(&mut self, idx: u32, generation: u32) -> Option<&mut T> {
        match self.slots.get_mut(idx as usize) {
            Some((g, Some(value))) if *g == generation => Some(value),
            Some(_) | None => None,
        }
    }

    /// Takes the occupant out and frees the slot.
    pub fn remove(&mut self, idx: u32, generation: u32) -> Option<T> {
        let slot = self.slots.get_mut(idx as usize)?;
        if slot.0 != generation {
            return None;
        }
        let value = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1) & 0x7FFF_FFFF;
        self.free.push(idx);
        self.len -= 1;
        Some(value)
    }

    /// Occupied slots.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All occupants with index and generation, by index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        self.iter_from(0)
    }

    /// The same from an index on.
    pub fn iter_from(&self, from: u32) -> impl Iterator<Item = (u32, u32, &T)> {
        let slots = self.slots.iter().enumerate().skip(from as usize);
        slots.filter_map(|(i, (g, v))| v.as_ref().map(|v| (i as u32, *g, v)))
    }
}
