//! From a frame to a packet, for every type but CONNECT.

use super::decode_connect::connect;
use super::filters::{Filters, Names};
use super::frame::Frame;
use super::packet::{
    Ack, Auth, ConnAck, Disconnect, Packet, PacketType, Publish, SubAck, Subscribe, Unsubscribe,
};
use super::property::prop_id;
use super::props::Props;
use super::props_check::Place;
use super::reader::Reader;
use super::reason::Reason;
use super::version::Version;
use super::violation::Violation;
use crate::message::QoS;

const TYPE_ZERO: Violation = Violation::malformed("packet type 0 is reserved", "");
const AUTH_BEFORE_V5: Violation = Violation::malformed("packet type 15 is reserved before MQTT 5", "");
const FLAGS: Violation =
    Violation::malformed("fixed header flags have not their fixed value", "MQTT-2.1.3-1");
const QOS_THREE: Violation = Violation::malformed("PUBLISH with QoS 3", "MQTT-3.3.1-4");
const DUP_QOS_0: Violation = Violation::malformed("PUBLISH with DUP and QoS 0", "MQTT-3.3.1-2");
const NO_TOPIC: Violation =
    Violation::protocol("PUBLISH with neither topic name nor topic alias", "MQTT-4.7.3-1");
const ID_ZERO: Violation = Violation::protocol("packet identifier is 0", "MQTT-2.2.1-3");
const ACK_FLAGS: Violation = Violation::malformed("reserved CONNACK flags are set", "MQTT-3.2.2-1");
const PRESENT_AND_ERROR: Violation =
    Violation::protocol("CONNACK refuses and says session present", "MQTT-3.2.2-6");
const CONNACK_CODE: Violation = Violation::protocol("code is not one of CONNACK's", "MQTT-3.2.2-8");
const PUBACK_CODE: Violation = Violation::protocol("reason code is not one of PUBACK's", "MQTT-3.4.2-1");
const PUBREC_CODE: Violation = Violation::protocol("reason code is not one of PUBREC's", "MQTT-3.5.2-1");
const PUBREL_CODE: Violation = Violation::protocol("reason code is not one of PUBREL's", "MQTT-3.6.2-1");
const PUBCOMP_CODE: Violation = Violation::protocol("reason code is not one of PUBCOMP's", "MQTT-3.7.2-1");
const SUBACK_CODE: Violation = Violation::protocol("reason code is not one of SUBACK's", "MQTT-3.9.3-2");
const SUBACK_EMPTY: Violation = Violation::protocol("acknowledgement without reason codes", "MQTT-3.9.3-1");
const UNSUBACK_CODE: Violation = Violation::protocol("reason code is not one of UNSUBACK's", "MQTT-3.11.3-2");
const DISCONNECT_CODE: Violation =
    Violation::protocol("reason code is not one of DISCONNECT's", "MQTT-3.14.2-1");
const AUTH_CODE: Violation = Violation::protocol("reason code is not one of AUTH's", "MQTT-3.15.2-1");
const AUTH_METHOD: Violation = Violation::protocol("AUTH without authentication method", "");

/// Decodes `frame`. `version` is the connection's; for CONNECT the version inside the packet counts.
///
/// # Errors
/// Everything that breaks the protocol within one packet, whoever sent it.
#[inline]
pub fn decode<'a>(frame: &Frame<'a>, version: Version) -> Result<Packet<'a>, Violation> {
    if frame.first >> 4 == PacketType::Publish as u8 {
        return publish(frame, version).map(Packet::Publish);
    }
    decode_other(frame, version)
}

fn decode_other<'a>(frame: &Frame<'a>, version: Version) -> Result<Packet<'a>, Violation> {
    let Some(packet_type) = PacketType::of_first_byte(frame.first) else { return Err(TYPE_ZERO) };
    check_flags(packet_type, frame.first, version)?;
    let mut r = Reader::new(frame.body);
    let r = &mut r;
    Ok(match packet_type {
        PacketType::Connect => Packet::Connect(connect(r)?),
        PacketType::ConnAck => Packet::ConnAck(connack(r, version)?),
        PacketType::Publish => Packet::Publish(publish(frame, version)?),
        PacketType::PubAck => Packet::PubAck(ack(r, version, Reason::in_puback, PUBACK_CODE)?),
        PacketType::PubRec => Packet::PubRec(ack(r, version, Reason::in_puback, PUBREC_CODE)?),
        PacketType::PubRel => Packet::PubRel(ack(r, version, Reason::in_pubrel, PUBREL_CODE)?),
        PacketType::PubComp => Packet::PubComp(ack(r, version, Reason::in_pubrel, PUBCOMP_CODE)?),
        PacketType::Subscribe => Packet::Subscribe(subscribe(r, version)?),
        PacketType::SubAck => Packet::SubAck(suback(r, version)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(unsubscribe(r, version)?),
        PacketType::UnsubAck => Packet::UnsubAck(unsuback(r, version)?),
        PacketType::PingReq => {
            r.end()?;
            Packet::PingReq
        }
        PacketType::PingResp => {
            r.end()?;
            Packet::PingResp
        }
        PacketType::Disconnect => Packet::Disconnect(disconnect(r, version)?),
        PacketType::Auth => Packet::Auth(auth(r, version)?),
    })
}

/// MQTT 3.1 knows DUP on PUBREL, SUBSCRIBE and UNSUBSCRIBE too (3.1, section 2.1); it says nothing new there.
fn check_flags(packet_type: PacketType, first: u8, version: Version) -> Result<(), Violation> {
    const DUP: u8 = 8;
    let expected = packet_type.first_byte();
    let may_dup = version == Version::V31 && expected & 0x0F == 2;
    if first == expected || (may_dup && first == expected | DUP) { Ok(()) } else { Err(FLAGS) }
}

#[inline]
fn publish<'a>(frame: &Frame<'a>, version: Version) -> Result<Publish<'a>, Violation> {
    let Some(qos) = QoS::from_bits(frame.first >> 1 & 3) else { return Err(QOS_THREE) };
    let dup = frame.first & 8 != 0;
    let mut r = Reader::new(frame.body);
    let topic = r.str()?;
    let packet_id = if qos == QoS::AtMostOnce {
        if dup {
            return Err(DUP_QOS_0);
        }
        0
    } else {
        packet_id(&mut r)?
    };
    let props = if version.is_v5() { Props::read(&mut r, Place::Publish)? } else { Props::EMPTY };
    if topic.is_empty() && !props.has(prop_id::TOPIC_ALIAS) {
        return Err(NO_TOPIC);
    }
    let retain = frame.first & 1 != 0;
    Ok(Publish { dup, qos, retain, topic, packet_id, props, payload: r.rest() })
}

#[inline]
fn packet_id(r: &mut Reader<'_>) -> Result<u16, Violation> {
    match r.u16()? {
        0 => Err(ID_ZERO),
        id => Ok(id),
    }
}

fn read_props<'a>(r: &mut Reader<'a>, version: Version, place: Place) -> Result<Props<'a>, Violation> {
    if version.is_v5() { Props::read(r, place) } else { Ok(Props::EMPTY) }
}

fn connack<'a>(r: &mut Reader<'a>, version: Version) -> Result<ConnAck<'a>, Violation> {
    let flags = r.u8()?;
    // In 3.1 the byte is reserved as a whole.
    if flags > u8::from(version != Version::V31) {
        return Err(ACK_FLAGS);
    }
    let session_present = flags == 1;
    let code = Reason(r.u8()?);
    let known = if version.is_v5() { code.in_connack() } else { code.0 <= 5 };
    if !known {
        return Err(CONNACK_CODE);
    }
    if session_present && code != Reason::SUCCESS {
        return Err(PRESENT_AND_ERROR);
    }
    let props = read_props(r, version, Place::ConnAck)?;
    r.end()?;
    Ok(ConnAck { session_present, code, props })
}

fn ack<'a>(
    r: &mut Reader<'a>,
    version: Version,
    allowed: fn(Reason) -> bool,
    otherwise: Violation,
) -> Result<Ack<'a>, Violation> {
    let packet_id = packet_id(r)?;
    // Two bytes mean success; before MQTT 5 there is nothing else.
    if r.is_empty() || !version.is_v5() {
        r.end()?;
        return Ok(Ack { packet_id, reason: Reason::SUCCESS, props: Props::EMPTY });
    }
    let reason = Reason(r.u8()?);
    if !allowed(reason) {
        return Err(otherwise);
    }
    let props = if r.is_empty() { Props::EMPTY } else { Props::read(r, Place::Ack)? };
    r.end()?;
    Ok(Ack { packet_id, reason, props })
}

fn subscribe<'a>(r: &mut Reader<'a>, version: Version) -> Result<Subscribe<'a>, Violation> {
    let packet_id = packet_id(r)?;
    let props = read_props(r, version, Place::Subscribe)?;
    Ok(Subscribe { packet_id, props, filters: Filters::read(r, version)? })
}

fn unsubscribe<'a>(r: &mut Reader<'a>, version: Version) -> Result<Unsubscribe<'a>, Violation> {
    let packet_id = packet_id(r)?;
    let props = read_props(r, version, Place::Unsubscribe)?;
    Ok(Unsubscribe { packet_id, props, filters: Names::read(r)? })
}

fn suback<'a>(r: &mut Reader<'a>, version: Version) -> Result<SubAck<'a>, Violation> {
    let packet_id = packet_id(r)?;
    let props = read_props(r, version, Place::SubAck)?;
    let known =
        |code: &u8| if version.is_v5() { Reason(*code).in_suback() } else { matches!(code, 0..=2 | 0x80) };
    let codes = codes(r.rest(), known, SUBACK_CODE)?;
    Ok(SubAck { packet_id, props, codes })
}

fn unsuback<'a>(r: &mut Reader<'a>, version: Version) -> Result<SubAck<'a>, Violation> {
    let packet_id = packet_id(r)?;
    if !version.is_v5() {
        r.end()?;
        return Ok(SubAck { packet_id, props: Props::EMPTY, codes: &[] });
    }
    let props = Props::read(r, Place::UnsubAck)?;
    let codes = codes(r.rest(), |code| Reason(*code).in_unsuback(), UNSUBACK_CODE)?;
    Ok(SubAck { packet_id, props, codes })
}

fn codes(codes: &[u8], known: impl Fn(&u8) -> bool, otherwise: Violation) -> Result<&[u8], Violation> {
    if codes.is_empty() {
        return Err(SUBACK_EMPTY);
    }
    if codes.iter().all(known) { Ok(codes) } else { Err(otherwise) }
}

fn disconnect<'a>(r: &mut Reader<'a>, version: Version) -> Result<Disconnect<'a>, Violation> {
    if r.is_empty() || !version.is_v5() {
        r.end()?;
        return Ok(Disconnect { reason: Reason::NORMAL_DISCONNECTION, props: Props::EMPTY });
    }
    let reason = Reason(r.u8()?);
    if !reason.in_disconnect() {
        return Err(DISCONNECT_CODE);
    }
    let props = if r.is_empty() { Props::EMPTY } else { Props::read(r, Place::Disconnect)? };
    r.end()?;
    Ok(Disconnect { reason, props })
}

fn auth<'a>(r: &mut Reader<'a>, version: Version) -> Result<Auth<'a>, Violation> {
    if !version.is_v5() {
        return Err(AUTH_BEFORE_V5);
    }
    // Reason and properties are left out together or not at all (MQTT 5, 3.15.2.1).
    if r.is_empty() {
        return Ok(Auth { reason: Reason::SUCCESS, props: Props::EMPTY });
    }
    let reason = Reason(r.u8()?);
    if !reason.in_auth() {
        return Err(AUTH_CODE);
    }
    let props = Props::read(r, Place::Auth)?;
    r.end()?;
    // Success without properties has no method, in the short form and, so, in this one; else it must be there
    // (3.15.2.2.2).
    let bare = reason == Reason::SUCCESS && props.is_empty();
    if !bare && !props.has(prop_id::AUTH_METHOD) {
        return Err(AUTH_METHOD);
    }
    Ok(Auth { reason, props })
}
