//! Counters of a shard and of its tenants; what `$SYS` and the metrics are made from.

pub(crate) mod topics;

use crate::codec::Reason;

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
}

/// All reasons, in the order of their numbers.
pub const DROPS: [(Drop, &str); 11] = [
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
];

/// Why a publish of QoS 1 or 2 was refused before anything was stored or delivered. Its publisher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refused {
    /// Its matching visits too many nodes of the topic index.
    MatchBudget,
    /// An absent session that would get it has all that may be kept for it.
    OfflineFull,
}

/// All reasons, in the order of their numbers.
pub const REFUSALS: [(Refused, &str); 2] =
    [(Refused::MatchBudget, "match_budget"), (Refused::OfflineFull, "offline_full")];

impl Refused {
    /// What an MQTT 5 publisher reads beside 0x97.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Refused::MatchBudget => "too many filters match parts of this topic",
            Refused::OfflineFull => "the queue of an absent subscriber is full",
        }
    }

    /// The reason under which a QoS 0 message counts, whose publisher cannot be told.
    pub(crate) const fn as_drop(self) -> Drop {
        match self {
            Refused::MatchBudget => Drop::MatchBudget,
            Refused::OfflineFull => Drop::OfflineLimit,
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
