//! A client connection inside its shard: what lives as long as the socket.

pub mod handshake;
pub mod identity;
pub mod outbuf;

pub(crate) mod acks;
pub(crate) mod admit;
pub(crate) mod alias;
pub(crate) mod close;
pub(crate) mod receive;
pub(crate) mod timing;

use crate::codec::Version;
use crate::conn::acks::AckQueue;
use crate::conn::alias::{AliasesIn, AliasesOut};
use crate::conn::outbuf::OutBuf;
use crate::ids::{ConnId, SessionId};
use crate::publish::cache::RouteCache;
use crate::quota::ConnQuota;
use crate::subscribe::fence::Fence;
use crate::tenant::mount::Mount;
use crate::time::{Mono, Now, Wall};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// CONNACK waits for the store: nothing is read from the client's stream.
    Connecting,
    /// CONNACK is out.
    Online,
    /// Nothing more is read; the driver was told to close.
    Closing,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub id: ConnId,
    pub phase: Phase,
    pub version: Version,
    pub mount: Mount,
    pub session: SessionId,
    pub out: OutBuf,
    /// In the dirty list.
    pub dirty: bool,
    /// The driver was told to stop reading.
    pub paused: bool,
    /// The driver itself does not read it for now.
    pub unread: bool,
    /// Bytes not yet processed: an incomplete frame, or whatever came while nothing could be processed.
    pub hold: Vec<u8>,
    /// Of the SUBSCRIBE that is next in `hold`, if one is.
    pub fence: Fence,
    /// Silence allowed, µs; 0 = any.
    pub keep_alive_micros: u64,
    pub last_seen: Mono,
    /// Its CONNECT was admitted then.
    pub since: Wall,
    /// Since when an incomplete packet is known to wait for its rest.
    pub partial_since: Option<Mono>,
    /// Since when output waits without any progress.
    pub stalled_since: Option<Mono>,
    /// Maximum Packet Size of the client, bytes.
    pub max_packet_out: u32,
    /// The client wants reason strings and user properties [MQTT-3.1.2-29].
    pub problem_info: bool,
    pub aliases_in: AliasesIn,
    pub aliases_out: AliasesOut,
    /// What is known of the topic it published to last.
    pub route: Option<Box<RouteCache>>,
    pub acks: AckQueue,
    /// QoS 1 and 2 publishes received on this connection that are not finished (MQTT 5, 4.9).
    pub open_publishes: u32,
    /// Our Receive Maximum towards this client.
    pub acks_max: u16,
    /// Appends of this connection that the store has not answered.
    pub appends: Vec<(u64, u32)>,
    pub appends_total: u32,
    pub username: Option<Box<str>>,
    /// When what the client proved itself with ends.
    pub expires: Option<Wall>,
    /// A stock bridge: its subscriptions act as no-local and retain-as-published.
    pub bridge: bool,
    pub auth_method: Option<Box<str>>,
    /// Largest packet from the client, as it was told.
    pub max_packet_in: u32,
    pub quota: ConnQuota,
}

impl Conn {
    pub fn new(id: ConnId, version: Version, mount: Mount, session: SessionId, now: Now) -> Conn {
        Conn {
            id,
            phase: Phase::Connecting,
            version,
            mount,
            session,
            out: OutBuf::default(),
            dirty: false,
            paused: false,
            unread: false,
            hold: Vec::new(),
            fence: Fence::Open,
            keep_alive_micros: 0,
            last_seen: now.mono,
            since: now.wall,
            partial_since: None,
            stalled_since: None,
            max_packet_out: u32::MAX,
            problem_info: true,
            aliases_in: AliasesIn::default(),
            aliases_out: AliasesOut::default(),
            route: None,
            acks: AckQueue::default(),
            open_publishes: 0,
            acks_max: u16::MAX,
            appends: Vec::new(),
            appends_total: 0,
            username: None,
            expires: None,
            bridge: false,
            auth_method: None,
            max_packet_in: u32::MAX,
            quota: ConnQuota::default(),
        }
    }
}
