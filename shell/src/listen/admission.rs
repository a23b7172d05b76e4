//! Who may come in before anything is read: bounds on connections and handshakes, and the rate of accepts.
//!
//! An acceptor asks once for each accepted socket and keeps the [`Admitted`] with the connection; dropping it
//! gives everything back. Refused sockets are closed at once, before TLS, so that a flood costs little.
//! Connections before CONNACK have a pool of their own: when it is full, the oldest of them gives way, because
//! one that says nothing is older than one that is about to log in.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    auth::KeyedRate,
    config::Limits,
    obs::{Metrics, memory::Pressure},
};

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
    /// The oldest connection before CONNACK, cut for a newer one.
    Unauthenticated,
    Memory,
}

impl Refusal {
    pub const ALL: [Refusal; 8] = [
        Refusal::Connections,
        Refusal::ListenerConnections,
        Refusal::SourceConnections,
        Refusal::Rate,
        Refusal::SourceRate,
        Refusal::Handshakes,
        Refusal::Unauthenticated,
        Refusal::Memory,
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
            Refusal::Unauthenticated => "max_unauthenticated_percent",
            Refusal::Memory => "memory_refuse_percent",
        }
    }
}

/// The bounds and what is in use of them. One for the process.
pub struct Admission {
    open_files: usize,
    pressure: Arc<Pressure>,
    state: Mutex<State>,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// The bounds in force; 0 of the configuration is resolved.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    connections: usize,
    per_source: usize,
    handshakes: usize,
    unauthenticated: usize,
}

struct State {
    bounds: Bounds,
    connections: usize,
    per_listener: HashMap<Arc<str>, usize>,
    per_source: HashMap<IpAddr, usize>,
    rate: KeyedRate<()>,
    source_rate: KeyedRate<IpAddr>,
    /// Connections before CONNACK by age.
    handshakes: BTreeMap<u64, Arc<Notify>>,
    next_handshake: u64,
}

/// A connection that was let in.
pub struct Admitted {
    admission: Arc<Admission>,
    listener: Arc<str>,
    source: Option<IpAddr>,
    handshake: Option<(u64, Arc<Notify>)>,
}

/// The address that bounds count by: IPv4 whole, IPv6 by its /64 network.
pub fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
    }
}

impl Bounds {
    fn new(limits: &Limits, open_files: usize) -> Self {
        let bound = |n: usize| if n == 0 { usize::MAX } else { n };
        let percent = usize::from(limits.max_unauthenticated_percent);
        Self {
            connections: bound(limits.max_connections).min(open_files.saturating_sub(limits.reserved_files)),
            per_source: bound(limits.max_connections_per_source),
            handshakes: limits.max_handshakes,
            unauthenticated: (open_files / 100).saturating_mul(percent).max(1),
        }
    }
}

fn rates(limits: &Limits) -> (KeyedRate<()>, KeyedRate<IpAddr>) {
    let per_source = limits.accept_rate_per_source;
    (
        KeyedRate::new(limits.accept_rate, limits.accept_burst, 1),
        KeyedRate::new(per_source, per_source.saturating_mul(2), MAX_SOURCES),
    )
}

impl Admission {
    /// Bounds from the configuration. `max_connections` 0 becomes what `open_files` (the limit on open files)
    /// leaves after the reserve.
    pub fn new(limits: &Limits, open_files: u64, pressure: Arc<Pressure>) -> Arc<Self> {
        let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let (rate, source_rate) = rates(limits);
        Arc::new(Self {
            open_files,
            pressure,
            state: Mutex::new(State {
                bounds: Bounds::new(limits, open_files),
                connections: 0,
                per_listener: HashMap::new(),
                per_source: HashMap::new(),
                rate,
                source_rate,
                handshakes: BTreeMap::new(),
                next_handshake: 0,
            }),
            refused: Default::default(),
        })
    }

    /// Puts new bounds in force for what comes in from now on.
    pub fn reconfigure(&self, limits: &Limits) {
        let mut state = self.state();
        state.bounds = Bounds::new(limits, self.open_files);
        (state.rate, state.source_rate) = rates(limits);
    }

    /// Lets a connection in, or says why not. `peer` is `None` for unix sockets; `listener_max` 0 means no bound
    /// of the listener's own; `now` counts from any fixed start. Behind a proxy `peer` is the proxy: see
    /// [`Admitted::moved_to`].
    pub fn admit(
        self: &Arc<Self>,
        listener: &Arc<str>,
        listener_max: usize,
        peer: Option<IpAddr>,
        now: Duration,
    ) -> Result<Admitted, Refusal> {
        let source = peer.map(source_of);
        match self.try_admit(listener, listener_max, source, now) {
            Ok(handshake) => Ok(Admitted {
                admission: Arc::clone(self),
                listener: Arc::clone(listener),
                source,
                handshake: Some(handshake),
            }),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Refusal {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
        refusal
    }

    fn try_admit(
        &self,
        listener: &Arc<str>,
        listener_max: usize,
        source: Option<IpAddr>,
        now: Duration,
    ) -> Result<(u64, Arc<Notify>), Refusal> {
        let mut state = self.state();
        let bounds = state.bounds;
        if state.connections >= bounds.connections {
            return Err(Refusal::Connections);
        }
        let on_listener = state.per_listener.get(listener).copied().unwrap_or(0);
        if listener_max != 0 && on_listener >= listener_max {
            return Err(Refusal::ListenerConnections);
        }
        if let Some(source) = source
            && state.per_source.get(&source).copied().unwrap_or(0) >= bounds.per_source
        {
            return Err(Refusal::SourceConnections);
        }
        if state.handshakes.len() >= bounds.handshakes {
            return Err(Refusal::Handshakes);
        }
        if let Some(source) = source
            && !state.source_rate.take(source, now)
        {
            return Err(Refusal::SourceRate);
        }
        if !state.rate.take((), now) {
            return Err(Refusal::Rate);
        }
        if state.handshakes.len() >= bounds.unauthenticated
            && let Some((_, oldest)) = state.handshakes.pop_first()
        {
            oldest.notify_one();
            self.refuse(Refusal::Unauthenticated);
        }
        state.connections += 1;
        *state.per_listener.entry(Arc::clone(listener)).or_default() += 1;
        if let Some(source) = source {
            *state.per_source.entry(source).or_default() += 1;
        }
        let handshake = (state.next_handshake, Arc::new(Notify::new()));
        state.next_handshake += 1;
        state.handshakes.insert(handshake.0, Arc::clone(&handshake.1));
        Ok(handshake)
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// Handshakes in flight now.
    pub fn handshakes(&self) -> usize {
        self.state().handshakes.len()
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
    /// CONNACK is on its way: the connection leaves the pool of handshakes.
    pub fn established(&mut self) {
        if let Some((number, _)) = self.handshake.take() {
            self.admission.state().handshakes.remove(&number);
        }
    }

    /// What tells that the connection must give way to a newer one, while it is not established.
    pub fn cut(&self) -> Option<Arc<Notify>> {
        self.handshake.as_ref().map(|(_, cut)| Arc::clone(cut))
    }

    /// A PROXY header named the client: from now on the connection counts for it. The error leaves the
    /// connection with the proxy; close it.
    pub fn moved_to(&mut self, client: IpAddr) -> Result<(), Refusal> {
        let client = source_of(client);
        let mut state = self.admission.state();
        let bound = state.bounds.per_source;
        let count = state.per_source.entry(client).or_default();
        if *count >= bound {
            return Err(self.admission.refuse(Refusal::SourceConnections));
        }
        *count += 1;
        if let Some(proxy) = self.source.replace(client) {
            release(&mut state.per_source, &proxy);
        }
        Ok(())
    }

    /// The client is known: is there memory for one more? If not, tell it and close it.
    pub fn known(&self) -> Result<(), Refusal> {
        if self.admission.pressure.refuses() { Err(self.admission.refuse(Refusal::Memory)) } else { Ok(()) }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.established();
        let mut state = self.admission.state();
        state.connections -= 1;
        if let Some(source) = &self.source {
            release(&mut state.per_source, source);
        }
        if let Some(count) = state.per_listener.get_mut(&self.listener) {
            *count -= 1;
        }
    }
}

/// Takes one off, and forgets a key without connections.
fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
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
        Admission::new(&config.limits, 1024, Arc::default())
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect(text))
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
        first.moved_to(ip("2001:db8::1").expect("address")).expect("room");
        let mut second = admission.admit(&name, 0, ip("10.0.0.1"), NOW).expect("the proxy is free again");
        assert_eq!(
            second.moved_to(ip("2001:db8::ffff").expect("address")),
            Err(Refusal::SourceConnections),
            "the same /64"
        );
        second.established();
        assert_eq!(admission.handshakes(), 1);
        drop((first, second));
        assert!(admission.state().per_source.is_empty());
    }

    #[test]
    fn the_limit_on_open_files_bounds_connections_after_the_reserve() {
        let admission = admission(&[("RESERVED_FILES", "1000")]);
        assert_eq!(admission.state().bounds.connections, 24);
    }

    #[tokio::test]
    async fn the_oldest_handshake_gives_way_and_an_established_connection_does_not() {
        let name: Arc<str> = "main".into();
        let admission = admission(&[("MAX_UNAUTHENTICATED_PERCENT", "1")]);
        let mut held: Vec<_> =
            (0..10).map(|_| admission.admit(&name, 0, ip("192.0.2.1"), NOW).expect("room")).collect();
        held[0].established();
        let cut = held[1].cut().expect("before CONNACK");
        held.push(admission.admit(&name, 0, ip("192.0.2.1"), NOW).expect("the pool has room"));
        held.push(admission.admit(&name, 0, ip("192.0.2.1"), NOW).expect("the oldest gives way"));
        cut.notified().await;
        assert_eq!((admission.connections(), admission.handshakes()), (12, 10));
        drop(held);
        assert_eq!((admission.connections(), admission.handshakes()), (0, 0));
    }

    #[test]
    fn under_memory_pressure_nobody_becomes_a_tenants_client() {
        let name: Arc<str> = "main".into();
        let admission = admission(&[]);
        admission.pressure.set(85, 80, 90, 95);
        let admitted = admission.admit(&name, 0, None, NOW).expect("room");
        assert_eq!(admitted.known(), Err(Refusal::Memory));
        admission.pressure.set(10, 80, 90, 95);
        assert_eq!(admitted.known(), Ok(()));
    }
}
