//! Signals: SIGHUP reloads, the first SIGTERM or SIGINT drains, the second stops at once.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Reload,
    Drain,
    StopNow,
}

/// The signals of this process.
pub struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
    stops: u32,
}

impl Signals {
    /// Takes over the signals. Needs a tokio runtime.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            stops: 0,
        })
    }

    /// Waits for the next one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.hangup.recv() => return Request::Reload,
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        self.stops += 1;
        if self.stops == 1 { Request::Drain } else { Request::StopNow }
    }
}
