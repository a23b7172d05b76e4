//! Small unlogged messages on their way to another shard: copied behind each other, so that many messages
//! cross with the few allocations of one batch instead of two for each that the other thread must free.

use crate::ids::{SessionUid, TenantId};
use crate::message::{MessageParts, QoS};
use crate::time::Wall;
use alloc::string::String;
use alloc::vec::Vec;

/// Larger messages travel alone and shared, bytes of payload and properties.
pub(crate) const BATCHED_MAX: usize = 4096;
/// A batch leaves when it holds so many bytes.
const FULL_BYTES: usize = 64 * 1024;
/// A batch leaves when it holds so many messages.
const FULL_MESSAGES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tenant: TenantId,
    qos: QoS,
    retain: bool,
    expires: Option<Wall>,
    publisher: SessionUid,
    /// End of its topic in `topics`.
    topic_end: usize,
    /// End of its properties in `bytes`.
    props_end: usize,
    /// End of its payload in `bytes`.
    payload_end: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct RouteBatch {
    topics: String,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl RouteBatch {
    /// Copies a message in.
    pub(crate) fn push(&mut self, parts: &MessageParts<'_>) {
        self.topics.push_str(parts.topic);
        self.bytes.extend_from_slice(parts.props);
        let props_end = self.bytes.len();
        self.bytes.extend_from_slice(parts.payload);
        self.entries.push(Entry {
            tenant: parts.tenant,
            qos: parts.qos,
            retain: parts.retain,
            expires: parts.expires,
            publisher: parts.publisher,
            topic_end: self.topics.len(),
            props_end,
            payload_end: self.bytes.len(),
        });
    }

    /// Nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// It should leave now.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= FULL_MESSAGES || self.bytes.len() + self.topics.len() >= FULL_BYTES
    }

    /// The messages, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MessageParts<'_>> {
        let (mut topic_at, mut at) = (0, 0);
        self.entries.iter().map(move |entry| {
            let parts = MessageParts {
                tenant: entry.tenant,
                qos: entry.qos,
                retain: entry.retain,
                expires: entry.expires,
                publisher: entry.publisher,
                topic: &self.topics[topic_at..entry.topic_end],
                props: &self.bytes[at..entry.props_end],
                payload: &self.bytes[entry.props_end..entry.payload_end],
            };
            topic_at = entry.topic_end;
            at = entry.payload_end;
            parts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RouteBatch;
    use crate::ids::{SessionUid, TenantId};
    use crate::message::{MessageParts, QoS};

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let part = |n: u64, topic, props, payload| MessageParts {
            tenant: TenantId(n as u32),
            qos: QoS::AtLeastOnce,
            retain: n == 2,
            expires: None,
            publisher: SessionUid(n),
            topic,
            props,
            payload,
        };
        let parts = [
            part(1, "a/b", &b""[..], &b"one"[..]),
            part(2, "\u{fc}/x", b"\x01\x01", b""),
            part(3, "c", b"", b"\0\0"),
        ];
        let mut batch = RouteBatch::default();
        parts.iter().for_each(|p| batch.push(p));
        assert_eq!(batch.len(), 3);
        for (out, part) in batch.iter().zip(&parts) {
            assert_eq!(
                (out.tenant, out.retain, out.publisher, out.topic, out.props, out.payload),
                (part.tenant, part.retain, part.publisher, part.topic, part.props, part.payload)
            );
        }
    }
}
