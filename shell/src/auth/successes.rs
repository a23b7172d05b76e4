//! Successes that are remembered for a while, so that a client that comes back with the very same proof is not checked
//! again. Keys are keyed digests, so that memory holds no password; failures are never remembered.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

use aws_lc_rs::{hmac, rand};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::verifier::NoRandom;

/// What is known by.
pub type Digest = [u8; 32];

/// See the module. Bounded: the oldest go first.
pub struct Successes<V> {
    key: hmac::Key,
    ttl: Duration,
    entries: usize,
    known: HashMap<Digest, (Instant, V)>,
    /// In the order of insertion, which with one lifetime for all is the order of expiry.
    order: VecDeque<Digest>,
}

impl<V: Clone> Successes<V> {
    /// With a fresh key. A `ttl` or number of `entries` of zero remembers nothing.
    pub fn new(ttl: Duration, entries: usize) -> Result<Self, NoRandom> {
        let mut secret = Zeroizing::new([0u8; 32]);
        rand::fill(secret.as_mut()).map_err(|_| NoRandom)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        Ok(Self { key, ttl, entries, known: HashMap::new(), order: VecDeque::new() })
    }

    /// The digest of some parts; each is told from its neighbours by its length.
    pub fn digest<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Digest> {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().ok()
    }

    /// What is remembered.
    pub fn get(&self, digest: &Digest, now: Instant) -> Option<V> {
        self.known.get(digest).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// Remembers a success, for `at_most` so long.
    pub fn put(&mut self, digest: Digest, value: V, now: Instant, at_most: Option<Duration>) {
        let ttl = at_most.map_or(self.ttl, |most| most.min(self.ttl));
        if self.entries == 0 || ttl.is_zero() {
            return;
        }
        while let Some(oldest) = self.order.front() {
            let expired = self.known.get(oldest).is_none_or(|(until, _)| *until <= now);
            if !expired && self.known.len() < self.entries {
                break;
            }
            self.known.remove(oldest);
            self.order.pop_front();
        }
        match self.known.entry(digest) {
            Entry::Vacant(slot) => {
                slot.insert((now + ttl, value));
                self.order.push_back(digest);
            }
            // What is known is not prolonged: what changed behind it would otherwise never be asked again.
            Entry::Occupied(mut slot) if slot.get().0 <= now => {
                slot.insert((now + ttl, value));
            }
            Entry::Occupied(_) => {}
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_memory_never_grows_past_its_bound_and_the_oldest_go() {
        let mut successes = Successes::new(Duration::from_secs(1), 3).expect("random bytes");
        let now = Instant::now();
        for i in 0..50 {
            successes.put([i; 32], i, now, None);
            assert!(successes.len() <= 3 && successes.order.len() <= 3);
        }
        assert_eq!((successes.get(&[49; 32], now), successes.get(&[0; 32], now)), (Some(49), None));
    }

    #[tokio::test]
    async fn a_success_is_forgotten_with_its_proof_and_may_be_remembered_again() {
        let mut successes = Successes::new(Duration::from_secs(60), 3).expect("random bytes");
        let now = Instant::now();
        successes.put([1; 32], 1, now, Some(Duration::from_secs(1)));
        successes.put([1; 32], 2, now, None);
        let later = now + Duration::from_secs(1);
        assert_eq!((successes.get(&[1; 32], now), successes.get(&[1; 32], later)), (Some(1), None));
        successes.put([1; 32], 3, later, None);
        assert_eq!((successes.get(&[1; 32], later), successes.len()), (Some(3), 1));
        successes.put([2; 32], 4, now, Some(Duration::ZERO));
        assert!(successes.get(&[2; 32], now).is_none(), "a proof that ends now");
    }

    #[test]
    fn parts_are_told_apart_by_their_lengths() {
        let successes: Successes<()> = Successes::new(Duration::from_secs(1), 1).expect("random bytes");
        let digest = |parts: &[&str]| successes.digest(parts.iter().map(|p| p.as_bytes()));
        assert_ne!(digest(&["a", "bc"]), digest(&["ab", "c"]));
        assert_eq!(digest(&["a", "bc"]), digest(&["a", "bc"]));
    }
}
