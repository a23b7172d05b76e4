//! The one table of all limits that a tenant can have. Configuration, enforcement, metrics and the reference
//! (`docs/limits.md`) are made from it.

/// What a value counts, and so how it is written and which values there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things that there may be.
    Count,
    /// Bytes that there may be.
    Bytes,
    /// Events in a second; a second's worth may come at once.
    PerSecond,
    /// Bytes in a second; a second's worth may come at once.
    BytesPerSecond,
    /// Bytes of one packet.
    PacketBytes,
    /// Bytes of one topic name or filter.
    TopicBytes,
    /// Levels of one topic name or filter.
    Levels,
    /// A quality of service.
    Qos,
    /// Seconds.
    Seconds,
    /// Seconds of a keep alive.
    KeepAlive,
    /// A number of 16 bits that is not 0.
    Window,
    /// A number of 16 bits.
    Aliases,
    /// 0 = off, 1 = on.
    Switch,
}

impl Unit {
    /// Least and greatest value.
    #[must_use]
    pub const fn range(self) -> (u64, u64) {
        match self {
            Unit::Count | Unit::Bytes => (0, 1 << 60),
            Unit::PerSecond | Unit::BytesPerSecond => (1, 1 << 40),
            Unit::PacketBytes => (64, 268_435_460),
            Unit::TopicBytes => (1, 65_535),
            Unit::Levels => (1, 65_535),
            Unit::Qos => (0, 2),
            Unit::Seconds => (0, 4_294_967_294),
            Unit::KeepAlive | Unit::Window => (1, 65_535),
            Unit::Aliases => (0, 65_535),
            Unit::Switch => (0, 1),
        }
    }

    /// For the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes | Unit::PacketBytes | Unit::TopicBytes => "bytes",
            Unit::PerSecond => "per second",
            Unit::BytesPerSecond => "bytes per second",
            Unit::Levels => "levels",
            Unit::Qos => "0, 1 or 2",
            Unit::Seconds | Unit::KeepAlive => "time",
            Unit::Window | Unit::Aliases => "number",
            Unit::Switch => "true or false",
        }
    }
}

/// A row: one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitDef {
    /// Its number.
    pub row: Row,
    /// Its name in configuration, metrics and administration.
    pub name: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// See [`Unit`].
    pub unit: Unit,
    /// What it bounds.
    pub meaning: &'static str,
    /// What an MQTT 5 client sees at the limit.
    pub v5: &'static str,
    /// What a 3.1 or 3.1.1 client sees at the limit.
    pub v3: &'static str,
    /// Usage is counted, and shown by `mast_tenant_usage`.
    pub usage: bool,
}

macro_rules! limits {
    ($($row:ident $name:literal $unit:ident $default:literal $usage:literal $meaning:literal v5 $v5:literal v3 $v3:literal;)+) => {
        /// Names a limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is described in its row of the table")]
        pub enum Row { $($row),+ }

        /// The table.
        pub const LIMITS: [LimitDef; [$(Row::$row),+].len()] = [$(LimitDef {
            row: Row::$row, name: $name, default: $default, unit: Unit::$unit, meaning: $meaning,
            v5: $v5, v3: $v3, usage: $usage,
        }),+];
    };
}

limits! {
    Connections "connections" Count "none" true
        "Connected clients. One that takes over its own session's connection takes its place."
        v5 "CONNACK 0x97." v3 "CONNACK 0x03.";
    ConnectsPerSecond "connects_per_second" PerSecond "none" false
        "CONNECTs that were authenticated, whatever became of them."
        v5 "CONNACK 0x9F." v3 "CONNACK 0x03.";
    PersistentSessions "persistent_sessions" Count "none" true
        "Sessions that outlive their connection, connected or not. One that comes back counts once."
        v5 "CONNACK 0x97 for a new session with an expiry interval." v3 "CONNACK 0x03 for a new session with clean session 0.";
    Subscriptions "subscriptions" Count "none" true
        "Filters of all sessions together. A SUBSCRIBE that replaces a filter takes nothing."
        v5 "SUBACK 0x97." v3 "SUBACK 0x80.";
    SubscriptionsPerClient "subscriptions_per_client" Count "limits.max_subscriptions_per_session" false
        "Filters of one session."
        v5 "SUBACK 0x97." v3 "SUBACK 0x80.";
    SharedGroups "shared_groups" Count "none" true
        "Shared subscriptions: pairs of a group's name and a filter that have members."
        v5 "SUBACK 0x97." v3 "SUBACK 0x80.";
    GroupMembers "group_members" Count "limits.max_group_members" false
        "Members of one shared subscription."
        v5 "SUBACK 0x97." v3 "SUBACK 0x80.";
    PublishesPerSecond "publishes_per_second" PerSecond "none" false
        "PUBLISH packets from clients. Beyond it connections are not read; nothing is dropped."
        v5 "Acknowledgements come later." v3 "Acknowledgements come later.";
    PublishBytesPerSecond "publish_bytes_per_second" BytesPerSecond "none" false
        "Bytes of PUBLISH packets from clients. A packet larger than a second's worth passes, and those behind it wait the longer."
        v5 "Acknowledgements come later." v3 "Acknowledgements come later.";
    DeliveriesPerSecond "deliveries_per_second" PerSecond "none" false
        "PUBLISH packets to clients. What is beyond it waits in the session's queue; QoS 0 that finds the queue full is dropped and counted as `rate_limited`."
        v5 "Messages come later." v3 "Messages come later.";
    DeliveryBytesPerSecond "delivery_bytes_per_second" BytesPerSecond "none" false
        "Bytes of topics, properties and payloads to clients, as above."
        v5 "Messages come later." v3 "Messages come later.";
    RetainedMessages "retained_messages" Count "none" true
        "Topics with a retained message. A will beyond it is delivered and not retained."
        v5 "PUBACK or PUBREC 0x97; QoS 0 is dropped and counted." v3 "The connection ends; QoS 0 is dropped and counted.";
    RetainedBytes "retained_bytes" Bytes "none" true
        "Topics, properties and payloads of retained messages. Replacing a message counts the difference."
        v5 "PUBACK or PUBREC 0x97; QoS 0 is dropped and counted." v3 "The connection ends; QoS 0 is dropped and counted.";
    OfflineMessages "offline_messages" Count "offline.max_messages" false
        "Messages kept for one absent session; what happens beyond is `offline.when_full`."
        v5 "The oldest are missing on return; with `refuse-new` its publishers get 0x97." v3 "The oldest are missing on return; with `refuse-new` its publishers are disconnected.";
    OfflineBytes "offline_bytes" Bytes "offline.max_bytes" false
        "Bytes kept for one absent session, as above."
        v5 "The oldest are missing on return; with `refuse-new` its publishers get 0x97." v3 "The oldest are missing on return; with `refuse-new` its publishers are disconnected.";
    LogBytes "log_bytes" Bytes "limits.max_offline_bytes_per_tenant" true
        "Bytes of the tenant's messages in the log. Beyond it the oldest go, whoever may need them."
        v5 "The oldest are missing on return." v3 "The oldest are missing on return.";
    PacketSize "packet_size" PacketBytes "mqtt.max_packet_size" false
        "Bytes of one packet from a client, for connections made from now on."
        v5 "Maximum Packet Size in CONNACK; DISCONNECT 0x95." v3 "The connection ends.";
    TopicBytes "topic_bytes" TopicBytes "mqtt.max_topic_bytes" false
        "Bytes of a topic name or filter."
        v5 "DISCONNECT 0x90; for a filter SUBACK 0x8F; for a will CONNACK 0x90." v3 "The connection ends; for a filter SUBACK 0x80.";
    TopicLevels "topic_levels" Levels "mqtt.max_topic_levels" false
        "Levels of a topic name or filter."
        v5 "DISCONNECT 0x90; for a filter SUBACK 0x8F; for a will CONNACK 0x90." v3 "The connection ends; for a filter SUBACK 0x80.";
    MaxQos "max_qos" Qos "mqtt.max_qos" false
        "Highest QoS of a publish, a will and a granted subscription."
        v5 "Maximum QoS in CONNACK; DISCONNECT 0x9B; for a will CONNACK 0x9B; a lower QoS in SUBACK." v3 "The connection ends; a lower QoS in SUBACK.";
    SessionExpiry "session_expiry" Seconds "mqtt.session_expiry_max" false
        "Longest time that a session outlives its connection."
        v5 "Session Expiry Interval in CONNACK." v3 "Session present 0 on a late return.";
    KeepAliveMin "keep_alive_min" KeepAlive "none" false
        "Shortest keep alive; a shorter one counts as this."
        v5 "Server Keep Alive in CONNACK." v3 "The connection is cut later than it asked for.";
    KeepAliveMax "keep_alive_max" KeepAlive "mqtt.keep_alive_max" false
        "Longest keep alive; a longer one, or none, counts as this."
        v5 "Server Keep Alive in CONNACK." v3 "The connection is cut after one and a half times this without a packet.";
    ReceiveMaximum "receive_maximum" Window "mqtt.receive_maximum" false
        "Unacknowledged publishes of QoS 1 and 2 of one client, for connections made from now on."
        v5 "Receive Maximum in CONNACK; DISCONNECT 0x93." v3 "Acknowledgements come later: further packets are not read.";
    TopicAliasMaximum "topic_alias_maximum" Aliases "mqtt.topic_alias_max" false
        "Topic aliases that a client may use, for connections made from now on."
        v5 "Topic Alias Maximum in CONNACK; DISCONNECT 0x94." v3 "Nothing: there are no aliases.";
    Wildcards "wildcards" Switch "mqtt.wildcard_available" false
        "Filters with wildcards are allowed."
        v5 "Wildcard Subscription Available 0 in CONNACK; SUBACK 0xA2." v3 "SUBACK 0x80.";
    SharedSubscriptions "shared_subscriptions" Switch "mqtt.shared_available" false
        "Shared subscriptions are allowed."
        v5 "Shared Subscription Available 0 in CONNACK; SUBACK 0x9E." v3 "SUBACK 0x80.";
    Retain "retain" Switch "mqtt.retain_available" false
        "Retained messages are allowed."
        v5 "Retain Available 0 in CONNACK; DISCONNECT 0x9A; for a will CONNACK 0x9A." v3 "The connection ends.";
}
