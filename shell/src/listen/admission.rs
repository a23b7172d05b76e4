//! Who may come in before anything is read: bounds on connections and handshakes, and the rate of accepts.
//!
//! An acceptor asks once for each accepted socket and keeps the [`Admitted`] with the connection; dropping it
//! gives everything back. Refused sockets are closed at once, before TLS, so that a flood costs little.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{auth::KeyedRate, config::Limits, obs::Metrics};

/// Sources remembered for rates.
const MAX_SOURCES: usize = 65_536;

/// Why a socket is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Connections,
    ListenerConnections,
    SourceConnections,
    Rate,
    SourceRate,
    Handshakes,
}

impl Refusal {
    pub const ALL: [Refusal; 6] = [
        Refusal::Connections,
        Refusal::ListenerConnections,
        Refusal::SourceConnections,
        Refusal::Rate,
        Refusal::SourceRate,
        Refusal::Handshakes,
    ];

    /// The label `reason`: the name of the setting.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Connections => "max_connections",
            Refusal::ListenerConnections => "listener_max_connections",
            Refusal::SourceConnections => "max_connections_per_source",
            Refusal::Rate => "accept_rate",
            Refusal::SourceRate => "accept_rate_per_source",
            Refusal::Handshakes => "max_handshakes",
        }
    }
}

/// The bounds and what is in use of them. One for the process.
pub struct Admission {
    max_connections: usize,
    max_per_source: usize,
    max_handshakes: usize,
    state: Mutex<State>,
    handshakes: AtomicUsize,
    refused: [AtomicU64; Refusal::ALL.len()],
}

struct State {
    connections: usize,
    per_listener: HashMap<Arc<str>, usize>,
    per_source: HashMap<IpAddr, usize>,
    rate: KeyedRate<()>,
    source_rate: KeyedRate<IpAddr>,
}

/// A connection that was let in.
pub struct Admitted {
    admission: Arc<Admission>,
    listener: Arc<str>,
    source: IpAddr,
    handshaking: bool,
}

/// The address that bounds count by: IPv4 whole, IPv6 by its /64 network.
pub fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
    }
}

impl Admission {
    /// Bounds from the configuration. `max_connections` 0 becomes what `open_files` (the limit on open files)
    /// leaves after the reserve.
    pub fn new(limits: &Limits, open_files: u64) -> Arc<Self> {
        let files = usize::try_from(open_files).unwrap_or(usize::MAX).saturating_sub(limits.reserved_files);
        let wanted = if limits.max_connections == 0 { usize::MAX } else { limits.max_connections };
        let per_source = limits.max_connections_per_source;
        Arc::new(Self {
            max_connections: wanted.min(files),
            max_per_source: if per_source == 0 { usize::MAX } else { per_source },
            max_handshakes: limits.max_handshakes,
            state: Mutex::new(State {
                connections: 0,
                per_listener: HashMap::new(),
                per_source: HashMap::new(),
                rate: KeyedRate::new(limits.accept_rate, limits.accept_burst, 1),
                source_rate: KeyedRate::new(
                    limits.accept_rate_per_source,
                    limits.accept_rate_per_source.saturating_mul(2),
                    MAX_SOURCES,
                ),
            }),
            handshakes: AtomicUsize::new(0),
            refused: Default::default(),
        })
    }

    /// Lets a connection in, or says why not. `listener_max` 0 means no bound of the listener's own; `now` counts
    /// from any fixed start. Behind a proxy `peer` is the proxy: see [`Admitted::moved_to`].
    pub fn admit(
        self: &Arc<Self>,
        listener: &Arc<str>,
        listener_max: usize,
        peer: IpAddr,
        now: Duration,
    ) -> Result<Admitted, Refusal> {
        let source = source_of(peer);
        let admitted = self.try_admit(listener, listener_max, source, now);
        match admitted {
            Ok(()) => Ok(Admitted {
                admission: Arc::clone(self),
                listener: Arc::clone(listener),
                source,
                handshaking: true,
            }),
            Err(refusal) => {
                self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
                Err(refusal)
            }
        }
    }

    fn try_admit(
        &self,
        listener: &Arc<str>,
        listener_max: usize,
        source: IpAddr,
        now: Duration,
    ) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.connections >= self.max_connections {
            return Err(Refusal::Connections);
        }
        let on_listener = state.per_listener.get(listener).copied().unwrap_or(0);
        if listener_max != 0 && on_listener >= listener_max {
            return Err(Refusal::ListenerConnections);
        }
        if state.per_source.get(&source).copied().unwrap_or(0) >= self.max_per_source {
            return Err(Refusal::SourceConnections);
        }
        if self.handshakes.load(Ordering::Relaxed) >= self.max_handshakes {
            return Err(Refusal::Handshakes);
        }
        if !state.source_rate.take(source, now) {
            return Err(Refusal::SourceRate);
        }
        if !state.rate.take((), now) {
            return Err(Refusal::Rate);
        }
        state.connections += 1;
        *state.per_listener.entry(Arc::clone(listener)).or_default() += 1;
        *state.per_source.entry(source).or_default() += 1;
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// Handshakes in flight now.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Registers connections, handshakes and refusals.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let admission = Arc::clone(self);
        metrics.register(move |samples| {
            for (listener, n) in &admission.state().per_listener {
                let labels = &[("listener", &**listener)];
                samples.gauge("mast_connections_open", "Open connections.", labels, *n as u64);
            }
            let handshakes = admission.handshakes() as u64;
            samples.gauge("mast_handshakes_open", "Connections before CONNACK.", &[], handshakes);
            for refusal in Refusal::ALL {
                let n = admission.refused[refusal as usize].load(Ordering::Relaxed);
                let labels = &[("reason", refusal.reason())];
                let help = "Connections closed before anything was read.";
                samples.counter("mast_connections_refused_total", help, labels, n);
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// CONNACK was sent: the connection leaves the pool of handshakes.
    pub fn established(&mut self) {
        if std::mem::take(&mut self.handshaking) {
            self.admission.handshakes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A PROXY header named the client: from now on the connection counts for it. The error leaves the
    /// connection with the proxy; close it.
    pub fn moved_to(&mut self, client: IpAddr) -> Result<(), Refusal> {
        let client = source_of(client);
        let mut state = self.admission.state();
        let count = state.per_source.entry(client).or_default();
        if *count >= self.admission.max_per_source {
            self.admission.refused[Refusal::SourceConnections as usize].fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::SourceConnections);
        }
        *count += 1;
        release(&mut state.per_source, &self.source);
        self.source = client;
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.established();
        let mut state = self.admission.state();
        state.connections -= 1;
        release(&mut state.per_source, &self.source);
        if let Some(count) = state.per_listener.get_mut(&self.listener) {
            *count -= 1;
        }
    }
}

/// Takes one off, and forgets a source without connections.
fn release(counts: &mut HashMap<IpAddr, usize>, source: &IpAddr) {
    if let Some(count) = counts.get_mut(source) {
        *count -= 1;
        if *count == 0 {
            counts.remove(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Place, Sources};

    const NOW: Duration = Duration::from_secs(1);

    fn admission(settings: &[(&str, &str)]) -> Arc<Admission> {
        let variables =
            settings.iter().map(|(k, v)| (format!("MAST__LIMITS__{k}"), (*v).to_owned())).collect();
        let sources = Sources { place: Place { variables, is_root: true }, ..Sources::default() };
        let config = sources.load().unwrap_or_else(|e| panic!("{e}"));
        Admission::new(&config.limits, 1024)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn each_bound_refuses_by_its_name_and_a_dropped_connection_gives_its_place_back() {
        let name: Arc<str> = "main".into();
        for (key, max, refusal) in [
            ("MAX_CONNECTIONS", 0, Refusal::Connections),
            ("MAX_CONNECTIONS_PER_SOURCE", 0, Refusal::SourceConnections),
            ("MAX_HANDSHAKES", 0, Refusal::Handshakes),
            ("MAX_TOPIC", 1, Refusal::ListenerConnections),
        ] {
            let settings: &[_] = if max == 0 { &[(key, "1")] } else { &[] };
            let admission = admission(settings);
            let first = admission.admit(&name, max, ip("192.0.2.1"), NOW).expect("room");
            let second = admission.admit(&name, max, ip("192.0.2.1"), NOW).err();
            assert_eq!(second, Some(refusal));
            drop(first);
            assert_eq!((admission.connections(), admission.handshakes()), (0, 0));
            assert!(admission.admit(&name, max, ip("192.0.2.1"), NOW).is_ok());
        }
    }

    #[test]
    fn rates_hold_and_count_refusals() {
        let name: Arc<str> = "main".into();
        let admission = admission(&[("ACCEPT_RATE", "10"), ("ACCEPT_BURST", "3")]);
        let metrics = Metrics::default();
        admission.register(&metrics);
        let held: Vec<_> =
            (0..5).filter_map(|_| admission.admit(&name, 0, ip("192.0.2.1"), NOW).ok()).collect();
        assert_eq!(held.len(), 3);
        let text = metrics.render();
        assert!(text.contains("mast_connections_refused_total{reason=\"accept_rate\"} 2\n"), "{text}");
        assert!(text.contains("mast_connections_open{listener=\"main\"} 3\n"), "{text}");
    }

    #[test]
    fn a_proxied_connection_counts_for_its_client() {
        let name: Arc<str> = "main".into();
        let admission = admission(&[("MAX_CONNECTIONS_PER_SOURCE", "1")]);
        let mut first = admission.admit(&name, 0, ip("10.0.0.1"), NOW).expect("room");
        first.moved_to(ip("2001:db8::1")).expect("room");
        let mut second = admission.admit(&name, 0, ip("10.0.0.1"), NOW).expect("the proxy is free again");
        assert_eq!(second.moved_to(ip("2001:db8::ffff")), Err(Refusal::SourceConnections), "the same /64");
        second.established();
        assert_eq!(admission.handshakes(), 1);
        drop((first, second));
        assert!(admission.state().per_source.is_empty());
    }

    #[test]
    fn the_limit_on_open_files_bounds_connections_after_the_reserve() {
        let admission = admission(&[("RESERVED_FILES", "1000")]);
        assert_eq!(admission.max_connections, 24);
    }
}
