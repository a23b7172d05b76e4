//! Messages to the service manager (sd_notify). Without one they go nowhere.

use std::time::Duration;

use sd_notify::NotifyState;

/// What the service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Ready,
    Reloading,
    Stopping,
}

/// Tells the service manager. A failure is logged: the broker runs on without it.
pub fn tell(phase: Phase) {
    let sent = match phase {
        Phase::Ready => sd_notify::notify(&[NotifyState::Ready]),
        // Type=notify-reload wants the time with it.
        Phase::Reloading => match NotifyState::monotonic_usec_now() {
            Ok(now) => sd_notify::notify(&[NotifyState::Reloading, now]),
            Err(_) => sd_notify::notify(&[NotifyState::Reloading]),
        },
        Phase::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
    };
    warn_if_failed(sent);
}

fn warn_if_failed(sent: std::io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Pings the watchdog at half its interval, for as long as `alive` says so. Returns at once without a watchdog.
pub async fn watchdog(alive: impl Fn() -> bool + Send) {
    let Some(interval) = sd_notify::watchdog_enabled().filter(|i| !i.is_zero()) else { return };
    let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        if alive() {
            warn_if_failed(sd_notify::notify(&[NotifyState::Watchdog]));
        }
    }
}
