//! Any packet as owned parts, for proptest: a flat model of which each packet type uses what it has.

use mast_core::codec::*;
use mast_core::message::QoS;
use proptest::prelude::*;

/// Owned parts of one packet.
#[derive(Clone, Debug)]
pub struct Model {
    pub version: Version,
    pub kind: PacketType,
    qos: QoS,
    bits: [bool; 6],
    packet_id: u16,
    pick: usize,
    strings: [String; 3],
    binary: Vec<u8>,
    props: PropsBuf,
    will_props: PropsBuf,
    filters: Vec<(String, SubOptions)>,
    codes: Vec<usize>,
}

const CONNACK: &[u8] = &[
    0, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A,
    0x9B, 0x9C, 0x9D, 0x9F,
];
const PUBACK: &[u8] = &[0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const PUBREL: &[u8] = &[0, 0x92];
const SUBACK: &[u8] = &[0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2];
const UNSUBACK: &[u8] = &[0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const DISCONNECT: &[u8] = &[
    0, 4, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97,
    0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];
const KINDS: [PacketType; 15] = [
    PacketType::Connect,
    PacketType::ConnAck,
    PacketType::Publish,
    PacketType::PubAck,
    PacketType::PubRec,
    PacketType::PubRel,
    PacketType::PubComp,
    PacketType::Subscribe,
    PacketType::SubAck,
    PacketType::Unsubscribe,
    PacketType::UnsubAck,
    PacketType::PingReq,
    PacketType::PingResp,
    PacketType::Disconnect,
    PacketType::Auth,
];

/// Table 2-4 of the specification, written down a second time.
fn allowed(kind: PacketType, will: bool) -> &'static [u8] {
    match kind {
        PacketType::Connect if will => &[1, 2, 3, 8, 9, 24, 38],
        PacketType::Connect => &[17, 21, 22, 23, 25, 33, 34, 38, 39],
        PacketType::ConnAck => &[17, 18, 19, 21, 22, 26, 28, 31, 33, 34, 36, 37, 38, 39, 40, 41, 42],
        PacketType::Publish => &[1, 2, 3, 8, 9, 11, 35, 38],
        PacketType::PubAck | PacketType::PubRec | PacketType::PubRel | PacketType::PubComp => &[31, 38],
        PacketType::Subscribe => &[11, 38],
        PacketType::SubAck | PacketType::UnsubAck => &[31, 38],
        PacketType::Unsubscribe => &[38],
        PacketType::Disconnect => &[17, 28, 31, 38],
        PacketType::Auth => &[21, 22, 31, 38],
        PacketType::PingReq | PacketType::PingResp => &[],
    }
}

fn property<'a>(id: u8, n: u32, a: &'a str, b: &'a str) -> Property<'a> {
    let on = n & 1 == 1;
    match id {
        1 => Property::PayloadFormat(u8::from(on)),
        2 => Property::MessageExpiry(n),
        3 => Property::ContentType(a),
        8 => Property::ResponseTopic(a),
        9 => Property::CorrelationData(a.as_bytes()),
        11 => Property::SubscriptionId((n >> 4).max(1)),
        17 => Property::SessionExpiry(n),
        18 => Property::AssignedClientId(a),
        19 => Property::ServerKeepAlive(n as u16),
        21 => Property::AuthMethod(a),
        22 => Property::AuthData(b.as_bytes()),
        23 => Property::RequestProblemInfo(on),
        24 => Property::WillDelay(n),
        25 => Property::RequestResponseInfo(on),
        26 => Property::ResponseInfo(a),
        28 => Property::ServerReference(a),
        31 => Property::ReasonString(a),
        33 => Property::ReceiveMaximum((n as u16).max(1)),
        34 => Property::TopicAliasMaximum(n as u16),
        35 => Property::TopicAlias((n as u16).max(1)),
        36 => Property::MaximumQos(u8::from(on)),
        37 => Property::RetainAvailable(on),
        38 => Property::UserProperty(a, b),
        39 => Property::MaximumPacketSize(n.max(1)),
        40 => Property::WildcardAvailable(on),
        41 => Property::SubscriptionIdAvailable(on),
        42 => Property::SharedAvailable(on),
        other => panic!("no property {other}"),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z/]{0,12}",
        1 => "[\\u{1}-\\u{10ffff}]{0,6}",
        1 => "[a-é]{120,140}",
    ]
}

fn props(ids: &'static [u8], auth: bool) -> impl Strategy<Value = PropsBuf> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), text(), text()), 0..6).prop_map(
        move |parts| {
            let mut buf = PropsBuf::new();
            let mut seen = Vec::new();
            let mut put = |p: Property<'_>| {
                if !seen.contains(&p.id()) || p.id() == 38 {
                    seen.push(p.id());
                    buf.push(&p).unwrap();
                }
            };
            if auth {
                put(Property::AuthMethod("m"));
            }
            for (index, n, a, b) in &parts {
                if ids.is_empty() {
                    break;
                }
                let id = ids[index.index(ids.len())];
                if id == 22 {
                    put(Property::AuthMethod(a)); // data needs a method
                }
                put(property(id, *n, a, b));
            }
            buf
        },
    )
}

fn filter() -> impl Strategy<Value = (String, SubOptions)> {
    (text(), 0..3u8, any::<(bool, bool)>(), 0..3u8).prop_map(
        |(filter, qos, (no_local, rap), retain_handling)| {
            let qos = QoS::from_bits(qos).unwrap();
            (filter, SubOptions { qos, no_local, retain_as_published: rap, retain_handling })
        },
    )
}

/// Any valid packet of any version.
pub fn model() -> impl Strategy<Value = Model> {
    (0..3usize, 0..15usize).prop_flat_map(|(version, kind)| {
        let (version, kind) = (Version::ALL[version], KINDS[kind]);
        (
            (0..3u8, any::<[bool; 6]>(), 1..=u16::MAX, any::<u16>()),
            [text(), text(), text()],
            prop::collection::vec(any::<u8>(), 0..300),
            props(allowed(kind, false), kind == PacketType::Auth),
            props(allowed(kind, true), false),
            prop::collection::vec(filter(), 1..5),
            prop::collection::vec(0..100usize, 1..5),
        )
            .prop_map(
                move |((qos, bits, packet_id, pick), strings, binary, props, will_props, filters, codes)| {
                    Model {
                        version,
                        kind,
                        qos: QoS::from_bits(qos).unwrap(),
                        bits,
                        packet_id,
                        pick: pick as usize,
                        strings,
                        binary,
                        props,
                        will_props,
                        filters,
                        codes,
                    }
                },
            )
    })
}

impl Model {
    fn props(&self) -> Props<'_> {
        if self.version.is_v5() { self.props.as_props() } else { Props::EMPTY }
    }

    fn reason(&self, codes: &[u8]) -> Reason {
        Reason(if self.version.is_v5() { codes[self.pick % codes.len()] } else { 0 })
    }

    /// Encodes the packet; `None` when its version has no AUTH.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.with(|packet| packet.encode(self.version, &mut out)).ok()?;
        Some(out)
    }

    /// Calls `f` with the packet, in the form to which it decodes.
    pub fn with<R>(&self, f: impl FnOnce(Packet<'_>) -> R) -> R {
        let (props, packet_id) = (self.props(), self.packet_id);
        let ack = |codes| Ack { packet_id, reason: self.reason(codes), props };
        match self.kind {
            PacketType::Connect => f(Packet::Connect(self.connect())),
            PacketType::ConnAck => f(Packet::ConnAck(self.connack())),
            PacketType::Publish => f(Packet::Publish(self.publish())),
            PacketType::PubAck => f(Packet::PubAck(ack(PUBACK))),
            PacketType::PubRec => f(Packet::PubRec(ack(PUBACK))),
            PacketType::PubRel => f(Packet::PubRel(ack(PUBREL))),
            PacketType::PubComp => f(Packet::PubComp(ack(PUBREL))),
            PacketType::Subscribe => self.subscribe(f),
            PacketType::SubAck => {
                let set = if self.version.is_v5() { SUBACK } else { &SUBACK[..4] };
                let codes = self.codes.iter().map(|i| set[i % set.len()]).collect::<Vec<_>>();
                f(Packet::SubAck(SubAck { packet_id, props, codes: &codes }))
            }
            PacketType::Unsubscribe => {
                let mut names = NamesBuf::new();
                self.filters.iter().for_each(|(filter, _)| names.push(filter).unwrap());
                f(Packet::Unsubscribe(Unsubscribe { packet_id, props, filters: names.as_names() }))
            }
            PacketType::UnsubAck => {
                let mut codes: Vec<u8> = self.codes.iter().map(|i| UNSUBACK[i % UNSUBACK.len()]).collect();
                if !self.version.is_v5() {
                    codes.clear();
                }
                f(Packet::UnsubAck(SubAck { packet_id, props, codes: &codes }))
            }
            PacketType::PingReq => f(Packet::PingReq),
            PacketType::PingResp => f(Packet::PingResp),
            PacketType::Disconnect => {
                f(Packet::Disconnect(Disconnect { reason: self.reason(DISCONNECT), props }))
            }
            PacketType::Auth => f(Packet::Auth(Auth { reason: self.reason(&[0, 0x18, 0x19]), props })),
        }
    }

    fn connect(&self) -> Connect<'_> {
        let v5 = self.version.is_v5();
        let [clean_start, bridge, has_will, retain, named, secret] = self.bits;
        Connect {
            version: self.version,
            bridge: bridge && !v5,
            clean_start,
            keep_alive: self.pick as u16,
            props: self.props(),
            client_id: &self.strings[0],
            will: has_will.then(|| Will {
                qos: self.qos,
                retain,
                props: if v5 { self.will_props.as_props() } else { Props::EMPTY },
                topic: &self.strings[1],
                payload: &self.binary,
            }),
            username: named.then_some(&self.strings[2]),
            password: (secret && (named || v5)).then_some(&self.binary),
        }
    }

    fn connack(&self) -> ConnAck<'_> {
        let code = if self.version.is_v5() { self.reason(CONNACK) } else { Reason(self.pick as u8 % 6) };
        let session_present = self.bits[0] && code == Reason::SUCCESS && self.version != Version::V31;
        ConnAck { session_present, code, props: self.props() }
    }

    fn publish(&self) -> Publish<'_> {
        let props = self.props();
        let topic = &*self.strings[0];
        let confirmed = self.qos != QoS::AtMostOnce;
        Publish {
            dup: self.bits[0] && confirmed,
            qos: self.qos,
            retain: self.bits[1],
            topic: if topic.is_empty() && props.topic_alias().is_none() { "t" } else { topic },
            packet_id: if confirmed { self.packet_id } else { 0 },
            props,
            payload: &self.binary,
        }
    }

    fn subscribe<R>(&self, f: impl FnOnce(Packet<'_>) -> R) -> R {
        let mut filters = FiltersBuf::new();
        for (filter, options) in &self.filters {
            let no_local = options.no_local && !filter.starts_with("$share/");
            let options = if self.version.is_v5() {
                SubOptions { no_local, ..*options }
            } else {
                SubOptions::new(options.qos)
            };
            filters.push(filter, options).unwrap();
        }
        f(Packet::Subscribe(Subscribe {
            packet_id: self.packet_id,
            props: self.props(),
            filters: filters.as_filters(),
        }))
    }
}
