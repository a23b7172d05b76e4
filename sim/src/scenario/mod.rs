//! A scenario: everything that a run is made from, as data. Producers are a seed ([`generate`]), a test,
//! a fuzzer or a hand; the executor is [`crate::world::run`]. Times are milliseconds of virtual time.

pub mod generate;
mod later;
mod limits;

pub use limits::TimedLimits;
use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Draws of network, store and shards come from it.
    pub seed: u64,
    /// Who takes part.
    pub topology: Topology,
    /// What an operator would have set.
    pub knobs: Knobs,
    /// Temper of network and store.
    pub world: WorldKnobs,
    /// What clients do, by time.
    pub ops: Vec<TimedOp>,
    /// What goes wrong, by time.
    pub faults: Vec<TimedFault>,
    /// When the safety phase ends: faults stop, everybody reconnects and drains.
    pub calm_at_ms: u64,
    /// Who may do what, from when on, by time; the first from the beginning. None: all is allowed.
    #[serde(default)]
    pub rights: Vec<TimedRules>,
    /// How much tenants may have, from when on, by time. None: as much as they like.
    #[serde(default)]
    pub limits: Vec<TimedLimits>,
}

/// Shards and clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Shards of the node.
    pub shards: u16,
    /// Tenants; their clients have equal names.
    pub tenants: u8,
    /// By tenant: it sits on one shard. Those beyond are spread over all, but for the third.
    #[serde(default)]
    pub one_shard: Vec<bool>,
    /// All clients; a client's number is its place here.
    pub clients: Vec<ClientSpec>,
}

/// A client, for the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientSpec {
    /// Its tenant.
    pub tenant: u8,
    /// MQTT client id.
    pub name: String,
    /// MQTT 5, or else 3.1.1.
    pub v5: bool,
    /// Session Expiry Interval in seconds; for 3.1.1: 0 = clean session.
    pub expiry_secs: u32,
    /// Receive Maximum announced; 0 = none.
    pub receive_maximum: u16,
    /// Topic Alias Maximum announced.
    pub alias_maximum: u16,
    /// Maximum Packet Size announced; 0 = none.
    pub max_packet: u32,
    /// Keep alive, seconds.
    pub keep_alive: u16,
    /// What it is there for.
    pub role: Role,
    /// Comes back by itself after its connection was lost, so many ms later; 0 = only when told.
    pub reconnect_ms: u64,
    /// Steps of enhanced authentication with which it connects (MQTT 5); 0 = with a password.
    #[serde(default)]
    pub auth_steps: u8,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Publishes and subscribes as it is told.
    Any,
    /// Member of one shared group and of nothing else.
    Worker,
    /// Well-behaved witness of wills.
    Observer,
    /// Sends the bytes that it is told and keeps no state. It is judged by the broker's staying whole and by
    /// what others see; its tenant is its own.
    Stranger,
}

/// Settings drawn small on purpose; see `mast_core::settings`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named as the settings they set")]
pub struct Knobs {
    pub receive_maximum: u16,
    pub max_inflight_out: u16,
    pub topic_alias_max: u16,
    pub topic_alias_out_max: u16,
    pub out_high_water: usize,
    pub queue_messages: usize,
    pub queue_bytes: usize,
    pub step_budget: u32,
    pub gate_deadline_ms: u64,
    pub cursor_flush_ms: u64,
    pub stall_ms: u64,
    /// 0 memory, 1 stored, 2 synced.
    pub durability: u8,
    pub offline_messages: u64,
    /// Beyond, publishes are refused instead of old messages dropped.
    #[serde(default)]
    pub offline_refuse_new: bool,
    /// 0 round robin, 1 random, 2 sticky, 3 hash of client, 4 hash of topic.
    pub share_strategy: u8,
    pub share_absence_ms: u64,
    pub sys_interval_ms: u64,
}

/// Temper of what surrounds the shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldKnobs {
    /// Largest delay of a network hop, µs.
    pub net_delay_us: u64,
    /// Largest chunk in which bytes arrive.
    pub chunk: usize,
    /// Bytes that a socket takes before it would block.
    pub socket_buffer: usize,
    /// Chance in 100 that a write takes only a part.
    pub partial_write: u8,
    /// Largest delay between shards, µs.
    pub peer_delay_us: u64,
    /// Largest time of a commit until it is applied, µs.
    pub store_delay_us: u64,
    /// Largest time of an fsync, µs.
    pub sync_us: u64,
    /// Largest delay of authentication, µs.
    pub auth_us: u64,
    /// The store keeps all of its log, as if its retention were long; otherwise what nobody needs goes at once.
    #[serde(default = "yes")]
    pub keeps_unneeded: bool,
    /// A foreign decoder reads every packet beside ours.
    #[serde(default = "yes")]
    pub foreign: bool,
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedOp {
    /// When.
    pub at_ms: u64,
    /// Whose.
    pub client: usize,
    /// What.
    pub op: Op,
}

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Connect; over a connection that it has, this is a takeover.
    Connect {
        /// Clean Start.
        clean: bool,
        /// A will.
        will: Option<WillSpec>,
    },
    /// SUBSCRIBE.
    Subscribe {
        /// Filters.
        filters: Vec<FilterSpec>,
        /// Subscription Identifier; 0 = none.
        id: u32,
    },
    /// UNSUBSCRIBE.
    Unsubscribe {
        /// Filters.
        filters: Vec<String>,
    },
    /// Several PUBLISH in a row.
    Publish {
        /// Topic name.
        topic: String,
        /// 0, 1 or 2.
        qos: u8,
        /// RETAIN.
        retain: bool,
        /// Message Expiry Interval in seconds; 0 = none.
        expiry_secs: u32,
        /// Padding of the payload, bytes.
        pad: usize,
        /// Use a topic alias (MQTT 5).
        alias: bool,
        /// How many.
        count: u32,
        /// Empty payload: removes the retained message.
        clear: bool,
    },
    /// DISCONNECT, then close.
    Disconnect {
        /// Reason 0x04 (MQTT 5): the will shall go out.
        with_will: bool,
    },
    /// The socket closes; what was on its way is cut at a random byte.
    Cut,
    /// The client vanishes without a FIN.
    Vanish,
    /// Stops reading for so long.
    StopReading {
        /// ms.
        ms: u64,
    },
    /// Stops acknowledging for so long.
    StopAcking {
        /// ms.
        ms: u64,
    },
    /// Sends bytes that are no MQTT.
    Garbage {
        /// They follow from it.
        seed: u64,
    },
    /// PINGREQ.
    Ping,
    /// Bytes of a stranger, over the connection that it has or a new one.
    Raw {
        /// They need not be MQTT.
        bytes: Vec<u8>,
        /// Over a new connection; the old one stays open.
        anew: bool,
    },
    /// AUTH 0x19, where the connection began with enhanced authentication.
    Reauthenticate,
}

/// A will.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WillSpec {
    /// 0, 1 or 2.
    pub qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// Will Delay Interval, seconds (MQTT 5).
    pub delay_secs: u32,
}

/// A filter with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// The filter, `$share/…` included.
    pub filter: String,
    /// 0, 1 or 2.
    pub qos: u8,
    /// No Local (MQTT 5).
    pub no_local: bool,
    /// Retain As Published (MQTT 5).
    pub rap: bool,
    /// Retain Handling (MQTT 5).
    pub retain_handling: u8,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedFault {
    /// When.
    pub at_ms: u64,
    /// What.
    pub fault: Fault,
}

/// What may go wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// The process dies and comes back.
    Crash {
        /// The power fails with it: what was not synced may be lost.
        power: bool,
        /// How long it is away, ms.
        down_ms: u64,
    },
    /// Commits with appends are refused for so long.
    StoreFull {
        /// ms.
        ms: u64,
    },
    /// The store refuses all for so long.
    StoreDown {
        /// ms.
        ms: u64,
    },
    /// Commits get no answer for so long; they may be applied or not.
    StoreSilent {
        /// ms.
        ms: u64,
    },
    /// The next fsync takes so long.
    SlowSync {
        /// ms.
        ms: u64,
    },
    /// The wall clock is set forward or back; the monotonic clock does not notice.
    SetClock {
        /// ms.
        by_ms: i64,
    },
}

/// Rules that are in use from some time on, until the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedRules {
    /// From when.
    pub at_ms: u64,
    /// All of the list; what none allows is forbidden.
    pub rules: Vec<RuleSpec>,
    /// Ordered rules before the list.
    #[serde(default)]
    pub ordered: Vec<OrderedSpec>,
}

/// An ordered rule; see `mast_core::authz::ordered`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderedSpec {
    /// Of the node, and not of each tenant.
    pub node: bool,
    /// What it says.
    pub allow: bool,
    /// About what.
    pub about: AboutSpec,
    /// For one user alone.
    pub user: Option<String>,
    /// For users of one group alone.
    pub group: Option<String>,
    /// About which topics; with `%c`, `%u` and `${home}`.
    pub filter: String,
}

/// What an ordered rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named for what they are about")]
pub enum AboutSpec {
    Publish,
    Subscribe,
    Receive,
    All,
}

/// A rule; see `mast_core::authz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// For one user, or for all, with `%c` for the client's id.
    pub user: Option<String>,
    /// What it says.
    pub grant: GrantSpec,
    /// About which topics.
    pub filter: String,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named for what they grant")]
pub enum GrantSpec {
    Read,
    Write,
    ReadWrite,
    Deny,
}

/// For scenarios that were written down before a knob was there.
fn yes() -> bool {
    true
}
