//! Counts of connections that ended between their acceptance and CONNACK, by what ended them.

use crate::obs::Metrics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What ended a connection before CONNACK.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// A handshake (PROXY, TLS, WebSocket, CONNECT) took too long.
    Timeout,
    /// PROXY header, TLS, certificate or WebSocket request were not acceptable.
    Refused,
    /// The first packet broke the protocol.
    Violation,
    /// The peer closed.
    Left,
    /// The socket failed.
    Error,
}

const WORDS: [(Failure, &str); 5] = [
    (Failure::Timeout, "timeout"),
    (Failure::Refused, "refused"),
    (Failure::Violation, "violation"),
    (Failure::Left, "left"),
    (Failure::Error, "error"),
];

/// The counts.
#[derive(Debug, Default)]
pub struct Failures([AtomicU64; WORDS.len()]);

impl Failures {
    /// One more.
    pub fn count(&self, failure: Failure) {
        self.0[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Registers them.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let failures = Arc::clone(self);
        metrics.register(move |out| {
            for (failure, word) in WORDS {
                let help = "Connections that ended before CONNACK.";
                let n = failures.0[failure as usize].load(Ordering::Relaxed);
                out.counter("mast_handshakes_failed_total", help, &[("reason", word)], n);
            }
        });
    }
}
