//! Password checks off the I/O threads: bounded in parallel and in the queue, with a cache of successes.
//!
//! A check of an argon2id password takes about 50 ms of CPU and 46 MiB. So few run at a time, a bounded number
//! waits, and the rest is told that the broker is busy rather than being let pile up.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use aws_lc_rs::{hmac, rand};
use tokio::{sync::Semaphore, time::Instant};
use zeroize::Zeroizing;

use super::password_file::PasswordFile;

/// The answer to a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    Accepted,
    Refused,
    /// Too many checks wait already. The client should come again later.
    Busy,
}

/// Bounds of a [`PasswordVerifier`].
#[derive(Debug, Clone, Copy)]
pub struct VerifierLimits {
    /// Checks at the same time.
    pub parallel: NonZeroUsize,
    /// Checks that wait.
    pub queue: usize,
    /// How long a success is remembered; zero: never.
    pub cache_ttl: Duration,
    /// How many successes are remembered.
    pub cache_entries: usize,
}

impl VerifierLimits {
    /// From the configuration; `auth.hash_parallel` 0 is one less than there are cores.
    pub fn from_config(auth: &crate::config::Auth) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let automatic = NonZeroUsize::new(cores.saturating_sub(1)).unwrap_or(NonZeroUsize::MIN);
        Self {
            parallel: NonZeroUsize::new(auth.hash_parallel).unwrap_or(automatic),
            queue: auth.hash_queue,
            cache_ttl: auth.hash_cache_ttl,
            cache_entries: auth.hash_cache_entries,
        }
    }
}

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct VerifierCounts {
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub busy: AtomicU64,
    pub cache_hits: AtomicU64,
}

/// Checks passwords against the current password file.
pub struct PasswordVerifier {
    file: ArcSwap<Loaded>,
    limits: VerifierLimits,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    cache: Mutex<Cache>,
    pub counts: VerifierCounts,
}

/// A file and the number of its load: a check that began before a reload must not fill the cache after it.
struct Loaded {
    file: PasswordFile,
    generation: u64,
}

#[derive(Default)]
struct Cache {
    generation: u64,
    key: Option<hmac::Key>,
    known: HashMap<[u8; 32], Instant>,
    /// In the order of insertion, which with one lifetime for all is the order of expiry.
    order: VecDeque<[u8; 32]>,
}

/// Random bytes were not to be had.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct NoRandom;

impl Cache {
    fn reset(&mut self, generation: u64) -> Result<(), NoRandom> {
        let mut secret = Zeroizing::new([0u8; 32]);
        rand::fill(secret.as_mut()).map_err(|_| NoRandom)?;
        *self = Self {
            generation,
            key: Some(hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref())),
            ..Self::default()
        };
        Ok(())
    }

    fn digest(&self, user: &str, password: &[u8]) -> Option<[u8; 32]> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        context.update(&u64::try_from(user.len()).ok()?.to_be_bytes());
        context.update(user.as_bytes());
        context.update(password);
        context.sign().as_ref().try_into().ok()
    }

    fn knows(&self, digest: &[u8; 32], now: Instant) -> bool {
        self.known.get(digest).is_some_and(|until| now < *until)
    }

    fn remember(&mut self, digest: [u8; 32], now: Instant, limits: &VerifierLimits) {
        if limits.cache_entries == 0 || limits.cache_ttl.is_zero() {
            return;
        }
        while let Some(oldest) = self.order.front() {
            let expired = self.known.get(oldest).is_none_or(|until| *until <= now);
            if !expired && self.known.len() < limits.cache_entries {
                break;
            }
            self.known.remove(oldest);
            self.order.pop_front();
        }
        // A success that is known is not prolonged: a changed file would otherwise never be asked again.
        if let std::collections::hash_map::Entry::Vacant(slot) = self.known.entry(digest) {
            slot.insert(now + limits.cache_ttl);
            self.order.push_back(digest);
        }
    }
}

/// Gives a place in the queue back when its check is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PasswordVerifier {
    pub fn new(file: PasswordFile, limits: VerifierLimits) -> Result<Self, NoRandom> {
        let mut cache = Cache::default();
        cache.reset(0)?;
        Ok(Self {
            file: ArcSwap::from_pointee(Loaded { file, generation: 0 }),
            running: Arc::new(Semaphore::new(limits.parallel.get())),
            limits,
            waiting: AtomicUsize::new(0),
            cache: Mutex::new(cache),
            counts: VerifierCounts::default(),
        })
    }

    /// Puts another password file in place and forgets remembered successes.
    pub fn replace(&self, file: PasswordFile) -> Result<(), NoRandom> {
        let mut cache = self.cache();
        let generation = cache.generation + 1;
        cache.reset(generation)?;
        self.file.store(Arc::new(Loaded { file, generation }));
        Ok(())
    }

    /// Checks a login. Await it from any runtime; the hash itself runs on a blocking thread.
    pub async fn verify(self: &Arc<Self>, user: &str, password: &[u8]) -> Login {
        let login = self.check(user, password).await;
        let counter = match login {
            Login::Accepted => &self.counts.accepted,
            Login::Refused => &self.counts.refused,
            Login::Busy => &self.counts.busy,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        login
    }

    async fn check(self: &Arc<Self>, user: &str, password: &[u8]) -> Login {
        if self.is_known(user, password) {
            return Login::Accepted;
        }
        let permit = match Arc::clone(&self.running).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let place = Place(&self.waiting);
                if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.limits.queue {
                    return Login::Busy;
                }
                let permit = Arc::clone(&self.running).acquire_owned().await;
                drop(place);
                // A fleet that shares credentials waits for one hash, not for one each.
                if self.is_known(user, password) {
                    return Login::Accepted;
                }
                match permit {
                    Ok(permit) => permit,
                    // Only a closed semaphore fails, and nothing closes it.
                    Err(_) => return Login::Busy,
                }
            }
        };
        let loaded = self.file.load_full();
        let generation = loaded.generation;
        let digest = self.cache().digest(user, password);
        let (user, password) = (user.to_owned(), Zeroizing::new(password.to_vec()));
        let checked = tokio::task::spawn_blocking(move || {
            // The permit comes back with the answer: it is held until the hash is done, even when the client is gone
            // by then, and until the cache knows, so that the next in the queue finds it there.
            (loaded.file.verify(&user, &password), permit)
        })
        .await;
        match checked {
            Ok((true, _permit)) => {
                let mut cache = self.cache();
                if let Some(digest) = digest.filter(|_| cache.generation == generation) {
                    cache.remember(digest, Instant::now(), &self.limits);
                }
                Login::Accepted
            }
            Ok((false, _)) | Err(_) => Login::Refused,
        }
    }

    /// Whether this very login succeeded lately.
    fn is_known(&self, user: &str, password: &[u8]) -> bool {
        let cache = self.cache();
        let known = cache.digest(user, password).is_some_and(|d| cache.knows(&d, Instant::now()));
        if known {
            self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
        }
        known
    }

    /// Checks that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // Every state of the cache is a valid one.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::hash::StoredHash;

    fn file(password: &[u8]) -> PasswordFile {
        let hash = bcrypt::hash(password, 4).ok().and_then(|t| StoredHash::parse(&t).ok());
        let text = hash.map(|h| format!("ann:{h}")).unwrap_or_default();
        PasswordFile::parse(&text).unwrap_or_default()
    }

    fn verifier(parallel: usize, queue: usize, entries: usize) -> Arc<PasswordVerifier> {
        let limits = VerifierLimits {
            parallel: NonZeroUsize::new(parallel).unwrap_or(NonZeroUsize::MIN),
            queue,
            cache_ttl: Duration::from_secs(300),
            cache_entries: entries,
        };
        Arc::new(PasswordVerifier::new(file(b"secret"), limits).expect("random bytes"))
    }

    fn hits(v: &PasswordVerifier) -> u64 {
        v.counts.cache_hits.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_success_is_remembered_and_a_failure_is_not() {
        let v = verifier(1, 8, 10);
        assert_eq!(v.verify("ann", b"wrong").await, Login::Refused);
        assert_eq!(v.verify("ann", b"wrong").await, Login::Refused);
        assert_eq!(v.verify("eve", b"secret").await, Login::Refused);
        assert_eq!(hits(&v), 0);
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        assert_eq!(hits(&v), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_expires() {
        let v = verifier(1, 8, 10);
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        assert_eq!(hits(&v), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        assert_eq!(hits(&v), 1, "the use did not prolong it");
    }

    #[tokio::test]
    async fn a_reload_forgets_what_was_accepted_before() {
        let v = verifier(1, 8, 10);
        assert_eq!(v.verify("ann", b"secret").await, Login::Accepted);
        v.replace(file(b"other")).expect("random bytes");
        assert_eq!(v.verify("ann", b"secret").await, Login::Refused);
        assert_eq!(v.verify("ann", b"other").await, Login::Accepted);
    }

    #[tokio::test]
    async fn beyond_the_queue_the_answer_is_busy_and_waiters_get_their_turn() {
        let v = verifier(1, 1, 0);
        let held = Arc::clone(&v.running).acquire_owned().await.expect("open semaphore");
        let waiter = tokio::spawn({
            let v = Arc::clone(&v);
            async move { v.verify("ann", b"secret").await }
        });
        while v.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(v.verify("ann", b"secret").await, Login::Busy);
        drop(held);
        assert_eq!(waiter.await.expect("no panic"), Login::Accepted);
        assert_eq!(v.waiting(), 0);
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_waiting_frees_its_place() {
        let v = verifier(1, 1, 0);
        let held = Arc::clone(&v.running).acquire_owned().await.expect("open semaphore");
        let gone = tokio::time::timeout(Duration::from_millis(1), v.verify("ann", b"secret")).await;
        assert!(gone.is_err());
        assert_eq!(v.waiting(), 0);
        drop(held);
    }

    #[tokio::test]
    async fn those_who_wait_profit_from_the_one_who_was_first() {
        let v = verifier(1, 8, 10);
        let held = Arc::clone(&v.running).acquire_owned().await.expect("open semaphore");
        let logins: Vec<_> = (0..4)
            .map(|_| {
                let v = Arc::clone(&v);
                tokio::spawn(async move { v.verify("ann", b"secret").await })
            })
            .collect();
        while v.waiting() < 4 {
            tokio::task::yield_now().await;
        }
        drop(held);
        for login in logins {
            assert_eq!(login.await.expect("no panic"), Login::Accepted);
        }
        assert_eq!(hits(&v), 3);
    }

    #[test]
    fn the_cache_never_grows_past_its_bound() {
        let limits = VerifierLimits {
            parallel: NonZeroUsize::MIN,
            queue: 0,
            cache_ttl: Duration::from_secs(1),
            cache_entries: 3,
        };
        let mut cache = Cache::default();
        let now = Instant::now();
        for i in 0..50u8 {
            cache.remember([i; 32], now, &limits);
            assert!(cache.known.len() <= 3 && cache.order.len() <= 3);
        }
        assert!(cache.knows(&[49; 32], now) && !cache.knows(&[0; 32], now));
    }
}
