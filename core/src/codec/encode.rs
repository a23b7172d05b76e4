//! From a packet to bytes. Each body is written twice, once into a counter for its length, once for real.

use super::decode_connect::{BRIDGE, flag};
use super::frame::MAX_REMAINING;
use super::packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, Publish, SubAck, Subscribe, Unsubscribe,
};
use super::props::Props;
use super::reason::Reason;
use super::sink::{Count, Sink, put_varint, varint_len};
use super::version::Version;
use super::violation::EncodeError;
use crate::message::QoS;
use alloc::vec::Vec;

impl Packet<'_> {
    /// Appends the packet in the form of `version` (a CONNECT in that of its own version). What a version
    /// cannot say is left out: properties and reasons before MQTT 5, subscription options but the QoS.
    ///
    /// # Errors
    /// A field or the packet is too long, or the version has no form for it. Then nothing is appended.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_version(version)?;
        let mut count = Count::default();
        self.write_body(version, &mut count);
        if count.too_long || count.len > MAX_REMAINING {
            return Err(EncodeError::TooLong);
        }
        out.reserve(1 + varint_len(count.len) + count.len);
        out.push(self.first_byte());
        put_varint(count.len, out);
        self.write_body(version, out);
        Ok(())
    }

    /// Bytes that [`Packet::encode`] appends on success.
    #[must_use]
    pub fn encoded_len(&self, version: Version) -> usize {
        let mut count = Count::default();
        self.write_body(version, &mut count);
        1 + varint_len(count.len) + count.len
    }

    fn check_version(&self, version: Version) -> Result<(), EncodeError> {
        let unsayable = match self {
            Packet::Auth(_) => !version.is_v5(),
            Packet::Connect(c) => !c.version.is_v5() && c.password.is_some() && c.username.is_none(),
            Packet::ConnAck(_)
            | Packet::Publish(_)
            | Packet::PubAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::Subscribe(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingReq
            | Packet::PingResp
            | Packet::Disconnect(_) => false,
        };
        if unsayable { Err(EncodeError::NotInVersion) } else { Ok(()) }
    }

    fn first_byte(&self) -> u8 {
        match self {
            Packet::Publish(p) => publish_first_byte(p.dup, p.qos, p.retain),
            other => other.packet_type().first_byte(),
        }
    }

    fn write_body(&self, version: Version, s: &mut impl Sink) {
        match self {
            Packet::Connect(p) => connect(p, s),
            Packet::ConnAck(p) => connack(p, version, s),
            Packet::Publish(p) => publish(p, version, s),
            Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
                ack(p, version, s)
            }
            Packet::Subscribe(p) => subscribe(p, version, s),
            Packet::SubAck(p) => suback(p, version, s),
            Packet::Unsubscribe(p) => unsubscribe(p, version, s),
            Packet::UnsubAck(p) => unsuback(p, version, s),
            Packet::PingReq | Packet::PingResp => {}
            Packet::Disconnect(p) => disconnect(p, version, s),
            Packet::Auth(p) => auth(p, s),
        }
    }
}

/// PUBLISH's first byte; DUP is never set with QoS 0 [MQTT-3.3.1-2].
#[inline]
pub(super) const fn publish_first_byte(dup: bool, qos: QoS, retain: bool) -> u8 {
    let dup = dup && !matches!(qos, QoS::AtMostOnce);
    0x30 | (dup as u8) << 3 | (qos as u8) << 1 | retain as u8
}

fn props(props: &Props<'_>, version: Version, s: &mut impl Sink) {
    if version.is_v5() {
        s.varint(props.raw().len());
        s.bytes(props.raw());
    }
}

fn connect(p: &Connect<'_>, s: &mut impl Sink) {
    let version = p.version;
    s.str(version.protocol_name());
    s.u8(version.level() | if p.bridge && !version.is_v5() { BRIDGE } else { 0 });
    let mut flags = 0;
    let mut set = |on: bool, bits: u8| flags |= if on { bits } else { 0 };
    set(p.clean_start, flag::CLEAN_START);
    set(p.username.is_some(), flag::USERNAME);
    set(p.password.is_some(), flag::PASSWORD);
    if let Some(will) = &p.will {
        set(true, flag::WILL | (will.qos as u8) << 3);
        set(will.retain, flag::WILL_RETAIN);
    }
    s.u8(flags);
    s.u16(p.keep_alive);
    props(&p.props, version, s);
    s.str(p.client_id);
    if let Some(will) = &p.will {
        props(&will.props, version, s);
        s.str(will.topic);
        s.bin(will.payload);
    }
    if let Some(name) = p.username {
        s.str(name);
    }
    if let Some(password) = p.password {
        s.bin(password);
    }
}

fn connack(p: &ConnAck<'_>, version: Version, s: &mut impl Sink) {
    let code = if version.is_v5() { p.code.0 } else { p.code.v3_return_code().unwrap_or(3) };
    // A refusal never says session present [MQTT-3.2.2-6]; 3.1 has no such flag.
    s.u8(u8::from(p.session_present && code == 0 && version != Version::V31));
    s.u8(code);
    props(&p.props, version, s);
}

fn publish(p: &Publish<'_>, version: Version, s: &mut impl Sink) {
    s.str(p.topic);
    if p.qos != QoS::AtMostOnce {
        s.u16(p.packet_id);
    }
    props(&p.props, version, s);
    s.bytes(p.payload);
}

fn ack(p: &Ack<'_>, version: Version, s: &mut impl Sink) {
    s.u16(p.packet_id);
    reason_and_props(p.reason, &p.props, version, s);
}

/// The shortest form: properties left out when there are none, the reason too when it is success.
fn reason_and_props(reason: Reason, list: &Props<'_>, version: Version, s: &mut impl Sink) {
    if !version.is_v5() || (reason == Reason::SUCCESS && list.is_empty()) {
        return;
    }
    s.u8(reason.0);
    if !list.is_empty() {
        props(list, version, s);
    }
}

fn subscribe(p: &Subscribe<'_>, version: Version, s: &mut impl Sink) {
    s.u16(p.packet_id);
    props(&p.props, version, s);
    p.filters.write(version, s);
}

fn unsubscribe(p: &Unsubscribe<'_>, version: Version, s: &mut impl Sink) {
    s.u16(p.packet_id);
    props(&p.props, version, s);
    p.filters.write(s);
}

fn suback(p: &SubAck<'_>, version: Version, s: &mut impl Sink) {
    s.u16(p.packet_id);
    props(&p.props, version, s);
    if version.is_v5() {
        return s.bytes(p.codes);
    }
    for &code in p.codes {
        s.u8(if Reason(code).is_error() { 0x80 } else { code });
    }
}

fn unsuback(p: &SubAck<'_>, version: Version, s: &mut impl Sink) {
    s.u16(p.packet_id);
    if version.is_v5() {
        props(&p.props, version, s);
        s.bytes(p.codes);
    }
}

fn disconnect(p: &Disconnect<'_>, version: Version, s: &mut impl Sink) {
    reason_and_props(p.reason, &p.props, version, s);
}

fn auth(p: &Auth<'_>, s: &mut impl Sink) {
    // Unlike the acknowledgements, a reason always comes with a property length (MQTT 5, 3.15.2.1).
    if p.reason != Reason::SUCCESS || !p.props.is_empty() {
        s.u8(p.reason.0);
        props(&p.props, Version::V5, s);
    }
}
