//! The two kinds of time that enter the core. Neither can be read here; both arrive with an input.

use core::time::Duration;

/// A point on the driver's monotonic clock, in microseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Wall-clock time in milliseconds since the Unix epoch. Used for expiry alone, because only it
/// survives a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

/// The time of one input: both clocks, read together by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for deadlines and intervals.
    pub mono: Mono,
    /// Wall time, for what must outlive the process.
    pub wall: Wall,
}

impl Mono {
    /// The far future: a deadline that never comes.
    pub const NEVER: Mono = Mono(u64::MAX);

    /// This point plus `d`, saturating.
    #[must_use]
    pub const fn after(self, d: Duration) -> Mono {
        self.after_micros(d.as_micros() as u64)
    }

    /// This point plus `micros` µs, saturating.
    #[must_use]
    pub const fn after_micros(self, micros: u64) -> Mono {
        Mono(self.0.saturating_add(micros))
    }

    /// This point plus `millis` ms, saturating.
    #[must_use]
    pub const fn after_millis(self, millis: u64) -> Mono {
        self.after_micros(millis.saturating_mul(1000))
    }

    /// Microseconds from `earlier` to this point, 0 if `earlier` is later.
    #[must_use]
    pub const fn micros_since(self, earlier: Mono) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Wall {
    /// This time plus `secs` seconds, saturating.
    #[must_use]
    pub const fn after_secs(self, secs: u64) -> Wall {
        Wall(self.0.saturating_add(secs.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to this time, 0 if `earlier` is later (clocks step back).
    #[must_use]
    pub const fn millis_since(self, earlier: Wall) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
