//! What one subscriber got from one publisher: what is missing, came twice, or came out of order.

/// Messages by number.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    seen: Vec<u64>,
    unique: u64,
    highest: Option<u64>,
    pub duplicates: u64,
    pub reordered: u64,
}

impl Ledger {
    /// Number `seq` came.
    pub fn record(&mut self, seq: u64) {
        let (word, bit) = ((seq / 64) as usize, 1u64 << (seq % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.unique += 1;
        match self.highest {
            Some(highest) if seq < highest => self.reordered += 1,
            Some(_) | None => self.highest = Some(seq),
        }
    }

    /// How many different ones came.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Adds what another subscriber of the same group got: together they get each message once.
    pub fn join(&mut self, other: &Ledger) {
        if self.seen.len() < other.seen.len() {
            self.seen.resize(other.seen.len(), 0);
        }
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen) {
            self.duplicates += u64::from((*mine & theirs).count_ones());
            *mine |= theirs;
        }
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.unique = self.seen.iter().map(|w| u64::from(w.count_ones())).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_apart() {
        let mut ledger = Ledger::default();
        for seq in [0, 1, 3, 2, 2, 100] {
            ledger.record(seq);
        }
        assert_eq!((ledger.unique(), ledger.duplicates, ledger.reordered), (5, 1, 1));
        let mut other = Ledger::default();
        for seq in [4, 100, 200] {
            other.record(seq);
        }
        ledger.join(&other);
        assert_eq!((ledger.unique(), ledger.duplicates, ledger.reordered), (7, 2, 1));
    }
}
