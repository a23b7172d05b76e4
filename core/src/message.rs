//! An application message as it travels inside the broker: immutable, shared behind an `Arc`.

use crate::ids::{SessionUid, TenantId};
use crate::time::Wall;
use alloc::sync::Arc;
use bytes::Bytes;

/// Quality of service of a PUBLISH or the maximum of a subscription (MQTT 5, 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// At most once.
    #[default]
    AtMostOnce = 0,
    /// At least once.
    AtLeastOnce = 1,
    /// Exactly once.
    ExactlyOnce = 2,
}

impl QoS {
    /// The level for its two-bit encoding; `None` for 3.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<QoS> {
        match bits {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }
}

/// One published message. Topic, forwardable properties and payload share a single buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The tenant it belongs to; set by the mount and never by a client.
    pub tenant: TenantId,
    /// QoS it was published with.
    pub qos: QoS,
    /// RETAIN flag it was published with.
    pub retain: bool,
    /// When it expires, from Message Expiry Interval and the time of receipt.
    pub expires: Option<Wall>,
    /// The session that published it: for No Local and for order. Zero for the broker's own.
    pub publisher: SessionUid,
    /// Client kind of the publisher (reserved for retention by kind; 0 until then).
    pub kind: u8,
    topic_len: u16,
    props_len: u32,
    /// topic, forwardable properties, payload, in this order.
    body: Bytes,
}

/// What a [`Message`] is built from.
#[derive(Clone, Copy, Debug)]
pub struct MessageParts<'a> {
    /// See [`Message::tenant`].
    pub tenant: TenantId,
    /// See [`Message::qos`].
    pub qos: QoS,
    /// See [`Message::retain`].
    pub retain: bool,
    /// See [`Message::expires`].
    pub expires: Option<Wall>,
    /// See [`Message::publisher`].
    pub publisher: SessionUid,
    /// The tenant-local topic name, at most 65,535 bytes.
    pub topic: &'a str,
    /// Raw MQTT 5 properties that are forwarded unaltered [MQTT-3.3.2-4, -15, -16, -17, -18, -20].
    pub props: &'a [u8],
    /// Application payload.
    pub payload: &'a [u8],
}

impl Message {
    /// Copies `parts` into one shared allocation.
    #[must_use]
    pub fn new(parts: &MessageParts<'_>) -> Arc<Message> {
        let topic = parts.topic.as_bytes();
        let mut body = alloc::vec::Vec::with_capacity(topic.len() + parts.props.len() + parts.payload.len());
        body.extend_from_slice(topic);
        body.extend_from_slice(parts.props);
        body.extend_from_slice(parts.payload);
        Arc::new(Message {
            tenant: parts.tenant,
            qos: parts.qos,
            retain: parts.retain,
            expires: parts.expires,
            publisher: parts.publisher,
            kind: 0,
            topic_len: topic.len() as u16,
            props_len: parts.props.len() as u32,
            body: Bytes::from(body),
        })
    }

    /// The tenant-local topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        // The bytes came in as `&str`, so they are UTF-8; an empty answer would be a bug of this file.
        core::str::from_utf8(&self.body[..self.topic_len as usize]).unwrap_or_default()
    }

    /// Forwardable MQTT 5 properties, raw and validated.
    #[must_use]
    pub fn props(&self) -> &[u8] {
        &self.body[self.topic_len as usize..self.topic_len as usize + self.props_len as usize]
    }

    /// Application payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.body[self.topic_len as usize + self.props_len as usize..]
    }

    /// The payload as a slice that shares this message's allocation.
    #[must_use]
    pub fn payload_shared(&self) -> Bytes {
        self.body.slice(self.topic_len as usize + self.props_len as usize..)
    }

    /// Bytes of topic, properties and payload: what limits and quotas count.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// True once `now` has reached the expiry [MQTT-3.3.2-5].
    #[must_use]
    pub fn is_expired(&self, now: Wall) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}
