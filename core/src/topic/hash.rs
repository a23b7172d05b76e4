//! The keyed hash of the topic tables. Levels, filters and topics are chosen by clients, so every
//! constant of the function comes from the seed: nobody who doesn't know it can aim for collisions.
//! (A multiply-fold hash with public constants has inputs that collide under every seed.)

use crate::rng::Rng;

/// The secret constants of one table.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    key: [u64; 4],
}

impl Keyed {
    pub(super) fn new(seed: u64) -> Keyed {
        let mut rng = Rng::new(seed);
        Keyed { key: [0; 4].map(|_| rng.next_u64()) }
    }

    /// The hash of a string: one 128-bit multiplication for each 16 bytes and one to finish.
    pub(super) fn bytes(&self, text: &[u8]) -> u64 {
        let [k0, k1, k2, k3] = self.key;
        let len = text.len();
        let mut state = k2;
        let mut rest = text;
        while rest.len() > 16 {
            state = fold(word8(rest, 0) ^ k0 ^ state, word8(rest, 8) ^ k1);
            rest = &rest[16..];
        }
        let (a, b) = match rest.len() {
            n @ 8.. => (word8(rest, 0), word8(rest, n - 8)),
            n @ 4.. => (word4(rest, 0), word4(rest, n - 4)),
            0 => (0, 0),
            n => (u64::from(rest[0]) << 8 | u64::from(rest[n / 2]), u64::from(rest[n - 1])),
        };
        fold(fold(a ^ k0 ^ state, b ^ k1) ^ k3, len as u64 ^ k2)
    }

    /// The hash of an edge of the trie.
    pub(super) fn pair(&self, parent: u32, level: u32) -> u64 {
        let [k0, k1, k2, _] = self.key;
        fold(fold((u64::from(parent) << 32 | u64::from(level)) ^ k0, k1) ^ k2, k1)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

fn word8(text: &[u8], at: usize) -> u64 {
    text.get(at..).and_then(|t| t.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
}

fn word4(text: &[u8], at: usize) -> u64 {
    text.get(at..).and_then(|t| t.first_chunk()).map_or(0, |w| u64::from(u32::from_le_bytes(*w)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;

    #[test]
    fn strings_of_all_short_lengths_get_different_hashes() {
        let hash = Keyed::new(7);
        let mut seen = BTreeSet::new();
        for n in 0..100 {
            for c in ["a", "b", "/"] {
                if n > 0 || c == "a" {
                    assert!(seen.insert(hash.bytes(c.repeat(n).as_bytes())), "{c} x {n}");
                }
            }
        }
        for n in 0..50_000 {
            assert!(seen.insert(hash.bytes(format!("site/{n}").as_bytes())));
        }
    }

    #[test]
    fn the_seed_changes_every_hash() {
        let (a, b) = (Keyed::new(1), Keyed::new(2));
        for text in ["", "a", "abc", "abcdefgh", "a/long/topic/with/many/levels"] {
            assert_ne!(a.bytes(text.as_bytes()), b.bytes(text.as_bytes()), "{text}");
        }
        assert_ne!(a.pair(1, 2), b.pair(1, 2));
        assert_ne!(a.pair(1, 2), a.pair(2, 1));
    }

    #[test]
    fn low_and_high_bits_of_the_hashes_of_numbered_names_spread_evenly() {
        let hash = Keyed::new(99);
        let (mut low, mut high) = ([0u32; 256], [0u32; 128]);
        for n in 0..65_536u32 {
            let h = hash.bytes(format!("d{n:06}").as_bytes());
            low[(h & 255) as usize] += 1;
            high[(h >> 57) as usize] += 1;
        }
        assert!(low.iter().all(|&n| (150..370).contains(&n)), "{low:?}");
        assert!(high.iter().all(|&n| (350..680).contains(&n)), "{high:?}");
    }
}
