//! How many connections may come in: in all, per listener, per source, per second, and not yet admitted.

use crate::auth::rate::KeyedRate;
use crate::config::{Limits, Listener};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sources whose rate is remembered.
const MAX_SOURCES: usize = 100_000;

/// Why a connection was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// All connections.
    Total,
    /// Of one listener.
    Listener,
    /// Of one source.
    Source,
    /// Too many a second.
    Rate,
    /// Too many handshakes under way.
    Handshakes,
}

impl Refused {
    const ALL: [Refused; 5] =
        [Refused::Total, Refused::Listener, Refused::Source, Refused::Rate, Refused::Handshakes];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Refused::Total => "max_connections",
            Refused::Listener => "listener_max_connections",
            Refused::Source => "max_connections_per_source",
            Refused::Rate => "accept_rate",
            Refused::Handshakes => "max_handshakes",
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    listeners: HashMap<String, usize>,
    sources: HashMap<IpAddr, usize>,
}

/// The doorkeeper.
pub struct Admittance {
    limits: Limits,
    max_total: usize,
    counts: Mutex<Counts>,
    rate: Mutex<KeyedRate<()>>,
    source_rate: Mutex<KeyedRate<IpAddr>>,
    handshakes: Arc<Semaphore>,
    refused: [AtomicU64; Refused::ALL.len()],
}

/// A place that is given back when the connection is gone.
pub struct Place {
    admittance: Arc<Admittance>,
    listener: String,
    source: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admittance.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(n) = counts.listeners.get_mut(&self.listener) {
            *n -= 1;
        }
        if let Some(source) = self.source
            && let Some(n) = counts.sources.get_mut(&source)
        {
            *n -= 1;
            if *n == 0 {
                counts.sources.remove(&source);
            }
        }
    }
}

impl Admittance {
    /// Under these limits; `open_files` = what the system lets the process open.
    #[must_use]
    pub fn new(limits: &Limits, open_files: usize) -> Admittance {
        let by_files = open_files.saturating_sub(limits.reserved_files).max(1);
        let max_total =
            if limits.max_connections == 0 { by_files } else { limits.max_connections.min(by_files) };
        let unauthenticated = (open_files * usize::from(limits.max_unauthenticated_percent) / 100).max(1);
        Admittance {
            max_total,
            counts: Mutex::default(),
            rate: Mutex::new(KeyedRate::new(limits.accept_rate, limits.accept_burst, 1)),
            source_rate: Mutex::new(KeyedRate::new(
                limits.accept_rate_per_source,
                limits.accept_rate_per_source.saturating_mul(2),
                MAX_SOURCES,
            )),
            handshakes: Arc::new(Semaphore::new(limits.max_handshakes.min(unauthenticated))),
            refused: Default::default(),
            limits: limits.clone(),
        }
    }

    /// Lets a connection in, or says why not. The second value is held until it is admitted.
    ///
    /// # Errors
    /// The bound that is reached.
    pub fn enter(
        self: &Arc<Self>,
        listener: &Listener,
        ip: Option<IpAddr>,
        now: Duration,
    ) -> Result<(Place, OwnedSemaphorePermit), Refused> {
        let outcome = self.try_enter(listener, ip, now);
        if let Err(refused) = &outcome {
            self.refused[*refused as usize].fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn try_enter(
        self: &Arc<Self>,
        listener: &Listener,
        ip: Option<IpAddr>,
        now: Duration,
    ) -> Result<(Place, OwnedSemaphorePermit), Refused> {
        let source = ip.map(source_of);
        if !self.rate.lock().unwrap_or_else(PoisonError::into_inner).take((), now) {
            return Err(Refused::Rate);
        }
        if let Some(source) = source
            && !self.source_rate.lock().unwrap_or_else(PoisonError::into_inner).take(source, now)
        {
            return Err(Refused::Rate);
        }
        let handshake = Arc::clone(&self.handshakes).try_acquire_owned().map_err(|_| Refused::Handshakes)?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= self.max_total {
            return Err(Refused::Total);
        }
        let of_listener = counts.listeners.get(&listener.name).copied().unwrap_or(0);
        if listener.max_connections > 0 && of_listener >= listener.max_connections {
            return Err(Refused::Listener);
        }
        if let Some(source) = source {
            let of_source = counts.sources.get(&source).copied().unwrap_or(0);
            let max = self.limits.max_connections_per_source;
            if max > 0 && of_source >= max {
                return Err(Refused::Source);
            }
            counts.sources.insert(source, of_source + 1);
        }
        counts.total += 1;
        counts.listeners.insert(listener.name.clone(), of_listener + 1);
        let place = Place { admittance: Arc::clone(self), listener: listener.name.clone(), source };
        Ok((place, handshake))
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// Refusals so far, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Refused::ALL.into_iter().map(|r| (r.reason(), self.refused[r as usize].load(Ordering::Relaxed)))
    }
}

/// What counts as one source: an IPv4 address, or an IPv6 /64 network.
fn source_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
    }
}
