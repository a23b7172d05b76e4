//! A session: what a client id owns, on or off line.

pub(crate) mod end;
pub(crate) mod feed;
pub(crate) mod flow;
pub(crate) mod offline;
pub(crate) mod outflow;
pub(crate) mod pages;
pub(crate) mod plane;
pub(crate) mod record;
pub(crate) mod replays;
pub(crate) mod restore;
pub(crate) mod rights;
pub(crate) mod storing;
pub(crate) mod will;

use crate::authz::Principal;
use crate::codec::SubOptions;
use crate::conn::handshake::{Admission, Claims};
use crate::ids::{ConnId, SessionId, SessionUid};
use crate::message::QoS;
use crate::session::feed::Feed;
use crate::session::offline::Backlog;
use crate::session::outflow::Outflow;
use crate::session::replays::Replays;
use crate::session::will::Will;
use crate::shard::peer::GroupRef;
use crate::store::port::LogFilter;
use crate::store::position::{Position, Seq};
use crate::tenant::mount::Mount;
use crate::time::{Mono, Now, Wall};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

/// A subscription of a session.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub options: SubOptions,
    /// Subscription Identifier; 0 = none.
    pub id: u32,
    /// Messages up to here are older than the subscription.
    pub start: Position,
    /// Set for `$share` filters once the leader has answered.
    pub group: Option<GroupRef>,
    /// Which SUBSCRIBE made it what it is: the late failure of an earlier one does not concern it.
    pub serial: u64,
    /// It was granted once: a failed change leaves it as it is.
    pub confirmed: bool,
    /// An UNSUBSCRIBE of it is with the store.
    pub leaving: bool,
    /// A write of it had no answer, so the store may hold it although it was not granted.
    pub doubtful: bool,
}

impl Subscription {
    /// Messages for it are kept while the session is away.
    pub fn is_durable(&self) -> bool {
        self.options.qos > QoS::AtMostOnce
    }
}

/// A session's record in the store, and the one write that may be under way for it.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Revision of the session's record: every other write hangs on it. `None` = nothing is stored.
    pub revision: Option<Seq>,
    /// A write of the record got no answer: its revision may be a later one than we know.
    pub unsure: bool,
    /// How many cursor writes were issued. What must be durable before a packet leaves needs the next one.
    pub version: u64,
    /// The latest of them that the store holds.
    pub reached: u64,
    /// Something waits for the next cursor write.
    pub wanted: bool,
    /// A cursor write is under way.
    pub writing: bool,
    /// The cursor moved since the last write; written at the next flush.
    pub moved: bool,
    /// The session went away, and the store has not said yet that it holds the cursor of that moment.
    pub leaving: bool,
    /// A failed write is tried again then.
    pub retry_at: Option<Mono>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub conn: Option<ConnId>,
    pub mount: Mount,
    pub uid: SessionUid,
    pub feed: Feed,
    pub out: Outflow,
    /// Outlives its connection.
    pub persistent: bool,
    pub client_id: Box<str>,
    /// The user that owns it; `None` = anonymous.
    pub principal: Option<Box<str>>,
    /// What the proof of its last connection says besides.
    pub claims: Claims,
    /// Its rules; `None` = everything is allowed.
    pub rights: Option<Box<Principal>>,
    /// Session Expiry Interval, seconds; `u32::MAX` = never.
    pub expiry_secs: u32,
    /// Grows with each connection.
    pub epoch: u64,
    pub stored: Stored,
    /// By filter as the client wrote it (`$share/…` included); ordered, for determinism.
    pub subscriptions: BTreeMap<Box<str>, Subscription>,
    /// Packet ids of received QoS 2 messages that are ours and not released [MQTT-4.3.3-10].
    pub inbound: BTreeSet<u16>,
    /// Ids of received QoS 2 messages whose write is not answered, or never was: a resend on another
    /// connection is written again, and the store knows whether it is ours already.
    pub inbound_unsure: BTreeSet<u16>,
    pub will: Option<Box<Will>>,
    /// Since when it is away.
    pub away: Option<Away>,
    /// What is kept for it while it is away; counted only where new messages are refused for it.
    pub backlog: Option<Box<Backlog>>,
    /// Bodies of in-flight messages are being read back after a restart.
    pub reviving: bool,
    /// Retained scans that wait for room.
    pub scans: u32,
    /// What its SUBSCRIBEs still owe of retained messages; made with the first.
    pub replays: Option<Box<Replays>>,
    /// A write of the session's record is under way: its revision is not known.
    pub busy: bool,
    /// A connection that was admitted meanwhile.
    pub waiting: Option<(ConnId, Box<Admission>)>,
    /// Filters for reading the log; made when needed, forgotten when subscriptions change.
    pub log_filters: Option<Arc<[LogFilter]>>,
}

/// An absence. Within a life of the process it is measured by the monotonic clock, so that no step of the
/// wall clock ends a session or sends a will early, or keeps them for longer; across a restart only wall time tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    /// When it began, for the session's record.
    pub since: Wall,
    /// When it began, or the process did.
    at: Mono,
    /// How much of it was before `at`, milliseconds.
    before: u64,
}

impl Away {
    /// Begins now.
    pub const fn begin(now: Now) -> Away {
        Away { since: now.wall, at: now.mono, before: 0 }
    }

    /// Began in an earlier life of the process. A wall clock that was set back meanwhile counts as no time.
    pub fn restored(since: Wall, now: Now) -> Away {
        Away { since: since.min(now.wall), at: now.mono, before: now.wall.millis_since(since) }
    }

    /// Milliseconds that are left of `secs` seconds of it.
    pub const fn left_of(self, secs: u32, now: Now) -> u64 {
        let passed = self.before.saturating_add(now.mono.micros_since(self.at) / 1000);
        (secs as u64 * 1000).saturating_sub(passed)
    }
}

impl Session {
    pub fn new(mount: Mount, uid: SessionUid, client_id: Box<str>, principal: Option<Box<str>>) -> Session {
        Session {
            conn: None,
            mount,
            uid,
            feed: Feed::default(),
            out: Outflow::default(),
            persistent: false,
            client_id,
            principal,
            claims: Claims::default(),
            rights: None,
            expiry_secs: 0,
            epoch: 0,
            stored: Stored::default(),
            subscriptions: BTreeMap::new(),
            inbound: BTreeSet::new(),
            inbound_unsure: BTreeSet::new(),
            will: None,
            away: None,
            backlog: None,
            reviving: false,
            scans: 0,
            replays: None,
            busy: false,
            waiting: None,
            log_filters: None,
        }
    }

    /// Up to where this session needs nothing more from the log.
    pub fn floor(&self, head: &Position) -> Position {
        let mut floor = self.feed.floor(head);
        for inflight in &self.out.inflight {
            if let Some((partition, seq)) = inflight.pos {
                floor.lower(partition, Seq(seq.0.saturating_sub(1)));
            }
        }
        floor
    }

    /// True if the log must be kept for it.
    pub fn needs_log(&self) -> bool {
        self.persistent || self.feed.behind
    }
}

/// An index key of a session or a group in a topic index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubKey {
    pub idx: u32,
    /// The top bit marks a group.
    pub generation: u32,
}

const GROUP_BIT: u32 = 1 << 31;

/// What a subscriber key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Session(SessionId),
    Group { idx: u32, generation: u32 },
}

impl SubKey {
    pub const fn session(id: SessionId) -> SubKey {
        SubKey { idx: id.idx, generation: id.generation & !GROUP_BIT }
    }

    pub const fn group(idx: u32, generation: u32) -> SubKey {
        SubKey { idx, generation: generation | GROUP_BIT }
    }

    pub const fn target(self) -> Target {
        if self.generation & GROUP_BIT == 0 {
            Target::Session(SessionId { idx: self.idx, generation: self.generation })
        } else {
            Target::Group { idx: self.idx, generation: self.generation & !GROUP_BIT }
        }
    }
}

/// A subscriber in the topic index: 16 bytes, since fan-out reads one per delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sub {
    pub key: SubKey,
    /// Subscription Identifier; 0 = none.
    pub id: u32,
    bits: u8,
}

impl Sub {
    pub fn new(key: SubKey, options: SubOptions, id: u32) -> Sub {
        let bits =
            options.qos as u8 | u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3;
        Sub { key, id, bits }
    }

    #[inline]
    pub const fn qos(self) -> QoS {
        match self.bits & 3 {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    #[inline]
    pub const fn no_local(self) -> bool {
        self.bits & 4 != 0
    }

    #[inline]
    pub const fn retain_as_published(self) -> bool {
        self.bits & 8 != 0
    }
}

impl crate::topic::Subscriber for Sub {
    type Key = SubKey;

    fn key(&self) -> SubKey {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::{Away, Session, Sub};
    use crate::conn::Conn;
    use crate::session::outflow::Inflight;
    use crate::time::{Mono, Now, Wall};

    fn now(secs: u64, wall_secs: u64) -> Now {
        Now { mono: Mono(secs * 1_000_000), wall: Wall(wall_secs * 1000) }
    }

    #[test]
    fn a_wall_clock_that_steps_neither_shortens_nor_lengthens_an_absence() {
        let away = Away::begin(now(100, 5_000));
        for wall in [0, 5_000, 5_007, 9_000_000] {
            assert_eq!(away.left_of(10, now(107, wall)), 3_000, "wall {wall}");
            assert_eq!(away.left_of(10, now(111, wall)), 0, "wall {wall}");
        }
    }

    #[test]
    fn an_absence_goes_on_over_a_restart_by_wall_time_and_a_clock_set_back_meanwhile_counts_nothing() {
        let away = Away::restored(Wall(5_000_000), now(3, 5_004));
        assert_eq!(away.left_of(10, now(3, 5_004)), 6_000);
        assert_eq!(away.left_of(10, now(8, 0)), 1_000);
        let away = Away::restored(Wall(5_000_000), now(3, 4_000));
        assert_eq!((away.since, away.left_of(10, now(3, 4_000))), (Wall(4_000_000), 10_000));
    }

    #[test]
    fn what_every_client_costs_stays_small() {
        // An idle client holds one of each; a fan-out reads one `Sub` per delivery.
        assert_eq!(size_of::<Sub>(), 16);
        assert!(size_of::<Conn>() <= 448, "Conn is {} bytes", size_of::<Conn>());
        assert!(size_of::<Session>() <= 640, "Session is {} bytes", size_of::<Session>());
        assert!(size_of::<Inflight>() <= 112, "Inflight is {} bytes", size_of::<Inflight>());
    }
}
