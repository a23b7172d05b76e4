//! Keep alive, stalled sockets and expired credentials: one lazy timer per connection that looks at all three.

use crate::codec::Reason;
use crate::conn::Phase;
use crate::ids::ConnId;
use crate::shard::Shard;
use crate::shard::timers::Timer;
use crate::sys::Cut;
use crate::time::Now;

/// Pause before a connection that is overdue, and excused, is looked at again, µs.
const AGAIN_MICROS: u64 = 500_000;
/// How often a connection without keep alive is looked at, µs.
const LOOK_MICROS: u64 = 30_000_000;

impl Shard {
    pub(crate) fn arm_idle(&mut self, id: ConnId) {
        let Now { mono: now, wall } = self.plane.now;
        let stall = self.plane.settings.stall_ms * 1000;
        let partial = self.plane.settings.packet_timeout_ms * 1000;
        let Some(conn) = self.plane.conn(id) else { return };
        let mut due = now.after_micros(LOOK_MICROS.min(stall.max(1000)).min(partial.max(1000)));
        if conn.keep_alive_micros > 0 {
            due = due.min(conn.last_seen.after_micros(conn.keep_alive_micros));
        }
        if let Some(left) = conn.expires.map(|at| at.millis_since(wall)) {
            // The wall clock may be set meanwhile: hence the look at it here, at intervals, and no timer of its own.
            due = due.min(now.after_millis(left));
        }
        if due <= now {
            // Overdue, but its silence is ours (we don't read it): looked at again, not at once.
            due = now.after_micros(AGAIN_MICROS);
        }
        self.at(due, Timer::Idle(id));
    }

    /// The driver reads a connection no further for now, or again: until then its silence says nothing.
    pub fn set_unread(&mut self, now: Now, id: ConnId, unread: bool) {
        let Some(conn) = self.plane.conn(id) else { return };
        conn.unread = unread;
        conn.last_seen = now.mono;
    }

    /// True if a connection has published: reading it may bring more to keep.
    pub fn has_published(&mut self, id: ConnId) -> bool {
        self.plane.conn(id).is_some_and(|conn| conn.route.is_some())
    }

    pub(crate) fn idle_due(&mut self, id: ConnId) {
        let Now { mono: now, wall } = self.plane.now;
        let stall = self.plane.settings.stall_ms * 1000;
        let partial = self.plane.settings.packet_timeout_ms * 1000;
        let Some(conn) = self.plane.conn(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        if conn.expires.is_some_and(|at| at <= wall) {
            self.plane.counters.cuts[Cut::Expired as usize] += 1;
            self.disconnect(id, Reason::NOT_AUTHORIZED);
            return;
        }
        let silent = now.micros_since(conn.last_seen);
        // While we don't read it ourselves, its silence says nothing.
        let unread = conn.paused || conn.unread;
        if conn.keep_alive_micros > 0 && silent >= conn.keep_alive_micros && !unread {
            // [MQTT-3.1.2-22]
            self.plane.counters.cuts[Cut::KeepAlive as usize] += 1;
            self.disconnect(id, Reason::KEEP_ALIVE_TIMEOUT);
            return;
        }
        if !conn.hold.is_empty() && !unread {
            // Counted from when it was first seen incomplete: the silence before it was allowed.
            let since = conn.partial_since.filter(|since| conn.last_seen <= *since);
            if since.is_some_and(|since| now.micros_since(since) >= partial) {
                self.plane.counters.cuts[Cut::PacketTimeout as usize] += 1;
                self.disconnect(id, Reason::KEEP_ALIVE_TIMEOUT);
                return;
            }
            conn.partial_since = since.or(Some(now));
        } else {
            conn.partial_since = None;
        }
        conn.out.shrink_if_idle();
        if conn.out.is_empty() {
            conn.stalled_since = None;
        } else if conn.stalled_since.is_none() {
            conn.stalled_since = Some(now);
        }
        let stalled = conn.stalled_since.is_some_and(|since| now.micros_since(since) >= stall);
        let session = conn.session;
        // A persistent session's socket is not cut before keep alive says so: it loses nothing by waiting.
        let persistent = self.plane.session(session).is_some_and(|s| s.persistent);
        if stalled && !persistent {
            self.plane.counters.cuts[Cut::Stall as usize] += 1;
            self.disconnect(id, Reason::QUOTA_EXCEEDED);
            return;
        }
        self.arm_idle(id);
    }
}
