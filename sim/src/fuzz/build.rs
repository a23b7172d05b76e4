//! Valid packets of every type, built by choices that come from bytes.

use mast_core::codec::*;
use mast_core::message::QoS;

/// Choices from bytes; when they end, every choice is the first.
pub struct Source<'a> {
    rest: &'a [u8],
}

const TEXTS: [&str; 8] =
    ["", "a", "a/b", "$share/g/a/+", "é\u{FEFF}\u{FFFF}", "sensors/+/temperature/#", "\u{1}", "x y"];
const CONNACK: &[u8] = &[
    0, 0, 0, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99,
    0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
];
const PUBACK: &[u8] = &[0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const SUBACK: &[u8] = &[0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2];
const UNSUBACK: &[u8] = &[0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const DISCONNECT: &[u8] = &[
    0, 4, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97,
    0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];

impl<'a> Source<'a> {
    /// Choices from `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Source<'a> {
        Source { rest: bytes }
    }

    /// Every byte was used.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((byte, rest)) => {
                self.rest = rest;
                *byte
            }
            None => 0,
        }
    }

    /// True or false.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `of`, which is not empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.byte() as usize % of.len()]
    }

    /// A number, often an edge.
    pub fn number(&mut self) -> u32 {
        match self.byte() % 6 {
            0 => u32::from(self.byte()),
            1 => u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
            2 => u32::MAX,
            3 => 0x3FFF + u32::from(self.byte() & 1),
            4 => 0x1F_FFFF + u32::from(self.byte() & 1),
            _ => 0,
        }
    }

    /// Up to 255 bytes, rarely many more.
    pub fn binary(&mut self) -> Vec<u8> {
        match self.byte() {
            255 => vec![0x55; 16_380 + usize::from(self.byte())],
            len => {
                let len = usize::from(len).min(self.rest.len());
                let (taken, rest) = self.rest.split_at(len);
                self.rest = rest;
                taken.to_vec()
            }
        }
    }

    /// A string that MQTT allows.
    pub fn text(&mut self) -> String {
        match self.byte() {
            0..=127 => String::from(self.pick(&TEXTS)),
            128..=200 => String::from_utf8_lossy(&self.binary()).replace('\0', "?"),
            201..=230 => "t".repeat(usize::from(self.byte()) * 257),
            _ => String::from("q"),
        }
    }

    fn qos(&mut self) -> QoS {
        self.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
    }

    fn packet_id(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()]).max(1)
    }

    fn codes(&mut self, of: &[u8]) -> Vec<u8> {
        (0..=self.byte() % 5).map(|_| self.pick(of)).collect()
    }

    /// Properties from the identifiers `of`, each once but user properties.
    fn props(&mut self, of: &[u8]) -> PropsBuf {
        let mut buf = PropsBuf::new();
        let count = self.byte() % 8;
        for _ in 0..count {
            let id = self.pick(of);
            if id == prop_id::AUTH_DATA {
                self.put(prop_id::AUTH_METHOD, &mut buf);
            }
            self.put(id, &mut buf);
        }
        buf
    }

    fn put(&mut self, id: u8, buf: &mut PropsBuf) {
        if buf.as_props().has(id) && id != prop_id::USER_PROPERTY {
            return;
        }
        let (a, b) = (self.text(), self.text());
        let n = self.number();
        let on = n & 1 == 1;
        let property = match id {
            prop_id::PAYLOAD_FORMAT => Property::PayloadFormat(u8::from(on)),
            prop_id::MESSAGE_EXPIRY => Property::MessageExpiry(n),
            prop_id::CONTENT_TYPE => Property::ContentType(&a),
            prop_id::RESPONSE_TOPIC => Property::ResponseTopic(&a),
            prop_id::CORRELATION_DATA => Property::CorrelationData(a.as_bytes()),
            prop_id::SUBSCRIPTION_ID => Property::SubscriptionId(n.clamp(1, 268_435_455)),
            prop_id::SESSION_EXPIRY => Property::SessionExpiry(n),
            prop_id::ASSIGNED_CLIENT_ID => Property::AssignedClientId(&a),
            prop_id::SERVER_KEEP_ALIVE => Property::ServerKeepAlive(n as u16),
            prop_id::AUTH_METHOD => Property::AuthMethod(&a),
            prop_id::AUTH_DATA => Property::AuthData(b.as_bytes()),
            prop_id::REQUEST_PROBLEM_INFO => Property::RequestProblemInfo(on),
            prop_id::WILL_DELAY => Property::WillDelay(n),
            prop_id::REQUEST_RESPONSE_INFO => Property::RequestResponseInfo(on),
            prop_id::RESPONSE_INFO => Property::ResponseInfo(&a),
            prop_id::SERVER_REFERENCE => Property::ServerReference(&a),
            prop_id::REASON_STRING => Property::ReasonString(&a),
            prop_id::RECEIVE_MAXIMUM => Property::ReceiveMaximum((n as u16).max(1)),
            prop_id::TOPIC_ALIAS_MAXIMUM => Property::TopicAliasMaximum(n as u16),
            prop_id::TOPIC_ALIAS => Property::TopicAlias((n as u16).max(1)),
            prop_id::MAXIMUM_QOS => Property::MaximumQos(u8::from(on)),
            prop_id::RETAIN_AVAILABLE => Property::RetainAvailable(on),
            prop_id::MAXIMUM_PACKET_SIZE => Property::MaximumPacketSize(n.max(1)),
            prop_id::WILDCARD_AVAILABLE => Property::WildcardAvailable(on),
            prop_id::SUBSCRIPTION_ID_AVAILABLE => Property::SubscriptionIdAvailable(on),
            prop_id::SHARED_AVAILABLE => Property::SharedAvailable(on),
            _ => Property::UserProperty(&a, &b),
        };
        buf.push(&property).expect("every text is short enough");
    }

    /// Builds a packet of `version` and calls `f` with it, in the form to which it decodes. AUTH, which only
    /// MQTT 5 has, is PINGREQ before.
    pub fn packet<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        match self.byte() % 15 {
            0 => self.publish(version, f),
            1 => self.connect(version, f),
            2 => self.subscribe(version, f),
            3 => self.connack(version, f),
            4 => self.ack(version, PUBACK, |ack| f(&Packet::PubAck(ack))),
            5 => self.ack(version, PUBACK, |ack| f(&Packet::PubRec(ack))),
            6 => self.ack(version, &[0, 0x92], |ack| f(&Packet::PubRel(ack))),
            7 => self.ack(version, &[0, 0x92], |ack| f(&Packet::PubComp(ack))),
            8 => self.suback(version, f),
            9 => self.unsubscribe(version, f),
            10 => self.unsuback(version, f),
            11 => f(&Packet::PingReq),
            12 => f(&Packet::PingResp),
            13 => {
                let reason = Reason(if version.is_v5() { self.pick(DISCONNECT) } else { 0 });
                let buf = self.props(&[17, 28, 31, 38]);
                f(&Packet::Disconnect(Disconnect { reason, props: v5_only(&buf, version) }))
            }
            _ => self.auth(version, f),
        }
    }

    fn connect<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let buf = self.props(&[17, 21, 22, 23, 25, 33, 34, 38, 39]);
        let will_buf = self.props(&[1, 2, 3, 8, 9, 24, 38]);
        let (client_id, topic, payload) = (self.text(), self.text(), self.binary());
        let username = self.flag().then(|| self.text());
        let has_password = self.flag() && (version.is_v5() || username.is_some());
        let password =
            has_password.then(|| if self.flag() { self.binary() } else { self.text().into_bytes() });
        f(&Packet::Connect(Connect {
            version,
            bridge: self.flag() && !version.is_v5(),
            clean_start: self.flag(),
            keep_alive: self.number() as u16,
            props: v5_only(&buf, version),
            client_id: &client_id,
            will: self.flag().then(|| Will {
                qos: self.qos(),
                retain: self.flag(),
                props: v5_only(&will_buf, version),
                topic: &topic,
                payload: &payload,
            }),
            username: username.as_deref(),
            password: password.as_deref(),
        }))
    }

    fn connack<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let code = Reason(if version.is_v5() { self.pick(CONNACK) } else { self.byte() % 6 });
        let session_present = self.flag() && code == Reason::SUCCESS && version != Version::V31;
        let buf = self.props(&[17, 18, 19, 21, 22, 26, 28, 31, 33, 34, 36, 37, 38, 39, 40, 41, 42]);
        f(&Packet::ConnAck(ConnAck { session_present, code, props: v5_only(&buf, version) }))
    }

    fn publish<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let qos = self.qos();
        let confirmed = qos != QoS::AtMostOnce;
        let buf = self.props(&[1, 2, 3, 8, 9, 11, 35, 38]);
        let props = v5_only(&buf, version);
        let (mut topic, payload) = (self.text(), self.binary());
        if topic.is_empty() && props.topic_alias().is_none() {
            topic.push('t');
        }
        f(&Packet::Publish(Publish {
            dup: self.flag() && confirmed,
            qos,
            retain: self.flag(),
            topic: &topic,
            packet_id: if confirmed { self.packet_id() } else { 0 },
            props,
            payload: &payload,
        }))
    }

    fn ack<R>(&mut self, version: Version, of: &[u8], f: impl FnOnce(Ack<'_>) -> R) -> R {
        let packet_id = self.packet_id();
        let reason = Reason(if version.is_v5() { self.pick(of) } else { 0 });
        let buf = self.props(&[31, 38]);
        f(Ack { packet_id, reason, props: v5_only(&buf, version) })
    }

    fn subscribe<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let packet_id = self.packet_id();
        let buf = self.props(&[11, 38]);
        let mut filters = FiltersBuf::new();
        for _ in 0..=self.byte() % 4 {
            let (filter, qos) = (self.text(), self.qos());
            let mut options = SubOptions::new(qos);
            if version.is_v5() {
                options.no_local = self.flag() && !filter.starts_with("$share/");
                options.retain_as_published = self.flag();
                options.retain_handling = self.byte() % 3;
            }
            filters.push(&filter, options).expect("every text is short enough");
        }
        let props = v5_only(&buf, version);
        f(&Packet::Subscribe(Subscribe { packet_id, props, filters: filters.as_filters() }))
    }

    fn unsubscribe<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let packet_id = self.packet_id();
        let buf = self.props(&[38]);
        let mut names = NamesBuf::new();
        for _ in 0..=self.byte() % 4 {
            names.push(&self.text()).expect("every text is short enough");
        }
        let props = v5_only(&buf, version);
        f(&Packet::Unsubscribe(Unsubscribe { packet_id, props, filters: names.as_names() }))
    }

    fn suback<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let packet_id = self.packet_id();
        let buf = self.props(&[31, 38]);
        let codes = self.codes(if version.is_v5() { SUBACK } else { &SUBACK[..4] });
        f(&Packet::SubAck(SubAck { packet_id, props: v5_only(&buf, version), codes: &codes }))
    }

    fn unsuback<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        let packet_id = self.packet_id();
        let buf = self.props(&[31, 38]);
        let codes = if version.is_v5() { self.codes(UNSUBACK) } else { Vec::new() };
        f(&Packet::UnsubAck(SubAck { packet_id, props: v5_only(&buf, version), codes: &codes }))
    }

    fn auth<R>(&mut self, version: Version, f: impl FnOnce(&Packet<'_>) -> R) -> R {
        if !version.is_v5() {
            return f(&Packet::PingReq);
        }
        let reason = Reason(self.pick(&[0, 0x18, 0x19]));
        let mut buf = PropsBuf::new();
        let short = reason == Reason::SUCCESS && self.flag();
        if !short {
            self.put(prop_id::AUTH_METHOD, &mut buf);
            for id in [prop_id::AUTH_DATA, prop_id::REASON_STRING, prop_id::USER_PROPERTY] {
                if self.flag() {
                    self.put(id, &mut buf);
                }
            }
        }
        f(&Packet::Auth(Auth { reason, props: buf.as_props() }))
    }
}

fn v5_only(buf: &PropsBuf, version: Version) -> Props<'_> {
    if version.is_v5() { buf.as_props() } else { Props::EMPTY }
}
