//! The one place that reads the clocks.

use mast_core::time::{Mono, Now, Wall};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clocks of a thread, with a common origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where time enters")]
impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn new() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Both times.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: Clock::wall() }
    }

    /// Microseconds since the origin.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono(self.origin.elapsed().as_micros() as u64)
    }

    /// Milliseconds since 1970; 0 for a clock that is set before it.
    #[must_use]
    pub fn wall() -> Wall {
        Wall(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64))
    }

    /// The instant of a core time.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.origin + Duration::from_micros(at.0.min(u64::from(u32::MAX) * 1_000_000))
    }
}
