//! The two writers of the hot path: a delivery's PUBLISH without its payload, and acknowledgements.

use super::encode::publish_first_byte;
use super::frame::MAX_REMAINING;
use super::packet::PacketType;
use super::property::prop_id;
use super::reason::Reason;
use super::sink::{put_varint, varint_len};
use super::version::Version;
use super::violation::EncodeError;
use crate::message::QoS;
use alloc::vec::Vec;

/// A PUBLISH to a subscriber, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishHead<'a> {
    /// DUP flag; not written for QoS 0.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// RETAIN flag.
    pub retain: bool,
    /// Topic name; empty where `alias` stands for it.
    pub topic: &'a str,
    /// Packet identifier; not written for QoS 0.
    pub packet_id: u16,
    /// Topic alias.
    pub alias: Option<u16>,
    /// What is left of the message expiry interval, in seconds.
    pub expiry: Option<u32>,
    /// Identifiers of the subscriptions that this copy answers, each 1 to 268,435,455.
    pub sub_ids: &'a [u32],
    /// Raw forwardable properties, see [`super::Props::forwardable`].
    pub props: &'a [u8],
    /// Bytes of the payload that the caller sends behind the head.
    pub payload_len: usize,
}

impl PublishHead<'_> {
    #[inline]
    fn props_len(&self) -> usize {
        let alias = if self.alias.is_some() { 3 } else { 0 };
        let expiry = if self.expiry.is_some() { 5 } else { 0 };
        let ids: usize = self.sub_ids.iter().map(|&id| 1 + varint_len(id as usize)).sum();
        alias + expiry + ids + self.props.len()
    }

    /// Length of the properties and the remaining length.
    #[inline]
    fn lengths(&self, version: Version) -> (usize, usize) {
        let id = if self.qos == QoS::AtMostOnce { 0 } else { 2 };
        let fixed = 2 + self.topic.len() + id + self.payload_len;
        if !version.is_v5() {
            return (0, fixed);
        }
        let props = self.props_len();
        (props, fixed + varint_len(props) + props)
    }
}

/// Bytes of the whole packet, payload included: what the subscriber's maximum packet size is compared with.
#[inline]
#[must_use]
pub fn publish_len(head: &PublishHead<'_>, version: Version) -> usize {
    let (_, remaining) = head.lengths(version);
    1 + varint_len(remaining) + remaining
}

/// Appends everything but the payload. Before MQTT 5 alias, expiry, identifiers and properties are left out.
///
/// # Errors
/// [`EncodeError::TooLong`] for a topic over 65,535 bytes or a packet over 268,435,455; nothing is appended.
#[inline]
pub fn put_publish_head(
    head: &PublishHead<'_>,
    version: Version,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let (props_len, remaining) = head.lengths(version);
    if head.topic.len() > 0xFFFF || remaining > MAX_REMAINING {
        return Err(EncodeError::TooLong);
    }
    out.reserve(5 + remaining - head.payload_len);
    out.push(publish_first_byte(head.dup, head.qos, head.retain));
    put_varint(remaining, out);
    out.extend_from_slice(&(head.topic.len() as u16).to_be_bytes());
    out.extend_from_slice(head.topic.as_bytes());
    if head.qos != QoS::AtMostOnce {
        out.extend_from_slice(&head.packet_id.to_be_bytes());
    }
    if version.is_v5() {
        put_varint(props_len, out);
        if props_len != 0 {
            put_props(head, out);
        }
    }
    Ok(())
}

fn put_props(head: &PublishHead<'_>, out: &mut Vec<u8>) {
    if let Some(alias) = head.alias {
        out.push(prop_id::TOPIC_ALIAS);
        out.extend_from_slice(&alias.to_be_bytes());
    }
    if let Some(expiry) = head.expiry {
        out.push(prop_id::MESSAGE_EXPIRY);
        out.extend_from_slice(&expiry.to_be_bytes());
    }
    for &id in head.sub_ids {
        out.push(prop_id::SUBSCRIPTION_ID);
        put_varint(id as usize, out);
    }
    out.extend_from_slice(head.props);
}

/// Which acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants are the packets' names
pub enum AckKind {
    PubAck,
    PubRec,
    PubRel,
    PubComp,
}

impl AckKind {
    const fn first_byte(self) -> u8 {
        match self {
            AckKind::PubAck => PacketType::PubAck.first_byte(),
            AckKind::PubRec => PacketType::PubRec.first_byte(),
            AckKind::PubRel => PacketType::PubRel.first_byte(),
            AckKind::PubComp => PacketType::PubComp.first_byte(),
        }
    }
}

/// Appends an acknowledgement without properties in its shortest form: four bytes for success and for every
/// reason before MQTT 5, which has no reasons; otherwise five.
#[inline]
pub fn put_ack(kind: AckKind, packet_id: u16, reason: Reason, version: Version, out: &mut Vec<u8>) {
    let [high, low] = packet_id.to_be_bytes();
    if reason == Reason::SUCCESS || !version.is_v5() {
        out.extend_from_slice(&[kind.first_byte(), 2, high, low]);
    } else {
        out.extend_from_slice(&[kind.first_byte(), 3, high, low, reason.0]);
    }
}
