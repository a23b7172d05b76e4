//! What an operator can set about a shard's behaviour. The shell's configuration fills it; every bound
//! of the core is here, with its unit and its default.

use crate::message::QoS;
use crate::store::port::Durability;
use crate::topic::Limits as TopicLimits;

/// How a shared subscription picks the next member among those with a free window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareStrategy {
    /// Each member in turn.
    #[default]
    RoundRobin,
    /// Any member, drawn from the shard's seeded generator.
    Random,
    /// The same member until it is full or gone.
    Sticky,
    /// By hash of the publisher's session: one publisher's messages stay with one member.
    HashClient,
    /// By hash of the topic: one topic's messages stay with one member.
    HashTopic,
}

/// What happens when an absent session has all that it may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Its oldest messages give way when it returns; the drop is counted.
    #[default]
    DropOldest,
    /// Publishes of QoS 1 and 2 that it would get are refused, to their publishers.
    RefuseNew,
}

/// Limits on what is kept for a session while it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineLimits {
    /// Messages per session.
    pub max_messages: u64,
    /// Bytes (topic + properties + payload) per session.
    pub max_bytes: u64,
    /// Beyond.
    pub when_full: WhenFull,
}

/// All settings of a shard. Shared by all shards of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest packet accepted from a client, whole packet, bytes.
    pub max_packet: u32,
    /// Receive Maximum announced to clients: unacknowledged QoS 1 and 2 publishes of one client.
    pub receive_maximum: u16,
    /// Upper bound on unacknowledged deliveries to one client, whatever it announces.
    pub max_inflight_out: u16,
    /// MQTT 3.1 and 3.1.1 are accepted.
    pub accept_v3: bool,
    /// MQTT 5 is accepted.
    pub accept_v5: bool,
    /// A client without an id gets one.
    pub assign_client_id: bool,
    /// Highest QoS accepted.
    pub max_qos: QoS,
    /// Retained messages are available.
    pub retain_available: bool,
    /// Wildcard filters are available.
    pub wildcard_available: bool,
    /// Subscription identifiers are available.
    pub subscription_id_available: bool,
    /// Shared subscriptions are available.
    pub shared_available: bool,
    /// Topic Alias Maximum announced to clients.
    pub topic_alias_max: u16,
    /// Most aliases used towards one client, whatever it allows.
    pub topic_alias_out_max: u16,
    /// Longest keep alive granted, seconds; 0 = no bound, and keep alive 0 stays off.
    pub keep_alive_max: u16,
    /// Longest Session Expiry Interval granted, seconds.
    pub session_expiry_max: u32,
    /// Session expiry of a 3.x client with clean session 0, seconds.
    pub v3_session_expiry: u32,
    /// Longest Message Expiry Interval kept, seconds; 0 = as published.
    pub message_expiry_max: u32,
    /// Bounds on topic names and filters.
    pub topic_limits: TopicLimits,
    /// Most filters in one SUBSCRIBE; further ones get 0x97.
    pub max_filters_per_subscribe: u32,
    /// Most filters of one session.
    pub max_filters_per_session: u32,
    /// Most nodes of a topic index that the matching of one publish may visit; beyond, it is refused.
    pub max_match_nodes: u32,
    /// Most user properties in one packet.
    pub max_user_properties: u32,
    /// Most bytes of user properties in one packet.
    pub max_user_property_bytes: u32,
    /// Bytes waiting for one socket above which QoS 0 is dropped and QoS 1 and 2 wait in the session.
    pub out_high_water: usize,
    /// Messages that wait in memory for one connected session; beyond, the log holds them.
    pub queue_messages: usize,
    /// Bytes that wait in memory for one connected session; beyond, the log holds them.
    pub queue_bytes: usize,
    /// How long a clean session's socket may stand still with bytes waiting, milliseconds.
    pub stall_ms: u64,
    /// Longest wait for a store operation before its outcome counts as unknown, milliseconds.
    pub gate_deadline_ms: u64,
    /// How often cursors of busy sessions are written, milliseconds.
    pub cursor_flush_ms: u64,
    /// When an acknowledgement may leave.
    pub durability: Durability,
    /// Limits while away.
    pub offline: OfflineLimits,
    /// Publishes of QoS 0 that a durable subscription wants are logged like others, and so reach its session
    /// later if it is away or behind.
    pub keep_qos0: bool,
    /// Largest will: topic, properties and payload, bytes.
    pub max_will_size: u32,
    /// Longest Will Delay Interval granted, seconds.
    pub will_delay_max: u32,
    /// How long an incomplete packet may take, within what keep alive allows, milliseconds.
    pub packet_timeout_ms: u64,
    /// Check payloads that say they are UTF-8.
    pub payload_format_check: bool,
    /// Choice among group members.
    pub share_strategy: ShareStrategy,
    /// How long an absent group member keeps its unacknowledged QoS 1 messages, milliseconds.
    pub share_absence_ms: u64,
    /// Most members of one shared subscription.
    pub max_group_members: u32,
    /// Deliveries, log entries and retained nodes handled in one poll step.
    pub step_budget: u32,
    /// How often `$SYS` is published, milliseconds; 0 = never.
    pub sys_interval_ms: u64,
    /// MQTT 5 clients are told which rule denied them something.
    pub explain_denials: bool,
    /// Kinds of denied attempts that a shard remembers of a tenant; 0 = none.
    pub denials_kept: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_packet: 1024 * 1024,
            receive_maximum: 64,
            max_inflight_out: 64,
            accept_v3: true,
            accept_v5: true,
            assign_client_id: true,
            max_qos: QoS::ExactlyOnce,
            retain_available: true,
            wildcard_available: true,
            subscription_id_available: true,
            shared_available: true,
            topic_alias_max: 16,
            topic_alias_out_max: 16,
            keep_alive_max: 0,
            session_expiry_max: 7 * 24 * 3600,
            v3_session_expiry: 7 * 24 * 3600,
            message_expiry_max: 0,
            topic_limits: TopicLimits::default(),
            max_filters_per_subscribe: 1000,
            max_filters_per_session: 100_000,
            max_match_nodes: 10_000,
            max_user_properties: 64,
            max_user_property_bytes: 8192,
            out_high_water: 256 * 1024,
            queue_messages: 1000,
            queue_bytes: 1024 * 1024,
            stall_ms: 30_000,
            gate_deadline_ms: 15_000,
            cursor_flush_ms: 1000,
            durability: Durability::Synced,
            offline: OfflineLimits {
                max_messages: 10_000,
                max_bytes: 64 * 1024 * 1024,
                when_full: WhenFull::DropOldest,
            },
            keep_qos0: false,
            max_will_size: 128 * 1024,
            will_delay_max: u32::MAX,
            packet_timeout_ms: 30_000,
            payload_format_check: true,
            share_strategy: ShareStrategy::RoundRobin,
            share_absence_ms: 30_000,
            max_group_members: 1024,
            step_budget: 4096,
            sys_interval_ms: 10_000,
            explain_denials: false,
            denials_kept: 64,
        }
    }
}
