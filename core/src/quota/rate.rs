//! A token bucket on passed time: one second's worth may come at once. Integers only: a token is a million parts,
//! so a rate per second is a number of parts per microsecond.

use crate::time::Mono;

const PARTS: i64 = 1_000_000;

/// The bucket of one rate.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    /// Tokens per second, and most that it holds.
    limit: u64,
    /// It only counts.
    pub observe: bool,
    /// In parts; below 0 after something larger than the bucket.
    level: i64,
    at: Mono,
    /// It is filled by leases from the tenant's home shard, not by time.
    pub leased: bool,
    /// A lease is on its way.
    pub asked: bool,
    /// Tokens that are missed.
    pub want: u64,
}

impl Rate {
    /// Full, filled by time.
    pub fn new(limit: u64, observe: bool, now: Mono) -> Rate {
        let level = limit as i64 * PARTS;
        Rate { limit, observe, level, at: now, leased: false, asked: false, want: 0 }
    }

    /// Empty, filled by leases.
    pub fn leased(limit: u64, observe: bool, now: Mono) -> Rate {
        Rate { limit, observe, level: 0, at: now, leased: true, asked: false, want: 0 }
    }

    /// Another limit holds; what is in the bucket stays, as far as it fits.
    pub fn change(&mut self, limit: u64, observe: bool, now: Mono) {
        self.refill(now);
        self.limit = limit;
        self.observe = observe;
        self.level = self.level.min(self.full());
    }

    fn full(&self) -> i64 {
        self.limit as i64 * PARTS
    }

    fn refill(&mut self, now: Mono) {
        if !self.leased && now > self.at {
            let room = self.full() - self.level;
            let gained = u128::from(now.micros_since(self.at)) * u128::from(self.limit);
            self.level += i64::try_from(gained).map_or(room, |g| g.min(room));
            self.at = now;
        }
    }

    /// What must be there for `n`: more than the bucket holds passes when it is full.
    fn need(&self, n: u64) -> i64 {
        n.min(self.limit) as i64 * PARTS
    }

    /// Whether `n` may pass now. What is missing is noted in `want`.
    pub fn is_ready(&mut self, n: u64, now: Mono) -> bool {
        self.refill(now);
        let missing = self.need(n) - self.level;
        if missing <= 0 {
            return true;
        }
        // A lease is for more than one message, a twentieth of a second's worth.
        self.want = ((missing as u64).div_ceil(PARTS as u64)).max(self.limit / 20).min(self.limit.max(1));
        false
    }

    /// Microseconds until `n` may pass, if time alone decides.
    pub fn wait(&self, n: u64) -> u64 {
        let missing = (self.need(n) - self.level).max(0) as u64;
        missing.div_ceil(self.limit.max(1)).max(1)
    }

    /// Takes `n`, whatever is there.
    pub fn take(&mut self, n: u64) {
        self.level = self.level.saturating_sub((n as i64).saturating_mul(PARTS));
    }

    /// For a rate that only counts: takes `n` if it is there. False if it is not: `n` is over the rate.
    pub fn watch(&mut self, n: u64, now: Mono) -> bool {
        if self.leased {
            // Settled with the home shard: what is over comes back with its answer.
            self.take(n);
            self.want = (-self.level).max(0) as u64 / PARTS as u64;
            return true;
        }
        let ready = self.is_ready(n, now);
        if ready {
            self.take(n);
        }
        ready
    }

    /// A lease arrived.
    pub fn add(&mut self, tokens: u64) {
        self.asked = false;
        self.level = self.level.saturating_add(tokens as i64 * PARTS).min(self.full());
        // What passed meanwhile is settled too, also if nothing follows it.
        self.want = if self.observe { (-self.level).max(0) as u64 / PARTS as u64 } else { 0 };
    }

    /// Whole tokens that are there.
    pub fn tokens(&mut self, now: Mono) -> u64 {
        self.refill(now);
        (self.level / PARTS).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;
    use crate::time::Mono;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn over_any_time_no_more_passes_than_the_rate_and_one_bucket() {
        let mut rate = Rate::new(10, false, Mono(0));
        let mut passed = 0;
        for micros in (0..10 * SECOND).step_by(777) {
            if rate.is_ready(1, Mono(micros)) {
                rate.take(1);
                passed += 1;
            }
        }
        assert_eq!(passed, 10 + 99);
    }

    #[test]
    fn what_is_larger_than_the_bucket_passes_a_full_one_and_is_paid_off() {
        let mut rate = Rate::new(100, false, Mono(0));
        assert!(rate.is_ready(1_000, Mono(0)));
        rate.take(1_000);
        assert!(!rate.is_ready(1, Mono(8 * SECOND)));
        assert_eq!(rate.wait(1), SECOND + SECOND / 100);
        assert!(rate.is_ready(1, Mono(8 * SECOND + rate.wait(1))));
    }

    #[test]
    fn a_rate_that_counts_takes_only_what_is_there() {
        let mut rate = Rate::new(2, true, Mono(0));
        let passed: Vec<bool> = (0..4).map(|_| rate.watch(1, Mono(0))).collect();
        assert_eq!(passed, [true, true, false, false]);
        assert!(rate.watch(1, Mono(SECOND / 2)));
    }

    use alloc::vec::Vec;
}
