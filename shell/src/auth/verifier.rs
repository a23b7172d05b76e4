//! Password checks off the I/O threads: bounded in parallel and in the queue, with a cache of successes.
//!
//! A check of an argon2id password takes about 50 ms of CPU and 46 MiB. So few run at a time, a bounded number
//! waits, and the rest is told that the broker is busy rather than being let pile up.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{sync::Semaphore, time::Instant};
use zeroize::Zeroizing;

use super::{
    logins::{Checked, Logins},
    successes::{Digest, Successes},
};

/// The answer to a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// With the tenant of the user's file, if it has one.
    Accepted(Option<Arc<str>>),
    Refused,
    /// There is no such user. Finding it out took as long as a refusal.
    Unknown,
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

/// Checks passwords against the current password files.
pub struct PasswordVerifier {
    loaded: ArcSwap<Loaded>,
    limits: VerifierLimits,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    cache: Mutex<Cache>,
    pub counts: VerifierCounts,
}

/// Files and the number of their load: a check that began before a reload must not fill the cache after it.
struct Loaded {
    logins: Logins,
    generation: u64,
}

/// Successes of one load, with the tenant of the user's file.
struct Cache {
    generation: u64,
    successes: Successes<Option<Arc<str>>>,
}

/// Random bytes were not to be had.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct NoRandom;

impl Cache {
    fn new(generation: u64, limits: &VerifierLimits) -> Result<Self, NoRandom> {
        Ok(Self { generation, successes: Successes::new(limits.cache_ttl, limits.cache_entries)? })
    }

    fn digest(&self, tenant: Option<&str>, user: &str, password: &[u8]) -> Option<Digest> {
        // No tenant's name is empty.
        self.successes.digest([tenant.unwrap_or_default().as_bytes(), user.as_bytes(), password])
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
    pub fn new(logins: Logins, limits: VerifierLimits) -> Result<Self, NoRandom> {
        let cache = Cache::new(0, &limits)?;
        Ok(Self {
            loaded: ArcSwap::from_pointee(Loaded { logins, generation: 0 }),
            running: Arc::new(Semaphore::new(limits.parallel.get())),
            limits,
            waiting: AtomicUsize::new(0),
            cache: Mutex::new(cache),
            counts: VerifierCounts::default(),
        })
    }

    /// Puts other password files in place and forgets remembered successes.
    pub fn replace(&self, logins: Logins) -> Result<(), NoRandom> {
        let mut cache = self.cache();
        let generation = cache.generation + 1;
        *cache = Cache::new(generation, &self.limits)?;
        self.loaded.store(Arc::new(Loaded { logins, generation }));
        Ok(())
    }

    /// Checks a login at a door of `tenant`, see [`Logins::verify`]. Await it from any runtime; the hash itself runs on a
    /// blocking thread.
    pub async fn verify(self: &Arc<Self>, tenant: Option<&str>, user: &str, password: &[u8]) -> Login {
        let login = self.check(tenant, user, password).await;
        let counter = match login {
            Login::Accepted(_) => &self.counts.accepted,
            Login::Refused | Login::Unknown => &self.counts.refused,
            Login::Busy => &self.counts.busy,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        login
    }

    async fn check(self: &Arc<Self>, tenant: Option<&str>, user: &str, password: &[u8]) -> Login {
        if let Some(owner) = self.known(tenant, user, password) {
            return Login::Accepted(owner);
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
                if let Some(owner) = self.known(tenant, user, password) {
                    return Login::Accepted(owner);
                }
                match permit {
                    Ok(permit) => permit,
                    // Only a closed semaphore fails, and nothing closes it.
                    Err(_) => return Login::Busy,
                }
            }
        };
        let loaded = self.loaded.load_full();
        let generation = loaded.generation;
        let digest = self.cache().digest(tenant, user, password);
        let tenant = tenant.map(str::to_owned);
        let (user, password) = (user.to_owned(), Zeroizing::new(password.to_vec()));
        let checked = tokio::task::spawn_blocking(move || {
            // The permit comes back with the answer: it is held until the hash is done, even when the client is gone
            // by then, and until the cache knows, so that the next in the queue finds it there.
            (loaded.logins.verify(tenant.as_deref(), &user, &password), permit)
        })
        .await;
        match checked {
            Ok((Checked::Right(owner), _permit)) => {
                let mut cache = self.cache();
                if let Some(digest) = digest.filter(|_| cache.generation == generation) {
                    cache.successes.put(digest, owner.clone(), Instant::now(), None);
                }
                Login::Accepted(owner)
            }
            Ok((Checked::Unknown, _)) => Login::Unknown,
            Ok((Checked::Wrong, _)) | Err(_) => Login::Refused,
        }
    }

    /// What this very login gave, if it succeeded lately.
    fn known(&self, tenant: Option<&str>, user: &str, password: &[u8]) -> Option<Option<Arc<str>>> {
        let cache = self.cache();
        let digest = cache.digest(tenant, user, password);
        let known = digest.and_then(|d| cache.successes.get(&d, Instant::now()));
        if known.is_some() {
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
    use crate::auth::{PasswordFile, hash::StoredHash};

    fn file(password: &[u8]) -> Logins {
        let hash = bcrypt::hash(password, 4).ok().and_then(|t| StoredHash::parse(&t).ok());
        let text = hash.map(|h| format!("ann:{h}")).unwrap_or_default();
        Logins::shared(PasswordFile::parse(&text).unwrap_or_default())
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
        assert_eq!(v.verify(None, "ann", b"wrong").await, Login::Refused);
        assert_eq!(v.verify(None, "ann", b"wrong").await, Login::Refused);
        assert_eq!(v.verify(None, "eve", b"secret").await, Login::Unknown);
        assert_eq!(hits(&v), 0);
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        assert_eq!(hits(&v), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_expires() {
        let v = verifier(1, 8, 10);
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        tokio::time::advance(Duration::from_secs(299)).await;
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        assert_eq!(hits(&v), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        assert_eq!(hits(&v), 1, "the use did not prolong it");
    }

    #[tokio::test]
    async fn a_reload_forgets_what_was_accepted_before() {
        let v = verifier(1, 8, 10);
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Accepted(None));
        v.replace(file(b"other")).expect("random bytes");
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Refused);
        assert_eq!(v.verify(None, "ann", b"other").await, Login::Accepted(None));
    }

    #[tokio::test]
    async fn beyond_the_queue_the_answer_is_busy_and_waiters_get_their_turn() {
        let v = verifier(1, 1, 0);
        let held = Arc::clone(&v.running).acquire_owned().await.expect("open semaphore");
        let waiter = tokio::spawn({
            let v = Arc::clone(&v);
            async move { v.verify(None, "ann", b"secret").await }
        });
        while v.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(v.verify(None, "ann", b"secret").await, Login::Busy);
        drop(held);
        assert_eq!(waiter.await.expect("no panic"), Login::Accepted(None));
        assert_eq!(v.waiting(), 0);
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_waiting_frees_its_place() {
        let v = verifier(1, 1, 0);
        let held = Arc::clone(&v.running).acquire_owned().await.expect("open semaphore");
        let gone = tokio::time::timeout(Duration::from_millis(1), v.verify(None, "ann", b"secret")).await;
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
                tokio::spawn(async move { v.verify(None, "ann", b"secret").await })
            })
            .collect();
        while v.waiting() < 4 {
            tokio::task::yield_now().await;
        }
        drop(held);
        for login in logins {
            assert_eq!(login.await.expect("no panic"), Login::Accepted(None));
        }
        assert_eq!(hits(&v), 3);
    }
}
