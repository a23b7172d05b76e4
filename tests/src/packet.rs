//! What the broker sent, decoded and owned.

use mast_core::codec::{self, Packet, PacketType, Props, Reason, Version, prop_id};

/// One packet from the broker.
#[derive(Clone, PartialEq, Eq)]
pub struct Got {
    /// Its bytes, fixed header included.
    pub bytes: Vec<u8>,
    /// Version of the connection.
    pub version: Version,
}

impl Got {
    /// Decodes it. A packet that a server may not send fails the test.
    pub fn packet(&self) -> Packet<'_> {
        let frame = codec::cut(&self.bytes, u32::MAX).expect("a valid header").expect("a whole packet");
        let packet = codec::decode(&frame, self.version);
        let packet = packet.unwrap_or_else(|e| panic!("the broker sent {:02x?}: {e}", self.bytes));
        if let Err(e) = codec::check_from_server(&packet, self.version) {
            panic!("the broker sent {packet:?}: {e}");
        }
        packet
    }

    /// Its type.
    pub fn ty(&self) -> PacketType {
        PacketType::of_first_byte(self.bytes[0]).expect("a packet type")
    }

    /// It as a PUBLISH.
    pub fn publish(&self) -> Pub {
        match self.packet() {
            Packet::Publish(p) => Pub {
                dup: p.dup,
                qos: p.qos as u8,
                retain: p.retain,
                id: p.packet_id,
                topic: p.topic.to_owned(),
                payload: p.payload.to_vec(),
                props: OwnedProps::of(&p.props),
            },
            other => panic!("expected PUBLISH, got {other:?}"),
        }
    }

    /// Reason code of CONNACK, of an acknowledgement, of DISCONNECT, of AUTH.
    pub fn reason(&self) -> u8 {
        match self.packet() {
            Packet::ConnAck(p) => p.code.0,
            Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => p.reason.0,
            Packet::Disconnect(p) => p.reason.0,
            Packet::Auth(p) => p.reason.0,
            other => panic!("{other:?} has no reason code"),
        }
    }

    /// Packet id of an acknowledgement of any kind, or of a PUBLISH.
    pub fn id(&self) -> u16 {
        match self.packet() {
            Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => p.packet_id,
            Packet::SubAck(p) | Packet::UnsubAck(p) => p.packet_id,
            Packet::Publish(p) => p.packet_id,
            other => panic!("{other:?} has no packet id"),
        }
    }

    /// Codes of a SUBACK or UNSUBACK.
    pub fn codes(&self) -> Vec<u8> {
        match self.packet() {
            Packet::SubAck(p) | Packet::UnsubAck(p) => p.codes.to_vec(),
            other => panic!("expected SUBACK or UNSUBACK, got {other:?}"),
        }
    }

    /// Session present of a CONNACK.
    pub fn session_present(&self) -> bool {
        match self.packet() {
            Packet::ConnAck(p) => p.session_present,
            other => panic!("expected CONNACK, got {other:?}"),
        }
    }

    /// Its properties.
    pub fn props(&self) -> Props<'_> {
        match self.packet() {
            Packet::ConnAck(p) => p.props,
            Packet::Publish(p) => p.props,
            Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => p.props,
            Packet::SubAck(p) | Packet::UnsubAck(p) => p.props,
            Packet::Disconnect(p) => p.props,
            Packet::Auth(p) => p.props,
            Packet::Connect(p) => p.props,
            Packet::Subscribe(p) => p.props,
            Packet::Unsubscribe(p) => p.props,
            Packet::PingReq | Packet::PingResp => Props::EMPTY,
        }
    }

    /// Whether it carries a Reason String or User Properties.
    pub fn has_problem_information(&self) -> bool {
        self.props().has(prop_id::REASON_STRING) || self.props().has(prop_id::USER_PROPERTY)
    }
}

impl std::fmt::Debug for Got {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frame = codec::cut(&self.bytes, u32::MAX).ok().flatten();
        match frame.map(|frame| codec::decode(&frame, self.version)) {
            Some(Ok(packet)) => write!(f, "{packet:?}"),
            Some(Err(e)) => write!(f, "undecodable ({e}) {:02x?}", self.bytes),
            None => write!(f, "{:02x?}", self.bytes),
        }
    }
}

/// A PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the fields are the packet's
pub struct Pub {
    pub dup: bool,
    pub qos: u8,
    pub retain: bool,
    /// 0 for QoS 0.
    pub id: u16,
    pub topic: String,
    pub payload: Vec<u8>,
    pub props: OwnedProps,
}

impl Pub {
    /// The payload as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("tests send text here")
    }
}

/// Properties of a PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the fields are the properties
pub struct OwnedProps {
    pub format: Option<u8>,
    pub expiry: Option<u32>,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation: Option<Vec<u8>>,
    pub alias: Option<u16>,
    /// Sorted.
    pub sub_ids: Vec<u32>,
    pub user: Vec<(String, String)>,
}

impl OwnedProps {
    fn of(props: &Props<'_>) -> OwnedProps {
        let mut sub_ids: Vec<u32> = props.subscription_ids().collect();
        sub_ids.sort_unstable();
        OwnedProps {
            format: props.payload_format(),
            expiry: props.message_expiry(),
            content_type: props.content_type().map(str::to_owned),
            response_topic: props.response_topic().map(str::to_owned),
            correlation: props.correlation_data().map(<[u8]>::to_vec),
            alias: props.topic_alias(),
            sub_ids,
            user: props.user_properties().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        }
    }
}

/// Whether a reason code may stand in a packet of this type.
pub fn reason_is_defined(ty: PacketType, code: u8) -> bool {
    let code = Reason(code);
    match ty {
        PacketType::ConnAck => code.in_connack(),
        PacketType::PubAck | PacketType::PubRec => code.in_puback(),
        PacketType::PubRel | PacketType::PubComp => code.in_pubrel(),
        PacketType::SubAck => code.in_suback(),
        PacketType::UnsubAck => code.in_unsuback(),
        PacketType::Disconnect => code.in_disconnect(),
        PacketType::Auth => code.in_auth(),
        PacketType::Connect
        | PacketType::Publish
        | PacketType::Subscribe
        | PacketType::Unsubscribe
        | PacketType::PingReq
        | PacketType::PingResp => false,
    }
}
