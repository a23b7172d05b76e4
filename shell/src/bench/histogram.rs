//! Latencies in buckets whose width grows with the value: 3 % of it at most, from 1 µs to days, in a few KiB.

/// Buckets of each power of two.
const SUB: u64 = 32;
/// Bits of `SUB`.
const BITS: u32 = 5;
/// Enough for all of u64.
const BUCKETS: usize = (64 - BITS as usize) * SUB as usize + SUB as usize;

/// Counts of latencies, in µs.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

fn bucket(micros: u64) -> usize {
    if micros < SUB {
        return micros as usize;
    }
    let shift = 63 - micros.leading_zeros() - BITS;
    ((u64::from(shift) + 1) * SUB + ((micros >> shift) - SUB)) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let (row, column) = (bucket as u64 / SUB, bucket as u64 % SUB);
    if row == 0 {
        return column;
    }
    let shift = row as u32 - 1;
    (SUB + column).checked_shl(shift).map_or(u64::MAX, |low| low.saturating_add((1 << shift) - 1))
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, micros: u64) {
        self.counts[bucket(micros)] += 1;
        self.total += 1;
        self.max = self.max.max(micros);
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The latency that so many of a thousand do not exceed, in µs; 0 if there are none.
    pub fn per_mille(&self, mille: u64) -> u64 {
        let rank = (self.total * mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(at).min(self.max);
            }
        }
        self.max
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest, in µs.
    pub fn max(&self) -> u64 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_is_no_wider_than_three_percent() {
        let mut values: Vec<u64> = (0..5000).collect();
        values.extend((0..64).map(|bit| 1u64 << bit));
        values.extend([u64::MAX, u64::MAX - 1, 123_456_789]);
        for value in values {
            let at = bucket(value);
            assert!(at < BUCKETS, "{value}");
            let top = upper(at);
            assert!(top >= value && top - value <= value / 32, "{value} in {at} up to {top}");
            assert!(at == 0 || upper(at - 1) < value, "{value}");
        }
    }

    #[test]
    fn percentiles_come_from_the_ranks() {
        let mut one = Histogram::default();
        assert_eq!(one.per_mille(500), 0);
        (1..=500).for_each(|v| one.record(v));
        let mut two = Histogram::default();
        (501..=1000).for_each(|v| two.record(v));
        one.merge(&two);
        for (mille, exact) in [(500, 500), (900, 900), (990, 990), (999, 999), (1000, 1000)] {
            let got = one.per_mille(mille);
            assert!(got >= exact && got <= exact + exact / 32, "{mille}: {got}");
        }
        assert_eq!((one.total(), one.max()), (1000, 1000));
    }
}
