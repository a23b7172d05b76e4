//! Positions in the log: a vector of one sequence per partition, also where there is one partition.

use smallvec::SmallVec;

/// A partition of the log. The embedded store has partition 0 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

/// A sequence number in one partition: 1 is the first record, 0 lies before everything.
/// Sequences grow by commit order; numbers may be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// A vector position: for each partition the last sequence that it covers. A partition that is not
/// listed stands at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Sorted by partition, no zero entries.
    parts: SmallVec<[(Partition, Seq); 1]>,
}

impl Position {
    /// Before everything.
    #[must_use]
    pub fn start() -> Position {
        Position::default()
    }

    /// At `seq` of `partition`, at the start elsewhere.
    #[must_use]
    pub fn at(partition: Partition, seq: Seq) -> Position {
        let mut position = Position::start();
        position.raise(partition, seq);
        position
    }

    /// The sequence covered in `partition`.
    #[must_use]
    pub fn get(&self, partition: Partition) -> Seq {
        self.parts.iter().find(|(p, _)| *p == partition).map_or(Seq(0), |(_, s)| *s)
    }

    /// True if this position covers `seq` of `partition`.
    #[must_use]
    pub fn covers(&self, partition: Partition, seq: Seq) -> bool {
        seq <= self.get(partition)
    }

    /// Moves `partition` forward to `seq`; never backward.
    pub fn raise(&mut self, partition: Partition, seq: Seq) {
        if seq == Seq(0) {
            return;
        }
        match self.parts.binary_search_by_key(&partition, |(p, _)| *p) {
            Ok(i) => self.parts[i].1 = self.parts[i].1.max(seq),
            Err(i) => self.parts.insert(i, (partition, seq)),
        }
    }

    /// Moves `partition` back to `seq`; never forward.
    pub fn lower(&mut self, partition: Partition, seq: Seq) {
        if let Ok(i) = self.parts.binary_search_by_key(&partition, |(p, _)| *p) {
            if seq == Seq(0) {
                self.parts.remove(i);
            } else {
                self.parts[i].1 = self.parts[i].1.min(seq);
            }
        }
    }

    /// True if this position covers all that `other` covers.
    #[must_use]
    pub fn covers_all(&self, other: &Position) -> bool {
        other.parts.iter().all(|(p, s)| self.covers(*p, *s))
    }

    /// Lowers this position to the smaller of both in every partition: what two readers still need.
    pub fn lower_to(&mut self, other: &Position) {
        for (partition, seq) in &mut self.parts {
            *seq = (*seq).min(other.get(*partition));
        }
        self.parts.retain(|(_, seq)| *seq > Seq(0));
    }

    /// The entries, sorted by partition.
    pub fn iter(&self) -> impl Iterator<Item = (Partition, Seq)> + '_ {
        self.parts.iter().copied()
    }
}
