//! *Sometimes* marks: rare situations that a set of runs must reach, or it proves little.

use mast_core::shard::peer::{PeerMsg, Settled};
use mast_core::store::port::Read;
use std::collections::BTreeMap;

/// How often each situation was met.
#[derive(Clone, Debug, Default)]
pub struct Marks(BTreeMap<&'static str, u64>);

/// Situations that the fixed seeds must reach.
pub const SOMETIMES: &[&str] = &[
    "a page of the log was read",
    "bodies in flight were read back",
    "a crash with QoS 2 in flight",
    "a crash with power cut",
    "a group delivery came back",
    "a group member was recalled",
    "a message was spilled",
    "a QoS 2 append stayed unknown",
    "a will was delivered",
    "client vanished",
    "client cut mid-stream",
    "commit refused",
    "messages were replayed",
    "offline limit bound",
    "offline limit was looked up",
    "poll ended by its budget",
    "retained page from another shard",
    "session resumed",
    "session expired",
    "socket is full",
    "socket paused",
    "takeover",
    "QoS 0 was dropped for a slow consumer",
    "a message expired",
    "a message was too large for its client",
    "topic alias was used towards a client",
    "a scan of retained messages was parked",
    "takeover during retained replay",
    "a power cut lost what was not synced",
    "a crash met an open commit",
    "a read met a store that was down",
    "a commit met a conflict",
    "the log was trimmed under a reader",
    "nobody answered a connection",
    "rights changed",
    "ordered rules changed",
    "something was withheld for lack of rights",
    "authentication accepted",
    "authentication refused",
    "authentication went on",
    "re-authentication accepted",
    "re-authentication as another was refused",
    "re-authentication stayed unanswered",
    "the clock was set forward over an absent session",
    "the clock was set back under an absent session",
    "limits changed",
    "a limit was met",
    "a tenant is at a limit",
    "something waited for a tenant's rate",
    "a home shard was asked about limits",
];

impl Marks {
    /// It happened.
    pub fn hit(&mut self, what: &'static str) {
        self.many(what, 1);
    }

    /// It happened so often.
    pub fn many(&mut self, what: &'static str, n: u64) {
        if n > 0 {
            *self.0.entry(what).or_default() += n;
        }
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Marks) {
        for (what, n) in &other.0 {
            self.many(what, *n);
        }
    }

    /// How often.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, n)| (*what, *n))
    }

    /// Marks a read.
    pub fn read(&mut self, read: &Read) {
        self.hit(match read {
            Read::Log(_) => "a page of the log was read",
            Read::At { .. } => "bodies in flight were read back",
            Read::Bound { .. } => "offline limit was looked up",
        });
    }

    /// Marks a message between shards.
    pub fn peer(&mut self, msg: &PeerMsg) {
        match msg {
            PeerMsg::RetainedPage { .. } => self.hit("retained page from another shard"),
            PeerMsg::GroupSettled { outcome: Settled::Returned, .. } => {
                self.hit("a group delivery came back")
            }
            PeerMsg::GroupRecall { .. } => self.hit("a group member was recalled"),
            PeerMsg::Full { full: true, .. } => self.hit("a session was full on another shard"),
            PeerMsg::Full { full: false, .. }
            | PeerMsg::Fence { .. }
            | PeerMsg::Interest { .. }
            | PeerMsg::InterestSeen { .. }
            | PeerMsg::Route { .. }
            | PeerMsg::Routes(_)
            | PeerMsg::RetainedRead { .. }
            | PeerMsg::RetainedGet { .. }
            | PeerMsg::RetainedGot { .. }
            | PeerMsg::GroupJoin(_)
            | PeerMsg::Joined { .. }
            | PeerMsg::GroupLeave { .. }
            | PeerMsg::GroupPresence { .. }
            | PeerMsg::GroupDeliver { .. }
            | PeerMsg::GroupSettled { outcome: Settled::Done, .. }
            | PeerMsg::SysReport { .. } => {}
            PeerMsg::Quota(_) => self.hit("a home shard was asked about limits"),
        }
    }
}
