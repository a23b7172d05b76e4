//! Counters of a shard and of its tenants; what `$SYS` and the metrics are made from.

pub(crate) mod topics;

use crate::codec::Reason;
use crate::tenant::limits::{LIMITS, Limit, Row, TenantLimits};

/// Why a message that somebody may have expected was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Drop {
    /// QoS 0 for a session that is away.
    OfflineQos0,
    /// QoS 0 for a socket whose buffer is over its mark.
    SlowConsumerQos0,
    /// Message Expiry Interval passed.
    Expired,
    /// Larger than the client's Maximum Packet Size.
    TooLargeForClient,
    /// Over the limits of an absent session.
    OfflineLimit,
    /// The session's start fell behind the log's beginning (age or bytes).
    LogTrimmed,
    /// The store refused to keep it.
    StoreRefused,
    /// A rule forbids it.
    NotAuthorized,
    /// A group has no member that could take a QoS 0 message.
    GroupUnavailable,
    /// A QoS 0 message or a will whose matching visits too many nodes of the topic index.
    MatchBudget,
    /// The store held it, but found it damaged.
    StoreDamaged,
    /// QoS 0 for a session whose queue is full because of its tenant's delivery rate.
    RateLimited,
    /// QoS 0 that its tenant may not retain.
    RetainedLimit,
}

/// All reasons, in the order of their numbers.
pub const DROPS: [(Drop, &str); 13] = [
    (Drop::OfflineQos0, "offline_qos0"),
    (Drop::SlowConsumerQos0, "slow_consumer_qos0"),
    (Drop::Expired, "expired"),
    (Drop::TooLargeForClient, "too_large_for_client"),
    (Drop::OfflineLimit, "offline_limit"),
    (Drop::LogTrimmed, "log_trimmed"),
    (Drop::StoreRefused, "store_refused"),
    (Drop::NotAuthorized, "not_authorized"),
    (Drop::GroupUnavailable, "group_unavailable"),
    (Drop::MatchBudget, "match_budget"),
    (Drop::StoreDamaged, "store_damaged"),
    (Drop::RateLimited, "rate_limited"),
    (Drop::RetainedLimit, "retained_limit"),
];

/// Why a publish of QoS 1 or 2 was refused before anything was stored or delivered. Its publisher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refused {
    /// Its matching visits too many nodes of the topic index.
    MatchBudget,
    /// An absent session that would get it has all that may be kept for it.
    OfflineFull,
    /// Its tenant may not retain more.
    RetainedLimit,
}

/// All reasons, in the order of their numbers.
pub const REFUSALS: [(Refused, &str); 3] = [
    (Refused::MatchBudget, "match_budget"),
    (Refused::OfflineFull, "offline_full"),
    (Refused::RetainedLimit, "retained_limit"),
];

impl Refused {
    /// What an MQTT 5 publisher reads beside 0x97.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Refused::MatchBudget => "too many filters match parts of this topic",
            Refused::OfflineFull => "the queue of an absent subscriber is full",
            Refused::RetainedLimit => "the tenant has all the retained messages that it may have",
        }
    }

    /// The reason under which a QoS 0 message counts, whose publisher cannot be told.
    pub(crate) const fn as_drop(self) -> Drop {
        match self {
            Refused::MatchBudget => Drop::MatchBudget,
            Refused::OfflineFull => Drop::OfflineLimit,
            Refused::RetainedLimit => Drop::RetainedLimit,
        }
    }
}

/// Why a connection was ended that had not broken the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cut {
    /// One and a half times its keep alive without a packet.
    KeepAlive,
    /// A packet that was begun did not end in time.
    PacketTimeout,
    /// A clean session's socket took nothing for too long.
    Stall,
    /// Memory was short.
    Memory,
    /// What the client proved itself with (a token) has expired.
    Expired,
}

/// All of them, in the order of their numbers.
pub const CUTS: [(Cut, &str); 5] = [
    (Cut::KeepAlive, "keep_alive"),
    (Cut::PacketTimeout, "packet_timeout"),
    (Cut::Stall, "stall"),
    (Cut::Memory, "memory"),
    (Cut::Expired, "credential_expired"),
];

/// Why a filter was refused in a SUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FilterRefused {
    /// 0x97: too many in the packet, the session or the group, or the store is full.
    Quota,
    /// 0x8F: malformed, too long, too deep, too many wildcards.
    Invalid,
    /// 0x87: a rule forbids it.
    NotAuthorized,
    /// What this broker does not offer, or a store that failed.
    Other,
}

/// All of them, in the order of their numbers.
pub const FILTER_REFUSALS: [(FilterRefused, &str); 4] = [
    (FilterRefused::Quota, "quota"),
    (FilterRefused::Invalid, "invalid"),
    (FilterRefused::NotAuthorized, "not_authorized"),
    (FilterRefused::Other, "other"),
];

impl FilterRefused {
    /// Of a SUBACK code; `None` if it grants.
    pub(crate) const fn of(code: u8) -> Option<FilterRefused> {
        match Reason(code) {
            Reason(0..=0x7F) => None,
            Reason::QUOTA_EXCEEDED => Some(FilterRefused::Quota),
            Reason::TOPIC_FILTER_INVALID => Some(FilterRefused::Invalid),
            Reason::NOT_AUTHORIZED => Some(FilterRefused::NotAuthorized),
            Reason(_) => Some(FilterRefused::Other),
        }
    }
}

/// Counters of one shard. They only grow, except where "now" is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PUBLISH packets received.
    pub publish_in: u64,
    /// PUBLISH packets sent.
    pub publish_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes that the driver wrote.
    pub bytes_out: u64,
    /// Messages handed to the log.
    pub appended: u64,
    /// Messages spilled to the log for a slow clean session.
    pub spilled: u64,
    /// Messages read back from the log.
    pub replayed: u64,
    /// Connections admitted.
    pub connects: u64,
    /// Connections ended.
    pub disconnects: u64,
    /// Connections refused by the shard.
    pub refused: u64,
    /// Connections taken over.
    pub takeovers: u64,
    /// Of these, while retained messages were on their way to the loser.
    pub takeovers_replaying: u64,
    /// Times that a scan of retained messages waited for its client to make room.
    pub scans_parked: u64,
    /// Protocol violations.
    pub violations: u64,
    /// Store operations that ended refused or unknown.
    pub store_failures: u64,
    /// Deliveries stopped because their tenant was not the receiver's. Must stay 0.
    pub canary: u64,
    /// Times that the matching of a topic visited more nodes than a publish may: refused ones, and those of
    /// another shard's publishes, which are matched whole.
    pub match_over_budget: u64,
    /// Absent sessions for which nothing more may be kept, now.
    pub offline_full: u64,
    /// By [`Drop`].
    pub drops: [u64; DROPS.len()],
    /// By [`Refused`].
    pub refusals: [u64; REFUSALS.len()],
    /// By [`Cut`].
    pub cuts: [u64; CUTS.len()],
    /// Filters that a SUBACK refused, by [`FilterRefused`].
    pub filters_refused: [u64; FILTER_REFUSALS.len()],
}

impl Counters {
    /// Counts a drop.
    #[inline]
    pub fn drop(&mut self, reason: Drop) {
        self.drop_many(reason, 1);
    }

    /// Counts several.
    pub fn drop_many(&mut self, reason: Drop, n: u64) {
        self.drops[reason as usize] += n;
    }
}

/// Counters of one tenant on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantCounters {
    /// Connections now.
    pub connected: u64,
    /// Sessions now, connected or not.
    pub sessions: u64,
    /// Subscriptions now.
    pub subscriptions: u64,
    /// Retained messages now.
    pub retained: u64,
    /// PUBLISH packets received.
    pub publish_in: u64,
    /// PUBLISH payload bytes received.
    pub publish_bytes_in: u64,
    /// PUBLISH packets sent.
    pub publish_out: u64,
}

/// What a tenant's clients have of what may be limited, on one shard or on all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a row of the table of limits")]
pub struct Usage {
    pub connections: u64,
    pub persistent_sessions: u64,
    pub subscriptions: u64,
    pub shared_groups: u64,
    pub retained_messages: u64,
    pub retained_bytes: u64,
}

impl Usage {
    /// Of a row, if it is counted here.
    #[must_use]
    pub const fn of(&self, row: Row) -> Option<u64> {
        Some(match row {
            Row::Connections => self.connections,
            Row::PersistentSessions => self.persistent_sessions,
            Row::Subscriptions => self.subscriptions,
            Row::SharedGroups => self.shared_groups,
            Row::RetainedMessages => self.retained_messages,
            Row::RetainedBytes => self.retained_bytes,
            _ => return None,
        })
    }

    /// Adds what another shard has.
    pub const fn add(&mut self, other: &Usage) {
        self.connections += other.connections;
        self.persistent_sessions += other.persistent_sessions;
        self.subscriptions += other.subscriptions;
        self.shared_groups += other.shared_groups;
        self.retained_messages += other.retained_messages;
        self.retained_bytes += other.retained_bytes;
    }
}

/// How often a limit was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    /// By row: something was refused, shortened or made to wait.
    pub enforced: [u64; LIMITS.len()],
    /// By row: it would have been.
    pub observed: [u64; LIMITS.len()],
}

impl Default for Hits {
    fn default() -> Hits {
        Hits { enforced: [0; LIMITS.len()], observed: [0; LIMITS.len()] }
    }
}

impl Hits {
    pub(crate) fn count(&mut self, row: Row, observe: bool) {
        let counts = if observe { &mut self.observed } else { &mut self.enforced };
        counts[row as usize] += 1;
    }

    /// Adds those of another shard.
    pub fn add(&mut self, other: &Hits) {
        for (mine, theirs) in self.enforced.iter_mut().zip(other.enforced) {
            *mine += theirs;
        }
        for (mine, theirs) in self.observed.iter_mut().zip(other.observed) {
            *mine += theirs;
        }
    }
}

/// A tenant and its limits on one shard, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// What is set.
    pub limits: TenantLimits,
    /// What there is.
    pub usage: Usage,
    /// How often limits were met.
    pub hits: Hits,
}

impl TenantUsage {
    /// Takes another shard's part of the same tenant in.
    pub fn add(&mut self, other: &TenantUsage) {
        self.limits.clone_from(&other.limits);
        self.usage.add(&other.usage);
        self.hits.add(&other.hits);
    }

    /// There is something to tell: a limit, or one that was met.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || self.hits != Hits::default()
    }

    /// The limit of a row.
    #[must_use]
    pub fn limit(&self, row: Row) -> Option<Limit> {
        self.limits.get(row)
    }
}
