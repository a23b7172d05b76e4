//! Draws: numbers that follow from a seed and from nothing else.

use mast_core::rng::Rng;

/// A stream of draws for one purpose.
#[derive(Clone, Debug)]
pub struct Draw(Rng);

impl Draw {
    /// The stream `purpose` of a seed.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Draw {
        let mut mixed = Rng::new(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Draw(Rng::new(mixed.next_u64()))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// From `low` to `high`, both possible.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    /// True in `percent` of 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A delay up to `max`: usually short, sometimes long.
    pub fn delay(&mut self, max: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            7 => self.below(max + 1),
            _ => self.below(max / 8 + 1),
        }
    }

    /// The generator itself, for what takes one.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.0
    }
}
