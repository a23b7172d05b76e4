//! A token bucket per key (source address, user name), bounded in memory: for accepts and logins.

use std::{collections::HashMap, hash::Hash, time::Duration};

/// Rates per key. Time is passed in, counted from any fixed start.
#[derive(Debug)]
pub struct KeyedRate<K> {
    /// Time that one permit takes; zero: no bound.
    interval: Duration,
    /// How far ahead of the present a key may be.
    tolerance: Duration,
    max_keys: usize,
    /// When the permits taken so far are paid off.
    paid_until: HashMap<K, Duration>,
}

impl<K: Eq + Hash> KeyedRate<K> {
    /// `per_second` permits per key, `burst` of them at once; 0 per second means no bound. At most `max_keys` keys
    /// are remembered.
    pub fn new(per_second: u32, burst: u32, max_keys: usize) -> Self {
        let interval = if per_second == 0 { Duration::ZERO } else { Duration::from_secs(1) / per_second };
        Self { interval, tolerance: interval * burst.max(1), max_keys, paid_until: HashMap::new() }
    }

    /// Takes a permit for `key`, if there is one.
    pub fn take(&mut self, key: K, now: Duration) -> bool {
        if self.interval.is_zero() {
            return true;
        }
        if self.paid_until.len() >= self.max_keys && !self.paid_until.contains_key(&key) {
            self.paid_until.retain(|_, until| *until > now);
            // Full of keys that all owe: a flood from many sources. The global bounds deal with that one; here
            // a key that is not remembered is not held back.
            if self.paid_until.len() >= self.max_keys {
                return true;
            }
        }
        let until = self.paid_until.entry(key).or_insert(now);
        let next = (*until).max(now) + self.interval;
        let allowed = next <= now + self.tolerance;
        if allowed {
            *until = next;
        }
        allowed
    }

    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.paid_until.len()
    }

    pub fn is_empty(&self) -> bool {
        self.paid_until.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_key_gets_its_burst_and_then_its_rate() {
        let mut rate = KeyedRate::new(10, 3, 100);
        assert_eq!((0..5).filter(|_| rate.take("a", SECOND)).count(), 3);
        assert!(rate.take("b", SECOND), "other keys are not concerned");
        let later = SECOND + Duration::from_millis(100);
        assert!(rate.take("a", later) && !rate.take("a", later));
        assert_eq!((0..5).filter(|_| rate.take("a", SECOND * 60)).count(), 3, "rest does not pile up");
    }

    #[test]
    fn zero_is_no_bound_and_keys_are_bounded() {
        let mut none = KeyedRate::new(0, 0, 1);
        assert!((0..100).all(|_| none.take(1, SECOND)) && none.is_empty());
        let mut few = KeyedRate::new(1, 1, 10);
        assert!((0..100u32).all(|k| few.take(k, SECOND)));
        assert_eq!(few.len(), 10);
        assert!(few.take(100, SECOND * 5));
        assert_eq!(few.len(), 1, "paid off keys make room");
    }
}
