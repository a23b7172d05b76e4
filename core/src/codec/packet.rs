//! The packets, borrowing their fields from the received frame or from whoever sends them.

use super::filters::{Filters, Names};
use super::props::Props;
use super::reason::Reason;
use super::version::Version;
use crate::message::QoS;

/// Any control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants are the packets' names
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(SubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

/// The type of a packet: the upper four bits of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the variants are the packets' names
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The type in a packet's first byte; `None` for the reserved type 0.
    #[must_use]
    pub const fn of_first_byte(first: u8) -> Option<PacketType> {
        Some(match first >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The first byte of a packet of this type other than PUBLISH, whose flags are its own: type and the
    /// fixed flags [MQTT-2.1.3-1].
    #[must_use]
    pub const fn first_byte(self) -> u8 {
        let flags = match self {
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 2,
            PacketType::Connect
            | PacketType::ConnAck
            | PacketType::Publish
            | PacketType::PubAck
            | PacketType::PubRec
            | PacketType::PubComp
            | PacketType::SubAck
            | PacketType::UnsubAck
            | PacketType::PingReq
            | PacketType::PingResp
            | PacketType::Disconnect
            | PacketType::Auth => 0,
        };
        (self as u8) << 4 | flags
    }

    /// Lower-case name for logs and the metric label `packet`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PacketType::Connect => "connect",
            PacketType::ConnAck => "connack",
            PacketType::Publish => "publish",
            PacketType::PubAck => "puback",
            PacketType::PubRec => "pubrec",
            PacketType::PubRel => "pubrel",
            PacketType::PubComp => "pubcomp",
            PacketType::Subscribe => "subscribe",
            PacketType::SubAck => "suback",
            PacketType::Unsubscribe => "unsubscribe",
            PacketType::UnsubAck => "unsuback",
            PacketType::PingReq => "pingreq",
            PacketType::PingResp => "pingresp",
            PacketType::Disconnect => "disconnect",
            PacketType::Auth => "auth",
        }
    }
}

impl Packet<'_> {
    /// Its type.
    #[must_use]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }
}

/// CONNECT. Its own `version` decides its format, also in `encode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Protocol version.
    pub version: Version,
    /// The level had bit 0x80, by which Mosquitto marks its bridges in 3.1 and 3.1.1.
    pub bridge: bool,
    /// Clean Start; Clean Session in 3.x.
    pub clean_start: bool,
    /// Keep alive in seconds; 0 = off.
    pub keep_alive: u16,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
    /// Client identifier; may be empty. Limits of 3.1 (1 to 23 bytes) are the business of the layer above.
    pub client_id: &'a str,
    /// The will.
    pub will: Option<Will<'a>>,
    /// User name.
    pub username: Option<&'a str>,
    /// Password: binary [MQTT-3.1.2-19].
    pub password: Option<&'a [u8]>,
}

/// The Will of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// QoS to publish it with.
    pub qos: QoS,
    /// RETAIN flag to publish it with.
    pub retain: bool,
    /// Will properties; empty in 3.x.
    pub props: Props<'a>,
    /// Topic, not checked for topic syntax.
    pub topic: &'a str,
    /// Payload.
    pub payload: &'a [u8],
}

/// CONNACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// The server had a session. Not written for 3.1, which has no such flag.
    pub session_present: bool,
    /// MQTT 5 reason. In 3.x: decoded as the raw return code 0..=5; encoded through
    /// [`Reason::v3_return_code`], as 3 (server unavailable) where that has none.
    pub code: Reason,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
}

/// PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// DUP flag.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// RETAIN flag.
    pub retain: bool,
    /// Topic, not checked for topic syntax; empty only with a topic alias.
    pub topic: &'a str,
    /// Packet identifier; 0 for QoS 0, which has none.
    pub packet_id: u16,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
    /// Application payload.
    pub payload: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Packet identifier, not 0.
    pub packet_id: u16,
    /// Reason; success in 3.x.
    pub reason: Reason,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
}

/// SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Packet identifier, not 0.
    pub packet_id: u16,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
    /// At least one filter with its options.
    pub filters: Filters<'a>,
}

/// UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Packet identifier, not 0.
    pub packet_id: u16,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
    /// At least one filter.
    pub filters: Names<'a>,
}

/// SUBACK or UNSUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// Packet identifier, not 0.
    pub packet_id: u16,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
    /// One reason code per filter. In 3.x a SUBACK's failures are written as 0x80 and an UNSUBACK has none.
    pub codes: &'a [u8],
}

/// DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// Reason; success in 3.x.
    pub reason: Reason,
    /// Properties; empty in 3.x.
    pub props: Props<'a>,
}

/// AUTH (MQTT 5 only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Reason: 0x00, 0x18 or 0x19.
    pub reason: Reason,
    /// Properties.
    pub props: Props<'a>,
}
