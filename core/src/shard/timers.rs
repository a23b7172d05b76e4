//! The shard's timers: lazy entries on one wheel. Nothing is ever cancelled; whoever fires looks whether
//! it is still due.

use crate::ids::{ConnId, SessionId, TenantId};
use crate::shard::Shard;
use crate::time::Mono;

/// What may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Silence, or a stalled socket, of a connection.
    Idle(ConnId),
    /// A will's delay.
    WillDelay(SessionId),
    /// A session's end.
    Expiry(SessionId),
    /// Operations whose answer is overdue.
    Sweep,
    /// Cursors of busy sessions are written.
    Flush,
    /// The log may be cut.
    Floor,
    /// `$SYS`.
    Sys,
    /// A session's failed cursor write.
    Retry(SessionId),
    /// What is kept for an absent session is looked at again.
    Backlog(SessionId),
    /// A member has been away long enough for its messages to move.
    Absence { group: (u32, u32), member: u64 },
    /// Tokens for what waits on a tenant's rates.
    Rates(TenantId),
}

/// How often overdue operations are looked for, ms.
const SWEEP_MS: u64 = 500;
/// How often the floor of the log is told to the store, ms.
const FLOOR_MS: u64 = 5_000;

impl Shard {
    pub(crate) fn arm_periodic(&mut self) {
        let now = self.plane.now.mono;
        self.wheel.insert(now.after_millis(FLOOR_MS), Timer::Floor);
        if self.plane.settings.sys_interval_ms > 0 {
            self.wheel.insert(now.after_millis(self.plane.settings.sys_interval_ms), Timer::Sys);
        }
    }

    pub(crate) fn arm_sweep(&mut self) {
        if !self.sweep_armed {
            self.sweep_armed = true;
            self.wheel.insert(self.plane.now.mono.after_millis(SWEEP_MS), Timer::Sweep);
        }
    }

    pub(crate) fn arm_flush(&mut self) {
        if !self.flush_armed {
            self.flush_armed = true;
            self.wheel
                .insert(self.plane.now.mono.after_millis(self.plane.settings.cursor_flush_ms), Timer::Flush);
        }
    }

    pub(crate) fn at(&mut self, at: Mono, timer: Timer) {
        self.wheel.insert(at, timer);
    }

    pub(crate) fn run_timers(&mut self) {
        if self.wheel.next_wake().is_none_or(|wake| wake > self.plane.now.mono) {
            return;
        }
        let mut fired = core::mem::take(&mut self.fired);
        self.wheel.expire(self.plane.now.mono, &mut fired);
        for (_, timer) in fired.drain(..) {
            self.fire(timer);
        }
        self.fired = fired;
    }

    fn fire(&mut self, timer: Timer) {
        let now = self.plane.now.mono;
        match timer {
            Timer::Idle(conn) => self.idle_due(conn),
            Timer::WillDelay(session) => self.will_due(session),
            Timer::Expiry(session) => self.expiry_due(session),
            Timer::Sweep => {
                self.sweep_armed = false;
                for (id, op) in self.ops.overdue(now) {
                    self.overdue(id, op);
                }
                if !self.ops.is_empty() {
                    self.arm_sweep();
                }
            }
            Timer::Flush => {
                self.flush_armed = false;
                self.flush_cursors();
            }
            Timer::Floor => {
                self.tell_floors();
                self.at(now.after_millis(FLOOR_MS), Timer::Floor);
            }
            Timer::Sys => {
                self.publish_sys();
                let every = self.plane.settings.sys_interval_ms;
                if every > 0 {
                    self.at(now.after_millis(every), Timer::Sys);
                }
            }
            Timer::Retry(session) => self.retry_store(session),
            Timer::Backlog(session) => self.backlog_due(session),
            Timer::Absence { group, member } => self.absence_due(group, member),
            Timer::Rates(tenant) => self.rates_due(tenant),
        }
    }
}
